// A log that someone reads to its end follows what is added; one that was scrolled up stays where it is.

/** Pixels above the end that still count as the end: browsers round. */
const NEAR = 8;

/**
 * Remember whether a log (`data-instruct-follow`) is at its end; the function that is returned keeps it there.
 * @param {Element} target what is about to change
 * @returns {() => void}
 */
export function following(target) {
  const log = target.closest("[data-instruct-follow]");
  const box = scroller(log);
  if (!log || !box || box.scrollHeight - box.scrollTop - box.clientHeight > NEAR) return () => {};
  return () => {
    // It may have been exchanged itself.
    const now = log.isConnected ? box : scroller(document.getElementById(log.id));
    if (now) now.scrollTop = now.scrollHeight;
  };
}

/** @param {Element | null} log */
function scroller(log) {
  return log === document.body ? document.scrollingElement : log;
}
