/**
 * What the studio adds to plain pages: times in the reader's words, a brief light on what changed, a running total,
 * small forms that are sent without a reload, and a way to the panel on a phone. Without this script everything works by forms and reloads.
 */

const calm = matchMedia("(prefers-reduced-motion: reduce)");
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const absolute = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "short" });
const UNITS = /** @type {const} */ ([["year", 31536000], ["month", 2592000], ["week", 604800], ["day", 86400], ["hour", 3600], ["minute", 60]]);

/** @param {ParentNode} root */
function tellTimes(root) {
  for (const element of root.querySelectorAll("time[data-ago]")) {
    const time = /** @type {HTMLTimeElement} */ (element);
    const then = new Date(time.dateTime);
    const seconds = (then.getTime() - Date.now()) / 1000;
    const unit = UNITS.find(([, size]) => Math.abs(seconds) >= size);
    const text = unit ? relative.format(Math.round(seconds / unit[1]), unit[0]) : "just now";
    if (time.textContent !== text) time.textContent = text;
    time.title ||= absolute.format(then);
  }
}

/** What each marked element said when it was last seen, by its id. @type {Map<string, string>} */
const seen = new Map();

/** @param {Element} element */
function words(element) {
  const copy = /** @type {Element} */ (element.cloneNode(true));
  copy.querySelectorAll("time, .replies, .comment__foot").forEach((part) => part.remove());
  return (copy.textContent ?? "").replace(/\s+/g, " ").trim();
}

/** Light up what says something new. An animation leaves no trace in the document, unlike a class. @param {boolean} [silent] */
function lightUpChanges(silent = false) {
  for (const element of document.querySelectorAll("[data-flash][id]")) {
    const text = words(element);
    if (!silent && seen.get(element.id) !== text && !calm.matches) {
      const colour = getComputedStyle(element).getPropertyValue("--accent-soft");
      element.animate(
        [{ backgroundColor: colour, boxShadow: `0 0 0 8px ${colour}` }, { backgroundColor: "transparent", boxShadow: "0 0 0 8px transparent" }],
        { duration: 2200, easing: "ease-out" },
      );
    }
    seen.set(element.id, text);
  }
}

function addUp() {
  for (const form of document.querySelectorAll("form[data-sum]")) {
    const fields = /** @type {NodeListOf<HTMLInputElement>} */ (form.querySelectorAll("input[type=number]"));
    const total = [...fields].reduce((sum, field) => sum + (field.valueAsNumber || 0), 0);
    const output = /** @type {HTMLOutputElement} */ (form.querySelector("[data-sum-total]"));
    output.value = String(total);
    output.closest(".sum")?.toggleAttribute("data-wrong", total !== 100);
  }
}

/**
 * Send a small form in the background; what it changed arrives on the live stream like anyone's change.
 * Where the page is not live, or anything is unusual, the form is sent the plain way.
 * @param {SubmitEvent} event
 */
async function sendQuietly(event) {
  const form = /** @type {HTMLFormElement} */ (event.target);
  if (!form.matches("[data-quiet-post]") || !document.querySelector("main instruct-stream[connected]")) return;
  event.preventDefault();
  if (form.ariaBusy === "true") return;
  form.ariaBusy = "true";
  const button = /** @type {HTMLButtonElement | null} */ (event.submitter);
  try {
    const response = await fetch(form.action, { method: "POST", body: new FormData(form, button) });
    if (!response.ok) throw new Error(String(response.status));
    form.reset();
    form.closest("details")?.removeAttribute("open");
  } catch {
    form.removeAttribute("data-quiet-post");
    form.requestSubmit(button?.isConnected ? button : null);
  } finally {
    form.removeAttribute("aria-busy");
  }
}

/** The way to the panel is of no use while the panel is in view. */
function offerPanel() {
  const link = /** @type {HTMLElement | null} */ (document.querySelector(".to-assistant"));
  const panel = document.getElementById("assistant");
  if (!link || !panel) return;
  new IntersectionObserver(([entry]) => link.toggleAttribute("data-idle", entry.isIntersecting), { threshold: 0.05 }).observe(panel);
}

let planned = false;
function afterChange() {
  if (planned) return;
  planned = true;
  setTimeout(() => {
    planned = false;
    lightUpChanges();
    tellTimes(document);
  }, 50);
}

tellTimes(document);
lightUpChanges(true);
addUp();
offerPanel();
document.addEventListener("input", addUp);
document.addEventListener("submit", sendQuietly);
setInterval(() => tellTimes(document), 30_000);
for (const region of document.querySelectorAll(".desk__main, .cards, .beside")) {
  new MutationObserver(afterChange).observe(region, { childList: true, subtree: true });
}
