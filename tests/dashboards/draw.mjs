// Draws a dashboard from its JSON and the answers of Prometheus as an HTML page. It is not Grafana:
// it shows that the queries have data, and how the panels are arranged.

const HEX = {
  green: '#3f9e4d',
  red: '#d93a4a',
  orange: '#f58220',
  'dark-orange': '#e0662b',
  yellow: '#d9a400',
  blue: '#2f6fd0',
  'light-blue': '#7fb0f5',
  'light-orange': '#ffb870',
  purple: '#8f4fc0',
  transparent: 'transparent',
};
const PALETTE = [
  '#3f9e4d',
  '#d9a400',
  '#2f6fd0',
  '#f58220',
  '#d93a4a',
  '#8f4fc0',
  '#1f9aa8',
  '#8a6d3b',
  '#c2569b',
  '#5b6b7a',
];

const escape = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

/**
 * Returns the distance between the grid lines of an axis up to `max`: 1, 2, 2.5 or 5 times a power
 * of ten, in the unit that is shown, so that there are three to five lines. An axis of whole
 * numbers has no fractions.
 */
function axisStep(max, unit, whole) {
  let scale = 1;
  if (unit === 'bytes') while (max / scale >= 1024) scale *= 1024;
  const min = max / scale / 4;
  const power = 10 ** Math.floor(Math.log10(min));
  const factors = unit === 'short' && whole && power < 10 ? [1, 2, 5, 10] : [1, 2, 2.5, 5, 10];
  const step = factors.find((factor) => factor * power >= min * (1 - 1e-9)) * power;
  return (unit === 'short' && whole ? Math.max(1, step) : step) * scale;
}

/** Returns a value in its unit with three significant digits. */
export function format(value, unit) {
  if (value === undefined || Number.isNaN(value)) return '-';
  const digits = (number) => {
    const size = Math.abs(number);
    if (size >= 100) return number.toFixed(0);
    return Number(number.toPrecision(3)).toString();
  };
  const scaled = (steps, base = '') => {
    const step = steps.find(([size]) => Math.abs(value) >= size) ?? [1, ''];
    return `${digits(value / (step[0] || 1))}${step[1]}${base}`;
  };
  const SI = [
    [1e9, ' G'],
    [1e6, ' M'],
    [1e3, ' k'],
  ];
  switch (unit) {
    case 'percentunit':
      return `${digits(value * 100)}%`;
    case 'pps':
      return scaled(SI, Math.abs(value) >= 1000 ? 'p/s' : ' p/s');
    case 'ops':
      return scaled(SI, Math.abs(value) >= 1000 ? '/s' : ' /s');
    case 'Bps':
      return scaled([
        [1e9, ' GB/s'],
        [1e6, ' MB/s'],
        [1e3, ' kB/s'],
        [0, ' B/s'],
      ]);
    case 'bytes':
      return scaled([
        [1 << 30, ' GiB'],
        [1 << 20, ' MiB'],
        [1024, ' KiB'],
        [0, ' B'],
      ]);
    case 's': {
      const size = Math.abs(value);
      if (size === 0) return '0 s';
      if (size < 1e-3) return `${digits(value * 1e6)} µs`;
      if (size < 1) return `${digits(value * 1e3)} ms`;
      if (size < 120) return `${digits(value)} s`;
      if (size < 7200) return `${digits(value / 60)} min`;
      return size < 172_800 ? `${digits(value / 3600)} h` : `${digits(value / 86_400)} days`;
    }
    default:
      return scaled(SI);
  }
}

const legendOf = (template, labels) =>
  template.replace(/\{\{(\w+)\}\}/g, (_, name) => labels[name] ?? '').trim();

const thresholdColor = (thresholds, value) =>
  thresholds.steps.filter(({ value: min }) => min === null || value >= min).at(-1).color;

function colorOf(panel, legend, index) {
  const match = panel.fieldConfig.overrides.find(
    ({ matcher }) =>
      matcher.id === 'byRegexp' && new RegExp(matcher.options.slice(1, -1)).test(legend),
  );
  return match ? HEX[match.properties[0].value.fixedColor] : PALETTE[index % PALETTE.length];
}

/** Seconds without a sample that interrupt a line. */
const GAP = 5;

function segments(points) {
  const all = [];
  for (const point of points) {
    if (all.length && point[0] - all.at(-1).at(-1)[0] <= GAP) all.at(-1).push(point);
    else all.push([point]);
  }
  return all;
}

function drawSeries(panel, answers, [width, height], range) {
  const { defaults } = panel.fieldConfig;
  const lines = answers.flatMap(({ target, series }) =>
    series.map(({ metric, values }) => ({
      legend: legendOf(target.legendFormat, metric),
      points: values
        .map(([time, value]) => [time, Number(value)])
        .filter(([, v]) => Number.isFinite(v)),
    })),
  );
  lines.sort((a, b) => a.legend.localeCompare(b.legend, 'en', { numeric: true }));
  const shown = lines.filter(({ points }) => points.length);
  const [from, to] = range;
  const stack = defaults.custom.stacking.mode === 'normal';
  const sums = new Map();
  if (stack) {
    for (const line of shown) {
      line.points = line.points.map(([time, value]) => {
        const low = sums.get(time) ?? 0;
        sums.set(time, low + value);
        return [time, low + value, low];
      });
    }
  }
  const values = shown.flatMap(({ points }) => points.map(([, value]) => value));
  const limits = (defaults.thresholds?.steps ?? []).filter(({ value }) => value !== null);
  let max = Math.max(...values, 0) * 1.05 || 1;
  // Without a value above 0, the axis shows the limits.
  if (limits.length && !values.some((value) => value > 0)) max = limits.at(-1).value * 1.5;
  if (defaults.max !== undefined) max = Math.max(defaults.max, ...values);
  const step = axisStep(max, defaults.unit, values.every(Number.isInteger));
  const count = Math.ceil(max / step - 1e-9);
  const top = count * step;
  const [left, right, bottom, above] = [62, 8, 20, 6];
  const legendHeight =
    14 * Math.min(2, Math.ceil(shown.reduce((w, l) => w + 26 + l.legend.length * 5.6, 0) / width));
  const chart = height - legendHeight - bottom - above;
  const x = (time) => left + ((time - from) / (to - from || 1)) * (width - left - right);
  const y = (value) => above + chart - (Math.min(value, top) / top) * chart;
  const parts = [];
  for (let n = 0; n <= count; n += 1) {
    const at = y(step * n);
    parts.push(`<line x1="${left}" x2="${width - right}" y1="${at}" y2="${at}" stroke="#e4e7eb"/>`);
    parts.push(
      `<text x="${left - 6}" y="${at + 3.5}" text-anchor="end">${format(step * n, defaults.unit)}</text>`,
    );
  }
  for (let n = 0; n <= 3; n += 1) {
    const time = from + ((to - from) * n) / 3;
    const text = new Date(time * 1000).toISOString().slice(11, 19);
    const anchor = ['start', 'middle', 'middle', 'end'][n];
    parts.push(
      `<text x="${x(time)}" y="${height - legendHeight - 5}" text-anchor="${anchor}">${text}</text>`,
    );
  }
  shown.forEach((line, index) => {
    const color = colorOf(panel, line.legend, index);
    line.color = color;
    // In a stack, a line whose values are all zero would cover the one below.
    if (stack && line.points.every(([, value, low]) => value === low)) return;
    // A line ends where samples are missing.
    for (const points of segments(line.points)) {
      const at = ([time, value]) => `${x(time).toFixed(1)} ${y(value).toFixed(1)}`;
      const path = `M${points.map(at).join('L')}`;
      const lower = [...points].reverse().map(([time, , low = 0]) => at([time, low]));
      parts.push(
        `<path d="${path}L${lower.join('L')}Z" fill="${color}" opacity="${stack ? 0.4 : 0.07}"/>`,
        `<path d="${path}" fill="none" stroke="${color}" stroke-width="1.4"/>`,
      );
    }
  });
  if (defaults.custom.thresholdsStyle.mode === 'line') {
    for (const { value, color } of limits.filter(({ value }) => value <= top)) {
      parts.push(
        `<line x1="${left}" x2="${width - right}" y1="${y(value)}" y2="${y(value)}" stroke="${HEX[color]}" stroke-dasharray="5 4"/>`,
      );
    }
  }
  const legend = shown.map(
    ({ legend: text, color }) => `<span><i style="background:${color}"></i>${escape(text)}</span>`,
  );
  return (
    `<svg width="${width}" height="${height - legendHeight}">${parts.join('')}</svg>` +
    `<div class="legend" style="height:${legendHeight}px">${legend.join('')}</div>`
  );
}

function drawStat(panel, answers, [, height]) {
  const { defaults } = panel.fieldConfig;
  const value = Number(answers[0].series[0]?.value[1] ?? Number.NaN);
  const mapped = defaults.mappings[0]?.options[value];
  const color = mapped?.color ?? thresholdColor(defaults.thresholds, value);
  const text = mapped?.text ?? format(value, defaults.unit);
  return `<div class="stat" style="background:${HEX[color]};height:${height}px">${escape(text)}</div>`;
}

function drawTable(panel, answers) {
  const organize = panel.transformations.find(({ id }) => id === 'organize').options;
  const column = (n) =>
    organize.renameByName[answers.length === 1 ? 'Value' : `Value #${answers[n].target.refId}`];
  const labels = Object.keys(organize.renameByName).filter((name) => !name.startsWith('Value'));
  const rows = new Map();
  answers.forEach(({ series }, n) => {
    for (const { metric, value } of series) {
      const key = labels.map((label) => metric[label] ?? '').join('\0');
      if (!rows.has(key)) rows.set(key, { metric, values: [] });
      rows.get(key).values[n] = Number(value[1]);
    }
  });
  const hidden = answers.map(
    (_, n) => answers.length === 1 && organize.excludeByName.Value && n === 0,
  );
  const head = [
    ...labels.map((label) => organize.renameByName[label]),
    ...answers.map((_, n) => column(n)).filter((_, n) => !hidden[n]),
  ];
  const cell = (row, n) => {
    const override = panel.fieldConfig.overrides.find(
      ({ matcher }) => matcher.options === column(n),
    );
    const property = (id) => override?.properties.find((one) => one.id === id)?.value;
    const steps = property('thresholds');
    const color =
      steps && row.values[n] !== undefined ? HEX[thresholdColor(steps, row.values[n])] : 'inherit';
    return `<td style="color:${color}">${format(row.values[n], property('unit'))}</td>`;
  };
  const body = [...rows.values()].map(
    (row) =>
      `<tr>${labels.map((label) => `<td>${escape(row.metric[label] ?? '')}</td>`).join('')}` +
      `${answers.map((_, n) => (hidden[n] ? '' : cell(row, n))).join('')}</tr>`,
  );
  return `<table><tr>${head.map((name) => `<th>${escape(name)}</th>`).join('')}</tr>${body.join('')}</table>`;
}

const STYLE = `
* { box-sizing: border-box }
body { margin: 0; background: #f4f5f7; font: 12px "DejaVu Sans", sans-serif; color: #24292e }
h1 { font-size: 17px; margin: 0; position: absolute; left: 12px; top: 10px }
.row { position: absolute; font-weight: bold; font-size: 13px; padding: 8px 0 0 2px }
.panel { position: absolute; background: #fff; border: 1px solid #dcdfe4; border-radius: 3px; padding: 6px 8px; overflow: hidden }
.panel b { font-size: 12px; white-space: nowrap }
svg text { font: 10px "DejaVu Sans", sans-serif; fill: #57606a }
.legend { overflow: hidden; font-size: 10px; line-height: 14px; color: #3c434a }
.legend span { margin-right: 12px; white-space: nowrap; display: inline-block }
.legend i { display: inline-block; width: 10px; height: 3px; margin-right: 4px; vertical-align: middle }
.stat { color: #fff; font-size: 24px; display: flex; align-items: center; justify-content: center; border-radius: 3px; margin-top: 3px }
table { border-collapse: collapse; width: 100%; margin-top: 4px; font-size: 11px }
th, td { text-align: left; padding: 4px 6px; border-bottom: 1px solid #e4e7eb; white-space: nowrap }
.none { color: #8a929a; display: flex; align-items: center; justify-content: center; text-align: center; height: 80% }
`;

export const WIDTH = 1440;
const [CELL, LINE, TOP] = [WIDTH / 24, 26, 40];

/**
 * Returns the page and its height. `answers` are, by panel id, each target with its series; for a
 * panel that has none, `reasons` says why.
 */
export function page(dashboard, answers, reasons) {
  const times = [...answers.values()]
    .flat()
    .flatMap(({ series }) => series.flatMap(({ values }) => (values ?? []).map(([time]) => time)));
  const range = [Math.min(...times), Math.max(...times)];
  const bottom = Math.max(...dashboard.panels.map(({ gridPos: { y, h } }) => y + h));
  const boxes = dashboard.panels.map((panel) => {
    const { x, y, w, h } = panel.gridPos;
    const at = `left:${x * CELL + 4}px;top:${TOP + y * LINE}px;width:${w * CELL - 8}px;height:${h * LINE - 6}px`;
    if (panel.type === 'row') return `<div class="row" style="${at}">${escape(panel.title)}</div>`;
    const size = [w * CELL - 26, h * LINE - 40];
    const draw = { timeseries: drawSeries, stat: drawStat, table: drawTable }[panel.type];
    const results = answers.get(panel.id);
    const empty = results.every(({ series }) => series.length === 0);
    const content = empty
      ? `<div class="none">no data here: ${escape(reasons.get(panel.title) ?? '')}</div>`
      : draw(panel, results, size, range);
    return `<div class="panel" style="${at}"><b>${escape(panel.title)}</b>${content}</div>`;
  });
  const html = `<!doctype html><meta charset="utf-8"><style>${STYLE}</style><h1>${escape(dashboard.title)}</h1>${boxes.join('')}`;
  return { html, height: TOP + bottom * LINE + 4 };
}
