variable "region" {
  description = "AWS region."
  type        = string
  default     = "us-east-1"

  validation {
    condition     = can(regex("^[a-z]{2}(-[a-z]+)+-[0-9]$", var.region))
    error_message = "region: \"${var.region}\" is not a region, as in us-east-1."
  }
}

variable "image" {
  description = "AMI with Weir and cloud-init."
  type        = string
}

variable "cidr" {
  description = "IPv4 network of the VPC whose traffic goes through Weir, /16 to /20."
  type        = string
  default     = "10.10.0.0/16"

  validation {
    condition     = can(cidrnetmask(var.cidr)) && can(regex("/(1[6-9]|20)$", var.cidr))
    error_message = "cidr: \"${var.cidr}\" is no IPv4 network of /16 to /20, as in 10.10.0.0/16."
  }
}
