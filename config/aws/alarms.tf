# Metrics of gateways are reported only while traffic flows: missing data raise no alarm.

locals {
  gateway_dimensions = {
    LoadBalancer = aws_lb.weir.arn_suffix
    TargetGroup  = aws_lb_target_group.weir.arn_suffix
  }
}

resource "aws_cloudwatch_metric_alarm" "unhealthy" {
  alarm_name          = "${var.name}-unhealthy"
  alarm_description   = "An appliance fails its health checks; see weir cloud status on it."
  namespace           = "AWS/GatewayELB"
  metric_name         = "UnHealthyHostCount"
  dimensions          = local.gateway_dimensions
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 5
  threshold           = 0
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.alarm_topics
  ok_actions          = var.alarm_topics
}

resource "aws_cloudwatch_metric_alarm" "few" {
  alarm_name          = "${var.name}-few"
  alarm_description   = "Fewer healthy appliances than the minimum of the group."
  namespace           = "AWS/GatewayELB"
  metric_name         = "HealthyHostCount"
  dimensions          = local.gateway_dimensions
  statistic           = "Minimum"
  period              = 60
  evaluation_periods  = 5
  threshold           = var.minimum
  comparison_operator = "LessThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.alarm_topics
  ok_actions          = var.alarm_topics
}

resource "aws_cloudwatch_metric_alarm" "in_service" {
  alarm_name          = "${var.name}-in-service"
  alarm_description   = "Fewer instances in service than the minimum of the group."
  namespace           = "AWS/AutoScaling"
  metric_name         = "GroupInServiceInstances"
  dimensions          = { AutoScalingGroupName = aws_autoscaling_group.weir.name }
  statistic           = "Minimum"
  period              = 60
  evaluation_periods  = 10
  threshold           = var.minimum
  comparison_operator = "LessThanThreshold"
  treat_missing_data  = "breaching"
  alarm_actions       = var.alarm_topics
  ok_actions          = var.alarm_topics
}

resource "aws_cloudwatch_metric_alarm" "status_check" {
  alarm_name          = "${var.name}-status-check"
  alarm_description   = "An instance or its host fails EC2's status checks."
  namespace           = "AWS/EC2"
  metric_name         = "StatusCheckFailed"
  dimensions          = { AutoScalingGroupName = aws_autoscaling_group.weir.name }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 3
  threshold           = 0
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.alarm_topics
  ok_actions          = var.alarm_topics
}
