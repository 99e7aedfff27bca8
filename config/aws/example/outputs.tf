output "address" {
  description = "Address of the web server, reached through Weir."
  value       = aws_eip.web.public_ip
}

output "endpoint_id" {
  description = "ID of the gateway endpoint."
  value       = aws_vpc_endpoint.weir.id
}

output "target_group_arn" {
  description = "ARN of Weir's target group; its targets are healthy once appliances serve."
  value       = module.weir.target_group_arn
}
