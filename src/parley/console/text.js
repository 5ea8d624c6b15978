/* Text as people must see it: characters that are invisible or reorder others are shown by their number. */

/* Controls other than tab and newline, bidirectional controls, invisible separators, tags, lone surrogates. */
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/gu;
const HIDDEN_ONCE = new RegExp(HIDDEN.source, "u");
/* A zero width joiner inside of an emoji is part of it. */
const EMOJI_JOINER = /\p{Extended_Pictographic}\ufe0f?\p{Emoji_Modifier}?\u200d(?=\p{Extended_Pictographic})/u;

export function hasHidden(text) {
  return HIDDEN_ONCE.test(text);
}

/* Parts of a text: strings, and {code} for a character that is shown by its number. */
export function splitHidden(text) {
  if (!hasHidden(text)) return text ? [text] : [];
  const parts = [];
  let from = 0;
  for (const found of text.matchAll(HIDDEN)) {
    if (found[0] === "\r" && text[found.index + 1] === "\n") continue;
    if (found[0] === "\u200d" && EMOJI_JOINER.test(text.slice(Math.max(0, found.index - 5), found.index + 3))) continue;
    if (found.index > from) parts.push(text.slice(from, found.index));
    parts.push({ code: found[0].codePointAt(0) });
    from = found.index + found[0].length;
  }
  if (from < text.length) parts.push(text.slice(from));
  return parts;
}

export function codeName(code) {
  return `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}

/* One string, for places that take only a string: titles, labels, names of files. */
export function visible(text) {
  const shown = String(text ?? "");
  if (!hasHidden(shown)) return shown;
  return splitHidden(shown)
    .map((part) => (typeof part === "string" ? part : `⟨${codeName(part.code)}⟩`))
    .join("");
}

const ANSI = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g;

/* Output of a terminal without its colours and cursor movements. */
export function stripAnsi(text) {
  return text.includes("\u001b") ? text.replace(ANSI, "") : text;
}

export function shorten(text, length) {
  const shown = visible(text).replace(/\s+/g, " ").trim();
  return shown.length > length ? `${shown.slice(0, length - 1)}…` : shown;
}

/* Figures. */

export function formatUsd(usd) {
  if (typeof usd !== "number" || !Number.isFinite(usd)) return "–";
  if (usd === 0) return "$0";
  return usd < 0.01 ? "<$0.01" : `$${usd.toFixed(usd < 100 ? 2 : 0)}`;
}

export function formatCount(count) {
  if (typeof count !== "number" || !Number.isFinite(count)) return "–";
  if (count < 1000) return String(Math.round(count));
  if (count < 1e6) return `${(count / 1000).toFixed(count < 1e4 ? 1 : 0)}k`;
  return `${(count / 1e6).toFixed(1)}M`;
}

export function formatDuration(ms) {
  if (typeof ms !== "number" || !Number.isFinite(ms)) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/* How long ago something was, by the server's clock; both in seconds. */
export function formatAge(seconds, now) {
  if (!seconds) return "";
  const age = Math.max(0, now - seconds);
  if (age < 45) return "now";
  if (age < 3600) return `${Math.max(1, Math.round(age / 60))} min`;
  if (age < 86400) return `${Math.round(age / 3600)} h`;
  if (age < 30 * 86400) return `${Math.round(age / 86400)} d`;
  return new Date(seconds * 1000).toLocaleDateString();
}

export function formatNumber(count, word) {
  return `${formatCount(count)} ${count === 1 ? word : `${word}s`}`;
}

export function formatBytes(count) {
  if (count < 1024) return `${count} B`;
  if (count < 1024 * 1024) return `${(count / 1024).toFixed(1)} KB`;
  return `${(count / 1024 / 1024).toFixed(1)} MB`;
}
