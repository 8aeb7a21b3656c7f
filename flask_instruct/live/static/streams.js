// The streams that this page follows: who wants them, how far each has come, and what arrives on them.

import { render } from "./actions.js";
import { emit } from "./events.js";
import { refresh } from "./refresh.js";

/** How long a stream is kept when its last element leaves: a navigation often brings it right back. */
const RELEASE = 400;
/** How long the server may take to tell a stream; then it is asked once more. */
const PATIENCE = 4_000;

/**
 * @typedef {object} Stream
 * @property {string} name
 * @property {string} token
 * @property {string} since where the page began
 * @property {string | null} last the newest broadcast shown
 * @property {string | null} rewind asked to be told again from here
 * @property {boolean} ready
 * @property {Set<Element>} elements
 * @property {number} release timer
 */

export class Streams {
  /** @type {import("./socket.js").Line} */
  // @ts-ignore: set right after the line is made
  line;
  /** @type {Map<string, Stream>} */
  #streams = new Map();
  /** @type {Set<Stream>} */
  #asking = new Set();
  #connected = false;
  /** How much of what was missed the page still has to be fetched for. */
  #behind = 0;
  #late = 0;
  /** Whether the page has already fetched itself for new tokens since it was last up to date. */
  #renewed = false;

  get wanted() {
    return this.#streams.size > 0;
  }

  /**
   * An element wants a stream; or wants it still, with another token or from somewhere else.
   * @param {Element} element
   * @param {string} name
   * @param {string} token
   * @param {string} since
   */
  follow(element, name, token, since) {
    let stream = this.#streams.get(name);
    if (!stream) {
      stream = { name, token, since, last: null, rewind: null, ready: false, elements: new Set(), release: 0 };
      this.#streams.set(name, stream);
      this.#ask(stream);
    } else if (since && later(position(stream), since)) {
      // This part of the page is older than what was shown since: it needs that again.
      if (!stream.rewind || later(stream.rewind, since)) stream.rewind = since;
      this.#ask(stream);
    }
    clearTimeout(stream.release);
    const renewed = stream.token !== token;
    stream.token = token;
    stream.elements.add(element);
    this.#show(stream);
    if (renewed) this.line.renew();
    this.line.open();
  }

  /**
   * @param {Element} element
   * @param {string} name
   */
  unfollow(element, name) {
    const stream = this.#streams.get(name);
    if (!stream?.elements.delete(element) || stream.elements.size) return;
    stream.release = setTimeout(() => this.#release(stream), RELEASE);
  }

  opened() {
    this.#asking.clear();
    const streams = [...this.#streams.values()];
    for (const stream of streams) stream.ready = false;
    this.#subscribe(streams);
  }

  /** @param {string} data */
  received(data) {
    try {
      const frames = JSON.parse(data);
      for (const frame of Array.isArray(frames) ? frames : [frames]) this.#take(frame);
    } catch (error) {
      console.error("A message that is none of Flask-Instruct's:", error);
    }
  }

  /**
   * @param {number} code
   * @param {boolean} final
   */
  closed(code, final) {
    clearTimeout(this.#late);
    for (const stream of this.#streams.values()) {
      stream.ready = false;
      this.#show(stream);
    }
    if (this.#connected || final) emit("disconnected", { code, final });
    this.#connected = false;
    // The page was open for longer than its tokens are valid.
    if (code === 4401 && final && !this.#renewed) {
      this.#renewed = true;
      this.#stale("expired");
    }
  }

  /** @param {any} frame */
  #take(frame) {
    const stream = this.#streams.get(frame.stream);
    if (!stream) return;
    if (typeof frame.html === "string") this.#render(stream, frame);
    else if (frame.type === "subscribed") {
      stream.last = frame.id;
      stream.rewind = null;
    } else if (frame.type === "reset") {
      stream.last = frame.id;
      this.#stale("reset", stream.name, frame.within);
    } else if (frame.type === "told") this.#lacks(stream, { after: frame.id });
    else if (frame.type === "ready" && !stream.rewind && !this.#lacks(stream, frame)) {
      if (frame.id && (!stream.last || later(frame.id, stream.last))) stream.last = frame.id;
      this.#ready(stream);
    }
  }

  /**
   * Whether something before this got lost on the way, or is late; then the stream is asked for again.
   * @param {Stream} stream
   * @param {{after?: string | null, type?: string}} frame
   */
  #lacks(stream, { after, type }) {
    const here = position(stream);
    if (!after || (here && !later(after, here))) return false;
    // What was asked for is still on its way, unless this is the end of it.
    if (stream.ready || type) {
      stream.ready = false;
      this.#show(stream);
      this.#ask(stream);
    }
    return true;
  }

  /**
   * @param {Stream} stream
   * @param {{id: string, html: string, after?: string}} frame
   */
  #render(stream, frame) {
    if ((stream.last && !later(frame.id, stream.last)) || this.#lacks(stream, frame)) return;
    stream.last = frame.id;
    if (!render(frame.html, stream.name)) this.#stale("gap", stream.name);
  }

  /** @param {Stream} stream */
  #ready(stream) {
    stream.ready = true;
    this.#show(stream);
    this.line.settled();
    this.#renewed = false;
    if (![...this.#streams.values()].every((each) => each.ready)) return;
    clearTimeout(this.#late);
    if (this.#connected) return;
    this.#connected = true;
    emit("connected", { streams: [...this.#streams.keys()] });
  }

  /** @param {Stream} stream */
  #show(stream) {
    for (const element of stream.elements) {
      if (element.toggleAttribute("connected", stream.ready && !this.#behind)) {
        element.removeAttribute("data-instruct-live");
      }
    }
  }

  /**
   * The page may be behind, and only fetching it again helps.
   * @param {string} reason
   * @param {string} [stream]
   * @param {number} [within] milliseconds to choose the moment from
   */
  #stale(reason, stream, within) {
    if (!emit("stale", { reason, stream }, true)) return;
    this.#lack(1);
    refresh(within, () => this.#lack(-1));
  }

  /** @param {number} more */
  #lack(more) {
    this.#behind += more;
    this.#streams.forEach((stream) => this.#show(stream));
  }

  /**
   * Subscribe, together with all others that are asked for in this turn.
   * @param {Stream} stream
   */
  #ask(stream) {
    if (!this.#asking.size) queueMicrotask(() => this.#askNow());
    this.#asking.add(stream);
  }

  #askNow() {
    const streams = [...this.#asking].filter((stream) => this.#streams.get(stream.name) === stream);
    this.#asking.clear();
    if (streams.length) this.#subscribe(streams);
  }

  /** @param {Stream[]} streams */
  #subscribe(streams) {
    this.line.send({ type: "subscribe", streams: streams.map(request) });
    clearTimeout(this.#late);
    this.#late = setTimeout(() => {
      for (const stream of this.#streams.values()) if (!stream.ready || stream.rewind) this.#ask(stream);
    }, PATIENCE);
  }

  /** @param {Stream} stream */
  #release(stream) {
    this.#streams.delete(stream.name);
    this.line.send({ type: "unsubscribe", streams: [stream.name] });
    if (!this.wanted) this.line.close();
  }
}

/** @param {Stream} stream */
function request(stream) {
  return { token: stream.token, since: stream.rewind ?? position(stream) };
}

/** @param {Stream} stream */
function position(stream) {
  return stream.last ?? stream.since;
}

/**
 * Whether position `a` ("milliseconds-number") comes after `b`.
 * @param {string} a
 * @param {string} b
 */
function later(a, b) {
  const [aTime, aNumber] = a.split("-").map(Number);
  const [bTime, bNumber] = b.split("-").map(Number);
  return aTime === bTime ? aNumber > bNumber : aTime > bTime;
}
