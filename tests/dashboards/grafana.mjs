// Builds dashboards in Grafana's JSON from rows of panels: layout, units, colors, variables, links.

import { ALERTS, BOOK } from './rules.mjs';
import { runbook } from './yaml.mjs';

const DATASOURCE = { type: 'prometheus', uid: '${datasource}' };

/** The same meaning has the same color on every dashboard: legends that match, and the color. */
const COLORS = [
  ['^ingress( rx| received)?$', 'blue'],
  ['^ingress (tx|sent)$', 'light-blue'],
  ['^egress( rx| received)?$', 'orange'],
  ['^egress (tx|sent)$', 'light-orange'],
  ['^(fault|lost|unhealthy|bad|reset|denied|failed|Rejected)', 'red'],
  ['^(mismatch|moved|missed|throttled|Pending)', 'dark-orange'],
  ['^(peer|unknown|late|transient)', 'yellow'],
  ['^(policy|evicted|not_run)', 'purple'],
  ['^(healthy|good|ok|available|Approved|ready)', 'green'],
];

const fixed = (color) => ({ mode: 'fixed', fixedColor: color });

/** Returns whether a legend may match a color: a variable part may be anything of its label. */
function mayMatch(legend, pattern) {
  const label = /^\{\{(\w+)\}\}/.exec(legend)?.[1];
  if (label === undefined) return new RegExp(pattern).test(legend);
  const arms = /gress/.test(pattern);
  return label === 'arm'
    ? arms
    : ['state', 'result', 'outcome', 'verdict'].includes(label) && !arms;
}

const overrides = (legends) =>
  COLORS.filter(([pattern]) => legends.some((legend) => mayMatch(legend, pattern))).map(
    ([pattern, color]) => ({
      matcher: { id: 'byRegexp', options: `/${pattern}/` },
      properties: [{ id: 'color', value: fixed(color) }],
    }),
  );

/** Returns thresholds: the color `base` below the first value, then the color of each value. */
const thresholds = (steps, base = 'green') => ({
  mode: 'absolute',
  steps: [{ color: base, value: null }, ...steps.map(([value, color]) => ({ color, value }))],
});

const targets = (queries, instant, table = false) =>
  queries.map(([expr, legend], n) => ({
    refId: String.fromCharCode(65 + n),
    datasource: DATASOURCE,
    expr,
    legendFormat: legend ?? '__auto',
    editorMode: 'code',
    ...(instant ? { instant: true, range: false } : { range: true }),
    ...(table ? { format: 'table' } : {}),
  }));

/**
 * A time series. Each query is [expression, legend]. `options`: `w` and `h` in grid units, `stack`,
 * `max`, `steps` (thresholds, drawn as lines), `alert` (its runbook is linked), `without` (why a lab
 * has no data: the test then only requires that the query is valid).
 */
export function series(title, description, unit, queries, options = {}) {
  const { w = 8, h = 7, stack = false, max, steps, alert, without } = options;
  return {
    w,
    h,
    without,
    alert,
    panel: {
      type: 'timeseries',
      title,
      description,
      targets: targets(queries, false),
      fieldConfig: {
        defaults: {
          unit,
          min: 0,
          ...(max === undefined ? {} : { max }),
          color: { mode: 'palette-classic' },
          ...(steps ? { thresholds: thresholds(steps, 'transparent') } : {}),
          custom: {
            drawStyle: 'line',
            lineInterpolation: 'linear',
            lineWidth: 1,
            fillOpacity: stack ? 40 : 10,
            showPoints: 'never',
            spanNulls: false,
            stacking: { mode: stack ? 'normal' : 'none', group: 'A' },
            thresholdsStyle: { mode: steps ? 'line' : 'off' },
          },
        },
        overrides: overrides(queries.map(([, legend]) => legend)),
      },
      options: {
        legend: { displayMode: 'list', placement: 'bottom', showLegend: true, calcs: [] },
        tooltip: { mode: 'multi', sort: 'desc' },
      },
    },
  };
}

/** A single value. `options.texts` maps values to [text, color]. */
export function stat(title, description, unit, expr, options = {}) {
  const { w = 4, h = 4, steps = [], base = 'green', texts, alert, without, legend } = options;
  const mapping = Object.fromEntries(
    Object.entries(texts ?? {}).map(([value, [text, color]], index) => [
      value,
      { text, color, index },
    ]),
  );
  return {
    w,
    h,
    without,
    alert,
    panel: {
      type: 'stat',
      title,
      description,
      targets: targets([[expr, legend ?? title]], true),
      fieldConfig: {
        defaults: {
          unit,
          color: { mode: 'thresholds' },
          thresholds: thresholds(steps, base),
          mappings: texts ? [{ type: 'value', options: mapping }] : [],
          noValue: '-',
        },
        overrides: [],
      },
      options: {
        colorMode: 'background',
        graphMode: 'none',
        justifyMode: 'auto',
        orientation: 'auto',
        textMode: legend ? 'value_and_name' : 'auto',
        wideLayout: true,
        showPercentChange: false,
        percentChangeColorMode: 'standard',
        reduceOptions: { calcs: ['lastNotNull'], fields: '', values: false },
      },
    },
  };
}

/**
 * A table: `labels` are columns of labels with their titles, `columns` are [title, unit, expression].
 * With a column of labels `instance`, its cells link to the dashboard of the appliance.
 */
export function table(title, description, labels, columns, options = {}) {
  const { w = 24, h = 8, alert, without } = options;
  const ref = (n) => String.fromCharCode(65 + n);
  const hidden = ['Time', 'job', '__name__', ...(options.hidden ?? [])];
  return {
    w,
    h,
    without,
    alert,
    panel: {
      type: 'table',
      title,
      description,
      targets: targets(
        columns.map(([, , expr]) => [expr, '']),
        true,
        true,
      ),
      transformations: [
        { id: 'merge', options: {} },
        {
          id: 'organize',
          options: {
            excludeByName: Object.fromEntries(hidden.map((name) => [name, true])),
            renameByName: {
              ...labels,
              // With one query, Grafana names the column `Value` without the query's letter.
              ...(columns.length === 1
                ? { Value: columns[0][0] }
                : Object.fromEntries(columns.map(([name], n) => [`Value #${ref(n)}`, name]))),
            },
            indexByName: {},
            includeByName: {},
          },
        },
      ],
      fieldConfig: {
        defaults: {
          color: { mode: 'thresholds' },
          thresholds: thresholds([]),
          custom: { align: 'auto', cellOptions: { type: 'auto' }, inspect: false },
        },
        overrides: [
          ...columns.map(([name, unit, , steps]) => ({
            matcher: { id: 'byName', options: name },
            properties: [
              { id: 'unit', value: unit },
              ...(steps
                ? [
                    { id: 'thresholds', value: thresholds(steps.values, steps.base) },
                    { id: 'custom.cellOptions', value: { type: 'color-text' } },
                  ]
                : []),
            ],
          })),
          ...(labels.instance
            ? [
                {
                  matcher: { id: 'byName', options: labels.instance },
                  properties: [
                    {
                      id: 'links',
                      value: [
                        {
                          title: 'Appliance',
                          url: '/d/weir-appliance?var-job=${job}&var-instance=${__value.raw}&${__url_time_range}',
                        },
                      ],
                    },
                  ],
                },
              ]
            : []),
        ],
      },
      options: { showHeader: true, cellHeight: 'sm', frameIndex: 0 },
    },
  };
}

const runbookLink = (name) => {
  const alert = ALERTS.find((one) => one.alert === name);
  if (!alert) throw new Error(`no alert ${name}`);
  const url = runbook(alert).replace(BOOK, '${runbooks}');
  return {
    ...{ type: 'link', title: `Runbook of ${name}`, url, targetBlank: true, icon: 'external link' },
    ...{ tooltip: '', tags: [], asDropdown: false, includeVars: false, keepTime: false },
  };
};

const queryVariable = (name, label, query, options) => ({
  name,
  label,
  type: 'query',
  datasource: DATASOURCE,
  query: { query, refId: name },
  refresh: 2,
  sort: 7,
  hide: 0,
  multi: false,
  includeAll: false,
  skipUrlSync: false,
  ...options,
});

const ALL = {
  multi: true,
  includeAll: true,
  allValue: '.*',
  current: { text: ['All'], value: ['$__all'] },
};

/** The variables, by name. */
const VARIABLES = {
  datasource: {
    name: 'datasource',
    label: 'Data source',
    type: 'datasource',
    query: 'prometheus',
    hide: 0,
  },
  job: queryVariable('job', 'Job', 'label_values(weir_able, job)'),
  instances: queryVariable(
    'instance',
    'Appliance',
    'label_values(weir_able{job="$job"}, instance)',
    ALL,
  ),
  instance: queryVariable('instance', 'Appliance', 'label_values(weir_able{job="$job"}, instance)'),
  service: queryVariable(
    'service',
    'Service',
    'label_values(weir_service_flows{job="$job",instance=~"$instance"}, service)',
    ALL,
  ),
  runbooks: { name: 'runbooks', label: 'Book', type: 'constant', query: BOOK, hide: 2 },
};

/**
 * Returns a dashboard. `rows` are [title, panels]; `variables` names those of VARIABLES that it has
 * in addition to datasource, job and runbooks.
 */
export function dashboard({ uid, title, description, variables, rows }) {
  const panels = [];
  let [id, y] = [1, 0];
  for (const [name, row] of rows) {
    panels.push({
      ...{ type: 'row', id: id++, title: name, collapsed: false, panels: [] },
      gridPos: { x: 0, y, w: 24, h: 1 },
    });
    y += 1;
    let [x, height] = [0, 0];
    for (const { w, h, panel, alert } of row) {
      if (x + w > 24) {
        y += height;
        [x, height] = [0, 0];
      }
      panels.push({
        id: id++,
        datasource: DATASOURCE,
        ...panel,
        ...(alert ? { links: [alert].flat().map(runbookLink) } : {}),
        gridPos: { x, y, w, h },
      });
      x += w;
      height = Math.max(height, h);
    }
    y += height;
  }
  const link = {
    ...{
      type: 'dashboards',
      title: 'Weir',
      tags: ['weir'],
      asDropdown: true,
      icon: 'external link',
    },
    ...{ includeVars: true, keepTime: true, targetBlank: false, tooltip: '', url: '' },
  };
  return {
    uid,
    title,
    description,
    tags: ['weir'],
    schemaVersion: 41,
    editable: true,
    graphTooltip: 1,
    refresh: '30s',
    time: { from: 'now-3h', to: 'now' },
    timezone: 'browser',
    links: [link],
    annotations: {
      list: [
        {
          name: 'Alerts',
          datasource: DATASOURCE,
          enable: true,
          iconColor: 'red',
          expr: 'ALERTS{job="$job",instance=~"$instance",alertstate="firing",severity="page"}',
          titleFormat: '{{alertname}}',
        },
      ],
    },
    templating: {
      list: ['datasource', 'job', ...variables, 'runbooks'].map((name) => VARIABLES[name]),
    },
    panels,
  };
}

/** Returns, for one dashboard, by title of the panel why the lab has no data for it. */
export const withoutData = (spec) =>
  new Map(
    spec.rows.flatMap(([, row]) =>
      row.filter((one) => one.without).map((one) => [one.panel.title, one.without]),
    ),
  );
