// Writes the rules in config/prometheus and the dashboards in config/grafana.

import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { DASHBOARDS } from './panels.mjs';
import { alertingRules, recordingRules } from './yaml.mjs';

export const ROOT = join(dirname(fileURLToPath(import.meta.url)), '../..');

/** Returns the generated files: path and text. */
export function generated() {
  const dashboards = Object.entries(DASHBOARDS).map(([file, dashboard]) => [
    `config/grafana/dashboards/${file}`,
    `${JSON.stringify(dashboard, null, 2)}\n`,
  ]);
  return [
    ['config/prometheus/recording.yml', recordingRules()],
    ['config/prometheus/alerts.yml', alertingRules()],
    ...dashboards,
  ];
}

/** Returns the files that differ from what the generator writes, and superfluous dashboards. */
export function differences() {
  const read = (path) => {
    try {
      return readFileSync(join(ROOT, path), 'utf8');
    } catch {
      return undefined;
    }
  };
  const files = generated();
  const names = files.map(([path]) => path);
  const folder = 'config/grafana/dashboards';
  const present = readdirSync(join(ROOT, folder)).map((name) => `${folder}/${name}`);
  return [
    ...files.filter(([path, text]) => read(path) !== text).map(([path]) => path),
    ...present.filter((path) => !names.includes(path)),
  ];
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  for (const [path, text] of generated()) {
    mkdirSync(dirname(join(ROOT, path)), { recursive: true });
    writeFileSync(join(ROOT, path), text);
  }
}
