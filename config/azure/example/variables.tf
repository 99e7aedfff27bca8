variable "subscription" {
  description = "ID of the subscription."
  type        = string

  validation {
    condition     = can(regex("^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", var.subscription))
    error_message = "subscription: \"${var.subscription}\" is not a UUID."
  }
}

variable "location" {
  description = "Azure region."
  type        = string
  default     = "eastus"

  validation {
    condition     = can(regex("^[a-z]+[0-9]?$", var.location))
    error_message = "location: \"${var.location}\" is not the name of a region, as in eastus."
  }
}

variable "image" {
  description = "ID of an image with Weir and cloud-init, in the same region."
  type        = string
}

variable "ssh_key" {
  description = "Public key for ssh."
  type        = string
}
