// Changes of the typed text that the browser can undo, and the clipboard.
import { element } from "./words.js";

/** Replace the text of a textarea so that the browser's undo brings the old one back. */
export function replaceText(textarea, text) {
  textarea.focus();
  textarea.select();
  if (document.execCommand(text ? "insertText" : "delete", false, text)) return;
  textarea.value = text;
  textarea.dispatchEvent(new InputEvent("input", { bubbles: true }));
}

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copyBySelection(text); // That interface exists only on https and on this machine.
  }
}

function copyBySelection(text) {
  const focused = document.activeElement;
  const area = element("textarea", { className: "unseen", value: text, readOnly: true });
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  focused?.focus();
}
