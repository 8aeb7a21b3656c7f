/**
 * What the panel can do better with a script: send without leaving the page, keep the text until it has arrived,
 * count seconds, tell the time where the reader lives. Without it the same forms post and the page comes back.
 *
 * Fragments of a running request are not its business: they arrive on the page's live stream (instruct.js).
 */

const STREAM_TYPE = "text/vnd.turbo-stream.html";

/** Milliseconds that the server's clock is ahead of this one. */
let skew = 0;

/**
 * Send a form of a panel and leave the page where it is.
 * @param {HTMLFormElement} form
 * @param {HTMLElement | null} submitter
 */
async function send(form, submitter) {
  if (form.getAttribute("aria-busy") === "true") return;
  // Before anything is sent: the answer's fragments may take the pressed button off the page.
  const run = submitter?.closest(".instruct-run") ?? null;
  const field = form.querySelector("textarea");
  const written = submitter?.getAttribute("name") === "suggestion" ? null : (field?.value ?? null);
  const request = {
    method: "POST",
    body: new FormData(form, submitter),
    headers: { Accept: STREAM_TYPE },
  };
  const address = submitter instanceof HTMLButtonElement && submitter.hasAttribute("formaction") ? submitter.formAction : form.action;
  complain(form, "");
  form.setAttribute("aria-busy", "true");
  const takeBack = putAway(submitter?.closest(".instruct-rewrite"));
  try {
    const trouble = await deliver(form, address, request);
    if (trouble) {
      takeBack?.();
      complain(form, trouble);
      return;
    }
    // Only what was sent is taken away: the reader may have typed on.
    if (field && written !== null && field.value === written) field.value = "";
    stay(form);
    if (!takeBack) follow(form, run);
  } finally {
    form.removeAttribute("aria-busy");
  }
}

/**
 * @param {HTMLFormElement} form
 * @param {string} address
 * @param {RequestInit} request
 * @returns {Promise<string>} why it was not accepted, or nothing
 */
async function deliver(form, address, request) {
  let response;
  let body;
  try {
    response = await fetch(address, request);
    body = await response.text();
  } catch {
    return form.dataset.instructLost ?? "";
  }
  const type = response.headers.get("Content-Type") ?? "";
  if (response.status === 204) {
    if (isWithoutLive(form)) location.reload();
    return "";
  }
  if (response.ok && type.startsWith(STREAM_TYPE)) {
    show(body);
    return "";
  }
  // A page in place of an answer: a login form after a redirect, or a proxy's own error.
  return (type.startsWith("text/plain") && body) || (form.dataset.instructOdd ?? "");
}

/**
 * Append what is not on the page yet. What is there came by the live stream and may be newer.
 * @param {string} html
 */
function show(html) {
  const answer = new DOMParser().parseFromString(html, "text/html");
  for (const stream of answer.querySelectorAll('turbo-stream[action="append"]')) {
    const target = document.getElementById(stream.getAttribute("target") ?? "");
    for (const element of stream.querySelector("template")?.content.children ?? []) {
      if (!document.getElementById(element.id)) target?.append(document.importNode(element, true));
    }
  }
}

/**
 * Close what a message was written anew in, before the page is told that the message is gone: a field with something of
 * one's own in it is never taken off a page, and neither is what has the focus.
 * @param {Element | null | undefined} editor
 * @returns {(() => void) | null} opens it again as it was; null where there was nothing to close
 */
function putAway(editor) {
  const field = editor?.querySelector("textarea");
  if (!(editor instanceof HTMLDetailsElement) || !field) return null;
  const written = field.value;
  const log = editor.closest(".instruct-log");
  if (log instanceof HTMLElement) log.focus({ preventScroll: true });
  field.value = field.defaultValue;
  editor.open = false;
  return () => {
    editor.open = true;
    field.value = written;
    field.focus();
  };
}

/**
 * Name the thread of a chat in the address, so that a reload shows what was just begun.
 * @param {HTMLFormElement} form
 */
function stay(form) {
  const chat = form.querySelector('input[name="chat"]');
  if (!(chat instanceof HTMLInputElement)) return;
  const address = new URL(location.href);
  if (address.searchParams.get("chat") === chat.value && !address.searchParams.has("at")) return;
  address.searchParams.set("chat", chat.value);
  address.searchParams.delete("at");
  history.replaceState(history.state, "", address);
}

/**
 * Bring what was asked into view, and put the focus where the pressed button was.
 * @param {HTMLFormElement} form
 * @param {Element | null} run
 */
function follow(form, run) {
  if (run instanceof HTMLElement) {
    run.focus({ preventScroll: true });
    return;
  }
  const log = form.closest(".instruct-panel")?.querySelector(".instruct-log");
  if (log) log.scrollTop = 0; // the log is laid out from its end
}

/**
 * @param {HTMLFormElement} form
 * @param {string} text
 */
function complain(form, text) {
  const place = form.querySelector(".instruct-form__error");
  if (!(place instanceof HTMLElement)) return;
  place.textContent = text;
  place.hidden = !text;
}

/** @param {Element} element */
function isWithoutLive(element) {
  return element.closest(".instruct-panel")?.querySelector('instruct-stream[data-instruct-live="off"]') != null;
}

/**
 * Whole seconds in the words of the server's `language.whole_duration`, which come with the panel.
 * @param {number} seconds
 */
function duration(seconds) {
  const [short, middle, long] = patterns();
  if (seconds < 60) return short.replace("{s}", String(seconds));
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return middle.replace("{m}", String(minutes)).replace("{s}", String(seconds % 60));
  return long.replace("{h}", String(Math.floor(minutes / 60))).replace("{m}", String(minutes % 60));
}

/** @returns {string[]} */
function patterns() {
  const panel = document.querySelector("[data-instruct-durations]");
  return JSON.parse(panel?.getAttribute("data-instruct-durations") ?? '["{s} s", "{m} min {s} s", "{h} h {m} min"]');
}

function tick() {
  if (document.hidden) return;
  for (const time of document.querySelectorAll("time[data-instruct-since]")) {
    const since = Date.parse(time.getAttribute("datetime") ?? "");
    const seconds = Math.max(0, Math.floor((Date.now() + skew - since) / 1000));
    if (Number.isFinite(seconds)) say(time, duration(seconds));
  }
  for (const time of document.querySelectorAll("time[data-instruct-until]")) {
    const until = Date.parse(time.getAttribute("datetime") ?? "");
    const seconds = Math.max(0, Math.ceil((until - Date.now() - skew) / 1000));
    const pattern = time.getAttribute("data-instruct-until") ?? "{}";
    if (Number.isFinite(seconds)) say(time, pattern.replace("{}", duration(seconds)));
  }
  for (const status of document.querySelectorAll("[data-instruct-look]")) wonder(status);
  tellTheTime(document);
}

/** When the server is asked next whether a worker is running, by the request that waits. @type {Map<string, number>} */
const asking = new Map();

/**
 * Ask whether any worker is running, once a request has waited for as long as the site has patience, and again after as
 * long. The answer comes by the live stream, to all who look.
 * @param {Element} status of a request that waits
 */
function wonder(status) {
  const patience = 1000 * Number(status.getAttribute("data-instruct-patience"));
  const since = Date.parse(status.querySelector("time[data-instruct-since]")?.getAttribute("datetime") ?? "");
  const now = Date.now();
  // The server counts from its own clock to the millisecond; a moment later it agrees that the time has come.
  const due = asking.get(status.id) ?? since + patience - skew + 50;
  if (!(due < now + 1000)) return;
  asking.set(status.id, Math.max(due, now) + Math.max(patience, 1000));
  setTimeout(() => {
    // As it is then: the worker may have come.
    const address = document.getElementById(status.id)?.getAttribute("data-instruct-look");
    if (address) fetch(address).catch(() => {});
  }, Math.max(0, due - now));
}

/** @param {ParentNode} part */
function tellTheTime(part) {
  for (const time of part.querySelectorAll("time[data-instruct-clock]")) {
    const date = new Date(time.getAttribute("datetime") ?? "");
    if (!Number.isNaN(date.valueOf())) say(time, clock(date));
  }
}

/**
 * @param {Element} element
 * @param {string} text
 */
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Say how a run that stands alone on its page is, when that has changed: once for each of its states, and a panel with
 * many is told which of them to speak of.
 */
function announce() {
  for (const panel of document.querySelectorAll("[data-instruct-one]")) {
    const place = panel.querySelector("[data-instruct-says]");
    const words = panel.querySelector("[data-instruct-said]")?.getAttribute("data-instruct-said");
    if (place && words) say(place, words);
  }
}

/** Mark what somebody else has to decide; who watches is not known where it is broadcast from. */
function tellWhoDecides() {
  for (const ask of document.querySelectorAll("[data-instruct-tools]")) {
    const decides = words(ask.closest("[data-instruct-decides]")?.getAttribute("data-instruct-decides"));
    const tools = words(ask.getAttribute("data-instruct-tools"));
    ask.toggleAttribute("data-instruct-other", tools.some((tool) => !decides.includes(tool)));
  }
}

/** @param {string | null | undefined} text */
function words(text) {
  return (text ?? "").split(" ").filter(Boolean);
}

/** @param {Element} element */
function compareClocks(element) {
  const panel = element.matches("[data-instruct-now]") ? element : element.querySelector("[data-instruct-now]");
  if (panel) skew = Date.parse(panel.getAttribute("data-instruct-now") ?? "") - Date.now() || 0;
}

/** @param {Date} date */
function clock(date) {
  const today = date.toDateString() === new Date().toDateString();
  return new Intl.DateTimeFormat(locale(), today ? { timeStyle: "short" } : { dateStyle: "medium", timeStyle: "short" }).format(date);
}

/** @returns {string | undefined} the page's language, when the browser knows it by that name */
function locale() {
  try {
    return Intl.getCanonicalLocales(document.documentElement.lang.replace("_", "-") || undefined)[0];
  } catch {
    return undefined;
  }
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (event.defaultPrevented || !(form instanceof HTMLFormElement) || !form.hasAttribute("data-instruct-form")) return;
  event.preventDefault();
  void send(form, event.submitter);
});

document.addEventListener("keydown", (event) => {
  const field = event.target;
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || event.isComposing) return;
  if (!(field instanceof HTMLTextAreaElement) || !field.form?.hasAttribute("data-instruct-form")) return;
  event.preventDefault();
  field.form.requestSubmit();
});

new MutationObserver((records) => {
  for (const record of records) {
    for (const node of record.addedNodes) {
      if (!(node instanceof Element)) continue;
      compareClocks(node);
      tellTheTime(node);
    }
  }
  announce();
  tellWhoDecides();
}).observe(document.documentElement, { childList: true, subtree: true });

compareClocks(document.documentElement);
tellWhoDecides();
tick();
setInterval(tick, 1000);
