// Changes existing elements into others instead of exchanging them, so that focus, caret, scroll and unsaved text stay.

import { drop, isNotice, keep, keeps, settle, toggled } from "./typing.js";

/**
 * Change one element into another of the same kind.
 * @param {Element} from
 * @param {Element} to
 */
export function morph(from, to) {
  if (isPermanent(from, to)) return;
  if (from.localName !== to.localName) {
    from.before(to);
    drop(from);
    return;
  }
  const kept = keeps(from);
  syncAttributes(from, to, kept);
  if (kept) keep(from, to);
  else if (from instanceof HTMLTemplateElement && to instanceof HTMLTemplateElement) {
    from.content.replaceChildren(to.content);
  } else if (!from.isEqualNode(to)) morphChildren(from, to);
  if (!kept) settle(from, to);
}

/**
 * Change the children of one node into those of another.
 * @param {Element} from
 * @param {Element | DocumentFragment} to
 */
export function morphChildren(from, to) {
  const wanted = new Set([...to.children].map((child) => child.id).filter(Boolean));
  /** @type {ChildNode | null} */
  let cursor = skipNotices(from.firstChild);
  for (const next of [...to.childNodes]) {
    const match = findMatch(from, cursor, next, wanted);
    if (!match) {
      from.insertBefore(next, cursor);
      continue;
    }
    if (match !== cursor) bring(from, match, /** @type {ChildNode} */ (cursor));
    cursor = skipNotices(match.nextSibling);
    if (match instanceof Element) morph(match, /** @type {Element} */ (next));
    else if (match.nodeValue !== next.nodeValue) match.nodeValue = next.nodeValue;
  }
  while (cursor) {
    const gone = cursor;
    cursor = cursor.nextSibling;
    if (!isNotice(gone)) drop(gone);
  }
}

/** @param {ChildNode | null} node */
function skipNotices(node) {
  while (node && isNotice(node)) node = node.nextSibling;
  return node;
}

/**
 * The old child that shall become `next`: the one of the same id, else the first from the cursor on of the same kind.
 * @param {Element} parent
 * @param {ChildNode | null} cursor
 * @param {ChildNode} next
 * @param {Set<string>} wanted
 */
function findMatch(parent, cursor, next, wanted) {
  if (!(next instanceof Element)) return cursor?.nodeType === next.nodeType ? cursor : null;
  for (let node = cursor; node; node = node.nextSibling) {
    if (node instanceof Element && isSame(node, next, wanted)) return node;
  }
  return null;
}

/**
 * @param {Element} node
 * @param {Element} next
 * @param {Set<string>} wanted
 */
function isSame(node, next, wanted) {
  if (node.localName !== next.localName || isNotice(node)) return false;
  if (next.id || wanted.has(node.id)) return node.id === next.id;
  return ["name", "type"].every((name) => node.getAttribute(name) === next.getAttribute(name));
}

/**
 * Put a child in front of another without moving the one that has the focus, which would lose it.
 * @param {Element} parent
 * @param {ChildNode} match
 * @param {ChildNode} cursor
 */
function bring(parent, match, cursor) {
  if (!match.contains(document.activeElement)) {
    parent.insertBefore(match, cursor);
    return;
  }
  const behind = match.nextSibling;
  for (let node = cursor; node !== match; ) {
    const following = /** @type {ChildNode} */ (node.nextSibling);
    parent.insertBefore(node, behind);
    node = following;
  }
}

/**
 * @param {Element} from
 * @param {Element} to
 * @param {boolean} kept whether someone is writing in it
 */
function syncAttributes(from, to, kept) {
  for (const { name, value } of [...to.attributes]) {
    if (!isOurs(from, name, kept) && from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
  for (const { name } of [...from.attributes]) {
    if (!isOurs(from, name, kept) && !to.hasAttribute(name)) from.removeAttribute(name);
  }
}

/**
 * Whether the page, not the server, has the say over an attribute.
 * @param {Element} element
 * @param {string} name
 * @param {boolean} kept
 */
function isOurs(element, name, kept) {
  if (name === "data-instruct-changed") return true;
  if (name === "connected") return element.localName === "instruct-stream";
  if (name === "open") return element instanceof HTMLDialogElement || toggled.has(element);
  return kept && ["value", "checked", "disabled", "readonly", "contenteditable"].includes(name);
}

/**
 * @param {Element} from
 * @param {Element} to
 */
function isPermanent(from, to) {
  // Parsed without scripts, its text has become elements.
  if (from.localName === "noscript") return true;
  const marked = ["data-instruct-permanent", "data-turbo-permanent"];
  return from.id !== "" && from.id === to.id && marked.some((name) => from.hasAttribute(name));
}
