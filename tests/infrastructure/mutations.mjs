// Faults that the checks must find: `from` occurs once in `file` and is replaced by `to`; a complaint
// of the check must then contain `says`.

const aws = 'config/aws/main.tf';
const azure = 'config/azure/main.tf';
const bicep = 'config/azure/main.bicep';

const fault = (check, file, from, to, says) => ({ check, file, from, to, says });
const inAws = (from, to, says) => fault('terraform config/aws', aws, from, to, says);
const inAzure = (from, to, says) => fault('terraform config/azure', azure, from, to, says);
const inBicep = (from, to, says) => fault(`bicep ${bicep}`, bicep, from, to, says);

export const MUTATIONS = [
  // Terraform: syntax, names, required arguments, types, values, references.
  inAws('port                 = 6081', 'port                 = ', 'Invalid expression'),
  inAws(
    'target_type          = "ip"',
    'target_kind          = "ip"',
    'target_kind: no such argument',
  ),
  inAws('  target_failover {', '  target_failovers {', 'target_failovers: no such argument'),
  inAws('    on_unhealthy      = "rebalance"\n', '', 'on_unhealthy: is required'),
  inAws(
    'on_unhealthy      = "rebalance"',
    'on_unhealthy      = "rebalanced"',
    '"rebalanced" is not allowed',
  ),
  inAws(
    'protocol             = "GENEVE"',
    'protocol             = "GENEV"',
    '"GENEV" is not allowed',
  ),
  inAws('deregistration_delay = 300', 'deregistration_delay = [300]', '[300] is no string'),
  inAws('heartbeat_timeout    = 60', 'heartbeat_timeout    = "a minute"', 'is no number'),
  inAws(
    'autoscaling:EC2_INSTANCE_TERMINATING',
    'autoscaling:EC2_INSTANCE_STOPPING',
    'is not allowed',
  ),
  inAws(
    'http_tokens                 = "required"',
    'http_tokens                 = "on"',
    '"on" is not allowed',
  ),
  inAws(
    'resource "aws_vpc_endpoint_service"',
    'resource "aws_vpc_endpoint_servic"',
    'the provider has no resource of this type',
  ),
  inAws(
    'vpc_id               = aws_vpc.weir.id',
    'vpc_id               = aws_vpc.wier.id',
    'no aws_vpc.wier',
  ),
  inAws(
    'vpc_id               = aws_vpc.weir.id',
    'vpc_id               = aws_vpc.weir.ids',
    'aws_vpc has no attribute ids',
  ),
  inAws(
    'aws_subnet.appliance[zone].cidr_block',
    'aws_subnet.appliance[zone].cidr',
    'aws_subnet has no attribute cidr',
  ),
  inAws(
    'key_name               = var.ssh_key',
    'key_name               = var.ssh_keys',
    'no var.ssh_keys',
  ),
  inAws('key_name               = var.ssh_key\n', '', 'var.ssh_key is not used'),
  inAws(
    'user_data              = base64encode(local.user_data)\n',
    '',
    'local.user_data is not used',
  ),
  fault(
    'terraform config/aws',
    'config/aws/versions.tf',
    '>= 6.0, < 7.0',
    '>= 7.0, < 8.0',
    'excludes 6.',
  ),
  fault(
    'terraform config/aws',
    'config/aws/versions.tf',
    '>= 6.0, < 7.0',
    '>= 6.0',
    'write a range',
  ),
  fault(
    'terraform config/aws',
    'config/aws/alarms.tf',
    '"HealthyHostCount"',
    '"HealthyHosts"',
    'has no metric HealthyHosts',
  ),
  fault(
    'terraform config/aws',
    'config/aws/alarms.tf',
    'TargetGroup  =',
    'Targets  =',
    'has no dimension Targets',
  ),
  fault(
    'terraform config/aws',
    'config/aws/network.tf',
    'nat_gateway_id         =',
    'nat_gateway         =',
    'nat_gateway: no such argument',
  ),
  fault(
    'terraform config/aws',
    'config/aws/outputs.tf',
    '  description = "ID of the appliances\' VPC."\n',
    '',
    'output vpc_id: add a description',
  ),
  fault(
    'terraform config/aws/example',
    'config/aws/example/main.tf',
    '  cluster = "example"\n',
    '',
    'set the variable cluster',
  ),
  fault(
    'terraform config/aws/example',
    'config/aws/example/main.tf',
    'module.weir.service_name',
    'module.weir.service',
    'has no output service',
  ),
  fault(
    'terraform config/aws/example',
    'config/aws/example/main.tf',
    '"GatewayLoadBalancer"',
    '"Gatewayloadbalancer"',
    'is not allowed',
  ),
  inAzure('    identifier = 801\n', '', 'identifier: is required'),
  inAzure(
    'sku                 = "Gateway"',
    'sku                 = "Gatway"',
    '"Gatway" is not allowed',
  ),
  inAzure(
    'protocol                       = "All"',
    'protocol                       = "Any"',
    '"Any" is not allowed',
  ),
  inAzure(
    'enable_ip_forwarding          = true',
    'ip_forwarding_enabled          = true',
    'ip_forwarding_enabled: no such argument',
  ),
  fault(
    'terraform config/azure/example',
    'config/azure/example/main.tf',
    'gateway_load_balancer_frontend_ip_configuration_id =',
    'gateway_load_balancer_frontend_id =',
    'no such argument',
  ),

  // Variables: conditions that accept too much or too little, and messages that do not help.
  fault(
    'validations config/aws',
    'config/aws/variables.tf',
    '(1[6-9]|20)$", var.cidr)',
    '(1[6-9]|2[0-9])$", var.cidr)',
    'accepts "10.0.0.0/21"',
  ),
  fault(
    'validations config/aws',
    'config/aws/variables.tf',
    'var.maximum >= var.minimum',
    'var.maximum > var.minimum',
    'rejects 2',
  ),
  fault(
    'validations config/aws',
    'config/aws/variables.tf',
    'plane: \\"${var.plane}\\" is none',
    'the plane is none',
    'begin the message with its name',
  ),
  fault(
    'validations config/aws',
    'config/aws/variables.tf',
    'plane: \\"${var.plane}\\" is none',
    'plane: the value is none',
    'does not show "kernel"',
  ),
  fault(
    'validations config/aws',
    aws,
    'facts.architecture == "x86_64" && facts',
    'facts',
    'accepts "c7gn.xlarge"',
  ),
  fault(
    'validations config/azure',
    'config/azure/variables.tf',
    '["1", "2", "3"], zone',
    '["1", "2", "3", "4"], zone',
    'accepts ["4"]',
  ),

  // Bicep: syntax, names, required properties, types, values, references, templates.
  inBicep("sku: { name: 'Gateway' }", "sku: { name: 'Gateway'", 'is not Bicep'),
  inBicep("sku: { name: 'Gateway' }", "sku: { name: 'Gatway' }", "'Gatway' is not allowed"),
  inBicep('tunnelInterfaces: [', 'tunnelInterface: [', 'tunnelInterface: no such property'),
  inBicep(
    "{ type: 'External', protocol: 'VXLAN'",
    "{ type: 'Outer', protocol: 'VXLAN'",
    "'Outer' is not allowed",
  ),
  inBicep('intervalInSeconds: 5', "intervalInSeconds: '5'", 'is no number'),
  inBicep('    principalId: identity.properties.principalId\n', '', 'principalId: is required'),
  inBicep("caching: 'ReadOnly'", "caching: 'Readonly'", "'Readonly' is not allowed"),
  inBicep('enableIPForwarding: true', "enableIPForwarding: 'yes'", 'is no boolean'),
  inBicep('loadBalancers@2024-05-01', 'loadBalancers@2024-05-02', 'is not that of the models'),
  inBicep('principalId: identity', 'principalId: identities', 'identities is not declared'),
  inBicep("loadJsonContent('role.json')", "loadJsonContent('roles.json')", 'no file roles.json'),
  inBicep("'\\${prefix}'", "'\\${prefixes}'", 'the placeholder ${prefix} is not replaced'),
  inBicep("@description('Number of appliances.')\n", '', 'appliances: add @description'),
  fault(
    'bicep config/azure/example.bicep',
    'config/azure/example.bicep',
    'gatewayLoadBalancer: {',
    'gatewayLoadbalancer: {',
    'gatewayLoadbalancer: no such property',
  ),
  fault(
    'bicep config/azure/example.bicep',
    'config/azure/example.bicep',
    '    seed: seed\n',
    '',
    'set the parameter seed',
  ),

  // User data and what it contains.
  fault(
    'user data config/aws',
    'config/user-data.yaml',
    '  - path: /etc/weir/services.toml',
    '  - file: /etc/weir/services.toml',
    'cloud-init schema',
  ),
  fault(
    'user data config/aws',
    'config/user-data.yaml',
    '${services}',
    '${service}',
    'placeholders without a value: [service]',
  ),
  fault(
    'user data config/aws',
    'config/user-data.yaml',
    '  - [systemctl, restart, weir.target]\n',
    '',
    'not with a restart of weir.target',
  ),
  fault(
    'user data config/aws',
    'config/user-data.yaml',
    '== "1"]',
    '== "0"]',
    'weir-ingress-device with',
  ),
  fault(
    'user data config/azure',
    'config/user-data.yaml',
    'link set eth1 mtu 1600',
    'link set eth1 mtu 1500',
    'with an MTU of 1500',
  ),
  fault(
    'user data config/azure',
    'config/user-data.yaml',
    '-ge 1600',
    '-ge 16000',
    'with an MTU of 9001',
  ),
  fault(
    'user data config/azure',
    'config/azure/weir.toml',
    '${client_id}',
    'id',
    'values without a placeholder: [client_id]',
  ),
  fault(
    'user data config/web-server.yaml',
    'config/web-server.yaml',
    'runcmd:\n',
    'runcmd: yes\nx:\n',
    'cloud-init schema',
  ),

  // The table of instance types, and statements that several files make.
  fault(
    'instances',
    'config/instances.json',
    '"c6in.xlarge": { "architecture": "x86_64", "vcpus": 4',
    '"c6in.xlarge": { "architecture": "x86_64", "vcpus": 8',
    'vcpus is 8, EC2 says 4',
  ),
  fault(
    'instances',
    'config/instances.json',
    '"c7gn.xlarge": { "architecture": "arm64"',
    '"c7gn.xlarge": { "architecture": "x86_64"',
    'architecture is "x86_64", EC2 says "arm64"',
  ),
  fault(
    'instances',
    'config/instances.json',
    '"c7i.xlarge"',
    '"c7ix.xlarge"',
    'EC2 has no such type',
  ),
  fault(
    'instances',
    'docs/src/reference/instances.md',
    '| `c6in.xlarge` | x86_64 | 4',
    '| `c6in.xlarge` | x86_64 | 8',
    'differs from config/instances.json',
  ),
  fault(
    'instances',
    'config/instances.json',
    '"drivers": ["mlx5", "mana"], "source": "dsv6", "run": "never" },\n    "Standard_D4s_v6"',
    '"drivers": ["mlx5", "mnaa"], "source": "dsv6", "run": "never" },\n    "Standard_D4s_v6"',
    'has no driver mnaa',
  ),
  fault('instances', bicep, "  'Standard_D16s_v6'\n", '', '@allowed is'),
  fault(
    'agreement',
    'config/azure/weir.toml',
    'port = 10801, vni = 801',
    'port = 10802, vni = 801',
    'External tunnel',
  ),
  fault(
    'agreement',
    'config/aws/weir.toml',
    'drain_cap_s = 330',
    'drain_cap_s = 300',
    'is not above 300',
  ),
];
