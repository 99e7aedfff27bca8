output "address" {
  description = "Address of the public load balancer, reached through Weir."
  value       = azurerm_public_ip.web.ip_address
}

output "scale_set_id" {
  description = "ID of Weir's scale set."
  value       = module.weir.scale_set_id
}
