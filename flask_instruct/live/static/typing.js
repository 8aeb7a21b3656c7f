// Typing is sacred: a field that has the focus or unsaved changes keeps its text, whatever arrives over it. The page
// then says so and offers both versions.

import { notify, withdraw } from "./notice.js";
import { trusted } from "./trusted.js";

export { isNotice } from "./notice.js";

/**
 * What can be written in. A version is what a person sees as its content, as text.
 * @typedef {object} Kind
 * @property {(field: any) => string} current
 * @property {(field: any) => string} original what the server said last
 * @property {(field: any, version: string) => void} set
 * @property {(field: any, to: any) => void} adopt make the server's version the original; may change the current one
 */

/** @type {Record<string, Kind>} */
const KINDS = {
  text: {
    current: (field) => field.value,
    original: (field) => field.defaultValue,
    set: (field, version) => (field.value = version),
    adopt: (field, to) => (field.defaultValue = to.defaultValue),
  },
  check: {
    current: (field) => String(field.checked),
    original: (field) => String(field.defaultChecked),
    set: (field, version) => (field.checked = version === "true"),
    adopt: (field, to) => (field.defaultChecked = to.defaultChecked),
  },
  select: {
    current: (field) => chosen(field, "selected"),
    original: (field) => chosen(field, "defaultSelected"),
    set: (field, version) => choose(field, "selected", version),
    adopt: (field, to) => choose(field, "defaultSelected", chosen(to, "defaultSelected")),
  },
  file: {
    current: (field) => String(field.files.length),
    original: () => "0",
    set: () => {},
    adopt: () => {},
  },
  editable: {
    current: (field) => field.innerHTML,
    original: (field) => originals.get(field) ?? field.innerHTML,
    set: (field, version) => (field.innerHTML = trusted(version)),
    adopt: (field, to) => originals.set(field, to.innerHTML),
  },
};

const EDITORS = "[contenteditable]:not([contenteditable=false])";
const FIELDS = `input,textarea,select,${EDITORS}`;
/** In which somebody is until it is closed, wherever the focus went by a click on its text. */
const OPEN = "dialog[open]";
const NO_FIELDS = ["hidden", "submit", "button", "reset", "image"];
/** Browsers give these a value of their own, so that only a person's hand tells. */
const SELF_FILLED = ["range", "color", "number", "date", "time", "datetime-local", "month", "week"];

/** @type {WeakSet<Element>} */
const touched = new WeakSet();
/** @type {WeakMap<Element, string>} */
const originals = new WeakMap();
/** Details that a person has opened or closed. @type {WeakSet<Element>} */
export const toggled = new WeakSet();

document.addEventListener("input", ({ target }) => touched.add(/** @type {Element} */ (target)), true);
document.addEventListener("focusin", ({ target }) => {
  const field = /** @type {HTMLElement} */ (target);
  if (field.isContentEditable && !originals.has(field)) originals.set(field, field.innerHTML);
});
document.addEventListener("click", ({ target }) => {
  const details = target instanceof Element && target.closest("summary")?.parentElement;
  if (details) toggled.add(details);
});

/** Whether someone writes in this element. @param {Element} element */
export function keeps(element) {
  return isField(element) && (element === document.activeElement || isDirty(element));
}

/** Whether someone is at work in this element, so that it must not be exchanged. @param {Element} element */
export function occupied(element) {
  if (element.contains(document.activeElement) || element.matches(OPEN) || element.querySelector(OPEN)) return true;
  return [element, ...element.querySelectorAll(FIELDS)].some(keeps);
}

/** Whether someone is at work anywhere on the page. */
export function isBusy() {
  return [...document.querySelectorAll(FIELDS)].some(keeps) || document.querySelector(OPEN) !== null;
}

/** The editor, if any, in which someone writes and that this element is a part of. @param {Element} element */
export function editorAround(element) {
  const editor = element.parentElement?.closest(EDITORS);
  return editor && keeps(editor) ? editor : null;
}

/** Say beside an editor that a part of it changed elsewhere. @param {Element} editor */
export function warn(editor) {
  notify(editor, "changed", {});
}

/**
 * Let a field keep its text while the server's version of it changes; tell the person when it does.
 * @param {Element} field
 * @param {Element} to
 */
export function keep(field, to) {
  const kind = kindOf(field);
  const before = kind.original(field);
  const mine = kind.current(field);
  const caret = caretOf(field);
  kind.adopt(field, to);
  const theirs = kind.original(field);
  if (kind.current(field) !== mine) {
    kind.set(field, mine);
    caret();
  }
  if (theirs === mine) {
    touched.delete(field);
    withdraw(field);
  } else if (theirs !== before && !(field instanceof HTMLInputElement && field.type === "radio")) {
    notify(field, "changed", {
      isMine: () => kind.current(field) !== kind.original(field),
      theirs: () => kind.original(field),
      current: () => kind.current(field),
      set: (version) => write(field, kind, version),
    });
  }
}

/**
 * Give a field that nobody writes in the value that its new attributes say.
 * @param {Element} field
 * @param {Element} to
 */
export function settle(field, to) {
  if (!isField(field) || field.matches("[contenteditable]")) return;
  const kind = kindOf(field);
  const version = kind.original(field);
  const filled = isSelfFilled(field) && !version;
  if (kind.current(field) !== version && !filled) kind.set(field, version);
}

/**
 * Remove a node, unless it holds text that would be lost: then it stays until the person lets it go.
 * @param {ChildNode} node
 */
export function drop(node) {
  const fields = node instanceof Element ? [node, ...node.querySelectorAll(FIELDS)] : [];
  const field = fields.find((each) => isField(each) && isDirty(each));
  if (!field) {
    node.remove();
    return;
  }
  notify(field, "removed", { gone: () => node.remove() });
}

/** @param {Element} element */
function isField(element) {
  return element.matches(FIELDS) && !(element instanceof HTMLInputElement && NO_FIELDS.includes(element.type));
}

/** @param {Element} field */
function isDirty(field) {
  const kind = kindOf(field);
  if ((kind === KINDS.editable || isSelfFilled(field)) && !touched.has(field)) return false;
  return kind.current(field) !== kind.original(field);
}

/** @param {Element} field */
function isSelfFilled(field) {
  return field instanceof HTMLInputElement && SELF_FILLED.includes(field.type);
}

/** @param {Element} field */
function kindOf(field) {
  if (field instanceof HTMLSelectElement) return KINDS.select;
  if (field instanceof HTMLTextAreaElement) return KINDS.text;
  if (field instanceof HTMLInputElement) {
    if (field.type === "file") return KINDS.file;
    return ["checkbox", "radio"].includes(field.type) ? KINDS.check : KINDS.text;
  }
  return KINDS.editable;
}

/**
 * @param {Element} field
 * @param {Kind} kind
 * @param {string} version
 */
function write(field, kind, version) {
  kind.set(field, version);
  touched.add(field);
  field.dispatchEvent(new Event("input", { bubbles: true }));
  field.dispatchEvent(new Event("change", { bubbles: true }));
}

/**
 * Remember caret, selection and scroll; the function that is returned brings them back.
 * @param {any} field
 */
function caretOf(field) {
  const { selectionStart, selectionEnd, selectionDirection, scrollTop, scrollLeft } = field;
  return () => {
    // Some types of input have no caret that can be set.
    if (typeof selectionStart === "number") field.setSelectionRange(selectionStart, selectionEnd, selectionDirection);
    field.scrollTop = scrollTop;
    field.scrollLeft = scrollLeft;
  };
}

/**
 * @param {HTMLSelectElement} select
 * @param {"selected" | "defaultSelected"} property
 */
function chosen(select, property) {
  const values = [...select.options].filter((option) => option[property]).map((option) => option.value);
  // A list of one line shows its first option when none is chosen.
  const oneLine = !select.multiple && select.size < 2;
  if (!values.length && oneLine && select.options.length) values.push(select.options[0].value);
  return JSON.stringify(values);
}

/**
 * @param {HTMLSelectElement} select
 * @param {"selected" | "defaultSelected"} property
 * @param {string} version
 */
function choose(select, property, version) {
  const values = JSON.parse(version);
  for (const option of select.options) option[property] = values.includes(option.value);
}
