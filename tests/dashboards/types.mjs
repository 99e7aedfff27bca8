// Checks dashboards against the types that Grafana publishes: each panel with the options and the
// field configuration of its kind.

import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

// JSON has the values of enumerations, not their names.
const HEAD = `
import type { Dashboard, Panel, RowPanel, VariableModel } from '@grafana/schema';
import type * as series from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';
import type * as stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type * as table from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';

type Plain<T> = T extends string ? \`\${T}\` : T extends number | boolean | null | undefined ? T
  : T extends Array<infer I> ? Plain<I>[] : { [K in keyof T]: Plain<T[K]> };
type Target = {
  refId: string; datasource: { type: string; uid: string }; expr: string; legendFormat: string;
  editorMode: 'code'; range: boolean; instant?: boolean; format?: 'table';
};
type Kind<Name extends string, Options, Custom> =
  Omit<Panel, 'type' | 'options' | 'fieldConfig' | 'targets'> & {
    type: Name; options: Options; targets: Target[];
    fieldConfig: Omit<NonNullable<Panel['fieldConfig']>, 'defaults'> & {
      defaults: Omit<NonNullable<Panel['fieldConfig']>['defaults'], 'custom'> & { custom?: Custom };
    };
  };
type Any =
  | Plain<Kind<'timeseries', series.Options, series.FieldConfig>>
  | Plain<Kind<'stat', stat.Options, never>>
  | Plain<Kind<'table', table.Options, table.FieldConfig>>
  | Plain<RowPanel>;
type Annotation = {
  name: string; datasource: { type: string; uid: string }; enable: boolean; iconColor: string;
  expr: string; titleFormat: string;
};
type Board = Plain<Omit<Dashboard, 'panels' | 'annotations' | 'templating'>> & {
  panels: Any[]; annotations: { list: Annotation[] }; templating: { list: Plain<VariableModel>[] };
};
`;

/** Returns the compiler's errors for these dashboards, each with the dashboard's name. */
export function typeErrors(dashboards, modules) {
  const folder = mkdtempSync(join(tmpdir(), 'weir-types-'));
  try {
    symlinkSync(modules, join(folder, 'node_modules'));
    let text = HEAD;
    const begins = [];
    for (const [name, dashboard] of Object.entries(dashboards)) {
      begins.push([text.split('\n').length, name]);
      text += `export const board${begins.length}: Board = ${JSON.stringify(dashboard, null, 1)};\n`;
    }
    writeFileSync(join(folder, 'dashboards.ts'), text);
    const options = [
      '--noEmit',
      '--strict',
      '--skipLibCheck',
      '--module',
      'nodenext',
      '--pretty',
      'false',
    ];
    const tsc = join(modules, 'typescript/bin/tsc');
    const run = spawnSync('node', [tsc, ...options, 'dashboards.ts'], {
      cwd: folder,
      encoding: 'utf8',
    });
    if (run.status === 0) return [];
    const errors = [...run.stdout.matchAll(/^dashboards\.ts\((\d+),\d+\): (.*)$/gm)];
    // Errors of other files, or of the compiler itself.
    if (!errors.length) return [run.stdout + run.stderr];
    return errors.map(([, line, message]) => {
      const [, name] = begins.findLast(([begin]) => begin <= Number(line)) ?? [0, 'types.mjs'];
      return `${name}: ${message}`;
    });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
