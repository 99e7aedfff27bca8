// Writes the pictures of `weir top` in the book: starts the lab of `make play`, runs `weir top` on
// a terminal of tmux, and writes the screens of the pages in PAGES as SVG. Needs root;
// `make top-pictures`.

import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '../..');
const [WIDTH, HEIGHT] = [100, 30];
/** Size of a character in pixels. */
const [CELL, LINE] = [8, 17];
const BACKGROUND = '#1e2127';
const FOREGROUND = '#d4d7dc';
/** The terminal's colors 30 to 37. */
const COLORS = [
  '#5c6370', '#e06c75', '#98c379', '#e5c07b', '#61afef', '#c678dd', '#56b6c2', '#d4d7dc',
];
/** Pages: file, keys, and a text that the page must have. */
const PAGES = [
  ['top-overview', ['1'], 'lab/web'],
  ['top-backends', ['2', 'Enter'], '10.0.2.11:8080'],
  ['top-flows', ['4'], '203.0.113.10:80'],
];

/** Splits a line of `tmux capture-pane -e` into texts with their style. */
function parse(line, style = {}) {
  const runs = [];
  let at = 0;
  for (const match of [...line.matchAll(/\x1b\[([0-9;]*)m|\x1b\([B0]|[\x0e\x0f]/g), null]) {
    const text = line.slice(at, match?.index);
    if (text) runs.push({ text, ...style });
    if (!match) break;
    at = match.index + match[0].length;
    if (match[1] === undefined) continue;
    // Colors come as 38;5;N, with N below 8.
    for (const code of match[1].replace(/38;5;([0-7])(?!\d)/g, '3$1').split(';').map(Number)) {
      if (code === 0) style = {};
      else if (code === 1) style = { ...style, bold: true };
      else if (code === 2) style = { ...style, dim: true };
      else if (code === 4) style = { ...style, underlined: true };
      else if (code === 7) style = { ...style, reversed: true };
      else if (code === 27) style = { ...style, reversed: false };
      else if (code >= 30 && code < 38) style = { ...style, color: COLORS[code - 30] };
      else if (code === 39) style = { ...style, color: undefined };
    }
  }
  return { runs, style };
}

const escape = (text) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

/** Returns the screen as SVG. */
function draw(screen, title) {
  const [width, height] = [WIDTH * CELL + 2 * CELL, HEIGHT * LINE + LINE];
  const out = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img">`,
    `<title>${escape(title)}</title>`,
    `<rect width="${width}" height="${height}" rx="6" fill="${BACKGROUND}"/>`,
    `<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="13" ` +
      `fill="${FOREGROUND}">`,
  ];
  let style = {};
  for (const [row, line] of screen.split('\n').entries()) {
    const parsed = parse(line, style);
    ({ style } = parsed);
    let column = 0;
    for (const run of parsed.runs) {
      const length = [...run.text].length;
      const [x, y] = [CELL + column * CELL, LINE / 2 + row * LINE];
      column += length;
      const color = run.color ?? FOREGROUND;
      if (run.reversed) {
        const size = `width="${length * CELL}" height="${LINE}"`;
        out.push(`<rect x="${x}" y="${y}" ${size} fill="${color}"/>`);
      }
      const attributes = [
        run.reversed ? `fill="${BACKGROUND}"` : run.color ? `fill="${color}"` : '',
        run.bold ? 'font-weight="bold"' : '',
        run.dim ? 'opacity="0.7"' : '',
        run.underlined ? 'text-decoration="underline"' : '',
      ];
      const appearance = attributes.filter(Boolean).map((attribute) => ` ${attribute}`).join('');
      // SVG collapses blanks, so that each sequence of words with single blanks is a text.
      for (const { 0: text, index } of run.text.matchAll(/\S+( \S+)*/g)) {
        const before = [...run.text.slice(0, index)].length;
        const position = `x="${x + before * CELL}" y="${y + LINE - 4}"`;
        const width = `textLength="${[...text].length * CELL}"`;
        out.push(`<text ${position} ${width}${appearance}>${escape(text)}</text>`);
      }
    }
  }
  return `${out.join('\n')}\n</g>\n</svg>\n`;
}

/** Calls `get` every 100 ms until its result is not undefined; fails after 30 s. */
async function eventually(what, get) {
  for (let tries = 0; tries < 300; tries += 1) {
    const found = get();
    if (found !== undefined) return found;
    await sleep(100);
  }
  throw new Error(`not in 30 s: ${what}`);
}

async function main() {
  const programs = join(process.env.CARGO_TARGET_DIR ?? join(ROOT, 'target'), 'debug');
  const home = mkdtempSync(join(tmpdir(), 'weir-pictures-'));
  const play = (command) =>
    execFileSync(join(programs, 'playground'), ['--home', join(home, 'play'), command]);
  const name = `weir-pictures-${process.pid}`;
  const tmux = (...args) => execFileSync('tmux', ['-L', name, ...args], { encoding: 'utf8' });
  play('start');
  try {
    const size = ['-x', String(WIDTH), '-y', String(HEIGHT)];
    const environment = 'env -u NO_COLOR TERM=screen LC_ALL=C.UTF-8';
    const command = `${environment} ${join(home, 'play/bin/weir')} top`;
    tmux('-f', '/dev/null', '-u', 'new-session', '-d', ...size, command);
    const shows = (pattern) => {
      const screen = tmux('capture-pane', '-p');
      return new RegExp(pattern).test(screen) ? screen : undefined;
    };
    await eventually('weir top', () => shows('q quit'));
    // The sparklines need some history.
    await sleep(45_000);
    mkdirSync(join(ROOT, 'docs/src/img'), { recursive: true });
    for (const [file, keys, pattern] of PAGES) {
      keys.forEach((key) => tmux('send-keys', key));
      await sleep(3_000);
      await eventually(pattern, () => shows(pattern));
      const screen = tmux('capture-pane', '-p', '-e', '-N').replace(/\n$/, '');
      const path = join(ROOT, `docs/src/img/${file}.svg`);
      writeFileSync(path, draw(screen, `weir top, ${file.replace('top-', '')}`));
      console.log(path);
    }
    tmux('send-keys', 'q');
  } finally {
    try {
      tmux('kill-server');
    } catch {
      // tmux has already ended with its last window.
    }
    play('stop');
    rmSync(home, { recursive: true, force: true });
  }
}

await main();
