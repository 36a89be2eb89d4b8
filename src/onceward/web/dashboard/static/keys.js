// Keys for who does not want to reach for the mouse; none of them acts on a run.

import { showHelp, toggleTheme } from "./wire.js";

const GO = { o: "", r: "runs", d: "dead", e: "events", s: "sources", w: "workers", a: "audit" };
const SECOND_KEY_MS = 1200;
let wentAt = 0;

const rows = () => [...document.querySelectorAll("[data-row]")].filter((row) => row.offsetParent !== null);
const target = (row) => (row.matches("summary") ? row : row.querySelector("a.open") ?? row.querySelector("a, button, summary"));

function move(by) {
  const all = rows().filter(target);
  if (!all.length) return;
  const at = all.findIndex((row) => row.contains(document.activeElement));
  const next = all[Math.min(all.length - 1, Math.max(0, at < 0 ? (by > 0 ? 0 : all.length - 1) : at + by))];
  target(next).focus();
  next.scrollIntoView({ block: "nearest" });
}

function tick() {
  const row = document.activeElement?.closest("[data-row]");
  row?.querySelector("input[name=run]")?.click();
}

export function keys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isTyping = event.target.matches("input:not([type=checkbox]), textarea, select");
    if (event.key === "Escape" && isTyping) return event.target.blur();
    if (isTyping || document.querySelector("dialog[open]")) return;
    if (event.key === "g") { wentAt = event.timeStamp; return; }
    if (wentAt && event.timeStamp - wentAt < SECOND_KEY_MS && event.key in GO) {
      wentAt = 0;
      location.href = new URL(document.body.dataset.root + GO[event.key], location.href);
      return;
    }
    wentAt = 0;
    const does = { "/": () => document.getElementById("search").focus(), "?": showHelp, j: () => move(1), k: () => move(-1), x: tick, t: toggleTheme }[event.key];
    if (does) {
      event.preventDefault();
      does();
    }
  });
}
