// The small notice beside a field that was changed or removed elsewhere while someone writes in it.

const STYLE = `
:host { display: block; margin: .375rem 0; }
div { display: flex; flex-wrap: wrap; gap: .375rem; align-items: center; padding: .375rem .625rem; font: inherit;
  font-size: .875rem; color: var(--instruct-notice-ink, CanvasText); background: var(--instruct-notice, Canvas);
  border: 1px solid var(--instruct-notice-line, currentColor); border-radius: .375rem; }
span { flex: 1 1 12rem; }
button { font: inherit; min-block-size: 1.75rem; color: inherit; background: none; border: 1px solid currentColor;
  border-radius: .25rem; cursor: pointer; }
button[aria-pressed=true] { color: var(--instruct-notice, Canvas); background: var(--instruct-notice-ink, CanvasText); }
`;

/**
 * @typedef {object} Choice
 * @property {() => string} [theirs]
 * @property {() => string} [current]
 * @property {() => boolean} [isMine]
 * @property {(version: string) => void} [set]
 * @property {() => void} [gone] what closing the notice does
 */

/** @type {WeakMap<Element, HTMLElement>} */
const notices = new WeakMap();

/** What each notice of ours belongs to. @type {WeakMap<Node, Element>} */
export const owners = new WeakMap();

/** Whether a node is ours, and belongs to something that is still there. @param {Node} node */
export function isNotice(node) {
  return owners.get(node)?.isConnected === true;
}

/**
 * Say beside a field what happened to it.
 * @param {Element} field
 * @param {"changed" | "removed"} what
 * @param {Choice} choice
 */
export function notify(field, what, choice) {
  withdraw(field);
  const notice = document.createElement("instruct-notice");
  const box = document.createElement("div");
  const text = document.createElement("span");
  text.setAttribute("role", "status");
  box.append(text, ...(choice.set ? versions(choice) : []), button(words("close"), () => close(field, choice)));
  const root = notice.attachShadow({ mode: "open" });
  root.adoptedStyleSheets = [sheet ??= styled(STYLE)];
  root.append(box);
  field.after(notice);
  notices.set(field, notice);
  owners.set(notice, field);
  field.closest("form")?.addEventListener("submit", () => withdraw(field), { once: true });
  // A status is read aloud when it changes, not when it appears.
  text.textContent = words(what);
}

/** @param {Element} field */
export function withdraw(field) {
  notices.get(field)?.remove();
  notices.delete(field);
}

/**
 * @param {Element} field
 * @param {Choice} choice
 */
function close(field, choice) {
  withdraw(field);
  choice.gone?.();
}

/** @param {Choice} choice */
function versions(choice) {
  let mine = choice.current?.() ?? "";
  const mineButton = button(words("mine"), () => show(true));
  const theirsButton = button(words("theirs"), () => show(false));
  /** @param {boolean} isMine */
  const press = (isMine) => {
    mineButton.setAttribute("aria-pressed", String(isMine));
    theirsButton.setAttribute("aria-pressed", String(!isMine));
  };
  /** @param {boolean} isMine */
  const show = (isMine) => {
    if (!isMine && choice.isMine?.()) mine = choice.current?.() ?? mine;
    choice.set?.(isMine ? mine : choice.theirs?.() ?? "");
    press(isMine);
  };
  press(true);
  return [mineButton, theirsButton];
}

/**
 * @param {string} label
 * @param {() => void} action
 */
function button(label, action) {
  const element = document.createElement("button");
  element.type = "button";
  element.textContent = label;
  // The field keeps the focus.
  element.addEventListener("pointerdown", (event) => event.preventDefault());
  element.addEventListener("click", action);
  return element;
}

/** @type {CSSStyleSheet | undefined} */
let sheet;

/** @param {string} css */
export function styled(css) {
  const made = new CSSStyleSheet();
  made.replaceSync(css);
  return made;
}

/** The words come translated with the script element. @param {string} key */
export function words(key) {
  const script = document.querySelector("script[data-instruct-socket]");
  return script?.getAttribute(`data-instruct-text-${key}`) ?? key;
}
