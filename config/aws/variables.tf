variable "name" {
  description = "Prefix of the names of all resources."
  type        = string
  default     = "weir"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,19}$", var.name))
    error_message = "name: \"${var.name}\" is not a letter and up to 19 of a-z, 0-9 and -."
  }
}

variable "cluster" {
  description = "Value of the tag weir:cluster, by which appliances find their target group."
  type        = string

  validation {
    condition     = can(regex("^[A-Za-z0-9._-]{1,63}$", var.cluster))
    error_message = "cluster: \"${var.cluster}\" is not 1 to 63 of A-Z, a-z, 0-9, '.', '_' and '-'."
  }
}

variable "cidr" {
  description = "IPv4 network of the appliances' VPC, /16 to /20."
  type        = string
  default     = "10.0.0.0/16"

  validation {
    condition = (
      can(cidrnetmask(var.cidr)) &&
      can(regex("/(1[6-9]|20)$", var.cidr))
    )
    error_message = "cidr: \"${var.cidr}\" is not an IPv4 network of /16 to /20, as in 10.0.0.0/16."
  }
}

variable "zones" {
  description = "Availability zones, 1 to 6: each has a gateway node and appliances."
  type        = list(string)

  validation {
    condition = (
      length(var.zones) >= 1 && length(var.zones) <= 6 &&
      length(distinct(var.zones)) == length(var.zones)
    )
    error_message = "zones: ${jsonencode(var.zones)} is not a list of 1 to 6 different zones."
  }
}

variable "image" {
  description = "AMI with Weir and cloud-init, x86-64."
  type        = string

  validation {
    condition     = can(regex("^ami-([0-9a-f]{8}|[0-9a-f]{17})$", var.image))
    error_message = "image: \"${var.image}\" is not the ID of an AMI, as in ami-0123456789abcdef0."
  }
}

variable "instance_type" {
  description = "Instance type, one of config/instances.json that Weir supports."
  type        = string
  default     = "c6in.xlarge"

  validation {
    condition     = contains(local.supported_types, var.instance_type)
    error_message = join(" ", [
      "instance_type: \"${var.instance_type}\"",
      try(join(" ", [
        "has architecture ${local.instances[var.instance_type].architecture},",
        "${local.instances[var.instance_type].cores} cores,",
        "${local.instances[var.instance_type].interfaces} interfaces;",
      ]), "is not in config/instances.json;"),
      "allowed are types with x86_64, 2 cores and 2 interfaces:",
      "${join(", ", local.supported_types)}.",
    ])
  }
}

variable "minimum" {
  description = "Smallest number of appliances."
  type        = number
  default     = 2

  validation {
    condition     = var.minimum >= 1 && floor(var.minimum) == var.minimum
    error_message = "minimum: ${var.minimum} is not a whole number of at least 1."
  }
}

variable "maximum" {
  description = "Largest number of appliances; at least `minimum`."
  type        = number
  default     = 4

  validation {
    condition     = var.maximum >= var.minimum && floor(var.maximum) == var.maximum
    error_message = "maximum: ${var.maximum} is no whole number, or below minimum (${var.minimum})."
  }
}

variable "plane" {
  description = "Data plane: auto, dpdk or xdp."
  type        = string
  default     = "auto"

  validation {
    condition     = contains(["auto", "dpdk", "xdp"], var.plane)
    error_message = "plane: \"${var.plane}\" is none of auto, dpdk, xdp."
  }
}

variable "lcores" {
  description = "CPUs that poll; null: one of each core but the first."
  type        = list(number)
  default     = null

  validation {
    condition = var.lcores == null ? true : (
      length(var.lcores) >= 1 && length(var.lcores) <= 12 && !contains(var.lcores, 0)
    )
    error_message = "lcores: ${jsonencode(var.lcores)} is not 1 to 12 CPUs without CPU 0."
  }
}

variable "seed" {
  description = "Hash seed of the tables, 12 bytes in base64 (head -c 12 /dev/urandom | base64)."
  type        = string
  sensitive   = true

  validation {
    condition     = can(regex("^[A-Za-z0-9+/]{16}$", var.seed))
    error_message = "seed: the value (secret, so not shown) is not 12 bytes in base64."
  }
}

variable "services" {
  description = "Services file (TOML). Without services, packets return to the gateway unchanged."
  type        = string
  default     = "# No services: packets return to the gateway unchanged.\n"

  validation {
    condition     = length(var.services) <= 8192
    error_message = "services: ${length(var.services)} characters; user data has space for 8192."
  }
}

variable "principals" {
  description = "ARNs of the AWS principals that may connect endpoints from other accounts."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for arn in var.principals : startswith(arn, "arn:")])
    error_message = "principals: ${jsonencode(var.principals)} has an entry that is not an ARN."
  }
}

variable "acceptance_required" {
  description = "Whether connections of endpoints wait for your acceptance."
  type        = bool
  default     = false
}

variable "ssh_sources" {
  description = "IPv4 networks that may use ssh to the ingress interfaces."
  type        = list(string)
  default     = []

  validation {
    condition = alltrue([
      for net in var.ssh_sources : can(cidrnetmask(net)) && net != "0.0.0.0/0"
    ])
    error_message = join(" ", [
      "ssh_sources: ${jsonencode(var.ssh_sources)} has an entry that is no IPv4 network, or is",
      "0.0.0.0/0; write networks as in 10.0.0.0/8.",
    ])
  }
}

variable "ssh_key" {
  description = "Name of an EC2 key pair; null: none."
  type        = string
  default     = null
}

variable "alarm_topics" {
  description = "ARNs of SNS topics that alarms notify; empty: alarms only change their state."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for arn in var.alarm_topics : can(regex("^arn:[a-z-]+:sns:", arn))])
    error_message = "alarm_topics: ${jsonencode(var.alarm_topics)} has one that is no SNS topic."
  }
}
