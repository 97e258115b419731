// What is said of the model: its name, its age and how good it was.
import { element } from "./words.js";

const number = (value, digits) =>
  value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const splitName = (split) => (split === "test" ? "Test set" : split.replaceAll("_", " "));

/** `direction` is `{source, target}`, or null as long as the source language is not known. */
export function about({ model: section, modelName, modelDate, scores: list, scoreHelp }, model, direction) {
  section.hidden = !model;
  if (!model) return;
  modelName.textContent = model.name;
  const date = new Date(model.updated_at);
  const known = !Number.isNaN(date.getTime());
  modelDate.textContent = known
    ? `weights of ${date.toLocaleDateString("en-GB", { dateStyle: "long", timeZone: "UTC" })}`
    : "";
  const isOf = (score) => !score.source || (score.source === direction?.source && score.target === direction?.target);
  const scores = model.scores.filter(isOf);
  list.replaceChildren(...scores.map(line));
  if (!scores.length) list.append(element("li", { className: "faint" }, "It was not measured on a test set."));
  scoreHelp.hidden = !scores.length;
}

function line({ split, bleu, chrf, num_sentences: count }) {
  const figure = (name, value) =>
    element("span", { className: "figure" }, `${name} `, element("b", {}, number(value, 1)));
  const figures = [
    ["BLEU", bleu],
    ["chrF", chrf],
  ]
    .filter(([, value]) => Number.isFinite(value))
    .map((pair) => figure(...pair));
  return element(
    "li",
    {},
    element("span", {}, splitName(split)),
    ...figures,
    ...(count ? [element("span", { className: "faint" }, `on ${number(count, 0)} sentences`)] : []),
  );
}
