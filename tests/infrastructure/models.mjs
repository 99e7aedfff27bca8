// Values and types that the clouds publish: botocore's models of AWS's APIs, moto's record of EC2's
// instance types, Microsoft's SDKs.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';

const require = createRequire(import.meta.url);
const VERSIONS = { elbv2: '2015-12-01', ec2: '2016-11-15', cloudwatch: '2010-08-01' };
const cache = new Map();

/** The directory with Python's packages, which .ci/setup.sh installs. */
export const PACKAGES = join(
  dirname(fileURLToPath(import.meta.url)),
  '../../.tools/infrastructure/python',
);

function cached(key, compute) {
  if (!cache.has(key)) cache.set(key, compute());
  return cache.get(key);
}

const json = path => cached(path, () => JSON.parse(gunzipSync(readFileSync(join(PACKAGES, path)))));

/** The values of an enumeration of an API of AWS. */
export function serviceValues(service, shape) {
  const model = json(`botocore/data/${service}/${VERSIONS[service]}/service-2.json.gz`);
  const values = model.shapes[shape]?.enum;
  if (!values) throw new Error(`the model of ${service} has no enumeration ${shape}`);
  return values;
}

/** EC2's instance types, as DescribeInstanceTypes returns them. */
export const instanceTypes = () => json('moto/ec2/resources/instance_types.json.gz');

const SDKS = ['network', 'compute', 'authorization', 'msi'];

function sdk(name) {
  if (!SDKS.includes(name)) throw new Error(`no models of ${name} are installed`);
  return dirname(require.resolve(`@azure/arm-${name}/package.json`));
}

function declarations(name) {
  const path = join(sdk(name), 'types', `arm-${name}.d.ts`);
  return cached(path, () => readFileSync(path, 'utf8'));
}

/** The known values of a type of Azure's SDK, or null if it is no enumeration. */
export const azureValues = (name, type) =>
  cached(`values ${name} ${type}`, () => readAzureValues(name, type));

function readAzureValues(name, type) {
  const text = declarations(name);
  const known = new RegExp(`export declare enum Known${type} \\{(.*?)^\\}`, 'ms').exec(text);
  if (known) return [...known[1].matchAll(/= "([^"]*)"/g)].map(found => found[1]);
  const union = new RegExp(`export declare type ${type} = ((?:"[^"]*"(?: \\| )?)+);`).exec(text);
  return union ? [...union[1].matchAll(/"([^"]*)"/g)].map(found => found[1]) : null;
}

/** The type of a property in the declarations of an SDK, such as LoadBalancerSkuName. */
export const azurePropertyType = (name, type, property) =>
  cached(`type ${name} ${type} ${property}`, () => readPropertyType(name, type, property));

function readPropertyType(name, type, property) {
  const text = declarations(name);
  for (let at = type; at;) {
    const found = new RegExp(
      `export declare interface ${at}( extends ([\\w, ]+))? \\{(.*?)^\\}`,
      'ms',
    ).exec(text);
    if (!found) return null;
    const line = new RegExp(`^    (?:readonly )?${property}\\??: (\\w+)`, 'm').exec(found[3]);
    if (line) return line[1];
    at = found[2]?.split(',')[0];
  }
  return null;
}

/** The mappers of an SDK: for each type the names, types and required properties on the wire. */
export function azureMappers(name) {
  const path = join(sdk(name), 'dist-esm', 'src', 'models', 'mappers.js');
  return cached(
    path,
    () => import(`data:text/javascript;base64,${readFileSync(path).toString('base64')}`),
  );
}

/** Whether an SDK is of this version of the API. */
export const azureHasVersion = (name, version) =>
  cached(`version ${name} ${version}`, () =>
    readFileSync(join(sdk(name), 'dist', 'index.js'), 'utf8').includes(`"${version}"`),
  );
