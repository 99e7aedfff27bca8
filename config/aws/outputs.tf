output "service_name" {
  description = "Name of the endpoint service, for aws_vpc_endpoint in other VPCs."
  value       = aws_vpc_endpoint_service.weir.service_name
}

output "vpc_id" {
  description = "ID of the appliances' VPC."
  value       = aws_vpc.weir.id
}

output "target_group_arn" {
  description = "ARN of the target group in which appliances register."
  value       = aws_lb_target_group.weir.arn
}

output "autoscaling_group_name" {
  description = "Name of the Auto Scaling group."
  value       = aws_autoscaling_group.weir.name
}

output "operator_policy_arn" {
  description = "ARN of the policy for operators."
  value       = aws_iam_policy.operator.arn
}
