// The line where no WebSocket gets through: the events of a response that does not end, in a WebSocket's clothes.

/** Not a failure: the page wants something else, and the line begins anew with all that it wants. */
export const AGAIN = 4000;

const KEY = "instruct-line";

/** Whether events were what worked in this tab. */
export function remembered() {
  return stored((storage) => storage.getItem(KEY)) === "events";
}

/** @param {boolean} events */
export function remember(events) {
  if (events !== remembered()) stored((storage) => (events ? storage.setItem(KEY, "events") : storage.removeItem(KEY)));
}

export class EventLine {
  /** @type {number} */
  readyState = WebSocket.CONNECTING;
  /** @type {(() => void) | null} */
  onopen = null;
  /** @type {((message: {data: string}) => void) | null} */
  onmessage = null;
  /** @type {((end: {code: number}) => void) | null} */
  onclose = null;
  #abort = new AbortController();
  #asked = false;

  /** @param {string} address */
  constructor(address) {
    this.address = address;
    queueMicrotask(() => {
      if (this.readyState !== WebSocket.CONNECTING) return;
      this.readyState = WebSocket.OPEN;
      this.onopen?.();
    });
  }

  /** The first message is the request; the response cannot take another one. @param {string} data */
  send(data) {
    if (this.#asked) this.#end(AGAIN);
    else this.#listen(data);
  }

  close() {
    this.readyState = WebSocket.CLOSED;
    this.#abort.abort();
  }

  /** @param {string} body */
  async #listen(body) {
    this.#asked = true;
    try {
      const headers = { "Content-Type": "application/json", Accept: "text/event-stream" };
      const options = { method: "POST", body, headers, signal: this.#abort.signal };
      const response = await fetch(this.address, options);
      if (!response.ok || !response.body) throw new Error(`${this.address} answered ${response.status}`);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
        const events = (rest + piece.value).split("\n\n");
        rest = events.pop() ?? "";
        for (const event of events) this.#take(event.replace(/^data: /, ""));
      }
    } catch (error) {
      if (this.readyState !== WebSocket.CLOSED) console.warn("Live updates:", error);
    }
    this.#end(1006);
  }

  /** @param {string} data */
  #take(data) {
    if (this.readyState === WebSocket.CLOSED) return;
    if (data.startsWith('{"type":"bye"')) this.#end(JSON.parse(data).code);
    else this.onmessage?.({ data });
  }

  /** @param {number} code */
  #end(code) {
    if (this.readyState === WebSocket.CLOSED) return;
    this.close();
    this.onclose?.({ code });
  }
}

/**
 * @template T
 * @param {(storage: Storage) => T} use
 * @returns {T | undefined}
 */
function stored(use) {
  try {
    return use(sessionStorage);
  } catch {
    return undefined; // A page may be forbidden to keep anything.
  }
}
