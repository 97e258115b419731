// Which model translates from which language into which. Knows nothing of the page.

export const AUTO = "auto";

export class Catalogue {
  /** `answer` is what GET /v1/models gives. */
  constructor({ models, languages }) {
    this.models = models;
    this.languages = new Map(languages.map((language) => [language.code, language]));
    this.directions = this.models.flatMap((model) => model.directions);
    const unique = (codes) => [...new Set(codes)].sort((a, b) => this.name(a).localeCompare(this.name(b), "en"));
    this.sources = unique(this.directions.map(({ source }) => source));
    this.allTargets = unique(this.directions.map(({ target }) => target));
  }

  name(code) {
    return this.languages.get(code)?.name ?? code;
  }

  /** Direction of writing, as in HTML; unknown languages are left to the browser. */
  writing(code) {
    const language = this.languages.get(code);
    if (!language) return "auto";
    return language.right_to_left ? "rtl" : "ltr";
  }

  get canDetect() {
    return this.sources.length > 1;
  }

  targets(source) {
    return source === AUTO ? this.allTargets : this.allTargets.filter((target) => this.has(source, target));
  }

  has(source, target) {
    return this.directions.some((direction) => direction.source === source && direction.target === target);
  }

  /** Models of a direction, the default first. */
  modelsOf(source, target) {
    const serves = (model) =>
      model.directions.some((direction) => direction.source === source && direction.target === target);
    return this.models.filter(serves);
  }

  model(name) {
    return this.models.find((model) => model.name === name);
  }

  /** Direction to begin with. */
  get first() {
    const [{ source, target }] = this.directions;
    return { source: this.canDetect ? AUTO : source, target };
  }

  /** Direction that a fragment such as `#en-de` names, or null. Codes may contain hyphens. */
  parse(fragment) {
    const parts = fragment.replace(/^#/, "").split("-");
    for (let i = 1; i < parts.length; i++) {
      const [named, target] = [parts.slice(0, i).join("-"), parts.slice(i).join("-")];
      const source = named === AUTO && !this.canDetect ? this.sources[0] : named;
      const detects = source === AUTO && this.allTargets.includes(target);
      if (detects || this.has(source, target)) return { source, target };
    }
    return null;
  }

  /** Target to use if the source language changes: the same if possible, else what was the source before. */
  targetFor(source, target, previous) {
    const targets = this.targets(source);
    return [target, previous].find((code) => targets.includes(code)) ?? targets[0];
  }
}
