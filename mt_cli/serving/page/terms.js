// Terms and their translations, as the user types them or pastes them from a spreadsheet.
import { recall, remember } from "./preferences.js";

/** `{term: [translations]}` of lines such as `brake drum = Bremstrommel`, or with a tab instead of the sign. */
function parse(text) {
  const terms = new Map();
  for (const line of text.split("\n")) {
    const [term, translation] = line.split(line.includes("\t") ? "\t" : "=").map((part) => part.trim());
    if (term && translation) terms.set(term, [...(terms.get(term) ?? []), translation]);
  }
  return Object.fromEntries(terms);
}

export class Terms {
  /** `onChange` is called when the text has to be translated anew. */
  constructor({ termsBox, terms }, { onChange }) {
    Object.assign(this, { box: termsBox, field: terms });
    terms.addEventListener("input", () => {
      remember(this.name, terms.value || null);
      onChange();
    });
  }

  /** Show the terms of a direction, which this browser remembers; none if its models have not learned terms. */
  show(models, source, target) {
    this.box.hidden = !models.some((model) => model.terms);
    const name = `terms ${source}-${target}`;
    if (name !== this.name) this.field.value = recall(name) ?? "";
    this.name = name;
  }

  /** Fields of a request. */
  get fields() {
    const terms = this.box.hidden ? {} : parse(this.field.value);
    return Object.keys(terms).length ? { terms } : {};
  }
}
