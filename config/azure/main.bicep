// A gateway load balancer in front of machines with Weir, which join its pool with their own
// identity (config/examples/azure.toml, [azure] pool = 'weir'). Permissions: role.json.
//
//   az deployment group create -g GROUP --template-file main.bicep \
//     --parameters image=IMAGE_ID sshKey="$(cat ~/.ssh/id_ed25519.pub)"
//
// In a scale set, configure the pool in the model of the set (ipConfigurations[].properties
// .loadBalancerBackendAddressPools); Weir then verifies it and changes nothing.

@description('ID of an image in which Weir is installed.')
param image string
param sshKey string
param location string = resourceGroup().location
param appliances int = 2
@description('Machine size with accelerated networking (MANA or mlx5), which DPDK requires.')
param size string = 'Standard_D4s_v5'

var prefix = '10.1.0.0/24'

resource network 'Microsoft.Network/virtualNetworks@2024-05-01' = {
  name: 'weir'
  location: location
  properties: {
    addressSpace: { addressPrefixes: [ '10.1.0.0/16' ] }
    subnets: [
      {
        name: 'weir'
        properties: {
          addressPrefix: prefix
          networkSecurityGroup: { id: rules.id }
        }
      }
    ]
  }
}

// Only the gateway's packets and probes are allowed from outside the network.
resource rules 'Microsoft.Network/networkSecurityGroups@2024-05-01' = {
  name: 'weir'
  location: location
  properties: {
    securityRules: [
      {
        name: 'tunnels'
        properties: {
          priority: 100
          direction: 'Inbound'
          access: 'Allow'
          protocol: 'Udp'
          sourceAddressPrefix: prefix
          sourcePortRange: '*'
          destinationAddressPrefix: prefix
          destinationPortRanges: [ '10800', '10801' ]
        }
      }
      {
        name: 'probes'
        properties: {
          priority: 110
          direction: 'Inbound'
          access: 'Allow'
          protocol: 'Tcp'
          sourceAddressPrefix: 'AzureLoadBalancer'
          sourcePortRange: '*'
          destinationAddressPrefix: prefix
          destinationPortRange: '8080'
        }
      }
    ]
  }
}

resource gateway 'Microsoft.Network/loadBalancers@2024-05-01' = {
  name: 'weir'
  location: location
  sku: { name: 'Gateway' }
  properties: {
    frontendIPConfigurations: [
      {
        name: 'weir'
        properties: { subnet: { id: network.properties.subnets[0].id } }
      }
    ]
    backendAddressPools: [
      {
        name: 'weir'
        properties: {
          tunnelInterfaces: [
            { type: 'Internal', protocol: 'VXLAN', port: 10800, identifier: 800 }
            { type: 'External', protocol: 'VXLAN', port: 10801, identifier: 801 }
          ]
        }
      }
    ]
    // Weir's health endpoint responds 200 only while the appliance is able to serve. It responds
    // 503 during a drain, so that the gateway sends no new flows.
    probes: [
      {
        name: 'weir'
        properties: {
          protocol: 'Http'
          port: 8080
          requestPath: '/'
          intervalInSeconds: 5
          probeThreshold: 2
        }
      }
    ]
    loadBalancingRules: [
      {
        name: 'all'
        properties: {
          protocol: 'All'
          frontendPort: 0
          backendPort: 0
          idleTimeoutInMinutes: 4
          frontendIPConfiguration: {
            id: resourceId('Microsoft.Network/loadBalancers/frontendIPConfigurations', 'weir', 'weir')
          }
          backendAddressPools: [
            { id: resourceId('Microsoft.Network/loadBalancers/backendAddressPools', 'weir', 'weir') }
          ]
          probe: { id: resourceId('Microsoft.Network/loadBalancers/probes', 'weir', 'weir') }
        }
      }
    ]
  }
}

// The interfaces do not reference the pool: Weir joins it once the appliance is able to serve.
resource interfaces 'Microsoft.Network/networkInterfaces@2024-05-01' = [for i in range(0, appliances): {
  name: 'weir-${i}'
  location: location
  properties: {
    enableAcceleratedNetworking: true
    enableIPForwarding: true
    ipConfigurations: [
      {
        name: 'tunnels'
        properties: { subnet: { id: network.properties.subnets[0].id } }
      }
    ]
  }
}]

resource machines 'Microsoft.Compute/virtualMachines@2024-03-01' = [for i in range(0, appliances): {
  name: 'weir-${i}'
  location: location
  identity: { type: 'SystemAssigned' }
  properties: {
    hardwareProfile: { vmSize: size }
    // Five minutes of notice before termination: Weir drains and acknowledges the event.
    scheduledEventsProfile: {
      terminateNotificationProfile: { enable: true, notBeforeTimeout: 'PT5M' }
    }
    storageProfile: {
      imageReference: { id: image }
      osDisk: { createOption: 'FromImage' }
    }
    osProfile: {
      computerName: 'weir-${i}'
      adminUsername: 'weir'
      linuxConfiguration: {
        disablePasswordAuthentication: true
        ssh: { publicKeys: [ { path: '/home/weir/.ssh/authorized_keys', keyData: sshKey } ] }
      }
    }
    networkProfile: { networkInterfaces: [ { id: interfaces[i].id } ] }
  }
}]

resource role 'Microsoft.Authorization/roleDefinitions@2022-04-01' = {
  name: guid(resourceGroup().id, 'weir')
  properties: {
    roleName: 'Weir appliance in ${resourceGroup().name}'
    description: loadJsonContent('role.json').Description
    type: 'CustomRole'
    assignableScopes: [ resourceGroup().id ]
    permissions: [ { actions: loadJsonContent('role.json').Actions } ]
  }
}

resource assignments 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for i in range(0, appliances): {
  name: guid(resourceGroup().id, 'weir-${i}')
  properties: {
    roleDefinitionId: role.id
    principalId: machines[i].identity.principalId
    principalType: 'ServicePrincipal'
  }
}]
