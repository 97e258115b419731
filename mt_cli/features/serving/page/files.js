// Files: chosen or dropped, sent one after another, offered for download.
import { translateFile } from "./api.js";
import { element } from "./words.js";

function sizeOf(bytes) {
  const format = (value, unit) => `${value.toLocaleString("en", { maximumFractionDigits: 1 })}\u00a0${unit}`;
  return bytes < 2 ** 20 ? format(Math.ceil(bytes / 2 ** 10), "KB") : format(bytes / 2 ** 20, "MB");
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
      const blob = await this.#translate(row);
      this.#finish(row, blob, translatedName(file.name, fields.target));
    } catch (error) {
      if (error.name === "AbortError") this.#fail(row, "Cancelled.");
      else {
        this.#fail(row, error.message);
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

  #finish(row, blob, name) {
    row.progress.hidden = true;
    row.status.textContent = `Translated into ${row.targetName}`;
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

  #removal(row, address) {
    return this.#button(row, "Remove", () => {
      if (address) URL.revokeObjectURL(address);
      row.item.remove();
    });
  }
}
