// Requests to the server, and what can go wrong with them. Addresses are relative, so the page works below a prefix.
import { recall, remember } from "./preferences.js";

/**
 * An answer that is an error. `status` is 0 if there was no answer; `retryAfter` is in seconds, or null; `columns` are
 * those of a table, one of which has to be chosen.
 */
export class ServerError extends Error {
  constructor(status, message, retryAfter = null, columns = null) {
    super(message);
    Object.assign(this, { status, retryAfter, columns });
  }

  /** True if the same request would be refused again. */
  get isFinal() {
    return this.status >= 400 && this.status < 500 && ![403, 408, 429].includes(this.status);
  }
}

let key = recall("key", "sessionStorage");

export const hasKey = () => Boolean(key);

export function setKey(value) {
  key = value;
  remember("key", value, "sessionStorage");
}

const address = (path) => new URL(path, document.baseURI).href;
const headers = () => (key ? { Authorization: `Bearer ${key}` } : {});

function seconds(header) {
  if (!header) return null;
  const value = /^\d+$/.test(header.trim()) ? Number(header) : (Date.parse(header) - Date.now()) / 1000;
  return Number.isFinite(value) ? Math.max(1, Math.ceil(value)) : null;
}

const FALLBACKS = {
  403: "The server does not accept this key.",
  413: "This is too long for the server.",
  415: "The server does not read files of this kind.",
  429: "The server is busy.",
  503: "The server is stopping or not ready.",
  504: "The server took too long.",
};

function errorOf(status, body, retryAfter) {
  let answer = {};
  try {
    answer = JSON.parse(body) ?? {};
  } catch {
    // A proxy in between answers in a format of its own.
  }
  const isText = typeof answer.error === "string" && answer.error;
  const message = isText ? answer.error : (FALLBACKS[status] ?? `The server failed (status ${status}).`);
  return new ServerError(status, message, seconds(retryAfter), Array.isArray(answer.columns) ? answer.columns : null);
}

const unreachable = () => new ServerError(0, "The server cannot be reached.");

async function fetchOk(path, options) {
  let response;
  try {
    response = await fetch(address(path), {
      cache: "no-store",
      ...options,
      headers: { ...headers(), ...options.headers },
    });
  } catch (error) {
    throw error.name === "AbortError" ? error : unreachable();
  }
  if (!response.ok) throw errorOf(response.status, await response.text(), response.headers.get("Retry-After"));
  return response;
}

/** The answer of the server, decoded from JSON; with `body`, which is sent as JSON, the request is a POST. */
export async function ask(path, body, signal) {
  const post = { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  const response = await fetchOk(path, { ...(body === undefined ? {} : post), signal });
  try {
    return await response.json();
  } catch (error) {
    throw error.name === "AbortError" ? error : new ServerError(0, "The answer of the server cannot be read.");
  }
}

/** The translated file as a Blob, and notes on it. `onProgress` gets the share that was sent, 0 to 1. */
export async function translateFile(file, fields, signal, onProgress) {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) if (value) form.append(name, value);
  form.append("file", file);
  const { translatedFileUrl, notes = [] } = await upload(address("translate_file"), form, signal, onProgress);
  const [path] = new URL(translatedFileUrl, document.baseURI).pathname.match(/download_file\/[^/]+$/) ?? [];
  if (!path) throw new ServerError(0, "The answer of the server cannot be read.");
  return { blob: await (await fetchOk(path, { signal })).blob(), notes };
}

// fetch() does not tell how much was sent.
function upload(url, form, signal, onProgress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", url);
    for (const [name, value] of Object.entries(headers())) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => event.lengthComputable && onProgress(event.loaded / event.total);
    request.onerror = () => reject(unreachable());
    request.onabort = () => reject(new DOMException("cancelled", "AbortError"));
    request.onload = () => {
      const { status, responseText } = request;
      if (status !== 200) return reject(errorOf(status, responseText, request.getResponseHeader("Retry-After")));
      try {
        resolve(JSON.parse(responseText));
      } catch {
        reject(new ServerError(0, "The answer of the server cannot be read."));
      }
    };
    signal.addEventListener("abort", () => request.abort());
    request.send(form);
  });
}
