// Keeps a page current: told that something changed, it fetches itself and takes over what differs.
//
// Only the regions marked data-live change, node by node: focus, open details, ticks and the place
// of the page stay. Text goes in as nodes that the browser itself parsed from our own page, without
// running anything.

import { retell, setNow } from "./times.js";
import { reveal } from "./wire.js";

const QUIET_MS = 700;
const SHARE = 4; // a page that takes long to make is asked for less often
const POLL_MS = 1500;
let quietMs = QUIET_MS;
let isFetching = false;
let isWanted = false;

function show(state) {
  const place = document.querySelector("[data-live-state]");
  place.hidden = false;
  place.dataset.liveState = state;
  place.querySelector("[data-live-text]").textContent = state;
}

const KEEP = new Set(["open", "hidden", "checked"]);

function sameKind(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName && (one.id ?? "") === (other.id ?? "");
}

function attributes(old, fresh) {
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !KEEP.has(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (!KEEP.has(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
}

function morph(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  attributes(old, fresh);
  if (old.matches("time[data-at]") || old.matches("input, textarea, select")) return;
  children(old, fresh);
}

function children(old, fresh) {
  const byId = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
  let at = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const known = child.id ? byId.get(child.id) : undefined;
    if (known && known !== at) {
      old.insertBefore(known, at);
      at = known;
    }
    if (at && sameKind(at, child)) {
      morph(at, child);
      at = at.nextSibling;
    } else {
      old.insertBefore(document.importNode(child, true), at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

async function refresh() {
  if (isFetching) { isWanted = true; return; }
  isFetching = true;
  const began = performance.now();
  try {
    const reply = await fetch(location.href, { headers: { Accept: "text/html" }, redirect: "manual", cache: "no-store" });
    if (reply.type === "opaqueredirect") { show("log in"); return; } // the session is over
    if (!reply.ok) { show("stopped"); return; }
    const page = new DOMParser().parseFromString(await reply.text(), "text/html");
    setNow(page.body.dataset.now);
    for (const fresh of page.querySelectorAll("[data-live]")) {
      const old = document.getElementById(fresh.id);
      if (old) morph(old, fresh);
    }
    reveal();
    retell();
    document.body.dataset.refreshed = String(Number(document.body.dataset.refreshed ?? 0) + 1);
  } catch {
    show("away");
  } finally {
    isFetching = false;
    quietMs = Math.max(QUIET_MS, SHARE * (performance.now() - began));
    if (isWanted) { isWanted = false; soon(); }
  }
}

let timer = 0;
function soon() {
  if (!timer) timer = setTimeout(() => { timer = 0; refresh(); }, quietMs);
}

export function listen() {
  if (!document.querySelector("[data-live]")) return;
  let stream = null;
  let wasOpen = false;
  function open() {
    stream = new EventSource(new URL(`${document.body.dataset.root}live`, location.href));
    stream.addEventListener("open", () => {
      show("live");
      if (wasOpen) soon(); // something may have changed while nobody told us
      wasOpen = true;
    });
    stream.addEventListener("change", soon);
    stream.addEventListener("error", () => {
      if (stream?.readyState !== EventSource.CLOSED) return; // the browser asks again by itself
      show("stopped");
      refresh(); // which finds out whether somebody has to log in
    });
  }
  function close() {
    stream?.close();
    stream = null;
  }
  // A hidden page holds no connection: a browser has six for each host over HTTP/1.1.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) close();
    else if (!stream) open();
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
  if (!document.hidden) open();
  const poll = setInterval(() => {
    if (document.querySelector("[data-poll]")) refresh();
    else clearInterval(poll);
  }, POLL_MS);
}
