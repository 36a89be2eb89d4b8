// Times from now, told again as they grow older; the exact one in UTC and in the reader's own zone.

const UNITS = [[86400000, "d"], [3600000, "h"], [60000, "min"], [1000, "s"]];
const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
let offset = 0;

export function ago(at, now) {
  const away = Math.abs(now - at);
  if (away < 1000) return "just now";
  // Rounded, and in the unit that it comes to: what is 59.7 minutes away is an hour.
  const half = (index) => (UNITS[index + 1]?.[0] ?? 0) / 2;
  const [size, unit] = UNITS.find(([length], index) => away + half(index) >= length);
  const told = `${Math.round(away / size)} ${unit}`;
  return at <= now ? `${told} ago` : `in ${told}`;
}

// The server's clock decides: a laptop that is two hours off would tell nonsense.
export function setNow(now) {
  offset = Number(now) - Date.now();
}

export function retell() {
  const now = Date.now() + offset;
  for (const time of document.querySelectorAll("time[data-at]")) {
    const at = Number(time.dataset.at);
    const told = ago(at, now);
    if (time.textContent !== told) time.textContent = told;
    const exact = time.title.split(" · ")[0];
    const moment = new Date(at);
    if (exact && !Number.isNaN(moment.getTime())) time.title = `${exact} · ${local.format(moment)}`;
  }
}

export function times() {
  setNow(document.body.dataset.now);
  retell();
  setInterval(retell, 5000);
}
