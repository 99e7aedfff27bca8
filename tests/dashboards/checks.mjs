// The static checks: each returns the faults that it finds, as texts.

import { CLASSES } from './reasons.mjs';

/** Labels that Prometheus adds: of targets, of alerts, and the bounds of histograms. */
const ADDED = new Set(['job', 'instance', 'le']);

/** Metrics of Prometheus itself. */
const FOREIGN = new Set(['up', 'ALERTS']);

const SELECTOR = /\b(up|ALERTS|weir[a-z0-9_:]*|process_[a-z0-9_]+)\b(?:\{([^}]*)\})?/g;

/** Returns the selectors of an expression: names of metrics with the names of labels they match. */
export function selectors(expr) {
  // Names of labels also stand in lists after these words.
  const bare = expr.replace(/\b(by|without|on|ignoring|group_left|group_right) ?\([^)]*\)/g, '');
  return [...bare.matchAll(SELECTOR)].map(([, name, matchers]) => ({
    name,
    labels: [...(matchers ?? '').matchAll(/(\w+)\s*(?:=~|!~|!=|=)\s*"/g)].map(([, label]) => label),
  }));
}

/** Returns what is wrong with the metrics and labels of an expression. */
export function unknownMetrics(expr, declared, recorded) {
  const find = (name) =>
    declared.find((one) => one.name === name) ??
    declared.find(
      (one) => one.type === 'histogram' && name.replace(/_(bucket|sum|count)$/, '') === one.name,
    );
  return selectors(expr).flatMap(({ name, labels }) => {
    if (FOREIGN.has(name) || recorded.includes(name)) return [];
    const metric = find(name);
    if (!metric) return [`no metric ${name} in the reference: ${expr}`];
    const unknown = labels.filter((label) => !ADDED.has(label) && !metric.labels.includes(label));
    return unknown.map((label) => `${name} has no label ${label}: ${expr}`);
  });
}

/** Compares the classes with the reasons of the reference page. */
export function unclassified(reasons, page) {
  const listed = [...page.matchAll(/^\| `(\w+)` \|/gm)].map(([, reason]) => reason);
  const missing = listed.filter((reason) => !(reason in reasons));
  const superfluous = Object.keys(reasons).filter((reason) => !listed.includes(reason));
  const wrong = Object.entries(reasons).filter(([, className]) => !CLASSES.includes(className));
  return [
    ...missing.map((reason) => `tests/dashboards/reasons.mjs: no class for ${reason}`),
    ...superfluous.map((reason) => `tests/dashboards/reasons.mjs: ${reason} is no drop reason`),
    ...wrong.map(
      ([reason, className]) => `tests/dashboards/reasons.mjs: ${reason}: no class ${className}`,
    ),
  ];
}

/** Compares the alerts with the sections of the runbooks; `pages` has the text by name of page. */
export function runbookFaults(alerts, pages) {
  const sections = Object.entries(pages).flatMap(([page, text]) =>
    text
      .split(/^## /m)
      .slice(1)
      .map((section) => [page, ...section.split(/\n([^]*)/)]),
  );
  const faults = [];
  for (const { alert, page } of alerts) {
    const found = sections.filter(([, title]) => title === alert);
    if (found.length !== 1 || found[0][0] !== page) {
      faults.push(
        `${alert}: ${found.length} runbooks (${found.map(([at]) => at)}), expected one in ${page}.md`,
      );
      continue;
    }
    const text = found[0][2];
    // Only the length and the part *Escalate* can be checked; the rest is prose.
    if (text.split(/\s+/).length < 30) faults.push(`${page}.md: ${alert}: too short for a runbook`);
    if (!text.includes('*Escalate*'))
      faults.push(`${page}.md: ${alert}: does not say when to escalate`);
  }
  for (const [page, title] of sections) {
    if (!alerts.some(({ alert }) => alert === title)) faults.push(`${page}.md: no alert ${title}`);
  }
  return faults;
}

/** Checks what types cannot say: layout, texts, links, ids. */
export function dashboardFaults(dashboards) {
  const faults = [];
  const all = Object.entries(dashboards);
  const uids = all.map(([, { uid }]) => uid);
  if (new Set(uids).size !== uids.length) faults.push(`two dashboards have the same uid: ${uids}`);
  for (const [file, { panels, templating }] of all) {
    const taken = new Map();
    const variables = templating.list.map(({ name }) => name);
    const titles = new Set();
    for (const panel of panels) {
      const at = `${file}: ${panel.title}`;
      const { x, y, w, h } = panel.gridPos;
      if (x + w > 24) faults.push(`${at}: wider than the grid`);
      for (let row = y; row < y + h; row += 1) {
        for (let column = x; column < x + w; column += 1) {
          const cell = `${column} ${row}`;
          if (taken.has(cell)) faults.push(`${at}: overlaps ${taken.get(cell)}`);
          taken.set(cell, panel.title);
        }
      }
      if (panel.type === 'row') continue;
      // The lab's tests find panels without data (WITHOUT_DATA) by title.
      if (titles.has(`${panel.type} ${panel.title}`)) faults.push(`${at}: title occurs twice`);
      titles.add(`${panel.type} ${panel.title}`);
      if (!panel.description?.endsWith('.')) faults.push(`${at}: no description`);
      if (!panel.targets.length) faults.push(`${at}: no query`);
      if (panel.type !== 'table' && !panel.fieldConfig.defaults.unit) faults.push(`${at}: no unit`);
      for (const { expr } of panel.targets) {
        for (const [, name] of expr.matchAll(/\$(\w+)/g)) {
          if (name !== '__rate_interval' && !variables.includes(name))
            faults.push(`${at}: no variable ${name}`);
        }
        if (!expr.includes('job="$job"')) faults.push(`${at}: ${expr} is not limited to the job`);
      }
    }
  }
  return [...new Set(faults)];
}
