// The page: what the user typed and chose, one request for it at a time, and what came back.
import { AlternativesMenu } from "./alternatives.js";
import { ServerError, ask, hasKey, setKey } from "./api.js";
import { Corrections } from "./corrections.js";
import { Direction } from "./direction.js";
import { copyText, replaceText } from "./editing.js";
import { Files } from "./files.js";
import { Catalogue } from "./languages.js";
import { Messages, sentence } from "./messages.js";
import { setUpConfidence } from "./preferences.js";
import { Program } from "./program.js";
import { Result, wellFormed } from "./result.js";
import { setUpTabs } from "./tabs.js";
import { Terms } from "./terms.js";
import { element } from "./words.js";

const PAUSE = 300;
const NUM_ALTERNATIVES = 5;
const MAX_NOTES = 8;
const MAX_WORDS = 12;
const LONGEST_QUOTE = 60;
const ui = Object.fromEntries(
  [...document.querySelectorAll("[id]")].map((node) => [node.id.replace(/-(.)/g, (_, c) => c.toUpperCase()), node]),
);

let direction;
let limits = { max_characters: Infinity, max_alternatives: 0 };
let takesCorrections = false;
let correctable = null;
let timer = null;
let controller = null;

const announce = (text) => (ui.status.textContent = text);
const messages = new Messages(ui, announce);
const result = new Result(
  { source: ui.source, mirror: ui.mirror, result: ui.result, info: ui.info },
  { onOpen: openMenu, announce },
);
const program = new Program(ui);
const terms = new Terms(ui, { onChange: () => later() });
const corrections = new Corrections(ui, {
  onChange: (sentence, text) => replaceBy(sentence, { text }),
  onError: (error) => error.status === 403 && askForKey(sentence(error.message)),
  announce,
});
const menu = new AlternativesMenu(ui.menu, { ask: askAlternatives, choose });

// --- Requests

function later(pause = PAUSE) {
  clearTimeout(timer);
  controller?.abort();
  controller = null;
  messages.clear();
  const excess = Array.from(ui.source.value).length - limits.max_characters;
  setBusy(false);
  if (!ui.source.value.trim()) return showNothing();
  ui.result.classList.add("old");
  if (excess > 0)
    return messages.show(`The text is ${excess.toLocaleString("en")} characters too long for this server.`);
  timer = setTimeout(translate, pause);
}

async function translate() {
  const current = (controller = new AbortController());
  const isCurrent = () => current === controller;
  setBusy(true);
  try {
    const fields = { ...direction.fields, ...terms.fields };
    const request = { text: wellFormed(ui.source.value), ...fields, details: true };
    const answer = await ask("v1/translate", request, current.signal);
    if (!isCurrent()) return;
    messages.clear();
    messages.succeeded();
    // A text in the target language comes back as it is; then choose another target.
    if (answer.source === answer.target && direction.followDetection(answer.source)) return;
    showAnswer(answer);
    program.show("v1/translate", request, answer, hasKey());
  } catch (error) {
    if (isCurrent()) fail(error);
  } finally {
    if (isCurrent()) setBusy(false);
  }
}

function fail(error) {
  if (!(error instanceof ServerError)) throw error;
  if (error.status === 403) {
    messages.clear();
    askForKey(hasKey() ? sentence(error.message) : "This server needs a key.");
  } else messages.showError(error, translate);
}

function setBusy(busy) {
  ui.progress.hidden = !busy;
  ui.result.setAttribute("aria-busy", String(busy));
}

function showNothing() {
  result.clear();
  ui.result.classList.remove("old", "small");
  direction.showDetected(null);
  program.show("", null);
  showNotes();
}

function showAnswer({ model, source, target, detected, translations: [translation] }) {
  menu.close();
  direction.showDetected(detected);
  const { catalogue } = direction;
  result.show(translation, {
    scope: `${model}\n${source}\n${target}`,
    alternatives: Boolean(catalogue.model(model)) && limits.max_alternatives > 0,
    lang: target,
    dir: catalogue.writing(target),
  });
  ui.result.classList.remove("old");
  const languages = { source_language: source, target_language: target };
  correctable = takesCorrections && model ? { ...languages, model: catalogue.model(model)?.name } : null;
  showNotes();
  direction.showModel(model);
  announce(result.text.length > 500 ? `Translation of ${result.text.length} characters is ready` : result.text);
}

function showNotes() {
  const notes = result.sentences.flatMap(({ data, choice }) => {
    const shown = choice?.lost_spans ? choice : data;
    const { lost_spans: lost = [], reordered_spans: reordered = [], terms: uses = [] } = shown;
    const text = choice?.text ?? data.target.text;
    return [
      ...(data.is_too_long ? [["Longer than the sentences of training, so check: ", data.source.text]] : []),
      ...lost.filter((span) => !text.includes(span)).map((span) => ["Missing in the translation: ", span]),
      ...uses.filter(isMissing).map((use) => ["Term that is not used: ", use.source, use.target]),
      ...reordered.map((span) => ["Not in the order of the text: ", span]),
    ];
  });
  const unknown = [...new Set(result.sentences.flatMap(({ data }) => data.unknown_words ?? []))];
  if (unknown.length) notes.unshift(["Not in the vocabulary of the model: ", ...unknown.slice(0, MAX_WORDS)]);
  const words = (spans) => spans.flatMap((span, i) => [i ? ", " : "", element("code", {}, shortened(span))]);
  const item = ([label, ...spans]) => element("li", {}, label, ...words(spans), spans.length < MAX_WORDS ? "" : " …");
  ui.notes.replaceChildren(...notes.slice(0, MAX_NOTES).map(item));
  if (notes.length > MAX_NOTES) ui.notes.append(element("li", {}, `and ${notes.length - MAX_NOTES} more`));
  ui.notes.hidden = !notes.length;
  ui.legend.hidden = !result.hasConfidence;
  ui.legendKey.classList.toggle("by-chrf", result.hasEstimates);
  ui.copy.disabled = !result.text;
  corrections.show(result.sentences, correctable);
}

const isMissing = ({ status }) => status === "missing";

const shortened = (text) => {
  const characters = Array.from(text);
  return characters.length > LONGEST_QUOTE ? `${characters.slice(0, LONGEST_QUOTE).join("")}…` : text;
};

// --- Alternatives

function openMenu(sentence, anchor) {
  menu.open(sentence, anchor, { lang: ui.result.lang, dir: ui.result.dir });
}

async function askAlternatives({ data, choice }) {
  const request = { text: data.source.text, ...direction.fields, ...terms.fields, source: direction.spoken };
  const alternatives = Math.min(NUM_ALTERNATIVES, limits.max_alternatives);
  const { translations } = await ask("v1/translate", { ...request, alternatives, details: true });
  const { sentences = [] } = translations[0];
  const others =
    sentences.length === 1 ? [{ ...sentences[0], text: sentences[0].target.text }, ...sentences[0].alternatives] : [];
  const all = [{ ...data, text: data.target.text }, ...(choice ? [choice] : []), ...others];
  return all.filter(({ text }, i) => all.findIndex((one) => one.text === text) === i);
}

function replaceBy(sentence, alternative) {
  result.choose(sentence, alternative);
  showNotes();
}

function choose(sentence, alternative) {
  replaceBy(sentence, alternative);
  announce(`Replaced by: ${alternative.text}`);
}

// --- Texts

function swap() {
  const { text } = result;
  if (text) replaceText(ui.source, text);
  direction.swap();
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
  const catalogue = new Catalogue(answer);
  limits = answer.limits;
  takesCorrections = answer.corrections;
  if (!catalogue.directions.length) return messages.show("The server has no model yet.");
  const onModels = (...row) => terms.show(...row);
  direction = new Direction(ui, catalogue, { onChange: () => later(0), onModels, onRefused: showRefused });
  listen();
  ui.keyButton.hidden = !answer.key_required;
  if (answer.key_required && !hasKey()) askForKey();
  setUpFiles(answer.file_types);
  onInput();
  direction.follow();
}

function showRefused(name) {
  const { catalogue, source, targetName } = direction;
  const from = direction.detects ? "any language" : catalogue.name(source);
  messages.show(`“${name}” is not translated here. Chosen: ${from} to ${targetName}.`);
}

function setUpFiles(types) {
  if (!types.length) return;
  const tabs = setUpTabs(ui.tabs, (tab) => document.body.classList.toggle("with-files", tab === ui.filesTab));
  new Files(
    { drop: ui.drop, input: ui.file, note: ui.fileNote, list: ui.files },
    {
      limits,
      types,
      announce,
      direction: () => ({ fields: direction.fields, targetName: direction.targetName }),
      onDrop: () => tabs.select(ui.filesTab),
      onError: (error) => error.status === 403 && askForKey(sentence(error.message)),
    },
  );
}

setUpConfidence(ui.confidence, ui.legendKey);
ui.keyForm.addEventListener("submit", (event) => {
  event.preventDefault();
  setKey(ui.key.value.trim());
  ui.key.value = "";
  ui.keyForm.hidden = true;
  if (direction) later(0);
  else start();
});
start();
