// Checks of a Terraform module against the providers' schemas and the clouds' published models.

import { existsSync } from 'node:fs';
import { basename, join, normalize, relative } from 'node:path';
import {
  EvaluationError,
  UNKNOWN,
  evaluate,
  expressions,
  isDynamic,
  objectItems,
  parseModule,
} from './hcl.mjs';
import { azureValues, serviceValues } from './models.mjs';
import { schema, version } from './provider.mjs';

// Arguments of Terraform itself.
const META = new Set(['count', 'depends_on', 'for_each', 'lifecycle', 'provider', 'provisioner']);
const ROOTS = new Set(['path', 'each', 'self', 'count', 'terraform']);

// Attributes whose values an enumeration of AWS's models (botocore) or Azure's (SDK) lists.
const AWS = (service, shape) => () => serviceValues(service, shape);
const AZURE = name => () => azureValues('network', name);
const VALUES = {
  'aws_lb.load_balancer_type': AWS('elbv2', 'LoadBalancerTypeEnum'),
  'aws_lb_target_group.protocol': AWS('elbv2', 'ProtocolEnum'),
  'aws_lb_target_group.target_type': AWS('elbv2', 'TargetTypeEnum'),
  'aws_lb_target_group.health_check.protocol': AWS('elbv2', 'ProtocolEnum'),
  'aws_lb_target_group.target_failover.on_deregistration': () => ['rebalance', 'no_rebalance'],
  'aws_lb_target_group.target_failover.on_unhealthy': () => ['rebalance', 'no_rebalance'],
  'aws_lb_listener.default_action.type': AWS('elbv2', 'ActionTypeEnum'),
  'aws_launch_template.metadata_options.http_tokens': AWS('ec2', 'LaunchTemplateHttpTokensState'),
  'aws_launch_template.metadata_options.http_endpoint': AWS(
    'ec2',
    'LaunchTemplateInstanceMetadataEndpointState',
  ),
  'aws_launch_template.block_device_mappings.ebs.volume_type': AWS('ec2', 'VolumeType'),
  'aws_launch_template.tag_specifications.resource_type': AWS('ec2', 'ResourceType'),
  'aws_instance.instance_type': AWS('ec2', 'InstanceType'),
  'aws_instance.metadata_options.http_tokens': AWS('ec2', 'HttpTokensState'),
  'aws_vpc_endpoint.vpc_endpoint_type': AWS('ec2', 'VpcEndpointType'),
  'aws_eip.domain': AWS('ec2', 'DomainType'),
  'aws_cloudwatch_metric_alarm.statistic': AWS('cloudwatch', 'Statistic'),
  'aws_cloudwatch_metric_alarm.comparison_operator': AWS('cloudwatch', 'ComparisonOperator'),
  'aws_cloudwatch_metric_alarm.treat_missing_data': () => [
    'breaching',
    'notBreaching',
    'ignore',
    'missing',
  ],
  'aws_autoscaling_group.initial_lifecycle_hook.lifecycle_transition': () => [
    'autoscaling:EC2_INSTANCE_LAUNCHING',
    'autoscaling:EC2_INSTANCE_TERMINATING',
  ],
  'aws_autoscaling_group.initial_lifecycle_hook.default_result': () => ['CONTINUE', 'ABANDON'],
  'azurerm_lb.sku': AZURE('LoadBalancerSkuName'),
  'azurerm_lb_backend_address_pool.tunnel_interface.type': AZURE(
    'GatewayLoadBalancerTunnelInterfaceType',
  ),
  'azurerm_lb_backend_address_pool.tunnel_interface.protocol': AZURE(
    'GatewayLoadBalancerTunnelProtocol',
  ),
  'azurerm_lb_probe.protocol': AZURE('ProbeProtocol'),
  'azurerm_lb_rule.protocol': AZURE('TransportProtocol'),
  'azurerm_nat_gateway.sku_name': AZURE('NatGatewaySkuName'),
  'azurerm_network_security_group.security_rule.protocol': AZURE('SecurityRuleProtocol'),
  'azurerm_network_security_group.security_rule.access': AZURE('SecurityRuleAccess'),
  'azurerm_network_security_group.security_rule.direction': AZURE('SecurityRuleDirection'),
  'azurerm_public_ip.allocation_method': AZURE('IPAllocationMethod'),
  'azurerm_public_ip.sku': AZURE('PublicIPAddressSkuName'),
};

// Metrics by namespace, with their dimensions: "CloudWatch metrics for your Gateway Load Balancer"
// (awsdocs/elb-gateway-load-balancers-user-guide, cloudwatch-metrics.md), and the pages on metrics
// of Amazon EC2 Auto Scaling and of EC2's status checks.
const METRICS = {
  'AWS/GatewayELB': {
    names: [
      'ActiveFlowCount',
      'ConsumedLCUs',
      'HealthyHostCount',
      'NewFlowCount',
      'ProcessedBytes',
      'UnHealthyHostCount',
    ],
    dimensions: ['AvailabilityZone', 'LoadBalancer', 'TargetGroup'],
  },
  'AWS/AutoScaling': { names: ['GroupInServiceInstances'], dimensions: ['AutoScalingGroupName'] },
  'AWS/EC2': { names: ['StatusCheckFailed'], dimensions: ['AutoScalingGroupName', 'InstanceId'] },
};

/** Returns the complaints about the module in `directory` below `root`. */
export async function checkModule(root, directory) {
  const complaints = [];
  let module;
  try {
    module = await parseModule(join(root, directory));
  } catch (error) {
    return [`${directory}: ${error.message ?? error}`.replaceAll(`${root}/`, '')];
  }
  const children = new Map();
  for (const [name, call] of Object.entries(module.modules)) {
    children.set(name, await childOf(module, call));
  }
  const context = { root, module, complaints, children, used: new Set() };
  const complain = (block, text) => complaints.push(`${relative(root, block.$file)}: ${text}`);

  checkTerraform(module, text => complaints.push(`${directory}: ${text}`));
  for (const [name, block] of Object.entries(module.variables)) {
    if (!block.description) complain(block, `variable ${name}: add a description`);
    if (!block.type) complain(block, `variable ${name}: add a type`);
    for (const validation of block.validation ?? []) {
      await checkReferences(context, block, `variable ${name}`, validation);
    }
  }
  for (const [name, block] of Object.entries(module.outputs)) {
    if (!block.description) complain(block, `output ${name}: add a description`);
    await checkReferences(context, block, `output ${name}`, { value: block.value });
  }
  for (const [name, block] of Object.entries(module.locals)) {
    await checkReferences(context, block, `local ${name}`, { value: block.value });
  }
  for (const [name, block] of Object.entries(module.providers)) {
    await checkReferences(context, block, `provider ${name}`, block);
  }
  for (const [kind, table] of [
    ['resource', module.resources],
    ['data', module.data],
  ]) {
    for (const [name, block] of Object.entries(table)) {
      const label = `${kind === 'data' ? 'data.' : ''}${name}`;
      await checkReferences(context, block, label, block);
      const found = schema(kind, block.$type);
      if (!found) {
        complain(block, `${label}: the provider has no ${kind} of this type`);
        continue;
      }
      checkBlock(block, found.attributes, block.$type, text => complain(block, `${label}: ${text}`));
      if (block.$type === 'aws_cloudwatch_metric_alarm') {
        await checkMetric(module, block, text => complain(block, `${label}: ${text}`));
      }
    }
  }
  for (const [name, block] of Object.entries(module.modules)) {
    await checkReferences(context, block, `module ${name}`, block);
    const child = children.get(name);
    if (!child) {
      complain(block, `module ${name}: no directory ${block.source}`);
      continue;
    }
    const given = Object.keys(block).filter(key => !key.startsWith('$') && key !== 'source');
    for (const key of given) {
      if (!child.variables[key])
        complain(block, `module ${name}: ${block.source} has no variable ${key}`);
    }
    for (const [key, variable] of Object.entries(child.variables)) {
      if (!('default' in variable) && !given.includes(key)) {
        complain(block, `module ${name}: set the variable ${key} of ${block.source}`);
      }
    }
  }
  for (const [kind, table] of [
    ['var', module.variables],
    ['local', module.locals],
  ]) {
    for (const [name, block] of Object.entries(table)) {
      if (!context.used.has(`${kind}.${name}`)) complain(block, `${kind}.${name} is not used`);
    }
  }
  return complaints;
}

async function childOf(module, block) {
  const directory = normalize(join(module.directory, block.source));
  return existsSync(directory) ? parseModule(directory) : null;
}

function checkTerraform(module, complain) {
  const settings = module.terraform.at(0) ?? {};
  if (!/^>= \d/.test(settings.required_version ?? '')) complain('set required_version (>= ...)');
  const named = settings.required_providers?.at(0) ?? {};
  const types = [...Object.values(module.resources), ...Object.values(module.data)];
  const used = new Set(types.map(block => block.$type.split('_')[0]));
  for (const provider of used) {
    const range = named[provider]?.version ?? '';
    const [, from, to] = /^>= (\d+)[.\d]*, < (\d+)\.0$/.exec(range) ?? [];
    const known = Number(version(provider).split('.')[0]);
    if (!from) {
      complain(
        `required_providers: write a range for ${provider}, as in ">= ${known}.0, < ${known + 1}.0"`,
      );
    } else if (Number(from) > known || Number(to) <= known) {
      complain(
        `required_providers: ${provider} ${range} excludes ${version(provider)}, the checked one`,
      );
    }
  }
  for (const provider of Object.keys(named)) {
    if (!used.has(provider)) complain(`required_providers: ${provider} is not used`);
  }
}

/** Checks names, required arguments, types and known values of a block. */
function checkBlock(block, attributes, path, complain) {
  const dynamic = block.dynamic ?? {};
  for (const [key, value] of Object.entries(block)) {
    const depth = path.split('.').length;
    if (key.startsWith('$') || key === 'dynamic' || (depth === 1 && META.has(key))) continue;
    const at = `${path}.${key}`;
    const expected = attributes[key];
    if (!expected) {
      complain(`${at}: no such argument; there are ${Object.keys(attributes).sort().join(', ')}`);
    } else if (expected.attributes && Array.isArray(value)) {
      for (const item of value)
        if (typeof item === 'object') checkBlock(item, expected.attributes, at, complain);
    } else if (expected.block) {
      complain(`${at}: is a block; write ${key} { ... }`);
    } else {
      checkValue(value, expected.type, at, complain);
    }
  }
  for (const [key, blocks] of Object.entries(dynamic)) {
    const expected = attributes[key];
    if (!expected?.block) complain(`${path}.${key}: no such block`);
    else
      for (const item of blocks)
        checkBlock(item.content[0], expected.attributes, `${path}.${key}`, complain);
  }
  for (const [key, expected] of Object.entries(attributes)) {
    if (expected.required && !(key in block) && !(key in dynamic))
      complain(`${path}.${key}: is required`);
  }
}

function checkValue(value, type, at, complain) {
  const values = Array.isArray(value) ? value : [value];
  if (isDynamic(value)) return;
  const shown = JSON.stringify(value);
  const scalars = {
    string: ['string', 'number', 'boolean'],
    number: ['number'],
    boolean: ['boolean'],
  };
  if (scalars[type] && !scalars[type].includes(typeof value)) complain(`${at}: ${shown} is no ${type}`);
  if (/List$/.test(type) && !Array.isArray(value)) complain(`${at}: ${shown} is no list`);
  if (/Map$/.test(type) && (typeof value !== 'object' || Array.isArray(value))) {
    complain(`${at}: ${shown} is no map`);
  }
  const allowed = VALUES[at]?.();
  for (const one of allowed ? values : []) {
    if (!isDynamic(one) && !allowed.includes(one)) {
      const some =
        allowed.length > 20 ? `${allowed.slice(0, 20).join(', ')}, ...` : allowed.join(', ');
      complain(`${at}: ${JSON.stringify(one)} is not allowed; allowed are ${some}`);
    }
  }
}

async function checkMetric(module, block, complain) {
  const metrics = METRICS[block.namespace];
  if (!metrics) {
    complain(`namespace ${block.namespace}: no metrics are known; known are ${Object.keys(METRICS)}`);
    return;
  }
  if (!metrics.names.includes(block.metric_name)) {
    complain(`${block.namespace} has no metric ${block.metric_name}; known are ${metrics.names}`);
  }
  const dimensions = await evaluate(block.dimensions, scopeOf(module, {}));
  for (const name of Object.keys(dimensions)) {
    if (!metrics.dimensions.includes(name)) {
      complain(`${block.namespace} has no dimension ${name}; known are ${metrics.dimensions}`);
    }
  }
}

/** Checks that what expressions refer to exists. */
async function checkReferences(context, block, label, value) {
  const { module, complaints, children, root, used } = context;
  const complain = text => complaints.push(`${relative(root, block.$file)}: ${label}: ${text}`);
  const refer = (path, local) => {
    const [first, second, third] = path;
    if (local.has(first) || ROOTS.has(first)) return;
    if (first === 'var' || first === 'local') {
      used.add(`${first}.${second}`);
      if (!module[first === 'var' ? 'variables' : 'locals'][second]) complain(`no ${first}.${second}`);
    } else if (first === 'module') {
      if (!module.modules[second]) complain(`no module.${second}`);
      else if (third && !children.get(second)?.outputs[third])
        complain(`module.${second} has no output ${third}`);
    } else {
      const data = first === 'data';
      const [type, name, attribute] = data ? path.slice(1) : path;
      const table = data ? module.data : module.resources;
      const target = table[`${type}.${name}`];
      if (!target) {
        complain(`no ${data ? 'data.' : ''}${type}.${name}`);
      } else if (attribute !== undefined) {
        const found = schema(data ? 'data' : 'resource', type);
        if (found && !found.readable.has(attribute)) complain(`${type} has no attribute ${attribute}`);
      }
    }
  };
  const plain = node => node.meta.traversal.map(part => part.segment.replace(/^"(.*)"$/, '$1'));
  const walk = (node, local) => {
    if (node.type === 'scopeTraversal') {
      refer(plain(node), local);
    } else if (
      node.type === 'relativeTraversal' &&
      node.children[0].type === 'index' &&
      node.children[0].children[0].type === 'scopeTraversal'
    ) {
      // An attribute of an instance: type.name[key].attribute.
      const base = node.children[0];
      refer([...plain(base.children[0]), ...plain(node)], local);
      walk(base.children[1], local);
    } else if (node.type === 'for') {
      const inner = new Set([...local, node.meta.keyVar, node.meta.valVar]);
      walk(node.children[0], local);
      for (const child of node.children.slice(1)) walk(child, inner);
    } else if (node.type === 'object') {
      for (const { name, key, value } of objectItems(node)) {
        if (name === null) walk(key, local);
        walk(value, local);
      }
    } else {
      for (const child of node.children) walk(child, local);
    }
  };
  await expressions(value, node => walk(node, new Set()));
}

/** Returns a scope for expressions of the module with these values of its variables. */
export function scopeOf(module, given) {
  const variables = {};
  for (const [name, block] of Object.entries(module.variables)) {
    if (name in given) variables[name] = given[name];
    else variables[name] = 'default' in block ? block.default : UNKNOWN;
  }
  const scope = {
    var: variables,
    path: { module: module.directory },
    local: async name => evaluate(module.locals[name].value, scope),
  };
  return scope;
}

/**
 * Evaluates the validations of a module's variables: each with good values, which must pass, and
 * with bad ones, for which the message must name the variable, and the value unless it is secret.
 */
export async function checkValidations(root, directory, values) {
  const module = await parseModule(join(root, directory));
  const complaints = [];
  const failed = async (name, given) => {
    const scope = scopeOf(module, given);
    const messages = [];
    for (const validation of module.variables[name].validation ?? []) {
      if ((await evaluate(validation.condition, scope)) !== true) {
        messages.push(await evaluate(validation.error_message, scope));
      }
    }
    return messages;
  };
  for (const [name, block] of Object.entries(module.variables)) {
    const complain = text => complaints.push(`${directory}: variable ${name}: ${text}`);
    const cases = values[name];
    const count = block.validation?.length ?? 0;
    if (count && !(cases?.good?.length && cases?.bad?.length)) {
      complain('write good and bad values to tests/infrastructure/values.json');
    }
    const good = [...(cases?.good ?? [])];
    if ('default' in block) good.push(block.default);
    for (const value of good) {
      for (const message of await failed(name, { [name]: value })) {
        complain(`rejects ${JSON.stringify(value)}: ${message}`);
      }
    }
    for (const value of cases?.bad ?? []) {
      const messages = await failed(name, { [name]: value });
      const shown =
        typeof value === 'object'
          ? [JSON.stringify(value), ...Object.values(value).flat().map(String)]
          : [String(value)];
      if (!messages.length) {
        complain(`accepts ${JSON.stringify(value)}`);
      } else if (!messages[0].startsWith(`${name}: `)) {
        complain(`begin the message with its name: ${messages[0]}`);
      } else if (
        !block.sensitive &&
        !(value.length > 100) &&
        !shown.some(s => messages[0].includes(s))
      ) {
        complain(`the message does not show ${JSON.stringify(value)}: ${messages[0]}`);
      }
    }
  }
  for (const name of Object.keys(values)) {
    if (!module.variables[name]) complaints.push(`${directory}: values.json: no variable ${name}`);
  }
  return complaints;
}

/**
 * Returns the user data, a text for cloud-init, as the module in `directory` renders it (its local
 * `user_data`). `known` has values of resources that are otherwise unknown before `apply`, by type
 * and name.
 */
export async function renderedConfiguration(root, directory, given, known) {
  const module = await parseModule(join(root, directory));
  const scope = scopeOf(module, given);
  for (const [type, names] of Object.entries(known)) scope[type] = names;
  const text = await scope.local('user_data');
  if (typeof text !== 'string')
    throw new EvaluationError(`${basename(directory)}: user_data is not known`);
  return text;
}
