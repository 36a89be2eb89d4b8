// Tells those who listen to a page and do not look at it.

export function say(text) {
  const place = document.querySelector("[data-say]");
  if (place) place.textContent = text;
}
