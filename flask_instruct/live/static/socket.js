// The page's one line to the server: opened when something wants it, and again whenever it breaks.

import { AGAIN, EventLine, remember, remembered } from "./eventline.js";

const SHORTEST = 500;
const LONGEST = 30_000;
/** How long the server may take to answer when the page has reason to doubt the line. */
const PROBE = 3_000;
/** These codes mean that asking again with the same token is of no use. */
const FINAL = [4401, 4403];
/** So many sockets in a row that never opened may mean that none gets through: every other try is by events then. */
const BLOCKED = 2;

/**
 * @typedef {object} Ends
 * @property {boolean} wanted whether anything needs the line
 * @property {() => void} opened
 * @property {(data: string) => void} received
 * @property {(code: number, final: boolean) => void} closed
 */

export class Line {
  /** @type {WebSocket | EventLine | null} */
  #socket = null;
  #unopened = 0;
  #attempts = 0;
  #retry = 0;
  #watch = 0;
  #probe = 0;
  #paused = false;
  #final = false;

  /**
   * @param {URL} address
   * @param {string | undefined} events the address for where no WebSocket gets through
   * @param {Ends} ends who uses the line
   * @param {number} interval seconds between the server's pings
   */
  constructor(address, events, ends, interval) {
    this.address = address;
    this.events = events;
    this.ends = ends;
    this.patience = interval * 2500;
  }

  /** @param {object} message */
  send(message) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(message));
  }

  /** Open the line unless it is open, or about to be. */
  open() {
    if (!this.#socket && !this.#retry) this.#connect();
  }

  /** A token that was refused has been exchanged: try again. */
  renew() {
    if (!this.#final) return;
    this.#final = false;
    this.open();
  }

  /** The page is up to date, so the next failure is a new one. */
  settled() {
    this.#attempts = 0;
  }

  /** Nothing needs the line any more. */
  close() {
    clearTimeout(this.#retry);
    this.#retry = 0;
    this.#end(1000);
  }

  /** The page has come back from somewhere: connect at once, or make sure that the line is alive. */
  check() {
    if (this.#paused || this.#final || !this.ends.wanted) return;
    if (this.#socket?.readyState === WebSocket.OPEN) {
      this.send({ type: "ping" });
      this.#probe ||= setTimeout(() => this.#broken(), PROBE);
    } else if (!this.#socket) {
      this.#connect();
    }
  }

  pause() {
    this.#paused = true;
    this.close();
  }

  resume() {
    this.#paused = false;
    this.check();
  }

  #connect() {
    clearTimeout(this.#retry);
    this.#retry = 0;
    if (this.#paused || this.#final || !this.ends.wanted) return;
    let socket;
    try {
      socket = this.#make();
    } catch (error) {
      console.error(error);
      return;
    }
    this.#socket = socket;
    this.#unopened += 1;
    this.#heard();
    socket.onopen = () => {
      if (this.#socket !== socket) return;
      if (socket instanceof WebSocket) this.#works(socket);
      this.ends.opened();
    };
    socket.onmessage = (/** @type {{data: string}} */ { data }) => {
      if (this.#socket !== socket) return;
      this.#works(socket);
      this.#heard();
      this.ends.received(data);
    };
    socket.onclose = (/** @type {{code: number}} */ { code }) => this.#socket === socket && this.#ended(code);
  }

  #make() {
    const blocked = remembered() || (this.#unopened >= BLOCKED && this.#unopened % 2 === 0);
    return this.events && blocked ? new EventLine(this.events) : new WebSocket(this.address);
  }

  /** @param {WebSocket | EventLine} socket */
  #works(socket) {
    if (!this.#unopened) return;
    this.#unopened = 0;
    remember(socket instanceof EventLine);
  }

  /** The server pings; a line on which nothing comes is dead although nobody has said so. */
  #heard() {
    clearTimeout(this.#probe);
    clearTimeout(this.#watch);
    this.#probe = 0;
    this.#watch = setTimeout(() => this.#broken(), this.patience);
  }

  #broken() {
    this.#end(1006);
    this.#connect();
  }

  /**
   * @param {number} code
   * @param {boolean} [final]
   */
  #end(code, final = false) {
    const socket = this.#socket;
    if (!socket) return;
    this.#socket = null;
    clearTimeout(this.#watch);
    clearTimeout(this.#probe);
    this.#probe = 0;
    socket.close();
    this.ends.closed(code, final);
  }

  /** @param {number} code */
  #ended(code) {
    this.#final = FINAL.includes(code);
    this.#end(code, this.#final);
    if (code === AGAIN) this.#connect();
    else if (!this.#final) this.#retryLater();
  }

  #retryLater() {
    const window = Math.min(LONGEST, SHORTEST * 2 ** this.#attempts++);
    this.#retry = setTimeout(() => this.#connect(), Math.random() * window);
  }
}
