// Runs the dashboards and rules against a real Prometheus that scrapes a real appliance under a
// lab's traffic; with WEIR_PICTURES=write it also draws the pictures of the book.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { WIDTH, page } from './draw.mjs';
import { ROOT } from './generate.mjs';
import { INSTANCE, Lab, eventually } from './lab.mjs';
import { DASHBOARDS, WITHOUT_DATA } from './panels.mjs';
import { ALERTS } from './rules.mjs';

/** Seconds of history that panels show. */
const HISTORY = 75;
/** The maximum size of a picture, in bytes. */
const LARGEST_PICTURE = 200_000;

/** The alerts that the broken lab must fire: no backend, no BGP neighbor. */
const BROKEN = [
  'WeirBackendSetEmpty',
  'WeirTrafficLost',
  'WeirServiceWithoutBackend',
  'WeirBgpSessionDown',
  'WeirBfdSessionDown',
];

const folder = mkdtempSync(join(tmpdir(), 'weir-rules-'));
let lab;
let settled;

/** Replaces the variables of a query, as Grafana would. */
const replaced = (expr) =>
  expr
    .replaceAll('$__rate_interval', '10s')
    .replaceAll('$job', 'weir')
    .replaceAll('$instance', INSTANCE)
    .replaceAll('$service', '.*');

/** Copies the rules with shorter waits of alerts: a second for each minute. */
function rules() {
  return ['recording.yml', 'alerts.yml'].map((name) => {
    const text = readFileSync(join(ROOT, 'config/prometheus', name), 'utf8');
    const path = join(folder, name);
    const shorter = (_, number, unit) => `for: ${unit === 'h' ? number * 60 : number}s`;
    writeFileSync(path, text.replace(/for: (\d+)(m|h)$/gm, shorter));
    return path;
  });
}

before(async () => {
  lab = await Lab.start();
  await lab.prometheus(rules());
  const up = ['weir_ready == 1', 'weir_bgp_session_state == 1', 'weir_private_link_available == 1'];
  for (const expr of up) {
    await eventually(expr, 120, async () => (await lab.query(expr)).length > 0);
  }
  settled = Date.now();
  // Makes changes and reverts them, so that the metrics have their durations and requests.
  await sleep(20_000);
  lab.maintain(true);
  await lab.run('weir', 'pls', 'pause', 'shop/web');
  await sleep(20_000);
  lab.maintain(false);
  await lab.run('weir', 'pls', 'resume', 'shop/web');
  await sleep(HISTORY * 1000 - (Date.now() - settled));
});

after(() => {
  const output = lab?.stop();
  rmSync(folder, { recursive: true, force: true });
  if (lab) assert.match(output, /nothing is left/);
});

const answers = {};
const finite = ({ value, values }) =>
  (values ?? [value]).some(([, number]) => Number.isFinite(Number(number)));

for (const [file, dashboard] of Object.entries(DASHBOARDS)) {
  test(`every panel of ${file} has data`, async () => {
    const faults = [];
    answers[file] = new Map();
    for (const panel of dashboard.panels.filter(({ type }) => type !== 'row')) {
      const results = [];
      for (const target of panel.targets) {
        const expr = replaced(target.expr);
        const series = (
          target.instant ? await lab.query(expr) : await lab.range(expr, HISTORY)
        ).filter(finite);
        results.push({ target, series });
        const without = WITHOUT_DATA[file].get(panel.title);
        if (without === undefined && series.length === 0)
          faults.push(`${panel.title}: no data: ${expr}`);
        if (without !== undefined && series.length) {
          faults.push(`${panel.title}: has data, although ${without}`);
        }
      }
      answers[file].set(panel.id, results);
    }
    assert.equal(faults.join('\n'), '');
  });
}

test('no alert that pages fires in a healthy lab', async () => {
  const seconds = Math.floor((Date.now() - settled) / 1000);
  const firing = await lab.query(
    `count_over_time(ALERTS{alertstate="firing",severity="page"}[${seconds}s])`,
  );
  assert.deepEqual(
    firing.map(({ metric }) => metric.alertname),
    [],
  );
});

// Pictures differ with each run, so they are written on request only.
if (process.env.WEIR_PICTURES === 'write') {
  for (const [file, dashboard] of Object.entries(DASHBOARDS)) {
    test(`the picture of ${file} is small`, () => {
      const { html, height } = page(dashboard, answers[file], WITHOUT_DATA[file]);
      const [source, raw] = [join(folder, 'page.html'), join(folder, 'page.png')];
      writeFileSync(source, html);
      const options = ['--headless', '--no-sandbox', '--hide-scrollbars', '--disable-gpu'];
      const size = [`--window-size=${WIDTH},${height}`, `--screenshot=${raw}`];
      execFileSync('chromium', [...options, ...size, `file://${source}`], { stdio: 'ignore' });
      const path = join(ROOT, `docs/src/img/dashboard-${file.replace('.json', '.png')}`);
      const reduce = ['--force', '--strip', '--speed', '1', '--output', path, '64', raw];
      execFileSync('pngquant', reduce);
      assert.ok(statSync(path).size <= LARGEST_PICTURE, `${path}: ${statSync(path).size} bytes`);
    });
  }
}

test('a broken lab fires its alerts, with complete texts', async () => {
  await lab.break();
  const firing = await eventually('the alerts of the broken lab', 90, async () => {
    const all = (await lab.alerts()).filter(({ state }) => state === 'firing');
    const missing = BROKEN.filter((name) => !all.some(({ labels }) => labels.alertname === name));
    if (missing.length) throw new Error(`not firing: ${missing.join(', ')}`);
    return all;
  });
  for (const { labels, annotations } of firing) {
    const declared = ALERTS.find(({ alert }) => alert === labels.alertname);
    assert.equal(labels.severity, declared.severity);
    const texts = Object.values(annotations).join(' ');
    assert.doesNotMatch(texts, /<no value>|<error|\{\{| {2}/, labels.alertname);
    assert.match(annotations.runbook_url, /#weir/);
  }
});
