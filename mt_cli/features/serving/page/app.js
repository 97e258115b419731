// The page: what the user typed and chose, one request for it at a time, and what came back.
import { AlternativesMenu } from "./alternatives.js";
import { ServerError, ask, hasKey, setKey } from "./api.js";
import { copyText, replaceText } from "./editing.js";
import { Files } from "./files.js";
import { AUTO, Catalogue } from "./languages.js";
import { Messages } from "./messages.js";
import { about } from "./model.js";
import { setUpConfidence, setUpTheme } from "./preferences.js";
import { Result, wellFormed } from "./result.js";
import { setUpTabs } from "./tabs.js";
import { element } from "./words.js";

const PAUSE = 300;
const NUM_ALTERNATIVES = 5;
const isWide = window.matchMedia("(min-width: 46rem)");
const ui = Object.fromEntries([...document.querySelectorAll("[id]")].map((node) => [node.id.replace(/-(.)/g, (_, c) => c.toUpperCase()), node]));

let catalogue;
let limits = { max_characters: Infinity, max_alternatives: 0 };
const state = { source: null, target: null, model: null, detected: null };
let timer = null;
let controller = null;

const announce = (text) => (ui.status.textContent = text);
const messages = new Messages(ui);
const result = new Result({ source: ui.source, mirror: ui.mirror, result: ui.result, info: ui.info }, { onOpen: openMenu, announce });
const menu = new AlternativesMenu(ui.menu, { ask: askAlternatives, choose });

// --- Requests

const spoken = () => (state.source === AUTO ? state.detected : state.source);
const fields = () => ({ source: state.source, target: state.target, model: state.model ?? undefined });

function later(pause = PAUSE) {
  clearTimeout(timer);
  controller?.abort();
  controller = null;
  messages.clear();
  const excess = Array.from(ui.source.value).length - limits.max_characters;
  setBusy(false);
  if (!ui.source.value.trim()) return showNothing();
  ui.result.classList.add("old");
  if (excess > 0) return messages.show(`The text is ${excess.toLocaleString("en")} characters too long for this server.`);
  timer = setTimeout(translate, pause);
}

async function translate() {
  const current = (controller = new AbortController());
  const isCurrent = () => current === controller;
  setBusy(true);
  try {
    const answer = await ask("v1/translate", { text: wellFormed(ui.source.value), ...fields(), details: true }, current.signal);
    if (!isCurrent()) return;
    messages.clear();
    messages.succeeded();
    showAnswer(answer);
  } catch (error) {
    if (isCurrent()) await fail(error, current);
  } finally {
    if (isCurrent()) setBusy(false);
  }
}

async function fail(error, current) {
  if (!(error instanceof ServerError)) throw error;
  if (error.status === 400 && state.source === AUTO && (await followDetection(current))) return;
  if (current !== controller) return;
  if (error.status === 403) {
    messages.clear();
    askForKey(error.message);
  } else messages.showError(error, translate);
}

/** With "Detect language" and a target that the text cannot go into (English into English), choose another one. */
async function followDetection(current) {
  const [found] = await ask("detect", { q: wellFormed(ui.source.value) }, current.signal).catch(() => []);
  const targets = found ? catalogue.targets(found.language) : [];
  if (current !== controller || !targets.length || targets.includes(state.target)) return false;
  state.detected = found.language;
  setLanguages({ source: AUTO, target: targets.includes(state.before) ? state.before : targets[0] });
  return true;
}

function setBusy(busy) {
  ui.progress.hidden = !busy;
  ui.result.setAttribute("aria-busy", String(busy));
}

function showNothing() {
  result.clear();
  ui.result.classList.remove("old", "small");
  Object.assign(state, { detected: null });
  showLanguages();
  showNotes();
}

function showAnswer({ model, source, target, detected, translations: [translation] }) {
  menu.close();
  state.detected = detected?.language ?? null;
  showLanguages();
  const { alternatives } = catalogue.model(model) ?? {};
  const look = { lang: target, dir: catalogue.writing(target) };
  result.show(translation, { scope: `${model}\n${source}\n${target}`, alternatives: alternatives && limits.max_alternatives > 0, ...look });
  ui.result.classList.remove("old");
  showNotes();
  showModel(model);
  announce(result.text.length > 500 ? `Translation of ${result.text.length} characters is ready` : result.text);
}

function showNotes() {
  const notes = result.sentences.flatMap(({ data, choice }) => {
    const { lost_spans: lost = [], reordered_spans: reordered = [] } = choice?.lost_spans ? choice : data;
    const text = choice?.text ?? data.target.text;
    return [
      ...lost.filter((span) => !text.includes(span)).map((span) => ["Missing in the translation: ", span]),
      ...reordered.map((span) => ["Not in the order of the text: ", span]),
    ];
  });
  ui.notes.replaceChildren(...notes.map(([label, span]) => element("li", {}, label, element("code", {}, span))));
  ui.notes.hidden = !notes.length;
  ui.copy.disabled = !result.text;
}

// --- Alternatives

function openMenu(sentence, anchor) {
  menu.open(sentence, anchor, { lang: ui.result.lang, dir: ui.result.dir });
}

async function askAlternatives({ data, choice }) {
  const request = { text: data.source.text, source: spoken(), target: state.target, model: state.model ?? undefined };
  const alternatives = Math.min(NUM_ALTERNATIVES, limits.max_alternatives);
  const { translations } = await ask("v1/translate", { ...request, alternatives, details: true });
  const { sentences = [] } = translations[0];
  const others = sentences.length === 1 ? [{ ...sentences[0], text: sentences[0].target.text }, ...sentences[0].alternatives] : [];
  const all = [{ ...data, text: data.target.text }, ...(choice ? [choice] : []), ...others];
  return all.filter(({ text }, i) => all.findIndex((one) => one.text === text) === i);
}

function choose(sentence, alternative) {
  result.choose(sentence, alternative);
  showNotes();
  announce(`Replaced by: ${alternative.text}`);
}

// --- Languages and models

/** Change languages or model, and translate anew. */
function setLanguages(change) {
  if (change.source && change.source !== state.source) state.before = spoken() ?? state.before;
  if (change.target && change.target !== state.target) state.before = state.target;
  Object.assign(state, { model: null }, change);
  history.replaceState(null, "", `#${state.source}-${state.target}`);
  showLanguages();
  later(0);
}

function fillSelect(select, options, value) {
  const content = JSON.stringify(options);
  if (select.dataset.content !== content) select.replaceChildren(...options.map(([code, label]) => new Option(label, code)));
  select.dataset.content = content; // An open list stays as it is.
  select.value = value;
}

function showLanguages() {
  const found = state.detected && `Detected: ${catalogue.name(state.detected)}`;
  const detect = catalogue.canDetect ? [[AUTO, found ?? "Detect language"]] : [];
  const named = (codes) => codes.map((code) => [code, isWide.matches ? catalogue.label(code) : catalogue.name(code)]);
  fillSelect(ui.sourceLanguage, [...detect, ...named(catalogue.sources)], state.source);
  fillSelect(ui.targetLanguage, named(catalogue.targets(state.source)), state.target);
  const source = spoken();
  ui.swap.disabled = !source || !catalogue.has(state.target, source);
  ui.source.dir = state.source === AUTO ? "auto" : catalogue.writing(source);
  ui.source.lang = source ?? "";
  Object.assign(ui.mirror, { dir: ui.source.dir, lang: ui.source.lang });
  showModel();
}

function showModel(name = state.model) {
  const source = spoken();
  const models = source ? catalogue.modelsOf(source, state.target) : catalogue.models;
  const model = catalogue.model(name) ?? models[0];
  ui.modelChoice.hidden = !source || models.length < 2;
  ui.modelName.hidden = !ui.modelChoice.hidden;
  fillSelect(ui.modelSelect, models.map((one) => [one.name, one.name]), model?.name);
  about(ui, model, source && { source, target: state.target });
  ui.legend.hidden = !model?.alignment;
}

function swap() {
  const [source, target] = [state.target, spoken()];
  const { text } = result;
  if (text) replaceText(ui.source, text);
  Object.assign(state, { source: null, detected: null });
  setLanguages({ source, target });
  ui.swap.focus();
}

function onInput(event) {
  const { length } = Array.from(ui.source.value);
  const max = limits.max_characters;
  ui.countText.textContent = `${length.toLocaleString("en")} / ${max.toLocaleString("en")}`;
  ui.count.classList.toggle("error", length > max);
  ui.clear.hidden = !length;
  document.body.dataset.length = length > 600 ? "long" : length > 150 ? "medium" : "short";
  menu.close();
  result.mirrorText();
  if (!event?.isComposing) later();
}

async function copy() {
  await copyText(result.text);
  announce("Copied");
  ui.copy.classList.add("done");
  setTimeout(() => ui.copy.classList.remove("done"), 1500);
}

// --- Start

/** Show the field for the key. After a refused request it does not take the focus from what is being typed. */
function askForKey(message = "") {
  ui.keyError.textContent = message;
  ui.keyForm.hidden = false;
  if (message) announce(`${message} This server asks for a key.`);
  else ui.key.focus();
}

function listen() {
  ui.source.addEventListener("input", onInput);
  ui.source.addEventListener("compositionend", () => later());
  ui.source.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) later(0);
  });
  ui.clear.addEventListener("click", () => replaceText(ui.source, ""));
  ui.copy.addEventListener("click", copy);
  ui.swap.addEventListener("click", swap);
  ui.sourceLanguage.addEventListener("change", () => {
    const source = ui.sourceLanguage.value;
    state.detected = source === AUTO ? state.detected : null;
    setLanguages({ source, target: catalogue.targetFor(source, state.target, state.source) });
  });
  ui.targetLanguage.addEventListener("change", () => setLanguages({ target: ui.targetLanguage.value }));
  ui.modelSelect.addEventListener("change", () => setLanguages({ model: ui.modelSelect.value }));
  isWide.addEventListener("change", showLanguages);
  window.addEventListener("hashchange", () => setLanguages(catalogue.parse(location.hash) ?? {}));
  ui.keyButton.addEventListener("click", () => (ui.keyForm.hidden ? askForKey() : (ui.keyForm.hidden = true)));
}

async function start() {
  let answer;
  try {
    answer = await ask("v1/models");
  } catch (error) {
    if (error.status === 403) return askForKey(error.message);
    return messages.showError(error, start);
  }
  messages.clear();
  catalogue = new Catalogue(answer);
  limits = answer.limits;
  if (!catalogue.directions.length) return messages.show("The server has no model yet.");
  listen();
  for (const select of [ui.sourceLanguage, ui.targetLanguage]) select.disabled = false;
  ui.keyButton.hidden = !answer.key_required;
  if (answer.key_required && !hasKey()) askForKey();
  Object.assign(state, catalogue.parse(decodeURIComponent(location.hash)) ?? catalogue.first);
  setUpFiles(answer.file_types);
  showLanguages();
  onInput();
}

function setUpFiles(types) {
  if (!types.length) return;
  const tabs = setUpTabs(ui.tabs, (tab) => document.body.classList.toggle("with-files", tab === ui.filesTab));
  const direction = () => ({ fields: fields(), targetName: catalogue.name(state.target) });
  new Files({ drop: ui.drop, input: ui.file, note: ui.fileNote, list: ui.files }, {
    limits, types, direction, announce,
    onDrop: () => tabs.select(ui.filesTab),
    onError: (error) => error.status === 403 && askForKey(error.message),
  });
}

setUpTheme(ui.theme);
setUpConfidence(ui.confidence, ui.legendKey);
ui.keyForm.addEventListener("submit", (event) => {
  event.preventDefault();
  setKey(ui.key.value.trim());
  ui.key.value = "";
  ui.keyForm.hidden = true;
  if (catalogue) later(0);
  else start();
});
start();
