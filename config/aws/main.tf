# A gateway load balancer in front of an Auto Scaling group of appliances that register themselves,
# and its endpoint service. `example` adds a VPC whose traffic goes through it.
#
# Permissions of the appliances are in policy.json. They permit changes only to resources with the
# same tag weir:cluster as the role: without that tag on the role, AWS denies every change.
# Permissions of operators (`weir cloud exec`, `weir cloud wait`) are in policy-operator.json, for
# users or roles with the same tag, not for appliances. With another aws.tag_prefix, replace `weir`
# in the tags of both files and of this one.

locals {
  instances = jsondecode(file("${path.module}/../instances.json")).aws
  supported_types = [
    for type, facts in local.instances : type
    if facts.architecture == "x86_64" && facts.interfaces >= 2 && facts.cores >= 2
  ]

  tags = { "weir:cluster" = var.cluster }

  # EC2 numbers one CPU of each core first, then their hyper-thread siblings. CPU 0 is left to the
  # system.
  cores  = local.instances[var.instance_type].cores
  lcores = var.lcores == null ? range(1, min(13, local.cores)) : var.lcores

  configuration = templatefile("${path.module}/weir.toml", {
    plane   = var.plane
    lcores  = jsonencode(local.lcores)
    sources = jsonencode([for zone in var.zones : aws_subnet.appliance[zone].cidr_block])
    cluster = var.cluster
    seed    = var.seed
  })
  user_data = templatefile("${path.module}/../user-data.yaml", {
    configuration = base64encode(local.configuration)
    services      = base64encode(var.services)
  })
}

data "aws_ami" "weir" {
  filter {
    name   = "image-id"
    values = [var.image]
  }

  lifecycle {
    postcondition {
      condition     = self.architecture == "x86_64"
      error_message = "image: ${var.image} is for ${self.architecture}; Weir needs x86_64."
    }
  }
}

resource "aws_lb" "weir" {
  name                             = var.name
  load_balancer_type               = "gateway"
  subnets                          = [for zone in var.zones : aws_subnet.appliance[zone].id]
  enable_cross_zone_load_balancing = true
}

# Target type ip: traffic arrives at the interface that Weir owns. Both failover attributes are
# rebalance, so that flows of a failed appliance move (Weir deregisters first, then responds 503).
resource "aws_lb_target_group" "weir" {
  name                 = var.name
  vpc_id               = aws_vpc.weir.id
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

  tags = local.tags
}

resource "aws_lb_listener" "weir" {
  load_balancer_arn = aws_lb.weir.arn

  default_action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.weir.arn
  }
}

resource "aws_vpc_endpoint_service" "weir" {
  acceptance_required        = var.acceptance_required
  allowed_principals         = var.principals
  gateway_load_balancer_arns = [aws_lb.weir.arn]

  tags = { Name = var.name }
}

resource "aws_iam_role" "weir" {
  name_prefix = "${var.name}-"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "ec2.amazonaws.com" }
    }]
  })

  # Compared with the tags of the resources to change: aws:PrincipalTag in policy.json.
  tags = local.tags
}

resource "aws_iam_role_policy" "weir" {
  role   = aws_iam_role.weir.id
  policy = file("${path.module}/policy.json")
}

# For operators: attach it to users or roles with the tag weir:cluster.
resource "aws_iam_policy" "operator" {
  name_prefix = "${var.name}-operator-"
  policy      = file("${path.module}/policy-operator.json")
}

resource "aws_iam_instance_profile" "weir" {
  name_prefix = "${var.name}-"
  role        = aws_iam_role.weir.name
}

resource "aws_launch_template" "weir" {
  name_prefix            = "${var.name}-"
  image_id               = data.aws_ami.weir.id
  instance_type          = var.instance_type
  key_name               = var.ssh_key
  user_data              = base64encode(local.user_data)
  update_default_version = true

  iam_instance_profile {
    arn = aws_iam_instance_profile.weir.arn
  }

  # IMDSv2; one hop suffices for a process on the machine itself.
  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  block_device_mappings {
    device_name = data.aws_ami.weir.root_device_name

    ebs {
      volume_type           = "gp3"
      encrypted             = true
      delete_on_termination = true
    }
  }

  # Weir finds the interfaces by their descriptions. A launch template cannot switch off the
  # source/destination check (hashicorp/terraform-provider-aws issue 29561). Packets of tunnels and
  # of NAT have the interface's own addresses and pass the check. Backends that reply without a
  # tunnel, and ipip_sources, need it off.
  network_interfaces {
    device_index          = 0
    description           = "management"
    delete_on_termination = true
    security_groups       = [aws_security_group.management.id]
  }

  network_interfaces {
    device_index          = 1
    description           = "ingress"
    delete_on_termination = true
    security_groups       = [aws_security_group.ingress.id]
  }

  tag_specifications {
    resource_type = "instance"
    tags          = merge(local.tags, { Name = var.name })
  }

  tag_specifications {
    resource_type = "network-interface"
    tags          = local.tags
  }
}

resource "aws_autoscaling_group" "weir" {
  name_prefix         = "${var.name}-"
  vpc_zone_identifier = [for zone in var.zones : aws_subnet.appliance[zone].id]
  min_size            = var.minimum
  max_size            = var.maximum
  enabled_metrics     = ["GroupInServiceInstances"]

  launch_template {
    id      = aws_launch_template.weir.id
    version = aws_launch_template.weir.latest_version
  }

  # Weir drains, sends heartbeats, and completes the hook when no flow is left or drain_cap_s is
  # over. There is no hook for launches: the gateway sends nothing to an appliance whose health
  # check fails.
  initial_lifecycle_hook {
    name                 = "weir-drain"
    lifecycle_transition = "autoscaling:EC2_INSTANCE_TERMINATING"
    heartbeat_timeout    = 60
    default_result       = "CONTINUE"
  }

  instance_maintenance_policy {
    min_healthy_percentage = 100
    max_healthy_percentage = 200
  }

  tag {
    key                 = "weir:cluster"
    value               = var.cluster
    propagate_at_launch = true
  }

  # Without a route to the APIs, appliances do not register.
  depends_on = [aws_route.appliance, aws_iam_role_policy.weir]
}
