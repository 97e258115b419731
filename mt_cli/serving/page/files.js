// Files: chosen or dropped, sent one after another, offered for download.
import { translateFile } from "./api.js";
import { capitalized, sentence } from "./messages.js";
import { element } from "./words.js";

function sizeOf(bytes) {
  const format = (value, unit) => `${value.toLocaleString("en", { maximumFractionDigits: 1 })}\u00a0${unit}`;
  return bytes < 2 ** 20 ? format(Math.ceil(bytes / 2 ** 10), "KB") : format(bytes / 2 ** 20, "MB");
}

/** A message without the name of the file, which stands beside it. */
function withoutName(message, name) {
  return capitalized(message.startsWith(name) ? message.slice(name.length).replace(/^[:,]\s*/, "") : message);
}

const suffixOf = (name) => (/\.[^.]+$/.exec(name)?.[0] ?? "").toLowerCase();
const translatedName = (name, target) => name.replace(/(\.[^.]+)?$/, (suffix) => `.${target}${suffix}`);
const wait = (seconds, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, 1000 * seconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), reject(new DOMException("cancelled", "AbortError"))));
  });

/** `direction()` gives the fields of a request; `onError` sees each ServerError; `announce` tells screen readers. */
export class Files {
  constructor({ drop, input, note, list }, { limits, types, direction, onDrop, onError, announce }) {
    Object.assign(this, { drop, list, limits, types, direction, onError, announce, queue: Promise.resolve() });
    input.accept = types.join(",");
    note.textContent = `Up to ${sizeOf(limits.max_file_bytes)} each: ${types.join(" ")}`;
    input.addEventListener("change", () => {
      this.add(input.files);
      input.value = "";
    });
    this.#acceptDrops(onDrop);
  }

  add(files) {
    for (const file of files) this.#row(file);
  }

  // Files may be dropped anywhere on the page, so that none replaces it.
  #acceptDrops(onDrop) {
    const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
    let depth = 0;
    const mark = (change) => this.drop.classList.toggle("over", (depth = Math.max(0, depth + change)) > 0);
    window.addEventListener("dragenter", (event) => hasFiles(event) && mark(1));
    window.addEventListener("dragleave", (event) => hasFiles(event) && mark(-1));
    window.addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
    window.addEventListener("drop", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      mark(-depth);
      onDrop();
      this.add(event.dataTransfer.files);
    });
  }

  #problem(file) {
    if (!this.types.includes(suffixOf(file.name)))
      return `Files of this kind are not supported (${suffixOf(file.name) || "no suffix"}).`;
    if (file.size > this.limits.max_file_bytes) return `The file is larger than ${sizeOf(this.limits.max_file_bytes)}.`;
    return file.size ? null : "The file is empty.";
  }

  #row(file) {
    const row = { file, ...this.direction() };
    row.status = element("span", { className: "status" });
    row.progress = element("progress", { hidden: true, ariaLabel: `Progress of ${file.name}` });
    row.actions = element("span", { className: "actions" });
    row.item = element(
      "li",
      {},
      element("span", { className: "name" }, element("bdi", {}, file.name), ` ${sizeOf(file.size)}`),
    );
    row.item.append(row.status, row.progress, row.actions);
    this.list.prepend(row.item);
    const problem = this.#problem(file);
    if (problem) this.#fail(row, problem, false);
    else this.#enqueue(row);
  }

  #button(row, text, action) {
    const button = element("button", { type: "button", ariaLabel: `${text}: ${row.file.name}` }, text);
    button.addEventListener("click", action);
    return button;
  }

  #enqueue(row) {
    row.controller = new AbortController();
    row.item.classList.remove("error");
    row.status.textContent = "Waiting";
    row.actions.replaceChildren(this.#button(row, "Cancel", () => row.controller.abort()));
    this.queue = this.queue.then(() => this.#run(row));
  }

  async #run(row) {
    const { file, fields, controller } = row;
    try {
      controller.signal.throwIfAborted();
      const { blob, notes } = await this.#translate(row);
      this.#finish(row, blob, translatedName(file.name, fields.target), notes);
    } catch (error) {
      if (error.name === "AbortError") this.#fail(row, "Cancelled.");
      else if (error.columns?.length) this.#askForColumn(row, error.columns);
      else {
        this.#fail(row, withoutName(error.message, file.name), !error.isFinal);
        this.onError(error);
      }
    }
  }

  async #translate(row) {
    const { file, fields, progress, status, controller } = row;
    progress.hidden = false;
    for (;;) {
      const onProgress = (share) => {
        if (share < 1) progress.value = share;
        else progress.removeAttribute("value");
        status.textContent = share < 1 ? `Sending, ${Math.round(100 * share)} %` : "Translating…";
      };
      onProgress(0);
      try {
        return await translateFile(file, fields, controller.signal, onProgress);
      } catch (error) {
        if (error.status !== 429) throw error;
        progress.removeAttribute("value");
        status.textContent = `${error.message} Waiting to try again…`;
        await wait(error.retryAfter ?? 5, controller.signal);
      }
    }
  }

  #finish(row, blob, name, notes) {
    row.progress.hidden = true;
    const lines = notes.map((note) => element("span", { className: "review" }, sentence(note)));
    row.status.replaceChildren(`Translated into ${row.targetName}`, ...lines);
    const link = element(
      "a",
      { href: URL.createObjectURL(blob), download: name, className: "primary", ariaLabel: `Download ${name}` },
      "Download",
    );
    row.actions.replaceChildren(link, this.#removal(row, link.href));
    this.announce(`${name} is ready to download`);
  }

  #fail(row, message, canRetry = true) {
    row.progress.hidden = true;
    row.item.classList.add("error");
    row.status.textContent = message;
    const retry = canRetry ? [this.#button(row, "Try again", () => this.#enqueue(row))] : [];
    row.actions.replaceChildren(...retry, this.#removal(row));
    this.announce(`${row.file.name}: ${message}`);
  }

  /** A column with a heading is asked for by its name, any other by its number. */
  #askForColumn(row, names) {
    const select = element(
      "select",
      { ariaLabel: `Column of ${row.file.name}` },
      ...names.map((name, index) => new Option(`${index + 1}: ${name}`, index)),
    );
    const heading = element("input", { type: "checkbox", checked: true });
    const translate = () => {
      const name = names[select.value];
      const isName = heading.checked && name && names.filter((other) => other === name).length === 1;
      row.fields = { ...row.fields, column: isName ? name : String(Number(select.value) + 1) };
      row.choice.remove();
      this.#enqueue(row);
    };
    row.progress.hidden = true;
    row.status.textContent = "Which column is to be translated?";
    row.choice = element(
      "span",
      { className: "choice" },
      element("span", { className: "select" }, select),
      element("label", {}, heading, " The first line is a heading"),
    );
    row.actions.before(row.choice);
    row.actions.replaceChildren(this.#button(row, "Translate", translate), this.#removal(row));
    this.announce(`${row.file.name}: ${row.status.textContent}`);
  }

  #removal(row, address) {
    return this.#button(row, "Remove", () => {
      if (address) URL.revokeObjectURL(address);
      row.item.remove();
    });
  }
}
