// What this browser remembers. Every access is guarded, because storage may be blocked.

export function recall(name, storage = "localStorage") {
  try {
    return window[storage].getItem(name);
  } catch {
    return null;
  }
}

export function remember(name, value, storage = "localStorage") {
  try {
    if (value === null) window[storage].removeItem(name);
    else window[storage].setItem(name, value);
  } catch {
    // The choice holds until the page is closed.
  }
}

/** Let a button switch between light and dark; a choice that equals the system's setting is not remembered. */
export function setUpTheme(button) {
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const show = () => button.setAttribute("aria-pressed", String(isDark()));
  button.addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    if ((theme === "dark") === system.matches) delete root.dataset.theme;
    else root.dataset.theme = theme;
    remember("theme", root.dataset.theme ?? null);
    show();
  });
  system.addEventListener("change", show);
  show();
}

/** Let a checkbox switch a class of the page on and off; it is on until it was switched off. */
export function setUpConfidence(checkbox, legend) {
  const show = () => {
    document.body.classList.toggle("confidence", checkbox.checked);
    legend.hidden = !checkbox.checked;
  };
  checkbox.checked = recall("confidence") !== "off";
  checkbox.addEventListener("change", () => {
    remember("confidence", checkbox.checked ? null : "off");
    show();
  });
  show();
}
