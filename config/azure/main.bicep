// A gateway load balancer in front of a scale set with Weir; the same as main.tf. example.bicep
// chains a public load balancer to it. The pool is in the scale set's model: Weir verifies it and
// changes nothing. Permissions of the appliances are in role.json.

@description('Name of the gateway and its pool, and prefix of all other names.')
@minLength(1)
@maxLength(20)
param name string = 'weir'

@description('Azure region.')
param location string = resourceGroup().location

@description('IPv4 network of the appliances, /16 to /24.')
param cidr string = '10.1.0.0/16'

@description('Availability zones of the appliances; empty: none, for regions without zones.')
@allowed([ '1', '2', '3' ])
param zones array = [ '1', '2', '3' ]

@description('ID of an image with Weir and cloud-init.')
param image string

@description('Machine size, one of instances.json.')
@allowed([
  'Standard_D2s_v5'
  'Standard_D4s_v5'
  'Standard_D8s_v5'
  'Standard_D16s_v5'
  'Standard_D2s_v6'
  'Standard_D4s_v6'
  'Standard_D8s_v6'
  'Standard_D16s_v6'
])
param size string = 'Standard_D4s_v5'

@description('Number of appliances.')
@minValue(1)
@maxValue(100)
param appliances int = 2

@description('Public key for ssh as the user azureuser.')
param sshKey string

// With another seed, appliances select other backends for the same flows: a later deployment of the
// group must have the same one.
@description('Hash seed of the tables, 12 bytes in base64 (head -c 12 /dev/urandom | base64).')
@minLength(16)
@maxLength(16)
@secure()
param seed string

@description('Services file (TOML). Without services, packets return to the gateway unchanged.')
@maxLength(16384)
param services string = '# No services: packets return to the gateway unchanged.\n'

var prefix = cidrSubnet(cidr, int(split(cidr, '/')[1]) + 2, 0)
var role = loadJsonContent('role.json')
var groupId = resourceGroup().id

var named = replace(replace(loadTextContent('weir.toml'), '\${pool}', name), '\${gateway}', name)
var addressed = replace(replace(named, '\${prefix}', prefix), '\${seed}', seed)
var configuration = replace(addressed, '\${client_id}', identity.properties.clientId)
var template = loadTextContent('../user-data.yaml')
var configured = replace(template, '\${configuration}', base64(configuration))
var userData = replace(configured, '\${services}', base64(services))

resource network 'Microsoft.Network/virtualNetworks@2024-05-01' = {
  name: name
  location: location
  properties: {
    addressSpace: { addressPrefixes: [ cidr ] }
    subnets: [
      {
        name: name
        properties: {
          addressPrefix: prefix
          defaultOutboundAccess: false
          natGateway: { id: nat.id }
          networkSecurityGroup: { id: rules.id }
        }
      }
    ]
  }
}

// Only the gateway's packets and probes are allowed from outside the network.
resource rules 'Microsoft.Network/networkSecurityGroups@2024-05-01' = {
  name: name
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

// Appliances reach Azure Resource Manager through a NAT gateway.
resource natAddress 'Microsoft.Network/publicIPAddresses@2024-05-01' = {
  name: '${name}-nat'
  location: location
  sku: { name: 'Standard' }
  properties: { publicIPAllocationMethod: 'Static' }
}

resource nat 'Microsoft.Network/natGateways@2024-05-01' = {
  name: name
  location: location
  sku: { name: 'Standard' }
  properties: { publicIpAddresses: [ { id: natAddress.id } ] }
}

resource gateway 'Microsoft.Network/loadBalancers@2024-05-01' = {
  name: name
  location: location
  sku: { name: 'Gateway' }
  properties: {
    frontendIPConfigurations: [
      {
        name: name
        properties: { subnet: { id: network.properties.subnets[0].id } }
      }
    ]
    backendAddressPools: [
      {
        name: name
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
        name: name
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
            id: resourceId('Microsoft.Network/loadBalancers/frontendIPConfigurations', name, name)
          }
          backendAddressPools: [
            { id: resourceId('Microsoft.Network/loadBalancers/backendAddressPools', name, name) }
          ]
          probe: { id: resourceId('Microsoft.Network/loadBalancers/probes', name, name) }
        }
      }
    ]
  }
}

resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: name
  location: location
}

resource roleDefinition 'Microsoft.Authorization/roleDefinitions@2022-04-01' = {
  name: guid(groupId, name)
  properties: {
    roleName: 'Weir appliance in ${resourceGroup().name}'
    description: role.Description
    type: 'CustomRole'
    assignableScopes: [ groupId ]
    permissions: [ { actions: role.Actions } ]
  }
}

resource assignment 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(groupId, name, 'assignment')
  properties: {
    roleDefinitionId: roleDefinition.id
    principalId: identity.properties.principalId
    principalType: 'ServicePrincipal'
  }
}

resource scaleSet 'Microsoft.Compute/virtualMachineScaleSets@2024-07-01' = {
  name: name
  location: location
  zones: zones
  sku: { name: size, capacity: appliances }
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: { '${identity.id}': {} }
  }
  properties: {
    orchestrationMode: 'Uniform'
    overprovision: false
    upgradePolicy: { mode: 'Manual' }
    virtualMachineProfile: {
      // Five minutes of notice before termination: Weir drains and acknowledges the event.
      scheduledEventsProfile: {
        terminateNotificationProfile: { enable: true, notBeforeTimeout: 'PT5M' }
      }
      storageProfile: {
        imageReference: { id: image }
        osDisk: {
          createOption: 'FromImage'
          caching: 'ReadOnly'
          managedDisk: { storageAccountType: 'Premium_LRS' }
        }
      }
      osProfile: {
        computerNamePrefix: name
        adminUsername: 'azureuser'
        customData: base64(userData)
        linuxConfiguration: {
          disablePasswordAuthentication: true
          ssh: {
            publicKeys: [
              { path: '/home/azureuser/.ssh/authorized_keys', keyData: sshKey }
            ]
          }
        }
      }
      networkProfile: {
        networkInterfaceConfigurations: [
          {
            name: 'management'
            properties: {
              primary: true
              enableAcceleratedNetworking: true
              ipConfigurations: [
                {
                  name: 'management'
                  properties: { subnet: { id: network.properties.subnets[0].id } }
                }
              ]
            }
          }
          {
            name: 'ingress'
            properties: {
              enableAcceleratedNetworking: true
              enableIPForwarding: true
              ipConfigurations: [
                {
                  name: 'tunnels'
                  properties: {
                    subnet: { id: network.properties.subnets[0].id }
                    loadBalancerBackendAddressPools: [
                      { id: gateway.properties.backendAddressPools[0].id }
                    ]
                  }
                }
              ]
            }
          }
        ]
      }
    }
  }
  dependsOn: [ assignment ]
}

@description('ID of the gateway frontend, to which frontends of public load balancers are chained.')
output frontendId string = gateway.properties.frontendIPConfigurations[0].id

@description('ID of the scale set.')
output scaleSetId string = scaleSet.id
