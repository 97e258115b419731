// One line above the text about what went wrong; if waiting helps, it tries again by itself.

const RETRIED = new Set([0, 429, 503]); // No answer, too busy, restarting.
const LONGEST_PAUSE = 30;

export const capitalized = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** A message of the server as a sentence. */
export const sentence = (text) => capitalized(/[.!?…]$/.test(text) ? text : `${text}.`);

export class Messages {
  /** `announce` tells screen readers. */
  constructor({ message, messageText, retry }, announce) {
    Object.assign(this, { message, messageText, retry, announce, failures: 0 });
    retry.addEventListener("click", () => this.#again());
    window.addEventListener("online", () => this.again && this.#again());
  }

  /** Hide the message and give up the retry; `failures` counts on until a request succeeds. */
  clear() {
    clearTimeout(this.timer);
    this.again = null;
    this.message.hidden = true;
    this.messageText.textContent = "";
  }

  succeeded() {
    this.failures = 0;
  }

  show(text) {
    this.clear();
    this.message.hidden = false;
    this.retry.hidden = true;
    this.messageText.textContent = text;
    this.announce(text);
  }

  /** Show a ServerError. `again` repeats the request: by itself if the server is busy or away, else by a button. */
  showError({ message, status, retryAfter, isFinal }, again) {
    this.show(sentence(message));
    this.again = again;
    this.retry.hidden = isFinal;
    if (!RETRIED.has(status)) return;
    const seconds = retryAfter ?? Math.min(2 ** ++this.failures, LONGEST_PAUSE);
    this.messageText.textContent += ` Trying again in ${seconds} s.`;
    this.timer = setTimeout(() => this.#again(), 1000 * seconds);
  }

  #again() {
    const { again } = this;
    clearTimeout(this.timer);
    this.again = null;
    again?.();
  }
}
