/**
 * Keeps the page of a run up to date: the run's panel stream says that something changed, and the page fetches itself
 * again. Text that is being written arrives piece by piece, without that. Without a script the page is as complete.
 */

/** The module of live pages that fetches a page again; the same one that instruct.js has loaded. */
const live = import(new URL("../live/refresh.js", import.meta.url).href);

document.addEventListener("instruct:rendered", (event) => {
  const followed = document.getElementById("instruct_followed");
  const element = /** @type {CustomEvent<{element?: Element}>} */ (event).detail.element;
  if (!followed || !element) return;
  // The status comes last in each transaction of a run; a new run of the same record may have taken this one back.
  const told = [`instruct_run_${followed.dataset.instructRun}_status`, followed.dataset.instructList];
  if (told.includes(element.getAttribute("target") ?? "")) live.then(({ refresh }) => refresh());
});
