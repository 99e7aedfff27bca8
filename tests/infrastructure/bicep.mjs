// Checks of Bicep files: Bicep's grammar (tree-sitter), and the models of Azure's SDKs.
//
// Microsoft's compiler is in no registry that this project uses, so that types of expressions are
// not checked; names, required properties, literals and references are.

import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { createRequire } from 'node:module';
import { Language, Parser } from 'web-tree-sitter';
import { placeholders } from './hcl.mjs';
import { azureHasVersion, azureMappers, azurePropertyType, azureValues } from './models.mjs';

const require = createRequire(import.meta.url);

// For each type of resource: the SDK, its type there, and the version of the API, which must be that
// of the SDK.
const TYPES = {
  'Microsoft.Network/loadBalancers': ['network', 'LoadBalancer', '2024-05-01'],
  'Microsoft.Network/natGateways': ['network', 'NatGateway', '2024-05-01'],
  'Microsoft.Network/networkInterfaces': ['network', 'NetworkInterface', '2024-05-01'],
  'Microsoft.Network/networkSecurityGroups': ['network', 'NetworkSecurityGroup', '2024-05-01'],
  'Microsoft.Network/publicIPAddresses': ['network', 'PublicIPAddress', '2024-05-01'],
  'Microsoft.Network/virtualNetworks': ['network', 'VirtualNetwork', '2024-05-01'],
  'Microsoft.Compute/virtualMachines': ['compute', 'VirtualMachine', '2024-07-01'],
  'Microsoft.Compute/virtualMachineScaleSets': ['compute', 'VirtualMachineScaleSet', '2024-07-01'],
  'Microsoft.ManagedIdentity/userAssignedIdentities': ['msi', 'Identity', '2023-01-31'],
  'Microsoft.Authorization/roleDefinitions': ['authorization', 'RoleDefinition', '2022-04-01'],
  'Microsoft.Authorization/roleAssignments': [
    'authorization',
    'RoleAssignmentCreateParameters',
    '2022-04-01',
  ],
};
// Enumerations of the SDKs that Azure extends without a new version of the API.
const OPEN = new Set(['VirtualMachineSizeTypes']);
// Properties of every resource that Bicep itself defines, or that mark a resource's name.
const OWN = new Set(['name', 'dependsOn', 'parent', 'scope']);
const FUNCTIONS = new Set([
  'base64',
  'cidrSubnet',
  'guid',
  'int',
  'loadJsonContent',
  'loadTextContent',
  'replace',
  'resourceGroup',
  'resourceId',
  'split',
]);
const DECORATORS = new Set([
  'allowed',
  'description',
  'maxLength',
  'maxValue',
  'minLength',
  'minValue',
  'secure',
]);

let parser;

async function parsed(path) {
  if (!parser) {
    await Parser.init();
    parser = new Parser();
    const grammar = join(
      dirname(require.resolve('tree-sitter-bicep/package.json')),
      'tree-sitter-bicep.wasm',
    );
    parser.setLanguage(await Language.load(grammar));
  }
  return parser.parse(readFileSync(path, 'utf8')).rootNode;
}

const named = node => node.namedChildren.filter(child => child.type !== 'comment');

/** The declarations of a file: { kind, name, node, decorators, type, value }. */
function declarations(tree) {
  const all = [];
  let decorators = [];
  for (const node of named(tree)) {
    if (node.type === 'decorators') {
      decorators = named(node).map(one => {
        const call = named(one)[0];
        return { name: call.childForFieldName('function').text, call };
      });
      continue;
    }
    const [identifier, ...rest] = named(node);
    all.push({
      kind: node.type.replace('_declaration', ''),
      name: identifier.text,
      node,
      decorators,
      type: rest[0]?.type === 'string' ? literal(rest[0]) : rest[0]?.text,
      value: rest.at(-1),
    });
    decorators = [];
  }
  return all;
}

/** The value of a literal, or undefined for an expression. */
function literal(node) {
  if (node.type === 'boolean') return node.text === 'true';
  if (node.type === 'number') return Number(node.text);
  if (node.type === 'string' && named(node).every(child => child.type !== 'interpolation')) {
    return node.text.slice(1, -1).replaceAll('\\${', '${').replaceAll('\\n', '\n');
  }
  return undefined;
}

function properties(node) {
  const out = new Map();
  for (const property of named(node).filter(child => child.type === 'object_property')) {
    const [key, value] = named(property);
    out.set(key.type === 'identifier' ? key.text : key.text.slice(1, -1), { key, value });
  }
  return out;
}

function nodes(node, type, out = []) {
  if (node.type === type) out.push(node);
  for (const child of node.children) nodes(child, type, out);
  return out;
}

/** Returns the complaints about a file below `root`. */
export async function checkBicep(root, file) {
  const complaints = [];
  const path = join(root, file);
  const tree = await parsed(path);
  const complain = (node, text) =>
    complaints.push(`${file}:${node.startPosition.row + 1}: ${text}`);
  if (tree.hasError) {
    const faults = nodes(tree, 'ERROR');
    complain(faults[0] ?? tree, 'is not Bicep: syntax error');
    return complaints;
  }
  const all = declarations(tree);
  const names = new Map();
  for (const one of all) {
    if (names.has(one.name)) complain(one.node, `${one.name} is declared twice`);
    names.set(one.name, one);
  }
  const used = new Set();
  for (const one of all) {
    for (const decorator of one.decorators) {
      if (!DECORATORS.has(decorator.name)) complain(one.node, `no decorator @${decorator.name}`);
    }
    const described = one.decorators.some(decorator => decorator.name === 'description');
    if (['parameter', 'output'].includes(one.kind) && !described) {
      complain(one.node, `${one.name}: add @description`);
    }
    checkReferences(one, names, used, complain);
    checkFiles(one, dirname(path), complain);
    if (one.kind === 'resource') await checkResource(one, complain);
    if (one.kind === 'module') await checkModuleCall(one, dirname(path), complain);
  }
  for (const one of all) {
    if (['parameter', 'variable'].includes(one.kind) && !used.has(one.name)) {
      complain(one.node, `${one.kind} ${one.name} is not used`);
    }
  }
  return complaints;
}

function checkReferences(one, names, used, complain) {
  const walk = (node, skip) => {
    for (const child of named(node)) {
      if (child.type === 'identifier') {
        if (child.id === skip?.id) continue;
        used.add(child.text);
        if (!names.has(child.text)) complain(child, `${child.text} is not declared`);
      } else if (child.type === 'call_expression') {
        const name = child.childForFieldName('function');
        if (!FUNCTIONS.has(name.text))
          complain(child, `no function ${name.text} is known to this check`);
        walk(child.childForFieldName('arguments'));
      } else if (child.type === 'object_property') {
        const [key, value] = named(child);
        if (key.type !== 'identifier') walk(key);
        // The value may be an identifier itself, so that its parent is walked without the key.
        walk(child, key.type === 'identifier' ? key : undefined);
        if (!value) complain(child, `${key.text}: no value`);
      } else if (child.type === 'type') {
        if (!['string', 'int', 'bool', 'array', 'object'].includes(child.text)) {
          complain(child, `no type ${child.text}`);
        }
      } else {
        walk(child);
      }
    }
  };
  const [identifier] = named(one.node);
  walk(one.node, identifier);
}

function checkFiles(one, directory, complain) {
  for (const call of nodes(one.node, 'call_expression')) {
    const name = call.childForFieldName('function').text;
    if (name !== 'loadTextContent' && name !== 'loadJsonContent') continue;
    const file = literal(named(call.childForFieldName('arguments'))[0]);
    if (!existsSync(join(directory, file))) complain(call, `${name}: no file ${file}`);
    else if (name === 'loadJsonContent') JSON.parse(readFileSync(join(directory, file), 'utf8'));
  }
}

async function checkResource(one, complain) {
  const [type, version] = one.type.split('@');
  const [sdk, model, known] = TYPES[type] ?? [];
  if (!sdk) {
    complain(one.node, `no model of ${type} is known; known are ${Object.keys(TYPES).join(', ')}`);
  } else if (version !== known || !azureHasVersion(sdk, known)) {
    complain(one.node, `${type}: version ${version} is not that of the models (${known})`);
  } else {
    await checkObject(sdk, model, one.value, type, complain, true);
  }
}

/** Checks an object against a type of an SDK, whose names on the wire may contain `properties.`. */
async function checkObject(sdk, model, node, at, complain, top = false) {
  if (node.type !== 'object') return;
  const mapper = (await azureMappers(sdk))[model];
  if (!mapper) throw new Error(`the SDK ${sdk} has no type ${model}`);
  const tree = { children: new Map() };
  for (const [key, property] of Object.entries(mapper.type.modelProperties)) {
    let entry = tree;
    for (const part of property.serializedName.split('.')) {
      if (!entry.children.has(part)) entry.children.set(part, { children: new Map() });
      entry = entry.children.get(part);
    }
    Object.assign(entry, { property, key });
  }
  await checkProperties(sdk, model, tree, node, at, complain, top);
}

async function checkProperties(sdk, model, tree, node, at, complain, top) {
  const found = properties(node);
  for (const [name, { key, value }] of found) {
    const entry = tree.children.get(name);
    if (top && OWN.has(name)) continue;
    if (!entry) {
      complain(
        key,
        `${at}.${name}: no such property; there are ${[...tree.children.keys()].sort().join(', ')}`,
      );
    } else if (!entry.property) {
      if (value.type === 'object') {
        await checkProperties(sdk, model, entry, value, `${at}.${name}`, complain, false);
      }
    } else if (entry.property.readOnly) {
      complain(key, `${at}.${name}: is read-only`);
    } else {
      const type = azurePropertyType(sdk, model, entry.key);
      await checkValue(sdk, entry.property.type, type, value, `${at}.${name}`, complain);
    }
  }
  for (const [name, entry] of tree.children) {
    const required = entry.property?.required && !entry.property.readOnly;
    if (required && !found.has(name)) complain(node, `${at}.${name}: is required`);
  }
}

async function checkValue(sdk, type, declared, node, at, complain) {
  if (type.name === 'Composite') {
    if (literal(node) !== undefined || node.type === 'array') complain(node, `${at}: is no object`);
    await checkObject(sdk, type.className, node, at, complain);
  } else if (type.name === 'Sequence') {
    if (literal(node) !== undefined || node.type === 'object') complain(node, `${at}: is no array`);
    if (node.type === 'array') {
      for (const item of named(node)) {
        await checkValue(sdk, type.element.type, null, item, at, complain);
      }
    }
  } else {
    const value = literal(node);
    const wrong = type.name === 'Dictionary' ? ['array'] : ['array', 'object'];
    if (wrong.includes(node.type)) complain(node, `${at}: is no ${type.name}`);
    if (value === undefined) return;
    const kind = { String: 'string', Enum: 'string', Number: 'number', Boolean: 'boolean' }[
      type.name
    ];
    if (kind && typeof value !== kind) complain(node, `${at}: ${node.text} is no ${kind}`);
    const allowed =
      type.allowedValues ?? (declared && !OPEN.has(declared) ? azureValues(sdk, declared) : null);
    if (allowed && !allowed.includes(value)) {
      complain(node, `${at}: ${node.text} is not allowed; allowed are ${allowed.join(', ')}`);
    }
  }
}

async function checkModuleCall(one, directory, complain) {
  const path = join(directory, one.type);
  if (!existsSync(path)) {
    complain(one.node, `no file ${one.type}`);
    return;
  }
  const inner = declarations(await parsed(path)).filter(decl => decl.kind === 'parameter');
  const given = properties(properties(one.value).get('params').value);
  for (const name of given.keys()) {
    if (!inner.some(decl => decl.name === name))
      complain(one.node, `${one.type} has no parameter ${name}`);
  }
  for (const decl of inner) {
    // A parameter without a default has no value after its type.
    const required = !decl.value || decl.value.type === 'type';
    if (required && !given.has(decl.name))
      complain(one.node, `set the parameter ${decl.name} of ${one.type}`);
  }
}

/** The values of `@allowed` of a parameter. */
export async function allowedValues(root, file, parameter) {
  const found = declarations(await parsed(join(root, file))).find(one => one.name === parameter);
  const allowed = found?.decorators.find(decorator => decorator.name === 'allowed');
  if (!allowed) return [];
  return named(named(allowed.call.childForFieldName('arguments'))[0]).map(literal);
}

/** Compares the placeholders of a file's templates with those that it replaces. */
export async function checkTemplates(root, file) {
  const tree = await parsed(join(root, file));
  const directory = dirname(join(root, file));
  const wanted = new Set();
  const replaced = new Set();
  for (const call of nodes(tree, 'call_expression')) {
    const name = call.childForFieldName('function').text;
    const values = named(call.childForFieldName('arguments')).map(literal);
    if (name === 'loadTextContent') {
      for (const one of placeholders(readFileSync(join(directory, values[0]), 'utf8')))
        wanted.add(one);
    } else if (name === 'replace') {
      replaced.add(placeholders(values[1])[0]);
    }
  }
  const missing = [...wanted].filter(one => !replaced.has(one));
  const stale = [...replaced].filter(one => !wanted.has(one));
  return missing
    .map(one => `${file}: the placeholder \${${one}} is not replaced`)
    .concat(stale.map(one => `${file}: no template has the placeholder \${${one}}`));
}
