variable "name" {
  description = "Name of the gateway and its pool, and prefix of all other names."
  type        = string
  default     = "weir"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,19}$", var.name))
    error_message = "name: \"${var.name}\" is not a letter and up to 19 of a-z, 0-9 and -."
  }
}

variable "resource_group" {
  description = "The resource group, as in azurerm_resource_group.NAME."
  type = object({
    id       = string
    name     = string
    location = string
  })

  validation {
    condition     = can(regex("^/subscriptions/[^/]+/resourceGroups/[^/]+$", var.resource_group.id))
    error_message = "resource_group: \"${var.resource_group.id}\" is no ID of a resource group."
  }
}

variable "cidr" {
  description = "IPv4 network of the appliances, /16 to /24."
  type        = string
  default     = "10.1.0.0/16"

  validation {
    condition     = can(cidrnetmask(var.cidr)) && can(regex("/(1[6-9]|2[0-4])$", var.cidr))
    error_message = "cidr: \"${var.cidr}\" is not an IPv4 network of /16 to /24, as in 10.1.0.0/16."
  }
}

variable "zones" {
  description = "Availability zones of the appliances; empty: none, for regions without zones."
  type        = list(string)
  default     = ["1", "2", "3"]

  validation {
    condition = (
      alltrue([for zone in var.zones : contains(["1", "2", "3"], zone)]) &&
      length(distinct(var.zones)) == length(var.zones)
    )
    error_message = "zones: ${jsonencode(var.zones)} is no list of different zones \"1\" to \"3\"."
  }
}

variable "image" {
  description = "ID of an image with Weir and cloud-init."
  type        = string

  validation {
    condition     = can(regex("^/subscriptions/.+/providers/Microsoft.Compute/.+", var.image))
    error_message = "image: \"${var.image}\" is no ID of an image, as in /subscriptions/.../weir."
  }
}

variable "size" {
  description = "Machine size, one of config/instances.json."
  type        = string
  default     = "Standard_D4s_v5"

  validation {
    condition = contains(local.supported_sizes, var.size)
    error_message = join(" ", [
      "size: \"${var.size}\" is not supported; allowed are sizes of config/instances.json with",
      "x86_64 and 2 interfaces: ${join(", ", local.supported_sizes)}.",
    ])
  }
}

variable "appliances" {
  description = "Number of appliances."
  type        = number
  default     = 2

  validation {
    condition = (
      var.appliances >= 1 && var.appliances <= 100 && floor(var.appliances) == var.appliances
    )
    error_message = "appliances: ${var.appliances} is not a whole number from 1 to 100."
  }
}

variable "ssh_key" {
  description = "Public key for ssh as the user azureuser."
  type        = string

  validation {
    condition     = can(regex("^(ssh-rsa|ssh-ed25519) [A-Za-z0-9+/=]+", var.ssh_key))
    error_message = "ssh_key: \"${var.ssh_key}\" is no public key of type ssh-rsa or ssh-ed25519."
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
    condition     = length(var.services) <= 16384
    error_message = "services: ${length(var.services)} characters; custom data has space for 16384."
  }
}
