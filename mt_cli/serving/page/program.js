// The request that the page has sent, and its answer, for people who write programs.

const isPlain = (value) => typeof value !== "object" || value === null;
const isRow = (value) => Array.isArray(value) && value.every(isPlain);

/** JSON with an indent; a list of numbers or texts, or of such lists, is one line. */
function json(value, indent = "") {
  if (isPlain(value) || isRow(value) || (Array.isArray(value) && value.every(isRow))) return JSON.stringify(value);
  const inner = `${indent}  `;
  const names = Array.isArray(value) ? [] : Object.keys(value).map((name) => `${JSON.stringify(name)}: `);
  const rows = Object.values(value).map((one, i) => `${inner}${names[i] ?? ""}${json(one, inner)}`);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  return `${open}\n${rows.join(",\n")}\n${indent}${close}`;
}

export class Program {
  /** The texts are made when the details are opened, because those of a long text are long. */
  constructor({ program, programRequest, programAnswer }) {
    Object.assign(this, { program, programRequest, programAnswer });
    program.addEventListener("toggle", () => this.#fill());
  }

  /** Show a request to a path, as an object, and its answer; nothing if it is null. */
  show(path, request, answer, needsKey) {
    const key = needsKey ? "Authorization: Bearer KEY\n" : "";
    const head = () => `POST ${new URL(path, document.baseURI).href}\nContent-Type: application/json\n${key}\n`;
    this.texts = request && (() => [head() + json(JSON.parse(JSON.stringify(request))), json(answer)]);
    this.program.hidden = !request;
    this.#fill();
  }

  #fill() {
    const [request, answer] = this.program.open && this.texts ? this.texts() : ["", ""];
    this.programRequest.textContent = request;
    this.programAnswer.textContent = answer;
  }
}
