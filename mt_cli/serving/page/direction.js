// The languages and the model that are chosen: the fields for them, the address, and what is said of them.
import { AUTO } from "./languages.js";
import { about } from "./model.js";

const isWide = window.matchMedia("(min-width: 46rem)");

function fillSelect(select, options, value) {
  const content = JSON.stringify(options);
  if (select.dataset.content !== content)
    select.replaceChildren(...options.map(([code, label]) => new Option(label, code)));
  select.dataset.content = content; // An open list stays as it is.
  select.value = value;
}

/** Fragment of the address, which anybody may have written. */
function fragment() {
  try {
    return decodeURIComponent(location.hash);
  } catch {
    return location.hash;
  }
}

/**
 * `onChange` is called when the text has to be translated anew, `onModels` with the models of a direction and its
 * languages when these may have changed, and `onRefused` with a fragment of the address that names no direction of this
 * server.
 */
export class Direction {
  constructor(ui, catalogue, { onChange, onModels, onRefused }) {
    Object.assign(this, { ui, catalogue, onChange, onModels, onRefused, model: null, detected: null, before: null });
    Object.assign(this, catalogue.parse(fragment()) ?? catalogue.first);
    const { sourceLanguage, targetLanguage, modelSelect } = ui;
    sourceLanguage.addEventListener("change", () => this.#setSource(sourceLanguage.value));
    targetLanguage.addEventListener("change", () => this.set({ target: targetLanguage.value }));
    modelSelect.addEventListener("change", () => this.set({ model: modelSelect.value }));
    window.addEventListener("hashchange", () => this.follow());
    isWide.addEventListener("change", () => this.show());
    sourceLanguage.disabled = targetLanguage.disabled = false;
    this.show();
  }

  /** Take the direction from the address, if it names one. */
  follow() {
    const named = fragment().slice(1);
    if (!named) return;
    const wanted = this.catalogue.parse(named);
    if (wanted) return this.set(wanted);
    this.#showAddress();
    this.onRefused(named);
  }

  get detects() {
    return this.source === AUTO;
  }

  /** Code of the source language, also if it was detected; null as long as it is not known. */
  get spoken() {
    return this.detects ? this.detected : this.source;
  }

  get targetName() {
    return this.catalogue.name(this.target);
  }

  /** Fields of a request. */
  get fields() {
    return { source: this.source, target: this.target, model: this.model ?? undefined };
  }

  /** Change languages or model. A model is chosen for a direction: with another one, the default is used. */
  set(change) {
    if (change.source && change.source !== this.source) this.before = this.spoken ?? this.before;
    if (change.target && change.target !== this.target) this.before = this.target;
    Object.assign(this, { model: null }, change);
    this.#showAddress();
    this.show();
    this.onChange();
  }

  swap() {
    this.set({ source: this.target, target: this.spoken, detected: null });
  }

  showDetected(detected) {
    this.detected = detected?.language ?? null;
    this.isReliable = detected?.is_reliable;
    this.show();
  }

  /** Choose another target if a detected language cannot be translated into this one; whether that was so. */
  followDetection(code) {
    const targets = this.catalogue.targets(code);
    if (!targets.length || targets.includes(this.target)) return false;
    this.set({ detected: code, target: this.catalogue.targetFor(code, this.target, this.before) });
    return true;
  }

  show() {
    const { ui, catalogue, spoken } = this;
    const name = this.detected && catalogue.name(this.detected);
    const [wide, narrow] = this.isReliable ? ["Detected", "detected"] : ["Unclear, read as", "unclear"];
    const found = name && (isWide.matches ? `${wide}: ${name}` : `${name} (${narrow})`);
    const detect = catalogue.canDetect ? [[AUTO, found || "Detect language"]] : [];
    const named = (codes) => codes.map((code) => [code, catalogue.name(code)]);
    fillSelect(ui.sourceLanguage, [...detect, ...named(catalogue.sources)], this.source);
    fillSelect(ui.targetLanguage, named(catalogue.targets(this.source)), this.target);
    ui.swap.disabled = !spoken || !catalogue.has(this.target, spoken);
    const back = `${this.targetName} into ${spoken ? catalogue.name(spoken) : "a language that is not known yet"}`;
    const note = ui.swap.disabled ? `No model translates ${back}` : `The translation becomes the text: ${back}`;
    ui.swap.title = ui.swapNote.textContent = note;
    const look = { dir: this.detects ? "auto" : catalogue.writing(spoken), lang: spoken ?? "" };
    Object.assign(ui.source, look);
    Object.assign(ui.mirror, look);
    this.showModel();
  }

  /** Show what is known of a model: the one that answered, else the one that would be asked. */
  showModel(name = this.model) {
    const { ui, catalogue, spoken } = this;
    const models = spoken ? catalogue.modelsOf(spoken, this.target) : catalogue.models;
    const model = catalogue.model(name) ?? models[0];
    ui.modelChoice.hidden = !spoken || models.length < 2;
    ui.modelName.hidden = !ui.modelChoice.hidden;
    const names = models.map((one) => [one.name, one.name]);
    fillSelect(ui.modelSelect, names, model?.name);
    this.onModels(models, this.source, this.target);
    about(ui, model, spoken && { source: spoken, target: this.target });
  }

  #showAddress() {
    history.replaceState(null, "", `#${this.source}-${this.target}`);
  }

  #setSource(source) {
    const target = this.catalogue.targetFor(source, this.target, this.spoken);
    this.set({ source, target, detected: source === AUTO ? this.detected : null });
  }
}
