// A log that someone reads to its end follows what is added; one that was scrolled up stays where it is, and a button
// says that there is more below.

import { owners, styled, words } from "./notice.js";

/** Pixels above the end that still count as the end: browsers round. */
const NEAR = 8;

/** No height of its own: what is read does not move as the button comes and goes. */
const STYLE = `
:host { display: block; position: relative; block-size: 0; z-index: 1; text-align: center; }
:host([fixed]) { position: fixed; inset-block-end: 0; inset-inline: 0; }
button { position: absolute; inset-block-end: .5rem; inset-inline: 0; margin-inline: auto; inline-size: max-content;
  min-block-size: 2rem; padding: .25rem .875rem; font: inherit; font-size: .875rem; cursor: pointer;
  color: var(--instruct-notice-ink, CanvasText); background: var(--instruct-notice, Canvas);
  border: 1px solid var(--instruct-notice-line, currentColor); border-radius: 1rem; }
`;

/** @type {CSSStyleSheet | undefined} */
let sheet;

/**
 * Remember whether a log (`data-instruct-follow`) is at its end; the function that is returned keeps it there, or says
 * that it has grown below.
 * @param {Element} target what is about to change
 * @returns {() => void}
 */
export function following(target) {
  const log = target.closest("[data-instruct-follow]");
  const box = scroller(log);
  if (!log || !box) return () => {};
  const height = isAtEnd(box) ? Infinity : box.scrollHeight;
  return () => {
    // It may have been exchanged itself.
    const now = log.isConnected ? log : document.getElementById(log.id);
    const place = scroller(now);
    if (!now || !place) return;
    if (height === Infinity) toEnd(place);
    else if (place.scrollHeight > height) offer(now);
  };
}

/** @param {Element} log */
function offer(log) {
  if ([...document.querySelectorAll("instruct-below")].some((each) => owners.get(each) === log)) return;
  const below = document.createElement("instruct-below");
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = words("below");
  button.addEventListener("click", () => {
    toEnd(scroller(log));
    // The button goes, and must not take the focus with it.
    if (!log.hasAttribute("tabindex")) log.setAttribute("tabindex", "-1");
    if (log instanceof HTMLElement) log.focus({ preventScroll: true });
    below.remove();
  });
  const root = below.attachShadow({ mode: "open" });
  root.adoptedStyleSheets = [sheet ??= styled(STYLE)];
  root.append(button);
  owners.set(below, log);
  below.toggleAttribute("fixed", log === document.body);
  if (log === document.body) log.append(below);
  else log.after(below);
}

// Scrolling does not bubble.
document.addEventListener("scroll", withdraw, { capture: true, passive: true });

function withdraw() {
  for (const below of document.querySelectorAll("instruct-below")) {
    const log = owners.get(below);
    const box = scroller(log ?? null);
    if (log && (!box?.isConnected || isAtEnd(box))) below.remove();
  }
}

/** @param {Element | null} box */
function toEnd(box) {
  if (box) box.scrollTop = box.scrollHeight;
}

/** @param {Element} box */
function isAtEnd(box) {
  // One that is laid out from its end counts from there, downwards from zero.
  const reversed = getComputedStyle(box).flexDirection === "column-reverse";
  return (reversed ? -box.scrollTop : box.scrollHeight - box.scrollTop - box.clientHeight) <= NEAR;
}

/** @param {Element | null} log */
function scroller(log) {
  return log === document.body ? document.scrollingElement : log;
}
