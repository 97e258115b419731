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
