# The appliances' VPC. In each zone: a public subnet with a NAT gateway, by which appliances reach
# the APIs of AWS, and a subnet with the gateway's node and both interfaces of the appliances (an
# Auto Scaling group launches all interfaces of an instance in one subnet).

locals {
  zones = { for index, zone in var.zones : zone => index }
}

resource "aws_vpc" "weir" {
  cidr_block           = var.cidr
  enable_dns_support   = true
  enable_dns_hostnames = true

  tags = { Name = var.name }
}

resource "aws_internet_gateway" "weir" {
  vpc_id = aws_vpc.weir.id

  tags = { Name = var.name }
}

resource "aws_subnet" "public" {
  for_each          = local.zones
  vpc_id            = aws_vpc.weir.id
  availability_zone = each.key
  cidr_block        = cidrsubnet(var.cidr, 6, each.value)

  tags = { Name = "${var.name}-public-${each.key}" }
}

resource "aws_subnet" "appliance" {
  for_each          = local.zones
  vpc_id            = aws_vpc.weir.id
  availability_zone = each.key
  cidr_block        = cidrsubnet(var.cidr, 6, each.value + 32)

  tags = { Name = "${var.name}-appliance-${each.key}" }
}

resource "aws_eip" "nat" {
  for_each = local.zones
  domain   = "vpc"

  tags = { Name = "${var.name}-nat-${each.key}" }
}

resource "aws_nat_gateway" "weir" {
  for_each      = local.zones
  allocation_id = aws_eip.nat[each.key].id
  subnet_id     = aws_subnet.public[each.key].id

  tags       = { Name = "${var.name}-${each.key}" }
  depends_on = [aws_internet_gateway.weir]
}

resource "aws_route_table" "public" {
  vpc_id = aws_vpc.weir.id

  tags = { Name = "${var.name}-public" }
}

resource "aws_route" "public" {
  route_table_id         = aws_route_table.public.id
  destination_cidr_block = "0.0.0.0/0"
  gateway_id             = aws_internet_gateway.weir.id
}

resource "aws_route_table_association" "public" {
  for_each       = local.zones
  subnet_id      = aws_subnet.public[each.key].id
  route_table_id = aws_route_table.public.id
}

resource "aws_route_table" "appliance" {
  for_each = local.zones
  vpc_id   = aws_vpc.weir.id

  tags = { Name = "${var.name}-appliance-${each.key}" }
}

resource "aws_route" "appliance" {
  for_each               = local.zones
  route_table_id         = aws_route_table.appliance[each.key].id
  destination_cidr_block = "0.0.0.0/0"
  nat_gateway_id         = aws_nat_gateway.weir[each.key].id
}

resource "aws_route_table_association" "appliance" {
  for_each       = local.zones
  subnet_id      = aws_subnet.appliance[each.key].id
  route_table_id = aws_route_table.appliance[each.key].id
}

resource "aws_security_group" "management" {
  name_prefix = "${var.name}-management-"
  description = "Management interfaces of Weir: connections to APIs only."
  vpc_id      = aws_vpc.weir.id
}

# Gateways have no security group: their packets and probes have source addresses of the subnets.
resource "aws_security_group" "ingress" {
  name_prefix = "${var.name}-ingress-"
  description = "Ingress interfaces of Weir: GENEVE and health checks from the gateway."
  vpc_id      = aws_vpc.weir.id
}

resource "aws_vpc_security_group_ingress_rule" "geneve" {
  for_each          = local.zones
  security_group_id = aws_security_group.ingress.id
  description       = "GENEVE from the gateway in ${each.key}"
  cidr_ipv4         = aws_subnet.appliance[each.key].cidr_block
  ip_protocol       = "udp"
  from_port         = 6081
  to_port           = 6081
}

resource "aws_vpc_security_group_ingress_rule" "health" {
  for_each          = local.zones
  security_group_id = aws_security_group.ingress.id
  description       = "Health checks from the gateway in ${each.key}"
  cidr_ipv4         = aws_subnet.appliance[each.key].cidr_block
  ip_protocol       = "tcp"
  from_port         = 8080
  to_port           = 8080
}

resource "aws_vpc_security_group_ingress_rule" "ssh" {
  for_each          = toset(var.ssh_sources)
  security_group_id = aws_security_group.ingress.id
  description       = "ssh from ${each.key}"
  cidr_ipv4         = each.key
  ip_protocol       = "tcp"
  from_port         = 22
  to_port           = 22
}

resource "aws_vpc_security_group_egress_rule" "all" {
  for_each = {
    management = aws_security_group.management.id
    ingress    = aws_security_group.ingress.id
  }
  security_group_id = each.value
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "-1"
}
