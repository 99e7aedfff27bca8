output "frontend_id" {
  description = "ID of the gateway's frontend, to which public frontends are chained."
  value       = azurerm_lb.weir.frontend_ip_configuration[0].id
}

output "load_balancer_id" {
  description = "ID of the gateway load balancer."
  value       = azurerm_lb.weir.id
}

output "scale_set_id" {
  description = "ID of the scale set."
  value       = azurerm_linux_virtual_machine_scale_set.weir.id
}
