// Corrections of the translation, sentence by sentence, which the server saves.
import { ServerError, ask } from "./api.js";
import { sentence as asSentence } from "./messages.js";
import { element } from "./words.js";

/** One line of a text, because a sentence has no line ends. */
const oneLine = (text) =>
  text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean)
    .join(" ");

export class Corrections {
  /**
   * `elements` are the box, the list in it, and the two texts, whose languages the list has. `onChange(sentence, text)`
   * is called when a text is saved or taken back, `onError` with a ServerError.
   */
  constructor({ correctionsBox, corrections, source, result }, { onChange, onError, announce }) {
    Object.assign(this, { box: correctionsBox, list: corrections, sourceText: source, targetText: result });
    Object.assign(this, { onChange, onError, announce, rows: [], edits: new Map(), saved: new Map() });
    correctionsBox.addEventListener("toggle", () => this.#fill());
  }

  /** Offer the sentences of a translation; `fields` of requests name languages and model, null to save none. */
  show(sentences, fields) {
    const before = this.sentences;
    Object.assign(this, { sentences, fields });
    this.box.hidden = !fields || !sentences.length;
    if (sentences !== before) this.#fill();
    else this.rows.forEach((row) => this.#update(row));
  }

  // The rows are made when the box is opened, because those of a long text are many.
  #fill() {
    const shown = this.box.open && !this.box.hidden ? this.sentences.filter(({ data }) => data.target.text) : [];
    this.rows = shown.map((sentence, index) => this.#row(sentence, index + 1));
    this.list.replaceChildren(...this.rows.map(({ node }) => node));
  }

  #row(sentence, number) {
    const { source, target } = sentence.data;
    const look = ({ lang, dir }) => ({ lang, dir });
    const button = (name) =>
      element("button", { type: "button", ariaLabel: `${name} sentence ${number}` }, name.split(" ")[0]);
    const row = {
      sentence,
      key: JSON.stringify([this.fields, source.text]),
      field: element("textarea", { ...look(this.targetText), ariaLabel: `Translation of sentence ${number}`, rows: 2 }),
      save: button("Save"),
      undo: button("Undo correction of"),
      status: element("span", { className: "faint" }),
      isSent: false,
    };
    row.node = element(
      "li",
      {},
      element("p", look(this.sourceText), source.text),
      row.field,
      element("div", { className: "bar" }, row.save, row.undo, row.status),
    );
    row.field.addEventListener("input", () => this.#edit(row, row.field.value));
    row.field.addEventListener("keydown", (event) => this.#onKey(row, event));
    row.save.addEventListener("click", () => this.#save(row, oneLine(row.field.value)));
    row.undo.addEventListener("click", () => this.#save(row, target.text));
    this.#update(row);
    return row;
  }

  #stored({ key, sentence }) {
    return this.saved.get(key) ?? sentence.data.target.text;
  }

  #update(row) {
    const { data, choice } = row.sentence;
    const text = this.edits.get(row.key) ?? choice?.text ?? data.target.text;
    if (row.field.value !== text) row.field.value = text;
    row.field.readOnly = row.isSent;
    row.save.disabled = row.isSent || !oneLine(text) || oneLine(text) === this.#stored(row);
    row.undo.hidden = row.isSent || this.#stored(row) === data.target.text;
  }

  #edit(row, text) {
    if (text === null) this.edits.delete(row.key);
    else this.edits.set(row.key, text);
    this.#tell(row, "");
    this.#update(row);
  }

  #tell({ status }, text, isError = false) {
    status.textContent = text;
    status.classList.toggle("error", isError);
    if (text) this.announce(text);
  }

  #onKey(row, event) {
    if (event.key === "Escape" && this.edits.has(row.key)) {
      this.#edit(row, null);
      this.announce("Edit taken back");
    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      if (!row.save.disabled) row.save.click();
    }
  }

  async #save(row, text) {
    const { source, target } = row.sentence.data;
    row.isSent = true;
    this.#update(row);
    try {
      await ask("v1/corrections", { source: source.text, target: text, draft: target.text, ...this.fields });
      this.saved.set(row.key, text);
      this.edits.delete(row.key);
      this.#tell(row, text === target.text ? "Correction taken back" : "Saved");
      if (this.rows.includes(row)) this.onChange(row.sentence, text);
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      this.#tell(row, asSentence(error.message), true);
      this.onError(error);
    } finally {
      row.isSent = false;
      this.#update(row);
    }
    if (row.node.isConnected) row.field.focus({ preventScroll: true });
  }
}
