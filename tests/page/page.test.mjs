// Shows the page of a running appliance in Chromium: login, content, live values, a phone, both
// color schemes, hostile texts. With WEIR_PICTURES=write it also writes the pictures of the book.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { ROOT } from '../dashboards/generate.mjs';
import { Lab, eventually } from '../dashboards/lab.mjs';
import { Browser } from './browser.mjs';

const SITE = 'https://127.0.0.1:18443';
/** The token of the lab, with the role admin. */
const TOKEN = 't'.repeat(43);
/** Number of refreshes before and after which the use of memory is compared. */
const REFRESHES = 60;
/** Growth of the page within the refreshes: a change or a drop reason may be added meanwhile. */
const MAX_GROWTH = { nodes: 20, heap: 200_000 };
/** Growth of the heap in the second half, in bytes; the text of one refresh has 56,000. */
const MAX_LATE_GROWTH = 100_000;
/** The maximum size of a picture, in bytes. */
const LARGEST_PICTURE = 250_000;

let lab;
let browser;

before(async () => {
  lab = await Lab.start();
  browser = await Browser.start(join(lab.play, 'bin/appliance'));
  await browser.resize(1280, 900);
  await eventually('the BGP session', 60, async () => {
    const { bgp } = JSON.parse(await lab.run('weir', 'status', '--json'));
    return bgp.startsWith('1 of 1');
  });
});

after(async () => {
  await browser?.close();
  const output = lab?.stop();
  if (lab) assert.match(output, /nothing is left/);
});

/** Fails if the browser has recorded a fault since the last call. */
function assertNoFaults() {
  assert.deepEqual(browser.faults.splice(0), []);
}

const refreshes = () => browser.evaluate('Number(document.documentElement.dataset.refreshes ?? 0)');

async function login(token) {
  await browser.loaded(() =>
    browser.evaluate((text) => {
      document.getElementById('token').value = text;
      document.querySelector('button').click();
    }, token),
  );
}

test('a wrong token is rejected, the right one opens the page', async () => {
  await browser.open(`${SITE}/`);
  assert.equal(await browser.evaluate('location.pathname'), '/login');
  assertNoFaults();
  await login('wrong');
  assert.match(await browser.text(), /the token is wrong/);
  // Chromium reports the status 401 itself.
  const reported = browser.faults.splice(0);
  assert.ok(reported.every((fault) => /status of 401/.test(fault)), reported.join('\n'));
  await login(TOKEN);
  assert.equal(await browser.evaluate('location.href'), `${SITE}/`);
  const { cookies } = await browser.command('Network.getCookies', { urls: [SITE] });
  assert.equal(cookies.length, 1);
  const [{ name, httpOnly, secure, sameSite, path, session, value }] = cookies;
  assert.deepEqual(
    { name, httpOnly, secure, sameSite, path, session },
    {
      name: '__Host-weir-session',
      httpOnly: true,
      secure: true,
      sameSite: 'Strict',
      path: '/',
      session: true,
    },
  );
  assert.match(value, /^[0-9a-f]{64}$/);
  assert.equal(await browser.evaluate('document.cookie'), '');
  assertNoFaults();
});

/**
 * Returns, for each element that the selector finds, its text, the number of its sparklines, and
 * whether one of these is above zero.
 */
const rows = (selector) =>
  browser.evaluate((selected) => {
    // The y coordinate of the value 0 in a sparkline.
    const ZERO = 19;
    const heights = (line) => line.getAttribute('points').split(' ').filter((_, at) => at % 2);
    return [...document.querySelectorAll(selected)].map((row) => {
      const lines = [...row.querySelectorAll('polyline')].map(heights);
      const hasCurve = lines.some((line) => line.some((height) => Number(height) < ZERO));
      return { text: row.innerText.replaceAll(/\s+/g, ' '), lines: lines.length, hasCurve };
    });
  }, selector);

/**
 * Parts of the page: a selector, patterns that the text of one element must match, and 1 if this
 * element must have a sparkline above zero.
 */
const PARTS = [
  ['#live-health', [/\bable New traffic is accepted/, /Ready yes/, /Next hops [1-9]\d* of/], 0],
  ['.tile', [/^Received [1-9][\d.]* [kM]?bit\/s peak/], 1],
  ['.tile', [/^New flows (0\.)?[1-9][\d.]*\/s peak/], 1],
  ['.tile', [/^Drops (0\.)?[1-9][\d.]*\/s peak/], 1],
  [
    '.service',
    [
      /^lab\/web ?nat/,
      /203\.0\.113\.10:80\/tcp/,
      / [1-9][\d.]* [kM]?bit\/s/,
      /3 of 4 backends active/,
    ],
    1,
  ],
  [
    '[id="backends-lab/web"] tbody tr',
    [/^10\.0\.2\.11 port 8080 shared active [1-9][\d.]* [kM]?bit/],
    1,
  ],
  ['#drops-box tbody tr', [/^source_denied ingress (0\.)?[1-9][\d.]*\/s [1-9]/], 1],
  ['#lcores-box tbody tr', [/^\d+ polls \d+\.\d %/, /ingress up/, /egress up/], 1],
  ['#nics-box tbody tr', [/^ingress/, /running/, / up /], 0],
  ['#changes-box tbody tr', [/^20\S+Z \S+ \S+ \S*shop\/web/, /done/, / [\d.]+ ms$/], 0],
  ['#live-network', [/^aws/, /Phase /, /Target /], 0],
  ['#bgp-box tbody tr', [/^10\.0\.2\.11:179 established .* 65001 65002 IPv4/], 0],
];

test('the page has the state of the appliance', async () => {
  // The text of closed parts is not visible.
  const open = "document.querySelectorAll('details').forEach((one) => { one.open = true; })";
  // Values need two samples, and drops some denied clients.
  await eventually('all parts of the page', 60, async () => {
    await browser.evaluate(open);
    for (const [selector, patterns, curves] of PARTS) {
      const found = await rows(selector);
      const isMatch = ({ text, hasCurve }) =>
        patterns.every((pattern) => pattern.test(text)) && (!curves || hasCurve);
      if (!found.some(isMatch))
        throw new Error(`${patterns.join(', ')} not in ${selector}: ${JSON.stringify(found)}`);
    }
    return true;
  });
  assertNoFaults();
});

test('the page has landmarks, table headers, labeled fields, and a visible focus', async () => {
  const faults = await browser.evaluate(() => {
    const all = (selector) => [...document.querySelectorAll(selector)];
    const found = [];
    for (const landmark of ['header', 'nav', 'main', 'footer', 'h1'])
      if (all(landmark).length !== 1) found.push(`${all(landmark).length} ${landmark}`);
    for (const table of all('table'))
      if (![...table.querySelectorAll('th')].every(({ scope }) => scope)) found.push('th scope');
    for (const input of all('input')) if (!input.labels?.length) found.push(input.name);
    for (const image of all('svg')) if (!image.getAttribute('aria-label')) found.push('svg');
    const ids = all('[id]').map(({ id }) => id);
    if (new Set(ids).size !== ids.length) found.push('equal ids');
    return found;
  });
  assert.deepEqual(faults, []);
  await browser.evaluate('document.activeElement.blur()');
  await browser.press('Tab');
  const focus = () =>
    browser.evaluate(() => {
      const { textContent } = document.activeElement;
      const { left } = document.activeElement.getBoundingClientRect();
      const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
      return { textContent, isSeen: left >= 0, outline: `${outlineStyle} ${outlineWidth}` };
    });
  const skip = { textContent: 'Skip to the content', isSeen: true, outline: 'solid 3px' };
  assert.deepEqual(await focus(), skip);
  await browser.press('Tab');
  assert.equal((await focus()).outline, 'solid 3px');
});

/** Returns texts whose contrast to their background is below 4.5 (WCAG 2, AA). */
function lowContrasts() {
  const numbers = (color) => color.match(/[\d.]+/g).map(Number);
  const luminance = (color) => {
    const [r, g, b] = numbers(color).map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const backgroundOf = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const color = getComputedStyle(one).backgroundColor;
      if ((numbers(color)[3] ?? 1) === 1) return color;
    }
    return 'rgb(255, 255, 255)';
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  for (let count = 0; walker.nextNode(); count += 1) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    const [a, b] = [getComputedStyle(element).color, backgroundOf(element)].map(luminance);
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) found.push(`${contrast.toFixed(2)}: ${walker.currentNode.data}`);
  }
  return found;
}

test('both color schemes are readable', async () => {
  const backgrounds = [];
  for (const scheme of ['light', 'dark']) {
    await browser.scheme(scheme);
    backgrounds.push(await browser.evaluate('getComputedStyle(document.body).backgroundColor'));
    assert.deepEqual(await browser.evaluate(lowContrasts), [], scheme);
  }
  assert.notEqual(backgrounds[0], backgrounds[1]);
  await browser.scheme('light');
});

test('a phone needs no horizontal scrolling', async () => {
  for (const width of [360, 320]) {
    await browser.resize(width, 780, true);
    const wide = await browser.evaluate(() => {
      const outside = [...document.querySelectorAll('main *')].filter(
        (element) =>
          !element.closest('.scroll') &&
          element.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5,
      );
      return {
        page: document.documentElement.scrollWidth,
        outside: outside.map(({ outerHTML }) => outerHTML.slice(0, 80)),
      };
    });
    assert.deepEqual(wide, { page: width, outside: [] });
  }
  await browser.resize(1280, 900);
});

test(`values are refreshed ${REFRESHES} times without growth`, async () => {
  const wait = (number) =>
    eventually(`${number} refreshes`, 4 * number, async () => (await refreshes()) >= number);
  await browser.open(`${SITE}/`);
  await browser.evaluate("document.querySelector('details').open = true");
  await browser.evaluate("document.querySelector('summary').focus()");
  await wait(5);
  const before = await browser.memory();
  await wait(5 + REFRESHES / 2);
  const middle = await browser.memory();
  await wait(5 + REFRESHES);
  const now = await browser.memory();
  const state = await browser.evaluate(() => ({
    open: document.querySelectorAll('details[open]').length,
    focused: document.activeElement.tagName,
    message: document.getElementById('state').textContent,
  }));
  assert.deepEqual(state, { open: 1, focused: 'SUMMARY', message: '' });
  const growth = Object.keys(now).map((key) => [key, before[key], middle[key], now[key]]);
  console.log('memory before, in the middle and after:', JSON.stringify(growth));
  assert.equal(now.listeners, before.listeners);
  assert.ok(now.documents <= before.documents, `${before.documents}, ${now.documents} documents`);
  for (const [key, max] of Object.entries(MAX_GROWTH))
    assert.ok(now[key] <= before[key] + max, `${key}: ${before[key]}, ${now[key]}`);
  const late = now.heap - middle.heap;
  assert.ok(late <= MAX_LATE_GROWTH, `heap: ${middle.heap}, ${now.heap}`);
  assertNoFaults();
});

test('values are refreshed, and a hidden page sends no requests', async () => {
  const time = () => browser.evaluate("document.getElementById('time').textContent");
  const first = await time();
  await eventually('newer values', 10, async () => (await time()) !== first);
  const hide = (hidden) =>
    browser.evaluate((value) => {
      Object.defineProperty(document, 'hidden', { value, configurable: true });
      document.dispatchEvent(new Event('visibilitychange'));
    }, hidden);
  await hide(true);
  // A request that was sent before may still be answered.
  await sleep(500);
  browser.requests.splice(0);
  const before = await refreshes();
  await sleep(5_000);
  assert.deepEqual(browser.requests.splice(0), []);
  await hide(false);
  await eventually('a refresh', 2, async () => (await refreshes()) > before);
});

test('a selected text stays selected', async () => {
  await browser.evaluate(() =>
    getSelection().selectAllChildren(document.querySelector('#live-health')),
  );
  const before = await refreshes();
  await eventually('two refreshes', 10, async () => (await refreshes()) >= before + 2);
  assert.match(await browser.evaluate('getSelection().toString()'), /New traffic is accepted/);
  await browser.evaluate('getSelection().removeAllRanges()');
});

test('services and flows can be searched', async () => {
  await browser.open(`${SITE}/?service=staff`);
  const services = () =>
    browser.evaluate("[...document.querySelectorAll('.service h3')].map((one) => one.innerText)");
  assert.deepEqual(await services(), ['lab/staff']);
  await eventually('a refresh', 10, async () => (await refreshes()) > 0);
  assert.deepEqual(await services(), ['lab/staff']);
  await browser.evaluate("document.getElementById('flow-service').value = 'lab/web'");
  await browser.loaded(() =>
    browser.evaluate("document.querySelector('form[action=\"/flows\"] button').click()"),
  );
  const rows = await browser.evaluate("document.querySelectorAll('#flows tbody tr').length");
  assert.ok(rows > 0, await browser.text());
  assert.match(await browser.text(), /203\.0\.113\.10:80/);
  assertNoFaults();
});

test('the first view needs no script', async () => {
  await browser.command('Emulation.setScriptExecutionDisabled', { value: true });
  await browser.open(`${SITE}/`);
  await browser.command('Emulation.setScriptExecutionDisabled', { value: false });
  const text = await browser.text();
  for (const part of ['New traffic is accepted', 'lab/web', 'established', 'Reload the page']) {
    assert.ok(text.includes(part), `${part} not in:\n${text}`);
  }
  assert.ok((await browser.evaluate("document.querySelectorAll('polyline').length")) > 8);
  assertNoFaults();
});

test('hostile texts are shown, and not run', async () => {
  const owned = "<script>document.title='owned'</script><img src=x onerror=alert(1)>";
  const search = new URLSearchParams({ service: `"'>${owned}\u202e`, client: owned });
  await browser.open(`${SITE}/flows?${search}`);
  const inert = async () => {
    const counts = await browser.evaluate(() => ({
      scripts: document.querySelectorAll('script:not([src="/page.js"])').length,
      images: document.querySelectorAll('img').length,
      isOwned: document.title === 'owned',
    }));
    assert.deepEqual(counts, { scripts: 0, images: 0, isOwned: false });
  };
  await inert();
  assert.match(await browser.text(), /<img src=x onerror=alert\(1\)>/);
  const reported = browser.faults.splice(0);
  // The search is not valid; Chromium reports the status 400 itself.
  assert.ok(reported.every((fault) => /status of 400/.test(fault)), reported.join('\n'));
  const services = join(lab.folder, 'services.toml');
  const before = readFileSync(services, 'utf8');
  // Errors repeat the beginning of a name only.
  const name = '<script>x()</script><img src=x>\\u202e';
  writeFileSync(services, `[[service]]\nname = "${name}"\nmode = "nat"\n`);
  try {
    await browser.open(`${SITE}/`);
    await eventually('the rejected file', 20, async () =>
      (await browser.text()).includes('was rejected'),
    );
    await inert();
    const text = await browser.text();
    assert.ok(text.includes('<script>x()</script><img src=x>'), text);
    assert.ok(!text.includes('\u202e') && text.includes('\\u{202e}'), text);
    assertNoFaults();
  } finally {
    writeFileSync(services, before);
  }
});

test('the browser enforces the Content Security Policy of the page', async () => {
  await browser.open(`${SITE}/`);
  browser.requests.splice(0);
  await browser.evaluate(() => {
    const html =
      '<img src="https://weir.invalid/x" onerror="window.owned = 1"><b style="color: red">x</b>';
    document.body.insertAdjacentHTML('beforeend', html);
    const script = document.createElement('script');
    script.textContent = 'window.owned = 1';
    document.body.append(script);
  });
  await eventually('reports of the policy', 10, async () => browser.faults.length >= 3);
  assert.equal(await browser.evaluate('window.owned'), undefined);
  assert.ok(browser.faults.splice(0).every((fault) => /Content Security Policy/.test(fault)));
});

test('the end of a session leads to the login form', async () => {
  await browser.open(`${SITE}/`);
  await browser.command('Network.clearBrowserCookies');
  await eventually('the login form', 10, () =>
    browser.evaluate("document.getElementById('token') !== null"),
  );
  await login(TOKEN);
  await browser.loaded(() => browser.evaluate("document.querySelector('header button').click()"));
  assert.equal(await browser.evaluate('location.pathname'), '/login');
  await browser.open(`${SITE}/`);
  assert.equal(await browser.evaluate('location.pathname'), '/login');
  assertNoFaults();
});

// Pictures differ with each run, so they are written on request only.
if (process.env.WEIR_PICTURES === 'write') {
  test('the pictures are small', async () => {
    await login(TOKEN);
    const folder = mkdtempSync(join(tmpdir(), 'weir-page-'));
    const views = [
      ['light', 'light', 1280, 2700],
      ['dark', 'dark', 1280, 1000],
      ['phone', 'light', 360, 1500],
    ];
    for (const [name, scheme, width, height] of views) {
      await browser.scheme(scheme);
      await browser.resize(width, Math.min(height, 900), width < 500);
      await browser.open(`${SITE}/`);
      if (name === 'light')
        await browser.evaluate("document.querySelector('details').open = true");
      const raw = join(folder, 'page.png');
      writeFileSync(raw, await browser.picture(width, height));
      const path = join(ROOT, `docs/src/img/page-${name}.png`);
      const reduce = ['--force', '--strip', '--speed', '1', '--output', path, '64', raw];
      execFileSync('pngquant', reduce);
      assert.ok(statSync(path).size <= LARGEST_PICTURE, `${path}: ${statSync(path).size} bytes`);
    }
    rmSync(folder, { recursive: true });
  });
}
