// The tests of rules and dashboards that need no appliance. Those named "finds" give the same checks
// one fault, and fail if the fault is not found.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import {
  dashboardFaults,
  runbookFaults,
  selectors,
  unclassified,
  unknownMetrics,
} from './checks.mjs';
import { ROOT, differences } from './generate.mjs';
import { DASHBOARDS, SPECS } from './panels.mjs';
import { REASONS } from './reasons.mjs';
import { ALERTS, RECORDINGS } from './rules.mjs';
import { typeErrors } from './types.mjs';
import { alertTests } from './yaml.mjs';

const read = (path) => readFileSync(join(ROOT, path), 'utf8');
const none = (faults) => assert.equal(faults.join('\n'), '');
const DECLARED = JSON.parse(read('docs/src/reference/metrics.json'));
const RECORDED = RECORDINGS.map(({ record }) => record);
const MODULES = join(ROOT, '.tools/dashboards/node_modules');
const PAGES = Object.fromEntries(
  [...new Set(ALERTS.map(({ page }) => page))].map((page) => [
    page,
    read(`docs/src/operate/${page}.md`),
  ]),
);

const folder = mkdtempSync(join(tmpdir(), 'weir-prometheus-'));
cpSync(join(ROOT, 'config/prometheus'), folder, { recursive: true });
after(() => rmSync(folder, { recursive: true, force: true }));

/** Runs promtool in a copy of config/prometheus; returns its status and output. */
function promtool(...args) {
  const run = spawnSync('promtool', args, { cwd: folder, encoding: 'utf8' });
  assert.equal(run.error, undefined);
  return { status: run.status, output: run.stdout + run.stderr };
}

const expressions = () => [
  ...[...RECORDINGS, ...ALERTS].map(({ expr }) => expr),
  ...Object.values(DASHBOARDS).flatMap(({ panels }) =>
    panels.flatMap(({ targets }) => (targets ?? []).map(({ expr }) => expr)),
  ),
  ...Object.values(DASHBOARDS).flatMap(({ templating }) =>
    templating.list.flatMap(
      ({ query }) => /label_values\((.*),/.exec(query?.query ?? '')?.[1] ?? [],
    ),
  ),
];

const unknownIn = (all) => all.flatMap((expr) => unknownMetrics(expr, DECLARED, RECORDED));

test('the committed files are those of the generator', () => {
  none(differences().map((path) => `${path}: run make dashboards-write`));
});

test('every metric and label of rules and dashboards is in the reference', () => {
  assert.ok(expressions().length > 200);
  none(unknownIn(expressions()));
});

test('finds a metric and a label that do not exist', () => {
  assert.match(unknownIn(['rate(weir_drop_total[5m])'])[0], /no metric weir_drop_total/);
  assert.match(unknownIn(['weir_drops_total{cause="x"}'])[0], /no label cause/);
  assert.deepEqual(unknownIn(['sum by (cause) (weir_drops_total{reason="x"}) / on (weir) up']), []);
  assert.deepEqual(selectors('a_b + weir_able{job="$job"}'), [
    { name: 'weir_able', labels: ['job'] },
  ]);
});

/** Words of the book that look like metrics. */
const NO_METRICS = ['weir_backup'];

test('every metric that the book names is in the reference', () => {
  const names = (text) =>
    [...text.matchAll(/`(weir_[a-z0-9_]*[a-z0-9])(?=[`{ ])/g)].map(([, name]) => name);
  const folder = join(ROOT, 'docs/src');
  const pages = readdirSync(folder, { recursive: true }).filter(
    (path) => path.endsWith('.md') && !path.startsWith('reference/'),
  );
  const all = pages.flatMap((path) =>
    names(read(`docs/src/${path}`))
      .filter((name) => !NO_METRICS.includes(name))
      .map((name) => [path, name]),
  );
  assert.ok(all.length > 5);
  none(all.flatMap(([path, name]) => unknownIn([name]).map((fault) => `${path}: ${fault}`)));
});

test('every drop reason has a class', () => {
  none(unclassified(REASONS, read('docs/src/reference/drop-reasons.md')));
});

test('finds drop reasons without a class, and classes without a reason', () => {
  const page = read('docs/src/reference/drop-reasons.md');
  const { no_route: _, ...without } = REASONS;
  assert.match(unclassified(without, page).join(), /no class for no_route/);
  assert.match(
    unclassified({ ...REASONS, no_road: 'fault' }, page).join(),
    /no_road is no drop reason/,
  );
  assert.match(unclassified({ ...REASONS, no_route: 'bad' }, page).join(), /no class bad/);
});

test('every alert has a runbook, and every runbook an alert', () => {
  none(runbookFaults(ALERTS, PAGES));
});

test('finds a missing, a superfluous and an incomplete runbook', () => {
  const alert = ALERTS[0];
  const faults = (text) => runbookFaults([alert], { [alert.page]: text }).join();
  assert.match(faults('# T\n'), /0 runbooks/);
  assert.match(faults(`## ${alert.alert}\n\nShort.\n`), /too short.*escalate/);
  assert.match(
    faults(`${PAGES[alert.page].split('## ', 2).join('## ')}## WeirNothing\n\nText.\n`),
    /no alert WeirNothing/,
  );
});

test('alerts are complete, and every alert has a panel that links to its runbook', () => {
  const names = ALERTS.map(({ alert }) => alert);
  assert.equal(new Set(names).size, names.length);
  const linked = Object.values(SPECS).flatMap(({ rows }) =>
    rows.flatMap(([, row]) => row.flatMap(({ alert }) => alert ?? [])),
  );
  for (const { alert, severity, summary, description, fires, quiet } of ALERTS) {
    assert.match(alert, /^Weir[A-Z][A-Za-z]+$/);
    assert.ok(['page', 'ticket'].includes(severity), alert);
    assert.ok(summary && description.endsWith('.'), `${alert}: texts`);
    assert.ok(fires.length && quiet.length, `${alert}: series that fire, and that do not`);
    assert.ok(linked.includes(alert), `${alert}: no panel links to its runbook`);
  }
});

test('promtool accepts the rules and the example of a configuration', () => {
  writeFileSync(join(folder, 'weir-token'), '');
  writeFileSync(join(folder, 'weir-ca.pem'), '');
  // This also checks the files of rules, with linting as fatal.
  const { status, output } = promtool('check', 'config', '--lint-fatal', 'prometheus.yml');
  assert.equal(status, 0, output);
  for (const { length } of [RECORDINGS, ALERTS]) {
    assert.match(output, new RegExp(`SUCCESS: ${length} rules found`));
  }
});

test('each job of the example has TLS and a token, and discovers what the modules create', () => {
  const text = read('config/prometheus/prometheus.yml');
  const jobs = text.split('  - job_name: ').slice(1);
  assert.equal(jobs.length, 3);
  for (const job of jobs) {
    for (const key of ['scheme: https', 'ca_file: weir-ca.pem', 'credentials_file: weir-token'])
      assert.ok(job.includes(key), `${job}: no ${key}`);
  }
  assert.match(text, /name: tag:weir:cluster\n/);
  assert.match(read('config/aws/main.tf'), /tags = \{ "weir:cluster" = var.cluster \}/);
  const set = /\[__meta_azure_machine_scale_set\], regex: (.*), action: keep/.exec(text)?.[1];
  assert.match(
    read('config/azure/variables.tf'),
    new RegExp(`variable "name" \\{[^}]*default += "${set}"`),
  );
  assert.match(
    read('config/azure/main.tf'),
    /"azurerm_linux_virtual_machine_scale_set" "weir" \{\n +name += var.name\n/,
  );
});

test('every alert fires for its series, and does not for others', () => {
  writeFileSync(join(folder, 'test.yml'), alertTests(['recording.yml', 'alerts.yml']));
  const { status, output } = promtool('test', 'rules', 'test.yml');
  assert.equal(status, 0, output);
});

test('finds alerts that never fire, lack the job, always fire, or fire only at the beginning', () => {
  const text = read('config/prometheus/alerts.yml');
  const from = '\n          weir_able == 0\n';
  assert.equal(text.split(from).length, 2);
  for (const to of [
    'weir_able == 2',
    'max without (job) (weir_able) == 0',
    'weir_able >= 0',
    'weir_able == 0 or weir_able and on () vector(time()) < 300',
  ]) {
    writeFileSync(join(folder, 'broken.yml'), text.replace(from, `\n          ${to}\n`));
    const tests = alertTests(['recording.yml', 'broken.yml'], 'WeirNotAble');
    writeFileSync(join(folder, 'test.yml'), tests);
    const { status, output } = promtool('test', 'rules', 'test.yml');
    assert.equal(status, 1, output);
    assert.match(output, /WeirNotAble/);
  }
});

test('dashboards are consistent', () => {
  none(dashboardFaults(DASHBOARDS));
});

const changed = (change) => {
  const copy = structuredClone(DASHBOARDS);
  change(copy['fleet.json']);
  return copy;
};

test('finds inconsistent dashboards', () => {
  const faults = (change) => dashboardFaults(changed(change)).join();
  assert.match(
    faults((board) => (board.panels[2].gridPos.x = 0)),
    /overlaps/,
  );
  assert.match(
    faults((board) => (board.panels[1].description = '')),
    /no description/,
  );
  assert.match(
    faults((board) => (board.panels[1].targets[0].expr = 'weir_able')),
    /not limited to the job/,
  );
  assert.match(
    faults((board) => (board.panels[1].targets[0].expr += '$host')),
    /no variable host/,
  );
  assert.match(
    faults((board) => (board.uid = 'weir-service')),
    /same uid/,
  );
});

test("dashboards have the types of Grafana's schema", () => {
  none(typeErrors(DASHBOARDS, MODULES));
});

test("finds dashboards that do not have the types of Grafana's schema", () => {
  const panel = (board, type) => board.panels.find((one) => one.type === type);
  const mutations = [
    (board) => (board.schemaVersion = '41'),
    (board) => (board.graphTooltip = 7),
    (board) => (board.templating.list[0].type = 'data'),
    (board) => (panel(board, 'stat').options.colorMode = 'back'),
    (board) => (panel(board, 'timeseries').options.legend.placement = 'below'),
    (board) => (panel(board, 'timeseries').fieldConfig.defaults.custom.drawStyle = 'lines'),
    (board) => (panel(board, 'timeseries').fieldConfig.defaults.color.mode = 'palette'),
    (board) => (panel(board, 'table').options.cellHeight = 'small'),
    (board) => (panel(board, 'table').title = 1),
    (board) => delete panel(board, 'table').gridPos.w,
  ];
  // All in one run of the compiler: each of these dashboards must have an error.
  const boards = mutations.map((mutation, n) => [`board ${n}`, changed(mutation)['fleet.json']]);
  const errors = typeErrors(Object.fromEntries(boards), MODULES);
  for (const n of mutations.keys()) {
    assert.ok(
      errors.some((error) => error.startsWith(`board ${n}: `)),
      `${mutations[n]}: no error`,
    );
  }
});

test('the example of provisioning names the folder of the package', () => {
  assert.match(
    read('config/grafana/provisioning/weir.yaml'),
    /path: \/usr\/share\/weir\/grafana\/dashboards\n/,
  );
  assert.match(
    read('package/deb.sh'),
    /cp -r config\/\{prometheus,grafana\} "\$root\/usr\/share\/weir"/,
  );
});
