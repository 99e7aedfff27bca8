// Weir (main.bicep), and a public load balancer that is chained to it, with a web server to try it;
// the same as example/main.tf:
//
//   SEED="$(head -c 12 /dev/urandom | base64)"    # keep it for later deployments
//   az group create --name weir-example --location eastus
//   az deployment group create --resource-group weir-example --template-file example.bicep \
//     --parameters image=/subscriptions/... sshKey="$(cat ~/.ssh/id_ed25519.pub)" \
//     seed="$SEED"

@description('Azure region.')
param location string = resourceGroup().location

@description('ID of an image with Weir and cloud-init, in the same region.')
param image string

@description('Public key for ssh.')
param sshKey string

@description('Hash seed of the tables, 12 bytes in base64; the same in each deployment of a group.')
@minLength(16)
@maxLength(16)
@secure()
param seed string

module weir 'main.bicep' = {
  name: 'weir'
  params: {
    location: location
    image: image
    sshKey: sshKey
    seed: seed
  }
}

resource network 'Microsoft.Network/virtualNetworks@2024-05-01' = {
  name: 'web'
  location: location
  properties: {
    addressSpace: { addressPrefixes: [ '10.2.0.0/24' ] }
    subnets: [
      {
        name: 'web'
        properties: {
          addressPrefix: '10.2.0.0/24'
          defaultOutboundAccess: false
          networkSecurityGroup: { id: rules.id }
        }
      }
    ]
  }
}

resource rules 'Microsoft.Network/networkSecurityGroups@2024-05-01' = {
  name: 'web'
  location: location
  properties: {
    securityRules: [
      {
        name: 'http'
        properties: {
          priority: 100
          direction: 'Inbound'
          access: 'Allow'
          protocol: 'Tcp'
          sourceAddressPrefix: '*'
          sourcePortRange: '*'
          destinationAddressPrefix: '10.2.0.0/24'
          destinationPortRange: '80'
        }
      }
    ]
  }
}

resource publicAddress 'Microsoft.Network/publicIPAddresses@2024-05-01' = {
  name: 'web'
  location: location
  sku: { name: 'Standard' }
  properties: { publicIPAllocationMethod: 'Static' }
}

// The chain: traffic of this frontend goes through the gateway, in both directions.
resource balancer 'Microsoft.Network/loadBalancers@2024-05-01' = {
  name: 'web'
  location: location
  sku: { name: 'Standard' }
  properties: {
    frontendIPConfigurations: [
      {
        name: 'web'
        properties: {
          publicIPAddress: { id: publicAddress.id }
          gatewayLoadBalancer: { id: weir.outputs.frontendId }
        }
      }
    ]
    backendAddressPools: [ { name: 'web' } ]
    probes: [
      {
        name: 'web'
        properties: { protocol: 'Tcp', port: 80, intervalInSeconds: 15, probeThreshold: 1 }
      }
    ]
    loadBalancingRules: [
      {
        name: 'web'
        properties: {
          protocol: 'Tcp'
          frontendPort: 80
          backendPort: 80
          frontendIPConfiguration: {
            id: resourceId('Microsoft.Network/loadBalancers/frontendIPConfigurations', 'web', 'web')
          }
          backendAddressPool: {
            id: resourceId('Microsoft.Network/loadBalancers/backendAddressPools', 'web', 'web')
          }
          probe: { id: resourceId('Microsoft.Network/loadBalancers/probes', 'web', 'web') }
        }
      }
    ]
  }
}

resource interface 'Microsoft.Network/networkInterfaces@2024-05-01' = {
  name: 'web'
  location: location
  properties: {
    ipConfigurations: [
      {
        name: 'web'
        properties: {
          subnet: { id: network.properties.subnets[0].id }
          privateIPAllocationMethod: 'Dynamic'
          loadBalancerBackendAddressPools: [
            { id: balancer.properties.backendAddressPools[0].id }
          ]
        }
      }
    ]
  }
}

resource web 'Microsoft.Compute/virtualMachines@2024-07-01' = {
  name: 'web'
  location: location
  properties: {
    hardwareProfile: { vmSize: 'Standard_D2s_v5' }
    storageProfile: {
      imageReference: { publisher: 'Debian', offer: 'debian-12', sku: '12-gen2', version: 'latest' }
      osDisk: {
        createOption: 'FromImage'
        managedDisk: { storageAccountType: 'Standard_LRS' }
      }
    }
    osProfile: {
      computerName: 'web'
      adminUsername: 'azureuser'
      customData: base64(loadTextContent('../web-server.yaml'))
      linuxConfiguration: {
        disablePasswordAuthentication: true
        ssh: {
          publicKeys: [
            { path: '/home/azureuser/.ssh/authorized_keys', keyData: sshKey }
          ]
        }
      }
    }
    networkProfile: { networkInterfaces: [ { id: interface.id } ] }
  }
}

@description('Address of the public load balancer, reached through Weir.')
output address string = publicAddress.properties.ipAddress
