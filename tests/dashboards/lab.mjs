// The lab: the appliance of `make play` with its gateways, clients and backends, to which emulated
// clouds, a BGP neighbor and a Prometheus are added, all in the lab's network namespaces.

import { execFile, execFileSync, spawn } from 'node:child_process';
import {
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { ROOT } from './generate.mjs';

/** The folder of the programs of cargo's profile `dev`. */
const PROGRAMS = resolve(ROOT, process.env.CARGO_TARGET_DIR ?? 'target', 'debug');
const AWS = 'http://127.0.0.1:4566';
const AZURE = 'https://localhost:4567';
/** The label `instance` of the appliance. */
export const INSTANCE = 'weir-1';
const PROMETHEUS = 'http://127.0.0.1:19090';
const [SUBSCRIPTION, CONSUMER] = ['aa', 'bb'].map(
  (end) => `00000000-0000-0000-0000-0000000000${end}`,
);
const GUEST = `/subscriptions/${CONSUMER}/resourceGroups/guest`;
const SPOKE = `${GUEST}/providers/Microsoft.Network/virtualNetworks/spoke`;

/** The services: one with health checks, announced by BGP, and one that denies the lab's clients. */
const SERVICES = `
[[service]]
name = "lab/web"
mode = "nat"
labels = { announce = "yes" }
health = { kind = "http", path = "/" }
frontends = [{ address = "203.0.113.10", port = 80, protocol = "tcp", type = "LoadBalancer" }]
backends = [
    { address = "10.0.2.11", port = 8080 },
    { address = "10.0.2.12", port = 8080 },
    { address = "10.0.2.13", port = 8080 },
    { address = "10.0.2.14", port = 8080, state = "maintenance" },
]

[[service]]
name = "lab/staff"
mode = "nat"
source_ranges = ["198.51.100.0/24"]
frontends = [{ address = "203.0.113.20", port = 80, protocol = "tcp" }]
backends = [{ address = "10.0.2.11", port = 8080 }, { address = "10.0.2.12", port = 8080 }]
`;

/** The same services without backends: the broken lab. */
const EMPTY = SERVICES.replaceAll(/^backends = \[.*?\]$/gms, 'backends = []');

/** The same services with one more backend in maintenance. */
const MAINTENANCE = SERVICES.replace(
  '"10.0.2.13", port = 8080 }',
  '"10.0.2.13", port = 8080, state = "maintenance" }',
);

const sections = (folder, secrets) => `
[aws]
cluster = "north"

[bgp]
settle_s = 0

[private_link]
owner = "lab"
fleet = "east"
subscription = "${SUBSCRIPTION}"
resource_group = "north"
location = "westeurope"
resource_manager = "${AZURE}"
metadata = "http://127.0.0.1:4568"

[api]
listen = "127.0.0.1:18443"
tls_cert = "${secrets}/cert.pem"
tls_key = "${secrets}/key.pem"
token_file = "${secrets}/token"
`;

const OBJECTS = [
  {
    kind: 'BgpPeeringPolicy',
    name: 'edge',
    spec: {
      node_selector: { match_labels: { role: 'edge' } },
      routers: [
        {
          local_asn: 65001,
          listen_port: 179,
          advertisements: [{ services: { match_labels: { announce: 'yes' } } }],
          neighbors: [
            { address: '10.0.2.11', asn: 65002, hold_s: 9, keepalive_s: 3, bfd: { enabled: true } },
          ],
        },
      ],
    },
  },
  {
    kind: 'PrivateLinkService',
    name: 'shop/web',
    spec: {
      load_balancer_ip: '10.1.0.5',
      endpoint: {
        subnet: `${SPOKE}/subnets/endpoints`,
        network: SPOKE,
        zones: [{ name: 'shop.internal', records: ['api'] }],
      },
    },
  },
];

const INVENTORY = [
  {
    kind: 'Service',
    name: 'lab/mail',
    spec: { mode: 'nat', frontends: [{ address: '203.0.113.30', port: 25, protocol: 'tcp' }] },
  },
  {
    kind: 'Backends',
    name: 'lab/mail',
    spec: { service: 'lab/mail', endpoints: [{ address: '10.0.2.14', port: 8080 }] },
  },
];

const BIRD = `
router id 10.0.2.11;
protocol device {}
protocol bfd { interface "*" { min rx interval 300 ms; min tx interval 300 ms; }; }
protocol bgp weir {
  local 10.0.2.11 as 65002;
  neighbor 10.0.2.10 as 65001;
  connect retry time 1;
  bfd on;
  ipv4 { import all; export none; };
}
`;

/** Waits until `attempt` returns a value; fails after `seconds` with what it last threw. */
export async function eventually(what, seconds, attempt) {
  const end = Date.now() + seconds * 1000;
  let last = 'no result';
  for (;;) {
    try {
      const value = await attempt();
      if (value !== undefined && value !== false) return value;
    } catch (error) {
      last = error.message;
    }
    if (Date.now() > end) throw new Error(`${what}: not within ${seconds} s: ${last}`);
    await sleep(200);
  }
}

export class Lab {
  #home = mkdtempSync(join(tmpdir(), 'weir-dashboards-'));
  #processes = [];
  #stopping = false;

  #path(name) {
    return join(this.#home, name);
  }

  /** Starts everything and returns when all parts serve. */
  static async start() {
    const lab = new Lab();
    try {
      await lab.#start();
    } catch (error) {
      lab.stop();
      throw error;
    }
    return lab;
  }

  async #start() {
    for (const name of ['playground', 'slowpath', 'fastpath', 'weir', 'weir-aws', 'weir-azure']) {
      if (!existsSync(join(PROGRAMS, name)))
        throw new Error(`no ${name} in ${PROGRAMS}: make dashboards`);
    }
    this.environment = {
      ...process.env,
      // Where the playground finds the daemons.
      WEIR_BIN_DIR: PROGRAMS,
      AWS_ENDPOINT_URL: AWS,
      AWS_EC2_METADATA_SERVICE_ENDPOINT: AWS,
      SSL_CERT_FILE: this.#path('azure.pem'),
      AZURE_AUTHORITY_HOST: AZURE,
    };
    this.play = this.#path('play');
    this.#playground('start');
    this.folder = /--config (\S*)\/weir.toml/.exec(
      readFileSync(join(this.play, 'bin/weir'), 'utf8'),
    )[1];
    this.#secrets();
    await this.#clouds();
    await this.#neighbor();
    await this.#configure();
    this.#clients();
    await this.#apply();
  }

  #playground(command) {
    const program = join(PROGRAMS, 'playground');
    return execFileSync(program, ['--home', this.play, command], {
      env: this.environment,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'pipe'],
    });
  }

  /** Runs a script of the playground, for example `weir status`, and returns its output. */
  async run(script, ...args) {
    const program = join(this.play, 'bin', script);
    const { stdout } = await promisify(execFile)(program, args, { maxBuffer: 1 << 28 });
    return stdout;
  }

  /** Starts a program that runs until the lab ends, in the namespace of a script. */
  #spawn(script, program, args) {
    const name = `${program.split('/').pop()}.log`;
    const log = openSync(this.#path(name), 'w');
    const child = spawn(join(this.play, 'bin', script), [program, ...args], {
      stdio: ['ignore', log, log],
      env: this.environment,
      // A group of its own, so that a shell ends with what it runs.
      detached: true,
    });
    closeSync(log);
    child.on('exit', (code, signal) => {
      if (!this.#stopping) {
        console.error(
          `${program} ended: ${code ?? signal}\n${readFileSync(this.#path(name), 'utf8')}`,
        );
      }
    });
    this.#processes.push(child);
    return child;
  }

  #secrets() {
    const folder = this.#path('secrets');
    mkdirSync(folder, { mode: 0o700 });
    const options = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1'];
    options.push(
      '-nodes',
      '-days',
      '90',
      '-subj',
      '/CN=lab',
      '-addext',
      'subjectAltName=IP:127.0.0.1',
    );
    options.push('-keyout', join(folder, 'key.pem'), '-out', join(folder, 'cert.pem'));
    execFileSync('openssl', options, { stdio: 'ignore' });
    writeFileSync(join(folder, 'token'), `${'t'.repeat(43)}\n`, { mode: 0o600 });
    execFileSync('chmod', ['600', join(folder, 'key.pem')]);
  }

  /** Starts the emulators in the appliance's namespace with a state that has the appliance. */
  async #clouds() {
    const state = async (program, args, url) => {
      const child = spawn(join(PROGRAMS, program), args, { stdio: 'ignore' });
      try {
        const curl = ['--silent', '--insecure', '--fail', `${url}/_weir/state`];
        const { stdout } = await eventually(`the state of ${program}`, 20, () =>
          promisify(execFile)('curl', curl, { maxBuffer: 1 << 26 }),
        );
        return JSON.parse(stdout);
      } finally {
        child.kill();
      }
    };
    const ca = ['--ca', this.#path('azure.pem')];
    const [aws, azure] = await Promise.all([
      state('weir-aws', ['--listen', '127.0.0.1:24566'], 'http://127.0.0.1:24566'),
      state(
        'weir-azure',
        ['--listen', '127.0.0.1:24567', '--metadata', '127.0.0.1:24568', ...ca],
        'https://127.0.0.1:24567',
      ),
    ]);
    const link = JSON.parse(await this.run('appliance', 'ip', '-json', 'link', 'show', 'weir-in'));
    const ingress = aws.instances[0].interfaces[1];
    Object.assign(ingress, { mac: link[0].address, addresses: ['10.0.1.10'] });
    Object.assign(aws.groups[0], {
      interval: 2,
      timeout: 1,
      healthy: 2,
      unhealthy: 2,
      health_path: '/',
    });
    aws.groups[0].attributes['deregistration_delay.timeout_seconds'] = '0';
    azure.groups.push(GUEST);
    azure.resources.push({
      id: SPOKE,
      version: 1_000,
      failed: false,
      body: {
        location: 'westeurope',
        properties: {
          addressSpace: { addressPrefixes: ['10.7.0.0/16'] },
          subnets: [{ name: 'endpoints', properties: { addressPrefix: '10.7.0.0/24' } }],
        },
      },
    });
    writeFileSync(this.#path('aws.json'), JSON.stringify(aws));
    writeFileSync(this.#path('azure.json'), JSON.stringify(azure));
    this.#spawn('appliance', join(PROGRAMS, 'weir-aws'), [
      '--state',
      this.#path('aws.json'),
      '--probe',
    ]);
    this.#spawn('appliance', join(PROGRAMS, 'weir-azure'), [
      '--state',
      this.#path('azure.json'),
      ...ca,
    ]);
  }

  async #neighbor() {
    writeFileSync(this.#path('bird.conf'), BIRD);
    const files = ['-s', this.#path('bird.ctl'), '-P', this.#path('bird.pid')];
    this.bird = this.#spawn('backend', 'bird', ['-f', '-c', this.#path('bird.conf'), ...files]);
  }

  /** Adds the sections and the services, and kills slowpath, which the playground starts again. */
  async #configure() {
    const path = join(this.folder, 'weir.toml');
    const text = `labels = { role = "edge" }\n${readFileSync(path, 'utf8')}${sections(this.folder, this.#path('secrets'))}`;
    writeFileSync(path, text);
    writeFileSync(join(this.folder, 'services.toml'), SERVICES);
    const pid = () => readFileSync(join(this.play, 'slowpath.pid'), 'utf8').trim();
    const before = pid();
    process.kill(Number(before), 'SIGKILL');
    await eventually('another slowpath', 20, () => pid() !== before);
    await this.able();
  }

  able() {
    return eventually('an able appliance', 60, async () => {
      const status = JSON.parse(await this.run('weir', 'status', '--json'));
      if (!status.able) throw new Error(status.reasons.join(', '));
      return true;
    });
  }

  /** Starts clients beside the playground's: of the service that denies them, and of the API. */
  #clients() {
    const loop = 'while :; do curl --silent --max-time 0.3 http://203.0.113.20/; sleep 0.2; done';
    this.#spawn('client', 'sh', ['-c', loop]);
    const api = `while :; do curl --silent --insecure -H "Authorization: Bearer ${'t'.repeat(43)}" https://127.0.0.1:18443/v1/objects/services; sleep 1; done`;
    this.#spawn('appliance', 'bash', ['-c', api]);
  }

  /** Writes the objects, and a service in a session of the source `inventory`. */
  async #apply() {
    writeFileSync(this.#path('objects.json'), JSON.stringify(OBJECTS));
    await this.run('weir', 'apply', '-f', this.#path('objects.json'));
    const send = async (method, path, body) => {
      const options = ['--silent', '--show-error', '--fail-with-body', '--request', method];
      const socket = [
        '--unix-socket',
        join(this.folder, 'control.sock'),
        `http://weir/v1/sources/inventory/${path}`,
      ];
      const data = ['--header', 'Content-Type: application/json', '--data', JSON.stringify(body)];
      return JSON.parse(
        (await this.run('appliance', 'curl', ...options, ...data, ...socket)) || '{}',
      );
    };
    const { session } = await send('POST', 'sessions', { revision: '1', lease_s: 3600 });
    await send('PUT', `sessions/${session}/chunks/0`, INVENTORY);
    await send('POST', `sessions/${session}/commit?wait=5s`, {});
  }

  /** Starts Prometheus in the appliance's namespace, with these rule files, scraping each second. */
  async prometheus(rules) {
    const config = {
      global: { scrape_interval: '1s', evaluation_interval: '1s' },
      rule_files: rules,
      scrape_configs: [
        {
          job_name: 'weir',
          static_configs: [{ targets: ['127.0.0.1:19100'], labels: { instance: INSTANCE } }],
        },
      ],
    };
    writeFileSync(this.#path('prometheus.json'), JSON.stringify(config));
    this.#spawn('appliance', 'prometheus', [
      `--config.file=${this.#path('prometheus.json')}`,
      `--storage.tsdb.path=${this.#path('tsdb')}`,
      `--web.listen-address=${PROMETHEUS.slice(7)}`,
    ]);
    await eventually('a first scrape', 30, async () => (await this.query('up == 1')).length === 1);
  }

  async #get(path, parameters) {
    const data = Object.entries(parameters).flatMap(([k, v]) => ['--data-urlencode', `${k}=${v}`]);
    const text = await this.run(
      'appliance',
      'curl',
      '--silent',
      '--get',
      ...data,
      PROMETHEUS + path,
    );
    const answer = JSON.parse(text);
    if (answer.status !== 'success')
      throw new Error(`${answer.error} in ${JSON.stringify(parameters)}`);
    return answer.data.result ?? answer.data;
  }

  /** Runs an instant query; returns the series. */
  query(expr) {
    return this.#get('/api/v1/query', { query: expr });
  }

  /** Runs a range query over the last `seconds`; returns the series. */
  range(expr, seconds, step = 2) {
    const end = Date.now() / 1000;
    return this.#get('/api/v1/query_range', { query: expr, start: end - seconds, end, step });
  }

  alerts() {
    return this.#get('/api/v1/alerts', {}).then((data) => data.alerts);
  }

  /** Sets one more backend to maintenance (`begins`), or back. */
  maintain(begins) {
    writeFileSync(join(this.folder, 'services.toml'), begins ? MAINTENANCE : SERVICES);
  }

  /** Breaks the lab: no service has a backend, and the BGP neighbor ends. */
  async break() {
    this.#stopping = true;
    writeFileSync(join(this.folder, 'services.toml'), EMPTY);
    this.bird.kill();
    // New connections, whose dropped packets are the loss that the alert measures.
    const attempt = 'curl --silent --max-time 0.3 http://203.0.113.10/ &';
    this.#spawn('client', 'sh', ['-c', `while :; do ${attempt.repeat(8)} wait; done`]);
  }

  /** Ends everything: the appliance first, so that the emulated clouds still serve it. */
  stop() {
    this.#stopping = true;
    let output = '';
    if (this.play) {
      try {
        output = this.#playground('stop');
      } catch (error) {
        output = error.message;
      }
    }
    for (const child of this.#processes) {
      if (child.exitCode === null && child.signalCode === null) process.kill(-child.pid, 'SIGTERM');
    }
    rmSync(this.#home, { recursive: true, force: true });
    return output;
  }
}
