// The tests of the infrastructure files. Those named "finds" run the same checks on a copy with one
// fault, and fail if the fault is not found.

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { allowedValues, checkBicep, checkTemplates } from './bicep.mjs';
import { PACKAGES, instanceTypes, serviceValues } from './models.mjs';
import { MUTATIONS } from './mutations.mjs';
import { checkModule, checkValidations, renderedConfiguration } from './terraform.mjs';

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '../..');
const MODULES = ['config/aws', 'config/aws/example', 'config/azure', 'config/azure/example'];
const BICEP = ['config/azure/main.bicep', 'config/azure/example.bicep'];
const PAGE = 'docs/src/reference/instances.md';
const LONG = 'x'.repeat(20_000);
const WEIR = process.env.WEIR;

const read = (root, path) => readFileSync(join(root, path), 'utf8');
const VALUES = JSON.parse(read(ROOT, 'tests/infrastructure/values.json'), (key, value) =>
  value === 'LONG' ? LONG : value,
);

// Resources whose attributes the configuration contains, with values as they might be.
const SUBNETS = { a: { cidr_block: '10.0.128.0/22' }, b: { cidr_block: '10.0.132.0/22' } };
const RENDERED = {
  'config/aws': [
    {
      cluster: 'prod',
      zones: ['a', 'b'],
      image: 'ami-0123456789abcdef0',
      seed: 'JLfvgnHc2kaSUFaI',
    },
    { aws_subnet: { appliance: SUBNETS } },
  ],
  'config/azure': [
    { image: '/subscriptions/s', ssh_key: 'ssh-ed25519 AAAA', seed: 'JLfvgnHc2kaSUFaI' },
    {
      azurerm_user_assigned_identity: {
        weir: { client_id: '550e8400-e29b-41d4-a716-446655440000' },
      },
    },
  ],
};
// Values that replace `"auto"`, as a machine in each cloud would determine them.
const AUTO = {
  'config/aws': {
    address: '10.0.128.10/22',
    gateway: '10.0.128.1',
    zone: 'us-east-1a',
    mtu: 'mtu = 9001',
  },
  'config/azure': { address: '10.1.0.10/18', gateway: '10.1.0.1', zone: '1', mtu: '' },
};

/** Runs cloud-init's own check on a file. Its environment has the packages of .ci/setup.sh. */
function cloudInitSchema(path) {
  const tools = join(PACKAGES, '..');
  const run = spawnSync(
    join(tools, 'venv/bin/python'),
    ['-W', 'ignore', '-m', 'cloudinit.config.schema', '--config-file', path],
    {
      env: { PYTHONPATH: `${PACKAGES}:${tools}/cloud-init/usr/lib/python3/dist-packages` },
      encoding: 'utf8',
    },
  );
  assert.equal(run.error, undefined);
  return run.status === 0 ? [] : [`cloud-init schema: ${(run.stdout + run.stderr).trim()}`];
}

/** Returns the files that cloud-init would write, by path, read by Python's YAML parser. */
function writtenFiles(text) {
  const script = 'import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin)))';
  const out = execFileSync(join(PACKAGES, '../venv/bin/python'), ['-c', script], {
    input: text,
    env: { PYTHONPATH: PACKAGES },
    encoding: 'utf8',
  });
  const config = JSON.parse(out);
  const files = config.write_files.map(file => [
    file.path,
    file.encoding === 'b64' ? Buffer.from(file.content, 'base64').toString() : file.content,
  ]);
  return { files: Object.fromEntries(files), runcmd: config.runcmd };
}

/** Checks the user data that a module renders: its schema, files, commands and configuration. */
async function checkUserData(root, directory) {
  const [given, known] = RENDERED[directory];
  let text;
  try {
    text = await renderedConfiguration(root, directory, given, known);
  } catch (error) {
    return [`${directory}: ${error.message}`];
  }
  const folder = mkdtempSync(join(tmpdir(), 'weir-user-data-'));
  try {
    const path = join(folder, 'user-data.yaml');
    writeFileSync(path, text);
    const complaints = cloudInitSchema(path);
    if (complaints.length) return complaints;
    const { files, runcmd } = writtenFiles(text);
    for (const name of ['/etc/weir/weir.toml', '/etc/weir/services.toml']) {
      if (!files[name]) complaints.push(`${directory}: user data does not write ${name}`);
    }
    const last = runcmd.at(-1).join(' ');
    if (last !== 'systemctl restart weir.target') {
      complaints.push(
        `${directory}: user data ends with \`${last}\`, not with a restart of weir.target`,
      );
    }
    if (complaints.length) return complaints;
    return [checkDevice, checkDropIn, checkConfiguration].flatMap(check =>
      check(directory, folder, files),
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Runs the script that names the ingress device, with the metadata of either cloud. */
function checkDevice(directory, folder, files) {
  const script = join(folder, 'device.py');
  writeFileSync(script, files['/usr/local/sbin/weir-ingress-device']);
  const config = join(folder, 'weir.toml');
  const run = metadata => {
    const json = JSON.stringify(metadata).replaceAll("'", '');
    writeFileSync(join(folder, 'cloud-init'), `#!/bin/sh\necho '${json}'\n`, { mode: 0o755 });
    writeFileSync(config, files['/etc/weir/weir.toml']);
    const done = spawnSync('python3', [script, config], {
      env: { PATH: `${folder}:${process.env.PATH}` },
      encoding: 'utf8',
    });
    return { ...done, device: /^device = "(.*)"$/m.exec(readFileSync(config, 'utf8'))?.[1] };
  };
  const macs = (...numbers) => ({
    network: {
      interfaces: {
        macs: Object.fromEntries(
          numbers.map((number, i) => [`02:00:00:00:00:0${i}`, { 'device-number': number }]),
        ),
      },
    },
  });
  const cases = [
    [macs('0', '1'), 0, '02:00:00:00:00:01'],
    [macs(1, 0), 0, '02:00:00:00:00:00'],
    [macs('0'), 1, 'eth1'],
    [{ imds: { network: { interface: [] } } }, 0, 'eth1'],
  ];
  return cases.flatMap(([metadata, status, device]) => {
    const got = run(metadata);
    if (got.status === status && got.device === device) return [];
    return [
      `${directory}: weir-ingress-device with ${JSON.stringify(metadata)} ended with ` +
        `${got.status} and device ${got.device}, not ${status} and ${device}: ${got.stderr}`,
    ];
  });
}

/** Checks that the drop-in's command raises the interface's MTU to the arm's, only if it is lower. */
function checkDropIn(directory, folder, files) {
  const path = '/etc/systemd/system/weir-ebpf-fallback.service.d/mtu.conf';
  const [, command] = /^ExecStartPre=-\+\/bin\/sh -c '(.*)'$/m.exec(files[path]) ?? [];
  if (!command) return [`${directory}: ${path} has no ExecStartPre of the expected form`];
  const [, mtu] = /^mtu = (\d+)$/m.exec(read(ROOT, 'config/azure/weir.toml'));
  const called = join(folder, 'called');
  writeFileSync(join(folder, 'ip'), `#!/bin/sh\necho "$*" > ${called}\n`, { mode: 0o755 });
  const script = command
    .replaceAll('$$', '$')
    .replace('/sys/class/net/eth1/mtu', join(folder, 'mtu'));
  return [
    ['1500', `link set eth1 mtu ${mtu}`],
    ['9001', ''],
  ].flatMap(([present, expected]) => {
    writeFileSync(join(folder, 'mtu'), `${present}\n`);
    rmSync(called, { force: true });
    spawnSync('sh', ['-c', script], { env: { PATH: `${folder}:${process.env.PATH}` } });
    const got = existsSync(called) ? readFileSync(called, 'utf8').trim() : '';
    if (got === expected) return [];
    return [
      `${directory}: with an MTU of ${present}, ${path} runs "ip ${got}", not "ip ${expected}"`,
    ];
  });
}

/** Runs `weir config check` on the rendered configuration, if WEIR names the program. */
function checkConfiguration(directory, folder, files) {
  if (!WEIR) return [];
  const auto = AUTO[directory];
  const text = files['/etc/weir/weir.toml']
    .replace('name = "auto"', 'name = "weir-1"')
    .replace('zone = "auto"', `zone = "${auto.zone}"`)
    .replace('plane = "auto"', 'plane = "dpdk"')
    .replace(
      'address = "auto"',
      `address = "${auto.address}"\ngateway = "${auto.gateway}"\n${auto.mtu}`,
    )
    .replace('addresses = "auto"', `addresses = "${auto.address.split('/')[0]}"`)
    .replace('/etc/weir/services.toml', join(folder, 'services.toml'));
  writeFileSync(join(folder, 'services.toml'), files['/etc/weir/services.toml']);
  const path = join(folder, 'checked.toml');
  writeFileSync(path, text);
  const run = spawnSync(WEIR, ['config', 'check', '--config', path], { encoding: 'utf8' });
  return run.status === 0
    ? []
    : [`${directory}: weir config check: ${run.error ?? run.stdout + run.stderr}`];
}

/** Whether Weir supports a type: the conditions of the modules' variables. */
const supported = facts =>
  facts.architecture === 'x86_64' && facts.interfaces >= 2 && (facts.cores ?? 2) >= 2;

/** The page of the reference that is made from the table of instance types. */
function instancesPage(table) {
  const row = ([type, facts]) =>
    '| ' +
    [
      `\`${type}\``,
      facts.architecture,
      facts.vcpus,
      facts.cores ?? '',
      facts.memory_mib / 1024,
      facts.interfaces,
      facts.drivers.join(', '),
      supported(facts) ? 'yes' : 'no',
      facts.run,
    ].join(' | ') +
    ' |';
  const lines = [
    '# Instance types',
    '',
    'Generated from `config/instances.json` by `WEIR_REFERENCE=write make infrastructure`; do not ' +
      'edit.',
    '',
    'The types that the modules for [AWS and Azure](../operate/infrastructure.md) know. Supported ' +
      'are those with x86-64, two interfaces and, on AWS, two cores. The drivers are described in ' +
      '[NIC drivers](nics.md); a type with two drivers runs on hosts with either NIC. **Run** says ' +
      'whether Weir was run on the type.',
  ];
  for (const [cloud, title] of [
    ['aws', 'AWS'],
    ['azure', 'Azure'],
  ]) {
    lines.push(
      '',
      `## ${title}`,
      '',
      '| type | architecture | vCPUs | cores | memory, GiB | interfaces | driver | supported | run |',
      '|---|---|---|---|---|---|---|---|---|',
      ...Object.entries(table[cloud]).map(row),
    );
  }
  lines.push('', '## Sources', '');
  for (const [name, source] of Object.entries(table.sources)) lines.push(`- ${name}: ${source}`);
  return `${lines.join('\n')}\n`;
}

/** Checks the table of instance types against the clouds' records, and the page against it. */
async function checkInstances(root) {
  const table = JSON.parse(read(root, 'config/instances.json'));
  const complaints = [];
  const complain = (type, text) => complaints.push(`config/instances.json: ${type}: ${text}`);
  const recorded = instanceTypes();
  const known = serviceValues('ec2', 'InstanceType');
  const drivers = [
    ...read(root, 'docs/src/reference/nics.md').matchAll(/^## (?:net_)?(\w+?)(?:_pci)?$/gm),
  ].map(found => found[1]);
  for (const [type, facts] of [...Object.entries(table.aws), ...Object.entries(table.azure)]) {
    if (!table.sources[facts.source]) complain(type, `no source ${facts.source}`);
    for (const driver of facts.drivers) {
      if (!drivers.includes(driver))
        complain(type, `docs/src/reference/nics.md has no driver ${driver}`);
    }
  }
  for (const [type, facts] of Object.entries(table.aws)) {
    if (!known.includes(type)) complain(type, 'EC2 has no such type');
    const record = recorded[type];
    if (!record) {
      complain(type, 'EC2 has no record of this type');
      continue;
    }
    const expected = {
      architecture: record.ProcessorInfo.SupportedArchitectures[0],
      vcpus: record.VCpuInfo.DefaultVCpus,
      cores: record.VCpuInfo.DefaultCores,
      memory_mib: record.MemoryInfo.SizeInMiB,
      interfaces: record.NetworkInfo.MaximumNetworkInterfaces,
      drivers: record.NetworkInfo.EnaSupport === 'unsupported' ? [] : ['ena'],
      source: 'describe-instance-types',
    };
    if (typeof facts.run !== 'string')
      complain(type, 'run: write how Weir was run on this type, or "never"');
    for (const [key, value] of Object.entries(expected)) {
      if (JSON.stringify(facts[key]) !== JSON.stringify(value)) {
        complain(type, `${key} is ${JSON.stringify(facts[key])}, EC2 says ${JSON.stringify(value)}`);
      }
    }
  }
  const usable = Object.entries(table.azure)
    .filter(([, facts]) => supported(facts))
    .map(([size]) => size);
  const allowed = await allowedValues(root, BICEP[0], 'size');
  if (allowed.join() !== usable.join()) {
    complaints.push(
      `${BICEP[0]}: size: @allowed is [${allowed}], config/instances.json has [${usable}]`,
    );
  }
  if (process.env.WEIR_REFERENCE === 'write' && root === ROOT) {
    writeFileSync(join(root, PAGE), instancesPage(table));
  }
  if (!existsSync(join(root, PAGE)) || read(root, PAGE) !== instancesPage(table)) {
    complaints.push(
      `${PAGE} differs from config/instances.json; WEIR_REFERENCE=write make infrastructure`,
    );
  }
  return complaints;
}

/** Checks what several files state: addresses, ports and VNIs of tunnels, the probe, the pool. */
function checkAgreement(root) {
  const bicep = read(root, 'config/azure/main.bicep');
  const terraform = read(root, 'config/azure/main.tf').replace(/ +=/g, ' =');
  const toml = read(root, 'config/azure/weir.toml');
  const complaints = [];
  for (const [kind, port, vni] of [
    ['Internal', 10800, 800],
    ['External', 10801, 801],
  ]) {
    const blocks = [
      [
        'config/azure/main.bicep',
        bicep,
        `{ type: '${kind}', protocol: 'VXLAN', port: ${port}, identifier: ${vni} }`,
      ],
      [
        'config/azure/main.tf',
        terraform,
        `type = "${kind}"\n    protocol = "VXLAN"\n    port = ${port}\n    identifier = ${vni}\n`,
      ],
      ['config/azure/weir.toml', toml, `${kind.toLowerCase()} = { port = ${port}, vni = ${vni} }`],
    ];
    for (const [file, text, expected] of blocks) {
      if (!text.includes(expected)) complaints.push(`${file}: ${kind} tunnel: no ${expected}`);
    }
  }
  for (const directory of ['config/aws', 'config/azure']) {
    if (!read(root, `${directory}/weir.toml`).includes('listen = ["0.0.0.0:8080"]')) {
      complaints.push(`${directory}/weir.toml: the probed port is 8080 on all addresses`);
    }
  }
  // A drain must outlast the deregistration delay of AWS's target group, and end within the notice
  // of 300 s that Azure gives before it terminates an instance.
  const cap = directory =>
    Number(/^drain_cap_s = (\d+)$/m.exec(read(root, `${directory}/weir.toml`))?.[1]);
  const delay = Number(/deregistration_delay += (\d+)/.exec(read(root, 'config/aws/main.tf'))?.[1]);
  if (!(cap('config/aws') > delay))
    complaints.push(`config/aws/weir.toml: drain_cap_s is not above ${delay}`);
  if (!(cap('config/azure') < 300))
    complaints.push('config/azure/weir.toml: drain_cap_s is not below 300');
  return complaints;
}

/** Each check, by name: the complaints about the files below a root. */
const CHECKS = {
  agreement: async root => checkAgreement(root),
  instances: checkInstances,
};
for (const directory of MODULES) {
  CHECKS[`terraform ${directory}`] = root => checkModule(root, directory);
  CHECKS[`validations ${directory}`] = root => checkValidations(root, directory, VALUES[directory]);
}
for (const file of BICEP) {
  CHECKS[`bicep ${file}`] = async root =>
    (await checkBicep(root, file)).concat(await checkTemplates(root, file));
}
for (const directory of Object.keys(RENDERED)) {
  CHECKS[`user data ${directory}`] = root => checkUserData(root, directory);
}
CHECKS['user data config/web-server.yaml'] = async root =>
  cloudInitSchema(join(root, 'config/web-server.yaml'));

for (const [name, check] of Object.entries(CHECKS)) {
  test(name, async () => assert.deepEqual(await check(ROOT), []));
}

test('every directory with Terraform files and every Bicep file is checked', () => {
  const found = readdirSync(join(ROOT, 'config'), { recursive: true }).filter(
    path => path.endsWith('.tf') || path.endsWith('.bicep'),
  );
  assert.ok(found.length > 10, `${found}`);
  for (const path of found) {
    const file = `config/${path}`;
    assert.ok(MODULES.includes(dirname(file)) || BICEP.includes(file), `${file} is not checked`);
  }
});

let copy;
before(() => {
  copy = mkdtempSync(join(tmpdir(), 'weir-infrastructure-'));
});
after(() => rmSync(copy, { recursive: true }));

for (const { check, file, from, to, says } of MUTATIONS) {
  test(`finds ${says} in ${file}`, async () => {
    cpSync(join(ROOT, 'config'), join(copy, 'config'), { recursive: true });
    for (const page of [PAGE, 'docs/src/reference/nics.md'])
      cpSync(join(ROOT, page), join(copy, page));
    const text = read(copy, file);
    assert.equal(text.split(from).length, 2, `${file} has "${from}" not once`);
    writeFileSync(
      join(copy, file),
      text.replace(from, () => to),
    );
    const complaints = await CHECKS[check](copy);
    assert.ok(
      complaints.some(one => one.includes(says)),
      `not found; complaints: ${complaints.join('\n')}`,
    );
    assert.ok(existsSync(join(copy, file)));
  });
}
