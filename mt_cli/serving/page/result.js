// The translation and, below the text that is typed, its mirror: both made of sentences and words that light up.
import { SentenceWords, element } from "./words.js";

const other = { source: "target", target: "source" };

/** `elements` are the textarea `source`, its `mirror`, the `result`, and `info`, a line about the lit words. */
export class Result {
  constructor(elements, { onOpen, announce }) {
    Object.assign(this, elements, { onOpen, announce, sentences: [], choices: new Map(), places: new WeakMap() });
    this.#followPointer();
    this.#followCaret();
    this.result.addEventListener("keydown", (event) => this.#onKey(event));
    this.result.addEventListener("focusin", (event) => this.#focusOn(event.target.closest(".sentence")));
    this.result.addEventListener("focusout", () => this.light(null));
    this.result.addEventListener("click", (event) => this.#selected || this.#open(event.target.closest(".sentence")));
  }

  get text() {
    return (
      this.plain ??
      this.sentences.map(({ data }, i) => before(data.target) + shown(this.sentences[i]) + after(data.target)).join("")
    );
  }

  get hasConfidence() {
    return this.sentences.some(({ view }) => view.confidence?.length);
  }

  get hasEstimates() {
    return this.sentences.some(({ view }) => view.expected != null);
  }

  /** Text below the textarea without words; it gives the textarea its height. */
  mirrorText() {
    this.light(null);
    this.hasMirror = false;
    this.mirror.replaceChildren(`${this.source.value}\n`);
  }

  clear() {
    this.sentences = [];
    this.plain = null;
    this.result.replaceChildren();
    this.info.replaceChildren();
    this.mirrorText();
  }

  /** Show a translation. `scope` is a key for the choice of alternatives: model and languages. */
  show(translation, { scope, alternatives, lang, dir }) {
    this.clear();
    Object.assign(this.result, { lang, dir });
    Object.assign(this, { scope, hasAlternatives: alternatives });
    this.rightToLeft = dir === "rtl";
    if (!translation.sentences?.length) {
      this.plain = translation.text;
      this.result.append(translation.text);
      return;
    }
    this.sentences = translation.sentences.map((data, index) => this.#sentence(data, index));
    this.result.replaceChildren(
      ...this.sentences.flatMap(({ data, view }) => surround(data.target, view.sides.target.element)),
    );
    this.sentences.find(({ data }) => data.target.text)?.view.sides.target.element.setAttribute("tabindex", "0");
    this.light(null);
    this.#mirrorWords();
  }

  /** Replace the translation of a sentence by an alternative, which is kept when the text is translated again. */
  choose(sentence, alternative) {
    const key = `${this.scope}\n${sentence.data.source.text}`;
    if (alternative.text === sentence.data.target.text) this.choices.delete(key);
    else this.choices.set(key, alternative);
    this.#apply(sentence);
    this.light({ sentence });
  }

  /** Light up a word, `{sentence, side, index}`, with those that belong to it; without an index, the sentence. */
  light(place) {
    for (const node of this.lit ?? []) node.classList.remove("lit", "near");
    this.lit = [];
    const hint = this.hasAlternatives && this.sentences.length ? "Click a sentence for alternatives" : "";
    this.info.replaceChildren(hint);
    if (!place) return;
    const { sentence, side, index } = place;
    const add = (node, name) => {
      node.classList.add(name);
      this.lit.push(node);
    };
    const { sides } = sentence.view;
    for (const { element } of Object.values(sides)) add(element, "near");
    if (index === undefined) return;
    add(sides[side].words[index], "lit");
    for (const partner of sentence.view.partners(side, index)) add(sides[other[side]].words[partner], "lit");
    this.#describe(sentence.view.describe(side, index));
  }

  #sentence(data, index) {
    const sentence = { data, view: new SentenceWords(data), index };
    const target = sentence.view.sides.target.element;
    target.className = "sentence";
    if (data.target.text) {
      target.setAttribute("role", this.hasAlternatives ? "button" : "group");
      target.tabIndex = -1;
      if (this.hasAlternatives) target.setAttribute("aria-haspopup", "menu");
    }
    this.#apply(sentence);
    return sentence;
  }

  #apply(sentence) {
    sentence.choice = this.choices.get(`${this.scope}\n${sentence.data.source.text}`);
    if (sentence.choice)
      sentence.view.show({
        source: sentence.data.source,
        source_words: sentence.data.source_words,
        ...detailsOf(sentence.choice),
      });
    else sentence.view.show(sentence.data);
    for (const [side, { element, words }] of Object.entries(sentence.view.sides)) {
      this.places.set(element, { sentence });
      words.forEach((word, index) => this.places.set(word, { sentence, side, index }));
    }
  }

  // Only if the server's sentences are the text as it stands now, character by character.
  #mirrorWords() {
    const text = this.sentences.map(({ data }) => before(data.source) + data.source.text + after(data.source)).join("");
    if (text !== wellFormed(this.source.value)) return;
    let place = 0;
    for (const sentence of this.sentences) {
      const { source } = sentence.data;
      sentence.start = place + before(source).length;
      sentence.end = sentence.start + source.text.length;
      place = sentence.end + after(source).length;
    }
    this.hasMirror = true;
    this.mirror.replaceChildren(
      ...this.sentences.flatMap(({ data, view }) => surround(data.source, view.sides.source.element)),
      "\n",
    );
    if (document.activeElement === this.source) this.#lightCaret();
  }

  #describe({ source, target, percent }) {
    const side = (text, node) => element("bdi", { lang: node.lang, textContent: text || "–" });
    this.info.replaceChildren(side(source, this.source), " → ", side(target, this.result));
    if (percent !== null) this.info.append(` · ${percent} % sure`);
  }

  // The textarea lies above its mirror, so words are looked up by their place on the screen.
  #followPointer() {
    const follow = (container) => {
      let waiting = false;
      container.addEventListener("pointermove", ({ clientX, clientY }) => {
        if (waiting) return;
        waiting = true;
        requestAnimationFrame(() => {
          waiting = false;
          const nodes = document.elementsFromPoint(clientX, clientY);
          this.light(nodes.map((node) => this.places.get(node)).find(Boolean) ?? null);
        });
      });
      container.addEventListener("pointerleave", () => requestAnimationFrame(() => this.light(null)));
    };
    follow(this.source);
    follow(this.result);
  }

  #followCaret() {
    document.addEventListener("selectionchange", () => document.activeElement === this.source && this.#lightCaret());
    this.source.addEventListener("blur", () => this.light(null));
  }

  #lightCaret() {
    if (!this.hasMirror) return;
    const caret = this.source.selectionStart;
    const sentence = this.sentences.find(({ start, end }) => start <= caret && caret <= end);
    const index = sentence?.view.sourceWordAt(caret - sentence.start) ?? -1;
    this.light(index < 0 ? null : { sentence, side: "source", index });
  }

  // Whoever marks a part of the translation wants to copy it.
  get #selected() {
    const selection = document.getSelection();
    return !selection.isCollapsed && this.result.contains(selection.anchorNode);
  }

  #sentenceOf(node) {
    return node && this.places.get(node)?.sentence;
  }

  #open(node) {
    const sentence = this.#sentenceOf(node);
    if (!sentence || !this.hasAlternatives) return;
    node.focus();
    this.onOpen(sentence, node);
  }

  #focusOn(node) {
    const sentence = this.#sentenceOf(node);
    if (!sentence) return;
    for (const { view } of this.sentences)
      if (view.sides.target.element.hasAttribute("role")) view.sides.target.element.tabIndex = -1;
    node.tabIndex = 0;
    this.word = -1;
    this.light({ sentence });
  }

  #onKey(event) {
    const node = event.target.closest(".sentence");
    const sentence = this.#sentenceOf(node);
    if (!sentence || event.ctrlKey || event.altKey || event.metaKey) return;
    const [forward, back] = this.rightToLeft ? ["ArrowLeft", "ArrowRight"] : ["ArrowRight", "ArrowLeft"];
    const actions = {
      Enter: () => this.#open(node),
      " ": () => this.#open(node),
      ArrowDown: () => this.#step(sentence, 1),
      ArrowUp: () => this.#step(sentence, -1),
      Home: () => this.#step({ index: -1 }, 1),
      End: () => this.#step({ index: this.sentences.length }, -1),
      [forward]: () => this.#stepWord(sentence, 1),
      [back]: () => this.#stepWord(sentence, -1),
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  }

  #step({ index }, direction) {
    for (let i = index + direction; i >= 0 && i < this.sentences.length; i += direction) {
      const { element } = this.sentences[i].view.sides.target;
      if (element.hasAttribute("role")) return element.focus();
    }
  }

  #stepWord(sentence, direction) {
    const { words } = sentence.view.sides.target;
    if (!words.length) return;
    this.word = Math.min(Math.max(this.word + direction, 0), words.length - 1);
    this.light({ sentence, side: "target", index: this.word });
    const { source, target, percent } = sentence.view.describe("target", this.word);
    this.announce(`${target}: ${source || "no word"}${percent === null ? "" : `, ${percent} percent sure`}`);
  }
}

export const wellFormed = (text) => text.toWellFormed?.() ?? text;

const before = (part) => part.before ?? "";
const after = (part) => part.after ?? "";
const shown = ({ data, choice }) => choice?.text ?? data.target.text;
const surround = (part, node) => [before(part), node, after(part)];
const detailsOf = ({ text, ...details }) => ({ target: { text }, ...details });
