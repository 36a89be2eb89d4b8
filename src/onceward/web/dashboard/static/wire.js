// Copying, the theme, the help, forms that are sent once, ticking rows.

import { say } from "./say.js";

export function reveal() {
  for (const element of document.querySelectorAll("[data-copy], [data-copy-text], [data-theme-toggle], [data-pick-all]")) element.hidden = false;
  picked();
}

function picked() {
  const count = document.querySelectorAll("input[name=run]:checked").length;
  for (const place of document.querySelectorAll("[data-picked]")) place.textContent = count ? `(${count})` : "";
}

async function copy(button) {
  const text = button.dataset.copyText ?? button.closest("figure").querySelector("pre").textContent;
  try {
    await navigator.clipboard.writeText(text);
    say("Copied.");
    button.textContent = "Copied";
  } catch {
    say("The browser did not let the text be copied; mark it and copy it by hand.");
    button.textContent = "Not copied";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

export function toggleTheme() {
  const set = document.documentElement.dataset.theme;
  const isDark = set ? set === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const theme = isDark ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  // The server writes it into the page, so that no page flashes in the wrong one.
  const path = new URL(document.body.dataset.root, location.href).pathname;
  document.cookie = `onceward_theme=${theme}; path=${path}; max-age=31536000; samesite=lax`;
  say(`${theme} theme`);
}

export function showHelp() {
  const help = document.getElementById("help");
  if (!help.open) help.showModal();
}

export function wire() {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy], [data-copy-text]");
    if (button) copy(button);
    if (event.target.closest("[data-theme-toggle]")) toggleTheme();
    if (event.target.closest("[data-help]") && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      showHelp();
    }
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-pick-all]")) {
      for (const box of document.querySelectorAll("input[name=run]")) box.checked = event.target.checked;
    }
    picked();
  });
  document.addEventListener("submit", (event) => {
    // The request id does it once anyway; this spares a page that says so.
    if (event.target.matches("[data-once]")) {
      for (const button of event.target.querySelectorAll("button")) setTimeout(() => { button.disabled = true; });
    }
  });
  addEventListener("pageshow", () => {
    for (const button of document.querySelectorAll("[data-once] button")) button.disabled = false;
  });
  reveal();
}
