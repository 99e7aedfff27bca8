# Weir, and a public load balancer that is chained to it, with a web server to try it:
#
#   terraform init
#   terraform apply -var subscription=... -var image=/subscriptions/... \
#     -var ssh_key="$(cat ~/.ssh/id_ed25519.pub)"
#   curl http://$(terraform output -raw address)
#
#   client <-> public load balancer <-> web server
#                      |
#            gateway load balancer <-> Weir

resource "azurerm_resource_group" "weir" {
  name     = "weir-example"
  location = var.location
}

resource "random_bytes" "seed" {
  length = 12
}

module "weir" {
  source = "../"

  resource_group = azurerm_resource_group.weir
  image          = var.image
  ssh_key        = var.ssh_key
  seed           = random_bytes.seed.base64
}

resource "azurerm_virtual_network" "web" {
  name                = "web"
  resource_group_name = azurerm_resource_group.weir.name
  location            = azurerm_resource_group.weir.location
  address_space       = ["10.2.0.0/24"]
}

resource "azurerm_subnet" "web" {
  name                            = "web"
  resource_group_name             = azurerm_resource_group.weir.name
  virtual_network_name            = azurerm_virtual_network.web.name
  address_prefixes                = ["10.2.0.0/24"]
  default_outbound_access_enabled = false
}

resource "azurerm_network_security_group" "web" {
  name                = "web"
  resource_group_name = azurerm_resource_group.weir.name
  location            = azurerm_resource_group.weir.location

  security_rule {
    name                       = "http"
    priority                   = 100
    direction                  = "Inbound"
    access                     = "Allow"
    protocol                   = "Tcp"
    source_address_prefix      = "*"
    source_port_range          = "*"
    destination_address_prefix = "10.2.0.0/24"
    destination_port_range     = "80"
  }
}

resource "azurerm_subnet_network_security_group_association" "web" {
  subnet_id                 = azurerm_subnet.web.id
  network_security_group_id = azurerm_network_security_group.web.id
}

resource "azurerm_public_ip" "web" {
  name                = "web"
  resource_group_name = azurerm_resource_group.weir.name
  location            = azurerm_resource_group.weir.location
  allocation_method   = "Static"
  sku                 = "Standard"
}

# The chain: traffic of this frontend goes through the gateway, in both directions.
resource "azurerm_lb" "web" {
  name                = "web"
  resource_group_name = azurerm_resource_group.weir.name
  location            = azurerm_resource_group.weir.location
  sku                 = "Standard"

  frontend_ip_configuration {
    name                                               = "web"
    public_ip_address_id                               = azurerm_public_ip.web.id
    gateway_load_balancer_frontend_ip_configuration_id = module.weir.frontend_id
  }
}

resource "azurerm_lb_backend_address_pool" "web" {
  name            = "web"
  loadbalancer_id = azurerm_lb.web.id
}

resource "azurerm_lb_probe" "web" {
  name            = "web"
  loadbalancer_id = azurerm_lb.web.id
  protocol        = "Tcp"
  port            = 80
}

resource "azurerm_lb_rule" "web" {
  name                           = "web"
  loadbalancer_id                = azurerm_lb.web.id
  protocol                       = "Tcp"
  frontend_port                  = 80
  backend_port                   = 80
  frontend_ip_configuration_name = "web"
  backend_address_pool_ids       = [azurerm_lb_backend_address_pool.web.id]
  probe_id                       = azurerm_lb_probe.web.id
}

resource "azurerm_network_interface" "web" {
  name                = "web"
  resource_group_name = azurerm_resource_group.weir.name
  location            = azurerm_resource_group.weir.location

  ip_configuration {
    name                          = "web"
    subnet_id                     = azurerm_subnet.web.id
    private_ip_address_allocation = "Dynamic"
  }
}

resource "azurerm_network_interface_backend_address_pool_association" "web" {
  network_interface_id    = azurerm_network_interface.web.id
  ip_configuration_name   = "web"
  backend_address_pool_id = azurerm_lb_backend_address_pool.web.id
}

resource "azurerm_linux_virtual_machine" "web" {
  name                  = "web"
  resource_group_name   = azurerm_resource_group.weir.name
  location              = azurerm_resource_group.weir.location
  size                  = "Standard_D2s_v5"
  admin_username        = "azureuser"
  network_interface_ids = [azurerm_network_interface.web.id]
  custom_data           = base64encode(file("${path.module}/../../web-server.yaml"))

  admin_ssh_key {
    username   = "azureuser"
    public_key = var.ssh_key
  }

  os_disk {
    caching              = "ReadWrite"
    storage_account_type = "Standard_LRS"
  }

  source_image_reference {
    publisher = "Debian"
    offer     = "debian-12"
    sku       = "12-gen2"
    version   = "latest"
  }
}
