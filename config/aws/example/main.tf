# Weir in two zones, and a VPC whose traffic from and to the internet goes through it, with a web
# server to try it:
#
#   terraform init
#   terraform apply -var image=ami-...
#   curl http://$(terraform output -raw address)
#
#   internet gateway <-> endpoint (subnet "edge") <-> web server (subnet "web")
#                           |
#                  gateway load balancer <-> Weir

data "aws_availability_zones" "available" {
  state = "available"

  filter {
    name   = "opt-in-status"
    values = ["opt-in-not-required"]
  }
}

locals {
  zones = slice(data.aws_availability_zones.available.names, 0, 2)
}

resource "random_bytes" "seed" {
  length = 12
}

module "weir" {
  source = "../"

  cluster = "example"
  zones   = local.zones
  image   = var.image
  seed    = random_bytes.seed.base64
}

resource "aws_vpc" "consumer" {
  cidr_block = var.cidr

  tags = { Name = "weir-consumer" }
}

resource "aws_internet_gateway" "consumer" {
  vpc_id = aws_vpc.consumer.id
}

resource "aws_subnet" "edge" {
  vpc_id            = aws_vpc.consumer.id
  availability_zone = local.zones[0]
  cidr_block        = cidrsubnet(var.cidr, 4, 0)

  tags = { Name = "weir-edge" }
}

resource "aws_subnet" "web" {
  vpc_id            = aws_vpc.consumer.id
  availability_zone = local.zones[0]
  cidr_block        = cidrsubnet(var.cidr, 4, 1)

  tags = { Name = "weir-web" }
}

resource "aws_vpc_endpoint" "weir" {
  vpc_id            = aws_vpc.consumer.id
  service_name      = module.weir.service_name
  vpc_endpoint_type = "GatewayLoadBalancer"
  subnet_ids        = [aws_subnet.edge.id]

  tags = { Name = "weir" }
}

# From the internet to the web server: the internet gateway's table leads to the endpoint.
resource "aws_route_table" "internet" {
  vpc_id = aws_vpc.consumer.id

  tags = { Name = "weir-internet" }
}

resource "aws_route" "from_internet" {
  route_table_id         = aws_route_table.internet.id
  destination_cidr_block = aws_subnet.web.cidr_block
  vpc_endpoint_id        = aws_vpc_endpoint.weir.id
}

resource "aws_route_table_association" "internet" {
  gateway_id     = aws_internet_gateway.consumer.id
  route_table_id = aws_route_table.internet.id
}

# From the endpoint to the internet.
resource "aws_route_table" "edge" {
  vpc_id = aws_vpc.consumer.id

  tags = { Name = "weir-edge" }
}

resource "aws_route" "edge" {
  route_table_id         = aws_route_table.edge.id
  destination_cidr_block = "0.0.0.0/0"
  gateway_id             = aws_internet_gateway.consumer.id
}

resource "aws_route_table_association" "edge" {
  subnet_id      = aws_subnet.edge.id
  route_table_id = aws_route_table.edge.id
}

# From the web server to the internet: through the endpoint as well.
resource "aws_route_table" "web" {
  vpc_id = aws_vpc.consumer.id

  tags = { Name = "weir-web" }
}

resource "aws_route" "web" {
  route_table_id         = aws_route_table.web.id
  destination_cidr_block = "0.0.0.0/0"
  vpc_endpoint_id        = aws_vpc_endpoint.weir.id
}

resource "aws_route_table_association" "web" {
  subnet_id      = aws_subnet.web.id
  route_table_id = aws_route_table.web.id
}

# The web server: Debian's own image and Python's server.
data "aws_ami" "debian" {
  most_recent = true
  owners      = ["136693071363"] # Debian

  filter {
    name   = "name"
    values = ["debian-12-amd64-*"]
  }
}

resource "aws_security_group" "web" {
  name_prefix = "weir-web-"
  description = "HTTP to the web server of Weir's example."
  vpc_id      = aws_vpc.consumer.id
}

resource "aws_vpc_security_group_ingress_rule" "web" {
  security_group_id = aws_security_group.web.id
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "tcp"
  from_port         = 80
  to_port           = 80
}

resource "aws_instance" "web" {
  ami                    = data.aws_ami.debian.id
  instance_type          = "t3.micro"
  subnet_id              = aws_subnet.web.id
  vpc_security_group_ids = [aws_security_group.web.id]
  user_data              = file("${path.module}/../../web-server.yaml")

  metadata_options {
    http_tokens = "required"
  }

  root_block_device {
    encrypted = true
  }

  tags = { Name = "weir-web" }
}

resource "aws_eip" "web" {
  instance = aws_instance.web.id
  domain   = "vpc"

  depends_on = [aws_internet_gateway.consumer]
}
