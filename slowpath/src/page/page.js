// Replaces the parts of the page that change, each two seconds, by what the server draws. Without
// this script the page is whole, and shows the time at which it was loaded.
'use strict';

const INTERVAL_MS = 2000;
/** Time after which a request counts as failed. */
const TIMEOUT_MS = 10000;

const state = document.getElementById('state');
const time = document.getElementById('time');
let timer;
let running = false;

/**
 * Replaces the content of a part, and keeps what the reader has opened, scrolled and focused. A
 * part with selected text stays as it is.
 */
function replace(part, fresh) {
  const selection = getSelection();
  if (!selection.isCollapsed && selection.containsNode(part, true)) return;
  if (part.innerHTML === fresh.innerHTML) return;
  const open = [...part.querySelectorAll('details[open]')].map(({ id }) => id);
  const scrolled = [...part.querySelectorAll('.scroll')]
    .filter(({ scrollLeft, scrollTop }) => scrollLeft || scrollTop)
    .map(({ id, scrollLeft, scrollTop }) => [id, scrollLeft, scrollTop]);
  const active = part.contains(document.activeElement) ? document.activeElement : undefined;
  const focused = active?.id || active?.closest('details')?.id;
  part.replaceChildren(...document.adoptNode(fresh).childNodes);
  for (const id of open) {
    const details = document.getElementById(id);
    if (details) details.open = true;
  }
  for (const [id, left, top] of scrolled) document.getElementById(id)?.scrollTo(left, top);
  if (focused) {
    const element = document.getElementById(focused);
    (element?.querySelector('summary') ?? element)?.focus({ preventScroll: true });
  }
}

function failed(why) {
  state.textContent = `No newer values: ${why}.`;
  state.className = 'stale';
}

async function refresh() {
  const response = await fetch(`/live${location.search}`, {
    redirect: 'manual',
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  // The session is over.
  if (response.type === 'opaqueredirect') {
    location.assign('/login');
    return;
  }
  if (!response.ok) throw new Error(`the server answered ${response.status}`);
  const fresh = new DOMParser().parseFromString(await response.text(), 'text/html');
  for (const part of document.querySelectorAll('[data-live]')) {
    const other = fresh.getElementById(part.id);
    if (other) replace(part, other);
  }
  time.textContent = fresh.getElementById('time').textContent;
  state.textContent = '';
  state.className = '';
  document.documentElement.dataset.refreshes =
    Number(document.documentElement.dataset.refreshes ?? 0) + 1;
}

async function run() {
  clearTimeout(timer);
  if (running || document.hidden) return;
  running = true;
  try {
    await refresh();
  } catch (error) {
    failed(error.name === 'TimeoutError' ? 'the server does not answer' : error.message);
  }
  running = false;
  timer = setTimeout(run, INTERVAL_MS);
}

// A page that is not seen asks for nothing.
document.addEventListener('visibilitychange', run);
timer = setTimeout(run, INTERVAL_MS);
