# A gateway load balancer in front of a scale set with Weir. `example` chains a public load balancer
# to it. main.bicep deploys the same. The pool is in the scale set's model: Weir verifies it and
# changes nothing. Permissions of the appliances are in role.json.

locals {
  instances = jsondecode(file("${path.module}/../instances.json")).azure
  supported_sizes = [
    for size, facts in local.instances : size
    if facts.architecture == "x86_64" && facts.interfaces >= 2
  ]

  role = jsondecode(file("${path.module}/role.json"))

  configuration = templatefile("${path.module}/weir.toml", {
    pool      = var.name
    gateway   = var.name
    client_id = azurerm_user_assigned_identity.weir.client_id
    prefix    = local.appliance_prefix
    seed      = var.seed
  })
  user_data = templatefile("${path.module}/../user-data.yaml", {
    configuration = base64encode(local.configuration)
    services      = base64encode(var.services)
  })

  appliance_prefix = cidrsubnet(var.cidr, 2, 0)
}

resource "azurerm_virtual_network" "weir" {
  name                = var.name
  resource_group_name = var.resource_group.name
  location            = var.resource_group.location
  address_space       = [var.cidr]
}

resource "azurerm_subnet" "weir" {
  name                            = var.name
  resource_group_name             = var.resource_group.name
  virtual_network_name            = azurerm_virtual_network.weir.name
  address_prefixes                = [local.appliance_prefix]
  default_outbound_access_enabled = false
}

# Only the gateway's packets and probes are allowed from outside the network.
resource "azurerm_network_security_group" "weir" {
  name                = var.name
  resource_group_name = var.resource_group.name
  location            = var.resource_group.location

  security_rule {
    name                       = "tunnels"
    priority                   = 100
    direction                  = "Inbound"
    access                     = "Allow"
    protocol                   = "Udp"
    source_address_prefix      = local.appliance_prefix
    source_port_range          = "*"
    destination_address_prefix = local.appliance_prefix
    destination_port_ranges    = ["10800", "10801"]
  }

  security_rule {
    name                       = "probes"
    priority                   = 110
    direction                  = "Inbound"
    access                     = "Allow"
    protocol                   = "Tcp"
    source_address_prefix      = "AzureLoadBalancer"
    source_port_range          = "*"
    destination_address_prefix = local.appliance_prefix
    destination_port_range     = "8080"
  }
}

resource "azurerm_subnet_network_security_group_association" "weir" {
  subnet_id                 = azurerm_subnet.weir.id
  network_security_group_id = azurerm_network_security_group.weir.id
}

# Appliances reach Azure Resource Manager through a NAT gateway.
resource "azurerm_public_ip" "nat" {
  name                = "${var.name}-nat"
  resource_group_name = var.resource_group.name
  location            = var.resource_group.location
  allocation_method   = "Static"
  sku                 = "Standard"
}

resource "azurerm_nat_gateway" "weir" {
  name                = var.name
  resource_group_name = var.resource_group.name
  location            = var.resource_group.location
  sku_name            = "Standard"
}

resource "azurerm_nat_gateway_public_ip_association" "weir" {
  nat_gateway_id       = azurerm_nat_gateway.weir.id
  public_ip_address_id = azurerm_public_ip.nat.id
}

resource "azurerm_subnet_nat_gateway_association" "weir" {
  subnet_id      = azurerm_subnet.weir.id
  nat_gateway_id = azurerm_nat_gateway.weir.id
}

resource "azurerm_lb" "weir" {
  name                = var.name
  resource_group_name = var.resource_group.name
  location            = var.resource_group.location
  sku                 = "Gateway"

  frontend_ip_configuration {
    name      = var.name
    subnet_id = azurerm_subnet.weir.id
  }
}

resource "azurerm_lb_backend_address_pool" "weir" {
  name            = var.name
  loadbalancer_id = azurerm_lb.weir.id

  tunnel_interface {
    type       = "Internal"
    protocol   = "VXLAN"
    port       = 10800
    identifier = 800
  }

  tunnel_interface {
    type       = "External"
    protocol   = "VXLAN"
    port       = 10801
    identifier = 801
  }
}

# Weir's health endpoint responds 200 only while the appliance is able to serve. It responds 503
# during a drain, so that the gateway sends no new flows.
resource "azurerm_lb_probe" "weir" {
  name                = var.name
  loadbalancer_id     = azurerm_lb.weir.id
  protocol            = "Http"
  port                = 8080
  request_path        = "/"
  interval_in_seconds = 5
  probe_threshold     = 2
}

resource "azurerm_lb_rule" "weir" {
  name                           = "all"
  loadbalancer_id                = azurerm_lb.weir.id
  protocol                       = "All"
  frontend_port                  = 0
  backend_port                   = 0
  idle_timeout_in_minutes        = 4
  frontend_ip_configuration_name = var.name
  backend_address_pool_ids       = [azurerm_lb_backend_address_pool.weir.id]
  probe_id                       = azurerm_lb_probe.weir.id
}

resource "azurerm_user_assigned_identity" "weir" {
  name                = var.name
  resource_group_name = var.resource_group.name
  location            = var.resource_group.location
}

resource "azurerm_role_definition" "weir" {
  name        = "Weir appliance in ${var.resource_group.name}"
  description = local.role.Description
  scope       = var.resource_group.id

  permissions {
    actions = local.role.Actions
  }
}

resource "azurerm_role_assignment" "weir" {
  scope              = var.resource_group.id
  role_definition_id = azurerm_role_definition.weir.role_definition_resource_id
  principal_id       = azurerm_user_assigned_identity.weir.principal_id
  principal_type     = "ServicePrincipal"
}

resource "azurerm_linux_virtual_machine_scale_set" "weir" {
  name                            = var.name
  resource_group_name             = var.resource_group.name
  location                        = var.resource_group.location
  sku                             = var.size
  instances                       = var.appliances
  zones                           = var.zones
  source_image_id                 = var.image
  admin_username                  = "azureuser"
  disable_password_authentication = true
  custom_data                     = base64encode(local.user_data)
  upgrade_mode                    = "Manual"
  overprovision                   = false

  admin_ssh_key {
    username   = "azureuser"
    public_key = var.ssh_key
  }

  os_disk {
    caching              = "ReadOnly"
    storage_account_type = "Premium_LRS"
  }

  identity {
    type         = "UserAssigned"
    identity_ids = [azurerm_user_assigned_identity.weir.id]
  }

  network_interface {
    name                          = "management"
    primary                       = true
    enable_accelerated_networking = true

    ip_configuration {
      name      = "management"
      primary   = true
      subnet_id = azurerm_subnet.weir.id
    }
  }

  network_interface {
    name                          = "ingress"
    enable_accelerated_networking = true
    enable_ip_forwarding          = true

    ip_configuration {
      name                                   = "tunnels"
      primary                                = true
      subnet_id                              = azurerm_subnet.weir.id
      load_balancer_backend_address_pool_ids = [azurerm_lb_backend_address_pool.weir.id]
    }
  }

  # Five minutes of notice before termination: Weir drains and acknowledges the event.
  termination_notification {
    enabled = true
    timeout = "PT5M"
  }

  # Without role and route, appliances cannot read the pool.
  depends_on = [
    azurerm_role_assignment.weir,
    azurerm_subnet_nat_gateway_association.weir,
    azurerm_nat_gateway_public_ip_association.weir,
  ]
}
