// Schemas of Terraform's providers, from the bindings that CDK Terrain generates from them.

import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

const require = createRequire(import.meta.url);
const PROVIDERS = { aws: 'aws', azurerm: 'azurerm', random: 'random' };
const cache = new Map();

/** The version of a provider that its bindings describe, as in 6.66.0. */
export function version(provider) {
  const text = readFileSync(join(library(provider), 'provider', 'index.d.ts'), 'utf8');
  return /registry\.terraform\.io\/providers\/hashicorp\/\w+\/([\d.]+)\/docs/.exec(text)[1];
}

function library(provider) {
  if (!PROVIDERS[provider]) throw new Error(`no schema of the provider ${provider} is installed`);
  return join(dirname(require.resolve(`@cdktn/provider-${provider}/package.json`)), 'lib');
}

/**
 * Returns the schema of a resource or data source, or null if the provider has no such type:
 * `attributes` (name to { block, required, type, attributes }) and `readable` (names).
 */
export function schema(kind, type) {
  const key = `${kind} ${type}`;
  if (!cache.has(key)) cache.set(key, read(kind, type));
  return cache.get(key);
}

function read(kind, type) {
  const [provider, ...words] = type.split('_');
  const directory = join(
    library(provider),
    (kind === 'data' ? [`data-${provider}`, ...words] : words).join('-'),
  );
  if (!existsSync(directory)) return null;
  const code = readFileSync(join(directory, 'index.js'), 'utf8');
  const types = readFileSync(join(directory, 'index.d.ts'), 'utf8');
  if (!types.includes(`tfResourceType = "${type}"`)) return null;
  const required = requiredOf(types);
  const from = code.search(/^class \w+ extends cdktn\.Terraform(Resource|DataSource) \{/m);
  const name = /^class (\w+)/.exec(code.slice(from))[1];
  const body = code.slice(from);
  const list = /synthesizeHclAttributes\(\) \{\s*const attrs = \{(.*?)\n {8}\};/s.exec(body);
  const attributes = entries(list ? list[1] : '', code, required, required.get(`${name}Config`));
  const readable = new Set(Object.keys(attributes));
  for (const found of body.matchAll(/get\w+Attribute\(['"](\w+)['"]\)/g)) readable.add(found[1]);
  for (const found of body.matchAll(/new \w+\(this, ['"](\w+)['"]/g)) readable.add(found[1]);
  return { attributes, readable };
}

/** Returns, for each interface, its required attributes by their names in Terraform. */
function requiredOf(types) {
  const all = new Map();
  for (const [, name, body] of types.matchAll(/^export interface (\w+)[^{]*\{(.*?)^\}/gms)) {
    const names = new Set();
    // A property with the link to its documentation, whose anchor is Terraform's name.
    for (const found of body.matchAll(/#(\w+) \w+#\w+\}[^]*?readonly \w+(\??):/g)) {
      if (!found[2]) names.add(found[1]);
    }
    all.set(name, names);
  }
  return all;
}

function entries(text, code, required, names = new Set()) {
  const out = {};
  const pattern =
    /(\w+): \{\s*value: (.*?),\s*isBlock: (true|false),\s*type: "(\w+)",\s*storageClassType: "(\w+)"/gs;
  for (const [, name, value, block, , type] of text.matchAll(pattern)) {
    const nested = [...value.matchAll(/\b([a-z]\w+)ToHclTerraform\b/g)].map(found => found[1]);
    const structure = nested.find(one => code.includes(`function ${one}ToHclTerraform(`));
    out[name] = { block: block === 'true', required: names.has(name), type };
    if (structure) {
      const start = code.indexOf(`function ${structure}ToHclTerraform(`);
      const list = /const attrs = \{(.*?)\n {4}\};/s.exec(
        code.slice(start, code.indexOf('\n}', start)),
      );
      const title = structure[0].toUpperCase() + structure.slice(1);
      out[name].attributes = entries(list ? list[1] : '', code, required, required.get(title));
    }
  }
  return out;
}
