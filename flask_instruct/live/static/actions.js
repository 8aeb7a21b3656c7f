// What a Turbo Stream does to the page. Every action can be done twice: what is there already is not there again.

import { emit } from "./events.js";
import { morph, morphChildren } from "./morph.js";
import { refresh } from "./refresh.js";
import { following } from "./scroll.js";
import { trusted } from "./trusted.js";
import { drop, editorAround, occupied, warn } from "./typing.js";

/** How long what changed is marked. */
const MARKED = 2_000;

/** Where a child belongs in its list: behind those whose text is smaller. */
const ORDER = "data-instruct-order";

/** @typedef {(target: Element, content: DocumentFragment, element: Element) => boolean | void} Act */

/** @type {Record<string, Act>} `false` says that something before it is missing. */
const ACTIONS = {
  append(target, content) {
    add(target, content, () => target.insertBefore(content, successor(target, content.firstElementChild)));
  },
  prepend(target, content) {
    add(target, content, () => target.prepend(content));
  },
  before(target, content) {
    add(target.parentElement, content, () => target.before(content), target);
  },
  after(target, content) {
    add(target.parentElement, content, () => target.after(content), target);
  },
  replace(target, content, element) {
    const [first, ...others] = content.children;
    if (first && (element.getAttribute("method") === "morph" || occupied(target))) {
      mark([target], !target.isEqualNode(first));
      morph(target, first);
      target.after(...others);
    } else if (first || !occupied(target)) {
      mark([...content.children]);
      target.replaceWith(content);
    } else drop(target);
  },
  update(target, content, element) {
    if (element.getAttribute("method") === "morph" || occupied(target)) morphChildren(target, content);
    else target.replaceChildren(content);
    mark([target]);
  },
  remove(target) {
    drop(target);
  },
  text(target, content, element) {
    // A finished text is more than its pieces.
    if (target.hasAttribute("data-instruct-final")) return true;
    const only = target.childNodes.length === 1 && target.firstChild;
    const text = only instanceof Text ? only : null;
    const length = text ? text.length : target.textContent?.length ?? 0;
    const offset = Number(element.getAttribute("offset"));
    if (offset > length) return false;
    if (offset < length) return true;
    const piece = content.textContent ?? "";
    if (text) text.appendData(piece);
    else target.append(piece);
  },
};

/**
 * Do what a message says, one element after the other; a bad one costs the others nothing.
 * @param {string} html
 * @param {string} stream
 * @returns {boolean} false when the page must be fetched again to be right
 */
export function render(html, stream) {
  let complete = true;
  for (const element of parsed(html).children) {
    try {
      complete = perform(element, stream) && complete;
    } catch (error) {
      console.error("A Turbo Stream could not be rendered:", element.outerHTML.slice(0, 200), error);
    }
  }
  return complete;
}

/**
 * @param {Element} element
 * @param {string} stream
 */
function perform(element, stream) {
  const action = element.getAttribute("action") ?? "";
  const detail = { action, stream, element };
  if (element.localName !== "turbo-stream") throw new Error("no <turbo-stream>");
  if (!emit("before-render", detail, true)) return true;
  let complete = true;
  if (action === "refresh") refresh();
  else if (!Object.hasOwn(ACTIONS, action)) leaveToTurbo(element);
  else {
    const content = contentOf(element);
    for (const target of targetsOf(element)) {
      const editor = editorAround(target);
      if (editor) {
        warn(editor);
        continue;
      }
      const copy = /** @type {DocumentFragment} */ (document.importNode(content, true));
      if (scriptsMayRun()) arm(copy);
      const place = target.parentElement ?? target;
      const follow = following(target);
      complete = ACTIONS[action](target, copy, element) !== false && complete;
      follow();
      if (action !== "text") wake(place);
    }
  }
  emit("rendered", detail);
  return complete;
}

/** @param {string} html */
function parsed(html) {
  const template = document.createElement("template");
  template.innerHTML = trusted(html);
  return template.content;
}

/** @param {Element} element */
function targetsOf(element) {
  const selector = element.getAttribute("targets");
  if (selector) return [...document.querySelectorAll(selector)];
  const id = element.getAttribute("target") ?? "";
  // A row that has just moved may stand in two lists, until the page has heard of both.
  const list = document.getElementById(element.getAttribute("within") ?? "");
  const target = list ? list.querySelector(`#${CSS.escape(id)}`) : document.getElementById(id);
  return target ? [target] : [];
}

/** @param {Element} element */
function contentOf(element) {
  const template = element.querySelector("template");
  if (!template) return document.createDocumentFragment();
  return scriptsMayRun() ? template.content : disarmed(template.content);
}

function scriptsMayRun() {
  return document.querySelector("script[data-instruct-socket]")?.hasAttribute("data-instruct-scripts") ?? false;
}

/**
 * Let scripts run, which they do not by themselves when they were parsed in a template. The site has asked for it.
 * @param {DocumentFragment} content
 */
function arm(content) {
  const own = /** @type {HTMLScriptElement | null} */ (document.querySelector("script[data-instruct-socket]"));
  for (const script of content.querySelectorAll("script")) {
    const copy = document.createElement("script");
    for (const { name, value } of script.attributes) copy.setAttribute(name, value);
    copy.nonce = own?.nonce ?? "";
    copy.append(...script.childNodes);
    script.replaceWith(copy);
  }
}

/**
 * Take out what would run: a fragment is looks, never behaviour. Scripts parsed this way are inert already.
 * @param {DocumentFragment} content
 */
function disarmed(content) {
  for (const element of content.querySelectorAll("*")) {
    for (const { name, value } of [...element.attributes]) {
      // Browsers skip control characters and spaces in front of and inside a scheme; SVG animates through a list.
      const runs = /^on|^srcdoc$/i.test(name) || /(^|;)javascript:/i.test(value.replace(/[\u0000-\u0020]/g, ""));
      if (runs) element.removeAttribute(name);
    }
    // Turbo, where it is there, puts what a stream within a fragment has into the page.
    if (element instanceof HTMLTemplateElement) disarmed(element.content);
  }
  return content;
}

/**
 * Insert content; a child whose id is there already moves to the new place, or is changed where it is if someone
 * writes in it.
 * @param {Element | null} container
 * @param {DocumentFragment} content
 * @param {() => void} insert
 * @param {Element} [anchor]
 */
function add(container, content, insert, anchor) {
  for (const child of [...content.children]) {
    const existing = childOf(container, child.id);
    if (!existing) continue;
    if (existing === anchor || occupied(existing)) {
      morph(existing, child);
      child.remove();
    } else existing.remove();
  }
  const added = [...content.children];
  insert();
  mark(added);
}

/**
 * What stands behind a new child already, though it was made later: two processes may tell of their rows in another
 * order than that of the rows.
 * @param {Element} list
 * @param {Element | null} child
 */
function successor(list, child) {
  const order = child?.getAttribute(ORDER);
  if (!order) return null;
  let found = null;
  let each = list.lastElementChild;
  for (; each && (each.getAttribute(ORDER) ?? "") > order; each = each.previousElementSibling) found = each;
  return found;
}

/**
 * The child of that id. The document knows at once that there is none; looking through a long list takes its time.
 * @param {Element | null} container
 * @param {string} id
 */
function childOf(container, id) {
  const found = id && document.getElementById(id);
  if (!found || found.parentElement === container) return found;
  return [...(container?.children ?? [])].find((each) => each.id === id);
}

/**
 * @param {Element[]} elements
 * @param {boolean} [changed]
 */
function mark(elements, changed = true) {
  if (!changed) return;
  for (const element of elements) {
    element.setAttribute("data-instruct-changed", "");
    setTimeout(() => element.removeAttribute("data-instruct-changed"), MARKED);
  }
}

/** Let htmx see its attributes in what is new. @param {Element} place */
function wake(place) {
  /** @type {any} */ (window).htmx?.process(place);
}

/** @param {Element} element */
function leaveToTurbo(element) {
  const { Turbo } = /** @type {any} */ (window);
  if (!Turbo?.StreamActions?.[element.getAttribute("action") ?? ""]) throw new Error("unknown action");
  document.documentElement.append(document.importNode(element, true));
}
