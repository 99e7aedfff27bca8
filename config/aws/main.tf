# A gateway load balancer in front of an Auto Scaling group of appliances that register themselves
# (config/examples/aws.toml, [aws] cluster = var.cluster).
#
# Permissions of the appliances are in policy.json. They permit changes only to resources with the
# same tag weir:cluster as the role: without that tag on the role, AWS denies every change.
# Permissions of operators (`weir cloud exec`, `weir cloud wait`) are in policy-operator.json, for
# users or roles with the same tag, not for appliances. With another aws.tag_prefix, replace `weir`
# in the tags of both files and of this one.
#
#   terraform init
#   terraform apply -var vpc=vpc-... -var 'subnets=["subnet-..."]' -var image=ami-...

variable "vpc" { type = string }
variable "subnets" { type = list(string) }
variable "image" { type = string }
variable "cluster" {
  type    = string
  default = "prod"
}
variable "instance_type" {
  type    = string
  default = "c6in.xlarge" # x86-64: Weir does not support ARM (c7gn and other Graviton families)
}

data "aws_subnet" "each" {
  for_each = toset(var.subnets)
  id       = each.value
}

resource "aws_lb" "weir" {
  name                             = "weir"
  load_balancer_type               = "gateway"
  subnets                          = var.subnets
  enable_cross_zone_load_balancing = true
}

# Target type ip: traffic arrives at the interface that DPDK owns. Both failover attributes are
# rebalance, so that flows of a failed appliance move (Weir deregisters first, then responds 503).
resource "aws_lb_target_group" "weir" {
  name                 = "weir"
  vpc_id               = var.vpc
  port                 = 6081
  protocol             = "GENEVE"
  target_type          = "ip"
  deregistration_delay = 300

  health_check {
    protocol            = "HTTP"
    port                = 8080
    path                = "/"
    interval            = 10
    healthy_threshold   = 2
    unhealthy_threshold = 2
  }

  target_failover {
    on_deregistration = "rebalance"
    on_unhealthy      = "rebalance"
  }

  tags = { "weir:cluster" = var.cluster }
}

resource "aws_lb_listener" "weir" {
  load_balancer_arn = aws_lb.weir.arn

  default_action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.weir.arn
  }
}

# Gateways have no security group: their packets and probes have source addresses of the subnets.
resource "aws_security_group" "ingress" {
  name_prefix = "weir-ingress-"
  vpc_id      = var.vpc

  ingress {
    description = "GENEVE"
    protocol    = "udp"
    from_port   = 6081
    to_port     = 6081
    cidr_blocks = [for subnet in data.aws_subnet.each : subnet.cidr_block]
  }

  ingress {
    description = "Health checks"
    protocol    = "tcp"
    from_port   = 8080
    to_port     = 8080
    cidr_blocks = [for subnet in data.aws_subnet.each : subnet.cidr_block]
  }

  egress {
    protocol    = "-1"
    from_port   = 0
    to_port     = 0
    cidr_blocks = ["0.0.0.0/0"]
  }
}

resource "aws_iam_role" "weir" {
  name_prefix = "weir-"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "ec2.amazonaws.com" }
    }]
  })

  # Compared with the tags of the resources to change: aws:PrincipalTag in policy.json.
  tags = { "weir:cluster" = var.cluster }
}

resource "aws_iam_role_policy" "weir" {
  role   = aws_iam_role.weir.id
  policy = file("${path.module}/policy.json")
}

# For operators: attach it to users or roles with the tag weir:cluster.
resource "aws_iam_policy" "operator" {
  name_prefix = "weir-operator-"
  policy      = file("${path.module}/policy-operator.json")
}

resource "aws_iam_instance_profile" "weir" {
  name_prefix = "weir-"
  role        = aws_iam_role.weir.name
}

resource "aws_launch_template" "weir" {
  name_prefix   = "weir-"
  image_id      = var.image
  instance_type = var.instance_type

  iam_instance_profile {
    arn = aws_iam_instance_profile.weir.arn
  }

  # IMDSv2; one hop suffices for a process on the machine itself.
  metadata_options {
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  network_interfaces {
    device_index = 0
    description  = "management"
  }

  network_interfaces {
    device_index    = 1
    description     = "ingress"
    security_groups = [aws_security_group.ingress.id]
  }
}

resource "aws_autoscaling_group" "weir" {
  name_prefix         = "weir-"
  vpc_zone_identifier = var.subnets
  min_size            = 2
  max_size            = 4

  launch_template {
    id      = aws_launch_template.weir.id
    version = "$Latest"
  }

  # Weir drains, sends heartbeats, and completes the hook when no flow is left.
  initial_lifecycle_hook {
    name                 = "weir-drain"
    lifecycle_transition = "autoscaling:EC2_INSTANCE_TERMINATING"
    heartbeat_timeout    = 60
    default_result       = "CONTINUE"
  }

  tag {
    key                 = "weir:cluster"
    value               = var.cluster
    propagate_at_launch = true
  }
}
