// Fetches the page again and changes what differs; many wishes for it become one request, then one more.

import { emit } from "./events.js";
import { morph } from "./morph.js";
import { trusted } from "./trusted.js";
import { isBusy } from "./typing.js";

/** Wishes that come within this time are one. */
const GATHER = 150;
const LONGEST_WAIT = 30_000;
/** A page that is stale again and again gets a growing pause; it is forgotten after this time. */
const FORGET = 60_000;

let timer = 0;
let busy = false;
let again = false;
let failures = 0;
let stale = 0;
let lastStale = 0;
/** Who waits for a page that lacks nothing. @type {(() => void)[]} */
const waiting = [];

/**
 * Fetch the page again soon.
 * @param {number} [within] milliseconds to choose the moment from, where many pages have to
 * @param {() => void} [shown] an update was missed, not sent: called once the page shows it
 */
export function refresh(within = 0, shown) {
  if (shown) {
    const now = Date.now();
    // What all streams of a page say at once counts once.
    if (!waiting.length) stale = now - lastStale > FORGET ? 1 : stale + 1;
    lastStale = now;
    waiting.push(shown);
  }
  if (busy) again = true;
  else timer ||= setTimeout(run, pause() + Math.random() * within);
}

function pause() {
  const trouble = Math.max(failures, Date.now() - lastStale < FORGET ? stale - 3 : 0);
  return trouble > 0 ? Math.min(LONGEST_WAIT, 500 * 2 ** trouble) * (0.5 + Math.random() / 2) : GATHER;
}

async function run() {
  timer = 0;
  busy = true;
  again = false;
  const helped = waiting.splice(0);
  try {
    // Turbo exchanges the page, and overwrites what is being written when it morphs.
    const isThere = await (hasTurbo() && !isBusy() ? refreshByTurbo() : fetchAndMorph());
    failures = 0;
    // A page that is gone goes on lacking what it lacked.
    if (isThere !== false) for (const shown of helped) shown();
  } catch (error) {
    console.warn("The page could not be fetched again:", error);
    waiting.push(...helped);
    failures += 1;
    again = true;
  }
  busy = false;
  if (again) refresh();
}

async function fetchAndMorph() {
  const here = pageAddress();
  const response = await fetch(here, { headers: { Accept: "text/html" }, cache: "no-store" });
  if (response.status >= 500) throw new Error(`${here} answered ${response.status}`);
  const text = await response.text();
  // Whoever has gone elsewhere meanwhile is not taken back.
  if (pageAddress() !== here) return;
  if (!response.ok || response.url.split("#")[0] !== here) {
    emit("stale", { reason: "gone", status: response.status, url: response.url });
    return false;
  }
  const page = new DOMParser().parseFromString(trusted(text), "text/html");
  if (!emit("before-render", { action: "refresh", target: document.body }, true)) return;
  document.title = page.title;
  morph(document.body, page.body);
  emit("rendered", { action: "refresh", target: document.body });
}

function pageAddress() {
  return location.href.split("#")[0];
}

function hasTurbo() {
  return "Turbo" in window && customElements.get("turbo-stream") !== undefined;
}

/** Turbo has its own way of visiting a page, which other code on the page relies on. */
function refreshByTurbo() {
  return new Promise((resolve) => {
    const element = document.createElement("turbo-stream");
    element.setAttribute("action", "refresh");
    document.addEventListener("turbo:load", resolve, { once: true });
    setTimeout(resolve, 5_000);
    document.documentElement.append(element);
  });
}
