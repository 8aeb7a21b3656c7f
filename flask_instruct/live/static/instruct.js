// Live pages: <instruct-stream> elements say which streams the page follows; one socket serves them all.

import { Line } from "./socket.js";
import { Streams } from "./streams.js";

/** The script element that loaded us, which carries the address of the socket and the words of notices. */
const script = /** @type {HTMLScriptElement | null} */ (document.querySelector("script[data-instruct-socket]"));

const path = script?.dataset.instructSocket;
const address = path ? new URL(path, location.href) : new URL("../socket", import.meta.url);
address.protocol = address.protocol.replace("http", "ws");

const streams = new Streams();
const line = new Line(address, script?.dataset.instructEvents, streams, Number(script?.dataset.instructPing) || 25);
streams.line = line;

/** Follows the stream that its `token` names, from after its `since`; has the attribute `connected` while up to date. */
class InstructStream extends HTMLElement {
  static observedAttributes = ["name", "token", "since"];

  #followed = "";
  #waiting = false;

  connectedCallback() {
    // A preview is an old copy that Turbo shows until the page is there.
    if (!document.documentElement.hasAttribute("data-turbo-preview")) this.#follow();
  }

  disconnectedCallback() {
    this.#unfollow();
  }

  attributeChangedCallback() {
    if (!this.#followed || this.#waiting) return;
    // A morph changes one attribute after the other; all of them are one update.
    this.#waiting = true;
    queueMicrotask(() => {
      this.#waiting = false;
      if (!this.isConnected) return;
      if (this.#followed !== this.getAttribute("name")) this.#unfollow();
      this.#follow();
    });
  }

  #follow() {
    this.#followed = this.getAttribute("name") ?? "";
    streams.follow(this, this.#followed, this.getAttribute("token") ?? "", this.getAttribute("since") ?? "");
  }

  #unfollow() {
    if (this.#followed) streams.unfollow(this, this.#followed);
    this.#followed = "";
    this.removeAttribute("connected");
  }
}

if (!customElements.get("instruct-stream")) {
  customElements.define("instruct-stream", InstructStream);
  addEventListener("online", () => line.check());
  addEventListener("pageshow", () => line.resume());
  // An open socket keeps a page out of the back/forward cache.
  addEventListener("pagehide", () => line.pause());
  document.addEventListener("resume", () => line.check());
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible") line.check();
  });
}
