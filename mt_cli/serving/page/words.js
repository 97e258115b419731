// The words on both sides: elements for them, which of them belong together, and how sure the model was.

/** Create an element; `children` are nodes or strings, which are never read as HTML. */
export function element(tag, properties = {}, ...children) {
  const { dataset, role, ...rest } = properties;
  const node = Object.assign(document.createElement(tag), rest);
  if (role) node.setAttribute("role", role);
  Object.assign(node.dataset, dataset);
  node.append(...children);
  return node;
}

const LEVELS = [
  [0.4, "sure-0"],
  [0.7, "sure-1"],
];
const LEVELS_OF_CHRF = [
  [40, "sure-0"],
  [60, "sure-1"],
];
const levelOf = (value, levels = LEVELS) => levels.find(([limit]) => value < limit)?.[1] ?? "";

/** Fill `parent` with a text whose words, given as spans of code points, become elements; returns these. */
function fill(parent, text, spans, confidence, expected) {
  const points = Array.from(text);
  const slice = (start, end) => points.slice(start, end).join("");
  let place = 0;
  const words = (spans ?? []).map(([start, end], index) => {
    const level = expected == null ? levelOf(confidence?.[index] ?? 1) : levelOf(expected, LEVELS_OF_CHRF);
    const word = element("span", { className: `word ${level}` }, slice(start, end));
    parent.append(slice(place, start), word);
    place = end;
    return word;
  });
  parent.append(slice(place));
  return words;
}

/** Words of a sentence and its translation. `sides.source` and `sides.target` are `{element, words}`. */
export class SentenceWords {
  constructor(data) {
    this.sides = { source: { element: element("span"), words: [] }, target: { element: element("span"), words: [] } };
    this.show(data);
  }

  /** Show a sentence as the server gives it. Without alignment, as of a chosen alternative, it has no words. */
  show({ source, target, source_words, target_words, alignment, confidence, expected_chrf }) {
    const aligned = source_words && target_words && alignment;
    this.pairs = aligned ? alignment : [];
    this.confidence = aligned ? confidence : undefined;
    this.expected = aligned ? expected_chrf : undefined; // chrF of the sentence; null where the estimate does not hold.
    for (const side of Object.values(this.sides)) side.element.replaceChildren();
    const { sides } = this;
    sides.source.words = fill(sides.source.element, source.text, aligned && source_words);
    sides.target.words = fill(sides.target.element, target.text, aligned && target_words, confidence, this.expected);
    this.starts = utf16Starts(source.text, aligned ? source_words : []);
  }

  /** Indices of the words on the other side that belong to a word. */
  partners(side, index) {
    const [own, other] = side === "source" ? [0, 1] : [1, 0];
    const indices = this.pairs.filter((pair) => pair[own] === index).map((pair) => pair[other]);
    return [...new Set(indices)].sort((a, b) => a - b);
  }

  /** Index of the source word at an offset into the sentence, in UTF-16 units; -1 if there is none. */
  sourceWordAt(offset) {
    return this.starts.findIndex(([start, end]) => start <= offset && offset <= end);
  }

  /** What is said of a word: the words that belong together, and the confidence in percent or null. */
  describe(side, index) {
    const partners = this.partners(side, index);
    const [source, target] = side === "source" ? [[index], partners] : [partners, [index]];
    const text = (name, indices) => indices.map((i) => this.sides[name].words[i].textContent).join(" ");
    const confidence = Math.min(...target.map((i) => this.confidence?.[i] ?? NaN));
    const percent = Number.isFinite(confidence) ? Math.round(100 * confidence) : null;
    return { source: text("source", source), target: text("target", target), percent };
  }
}

function utf16Starts(text, spans) {
  const offsets = [0];
  for (const point of text) offsets.push(offsets.at(-1) + point.length);
  return spans.map(([start, end]) => [offsets[start], offsets[end]]);
}
