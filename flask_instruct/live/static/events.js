// What the host page can hear: instruct:connected, disconnected, stale, before-render and rendered, on the document.

/**
 * Tell the host page; false when it objected.
 * @param {string} name
 * @param {object} [detail]
 * @param {boolean} [cancelable]
 */
export function emit(name, detail = {}, cancelable = false) {
  return document.dispatchEvent(new CustomEvent(`instruct:${name}`, { detail, cancelable }));
}
