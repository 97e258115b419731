// Menu of other translations of a sentence.
import { element } from "./words.js";

/** `ask(sentence)` gives the alternatives, best first; `choose(sentence, alternative)` is called with one of them. */
export class AlternativesMenu {
  constructor(menu, { ask, choose }) {
    Object.assign(this, { menu, ask, choose });
    menu.addEventListener("keydown", (event) => this.#onKey(event));
    menu.addEventListener("click", (event) => this.#pick(event.target.closest("[role=menuitemradio]")));
    menu.addEventListener("pointermove", (event) => event.target.closest("[role=menuitemradio]")?.focus());
    menu.addEventListener("toggle", ({ newState }) => newState === "closed" && this.#closed());
    window.addEventListener("resize", () => this.close());
  }

  get isOpen() {
    return this.menu.matches(":popover-open");
  }

  close() {
    if (this.isOpen) this.menu.hidePopover();
  }

  async open(sentence, anchor, { lang, dir }) {
    this.close();
    Object.assign(this, { sentence, anchor, alternatives: [] });
    this.menu.replaceChildren(element("p", { className: "faint", role: "presentation" }, "Looking for alternatives…"));
    this.menu.setAttribute("aria-busy", "true");
    anchor.setAttribute("aria-expanded", "true");
    this.menu.showPopover();
    this.#place();
    this.menu.tabIndex = -1;
    this.menu.focus();
    try {
      this.alternatives = await this.ask(sentence);
      if (this.sentence === sentence) this.#fill({ lang, dir });
    } catch (error) {
      if (this.sentence === sentence) this.menu.replaceChildren(element("p", { role: "presentation" }, error.message));
    }
    this.menu.setAttribute("aria-busy", "false");
    this.#place();
  }

  #fill({ lang, dir }) {
    const current = this.sentence.choice?.text ?? this.sentence.data.target.text;
    const items = this.alternatives.map((alternative) => {
      const item = element(
        "div",
        { role: "menuitemradio", tabIndex: -1, lang, dir },
        ...differences(current, alternative.text),
      );
      item.setAttribute("aria-checked", String(alternative.text === current));
      return item;
    });
    this.menu.replaceChildren(...items);
    if (items.length === 1)
      this.menu.append(element("p", { className: "faint", role: "presentation" }, "No other translation was found."));
    (items.find((item) => item.getAttribute("aria-checked") === "true") ?? items[0]).focus({ preventScroll: true });
    this.#place();
  }

  // Below the sentence, within the window. The page's policy forbids style attributes, not these properties.
  #place() {
    const { left, right, bottom } = this.anchor.getBoundingClientRect();
    const { offsetWidth: width, style } = this.menu;
    const start = getComputedStyle(this.anchor).direction === "rtl" ? right - width : left;
    style.left = `${Math.max(8, Math.min(start, document.documentElement.clientWidth - width - 8)) + window.scrollX}px`;
    style.top = `${bottom + 6 + window.scrollY}px`;
    this.menu.scrollIntoView({ block: "nearest" });
  }

  #pick(item) {
    const index = [...this.menu.querySelectorAll("[role=menuitemradio]")].indexOf(item);
    if (index < 0) return;
    const { sentence, alternatives } = this;
    this.close();
    this.choose(sentence, alternatives[index]);
  }

  // The browser gives the focus back to the sentence.
  #closed() {
    this.anchor.setAttribute("aria-expanded", "false");
    this.sentence = null;
  }

  #onKey(event) {
    const items = [...this.menu.querySelectorAll("[role=menuitemradio]")];
    const at = items.indexOf(document.activeElement);
    const targets = { ArrowDown: at + 1, ArrowUp: at < 0 ? -1 : at - 1, Home: 0, End: -1 };
    if (event.key in targets) items.at(targets[event.key] % items.length)?.focus();
    else if (event.key === "Enter" || event.key === " ") this.#pick(document.activeElement);
    else if (event.key === "Tab") this.close();
    else return;
    event.preventDefault();
  }
}

/** The words of a text, in bold where they are not those of another one: all between the common start and end. */
function differences(text, changed) {
  const [old, words] = [text.split(/(?<=\s)/), changed.split(/(?<=\s)/)];
  let start = 0;
  while (start < Math.min(old.length, words.length) && old[start] === words[start]) start++;
  let end = 0;
  while (end < Math.min(old.length, words.length) - start && old.at(-1 - end) === words.at(-1 - end)) end++;
  const middle = words.slice(start, words.length - end).join("");
  const bold = middle && old.length > 1 ? element("b", {}, middle) : middle;
  return [words.slice(0, start).join(""), bold, words.slice(words.length - end).join("")];
}
