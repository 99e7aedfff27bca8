// Drives Chromium through its DevTools protocol, over a pipe: no port, and no dependency.

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

/** Milliseconds within which Chromium answers a command. */
const TIMEOUT_MS = 30_000;

const OPTIONS = [
  '--headless',
  // Chromium's sandbox does not run as root, which the lab needs. Only this test's pages are opened.
  '--no-sandbox',
  '--disable-gpu',
  '--hide-scrollbars',
  '--disable-background-networking',
  '--disable-component-update',
  '--no-first-run',
  // The lab's certificate is self-signed.
  '--ignore-certificate-errors',
  '--remote-debugging-pipe',
  'about:blank',
];

/** A page in Chromium, with its faults and requests. */
export class Browser {
  #folder = mkdtempSync(join(tmpdir(), 'weir-browser-'));
  #answers = new Map();
  #listeners = new Map();
  #next = 1;
  #rest = '';
  #process;
  #session;

  /** Messages of the console other than `log`, exceptions of scripts, and dialogs, as texts. */
  faults = [];
  /** URLs of the requests since the last call of `requests.splice(0)`. */
  requests = [];

  /** Starts Chromium by `enter`, a program that runs its arguments, for example in a namespace. */
  static async start(enter) {
    const browser = new Browser();
    try {
      await browser.#start(enter);
    } catch (error) {
      await browser.close();
      throw error;
    }
    return browser;
  }

  async #start(enter) {
    const profile = `--user-data-dir=${this.#folder}`;
    this.#process = spawn(enter, ['chromium', profile, ...OPTIONS], {
      stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'],
      detached: true,
    });
    this.#process.stdio[4].setEncoding('utf8').on('data', (text) => this.#receive(text));
    const { targetId } = await this.#send('Target.createTarget', { url: 'about:blank' });
    const attached = await this.#send('Target.attachToTarget', { targetId, flatten: true });
    this.#session = attached.sessionId;
    this.#on('Runtime.exceptionThrown', ({ exceptionDetails }) =>
      this.faults.push(exceptionDetails.exception?.description ?? exceptionDetails.text),
    );
    this.#on('Runtime.consoleAPICalled', ({ type, args }) => {
      if (type !== 'log') this.faults.push(`${type}: ${args.map(({ value }) => value).join(' ')}`);
    });
    this.#on('Log.entryAdded', ({ entry }) => {
      if (entry.level === 'error' || entry.level === 'warning')
        this.faults.push(`${entry.text} ${entry.url ?? ''}`);
    });
    this.#on('Page.javascriptDialogOpening', ({ message }) => {
      this.faults.push(`dialog: ${message}`);
      this.command('Page.handleJavaScriptDialog', { accept: false });
    });
    this.#on('Network.requestWillBeSent', ({ request }) => this.requests.push(request.url));
    for (const domain of ['Page', 'Runtime', 'Log', 'Network', 'Performance'])
      await this.command(`${domain}.enable`);
    await this.command('Page.setLifecycleEventsEnabled', { enabled: true });
  }

  #receive(text) {
    const messages = (this.#rest + text).split('\0');
    this.#rest = messages.pop();
    for (const message of messages.map((one) => JSON.parse(one))) {
      if (message.id === undefined) {
        for (const listener of this.#listeners.get(message.method) ?? []) listener(message.params);
        continue;
      }
      const { resolve, reject, method } = this.#answers.get(message.id);
      this.#answers.delete(message.id);
      if (message.error) reject(new Error(`${method}: ${message.error.message}`));
      else resolve(message.result);
    }
  }

  #on(event, listener) {
    this.#listeners.set(event, [...(this.#listeners.get(event) ?? []), listener]);
  }

  #send(method, params = {}) {
    const id = this.#next++;
    const message = { id, method, params, sessionId: this.#session };
    const answer = new Promise((resolve, reject) => {
      this.#answers.set(id, { resolve, reject, method });
      setTimeout(() => {
        if (this.#answers.delete(id)) reject(new Error(`${method}: no response from Chromium`));
      }, TIMEOUT_MS).unref();
    });
    this.#process.stdio[3].write(`${JSON.stringify(message)}\0`);
    return answer;
  }

  /** Sends a command to the page. */
  command(method, params) {
    return this.#send(method, params);
  }

  /** Performs an action that loads another document, and returns when that one is loaded. */
  async loaded(action) {
    // The load event of the document that is there now may still be on its way.
    const { frameTree } = await this.command('Page.getFrameTree');
    const loaded = new Promise((resolve) =>
      this.#on('Page.lifecycleEvent', ({ name, loaderId }) => {
        if (name === 'load' && loaderId !== frameTree.frame.loaderId) resolve();
      }),
    );
    await action();
    const late = sleep(TIMEOUT_MS, undefined, { ref: false }).then(() => {
      throw new Error('the page was not loaded');
    });
    await Promise.race([loaded, late]);
  }

  /** Opens a URL. */
  open(url) {
    return this.loaded(async () => {
      const { errorText } = await this.command('Page.navigate', { url });
      if (errorText) throw new Error(`${url}: ${errorText}`);
    });
  }

  /** Evaluates an expression, or a function with these arguments, in the page. */
  async evaluate(code, ...args) {
    const expression =
      typeof code === 'function' ? `(${code})(...${JSON.stringify(args)})` : code;
    const options = { expression, awaitPromise: true, returnByValue: true };
    const { result, exceptionDetails } = await this.command('Runtime.evaluate', options);
    if (exceptionDetails)
      throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  /** Returns the visible text of the page. */
  text() {
    return this.evaluate('document.body.innerText');
  }

  /** Presses a key: `Tab`, `Enter`. */
  async press(key) {
    const code = { Tab: 9, Enter: 13 }[key];
    const text = key === 'Enter' ? { text: '\r' } : {};
    const event = { key, code: key, windowsVirtualKeyCode: code, ...text };
    await this.command('Input.dispatchKeyEvent', { type: 'keyDown', ...event });
    await this.command('Input.dispatchKeyEvent', { type: 'keyUp', ...event });
  }

  /** Sets the size of the window in CSS pixels. */
  resize(width, height, mobile = false) {
    const size = { width, height, deviceScaleFactor: 1, mobile };
    return this.command('Emulation.setDeviceMetricsOverride', size);
  }

  /** Sets the preferred color scheme: `light` or `dark`. */
  scheme(value) {
    const features = [{ name: 'prefers-color-scheme', value }];
    return this.command('Emulation.setEmulatedMedia', { features });
  }

  /** Returns, after garbage collection, the number of documents, nodes and listeners, and heap bytes. */
  async memory() {
    await this.command('HeapProfiler.collectGarbage');
    const { metrics } = await this.command('Performance.getMetrics');
    const of = (name) => metrics.find((metric) => metric.name === name).value;
    return {
      documents: of('Documents'),
      nodes: of('Nodes'),
      listeners: of('JSEventListeners'),
      heap: of('JSHeapUsedSize'),
    };
  }

  /** Returns the picture of the whole page, or of its upper `height` pixels, as PNG. */
  async picture(width, height) {
    const clip = { x: 0, y: 0, width, height, scale: 1 };
    const options = { format: 'png', clip, captureBeyondViewport: true };
    const { data } = await this.command('Page.captureScreenshot', options);
    return Buffer.from(data, 'base64');
  }

  /** Ends Chromium. */
  async close() {
    const ended =
      this.#process?.exitCode === null
        ? new Promise((resolve) => this.#process.once('exit', resolve))
        : undefined;
    if (ended) {
      // Chromium has a process group of its own, so that all of its processes end.
      process.kill(-this.#process.pid, 'SIGTERM');
      await Promise.race([ended, sleep(5_000)]);
    }
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 5 });
  }
}
