/* Markdown to a tree of plain objects. The text is hostile: nothing in the tree is markup, and the only addresses in it
 * are http, https and mailto links.
 *
 * Blocks:  {type: paragraph|heading|code|quote|list|table|rule, ...}
 * Inlines: {type: text|code|strong|em|del|link|image|break, ...}
 *
 * `MarkdownStream` parses a text that grows: blocks that can no longer change keep their identity.
 */

const MAX_DEPTH = 12; /* of nested quotes and lists; deeper ones are text */
const MAX_INLINE_DEPTH = 8;
const MAX_OPEN = 40; /* marks of emphasis that are open at once; more are text */
const MAX_CODE = 4000; /* characters of a code span */

const FENCE = /^( {0,3})(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:[ \t]+|$)/;
const TASK = /^\[([ xX])\][ \t]+/;
const TABLE_RULE = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const BLANK = /^[ \t]*$/;

export function parseMarkdown(text) {
  return parseBlocks(splitLines(text), 0);
}

function splitLines(text) {
  return text.replace(/\r\n?/g, "\n").split("\n");
}

function parseBlocks(lines, depth) {
  const blocks = [];
  let index = 0;
  while (index < lines.length) {
    if (BLANK.test(lines[index])) {
      index++;
      continue;
    }
    const [block, next] = readBlock(lines, index, depth);
    blocks.push(block);
    index = next;
  }
  return blocks;
}

/* The block that starts at a line, and the index of the line after it. */
function readBlock(lines, index, depth) {
  const line = lines[index];
  const fence = FENCE.exec(line);
  if (fence) return readFence(lines, index, fence);
  const heading = HEADING.exec(line);
  if (heading)
    return [{ type: "heading", level: heading[1].length, inlines: parseInlines(heading[2] ?? "") }, index + 1];
  if (RULE.test(line)) return [{ type: "rule" }, index + 1];
  if (depth < MAX_DEPTH) {
    if (QUOTE.test(line)) return readQuote(lines, index, depth);
    if (ITEM.test(line)) return readList(lines, index, depth);
  }
  if (isTableStart(lines, index)) return readTable(lines, index);
  return readParagraph(lines, index, depth);
}

function readFence(lines, index, [, indent, marks, info]) {
  const closing = new RegExp(`^ {0,3}${marks[0]}{${marks.length},}[ \\t]*$`);
  const body = [];
  let at = index + 1;
  while (at < lines.length && !closing.test(lines[at])) {
    body.push(indent ? lines[at].replace(new RegExp(`^ {0,${indent.length}}`), "") : lines[at]);
    at++;
  }
  const isOpen = at >= lines.length;
  return [
    { type: "code", language: info.trim().split(/\s/)[0], text: body.join("\n"), isOpen },
    Math.min(at + 1, lines.length),
  ];
}

function readQuote(lines, index, depth) {
  const body = [];
  let at = index;
  while (
    at < lines.length &&
    (QUOTE.test(lines[at]) || (body.length && !BLANK.test(lines[at]) && !startsBlock(lines, at, depth)))
  )
    body.push(lines[at++].replace(QUOTE, ""));
  return [{ type: "quote", blocks: parseBlocks(body, depth + 1) }, at];
}

function readList(lines, index, depth) {
  const first = ITEM.exec(lines[index]);
  const isOrdered = /\d/.test(first[2]);
  const kind = first[2].slice(-1);
  const items = [];
  let isLoose = false;
  let at = index;
  while (at < lines.length) {
    const found = ITEM.exec(lines[at]);
    if (!found || found[2].slice(-1) !== kind || /\d/.test(found[2]) !== isOrdered || RULE.test(lines[at])) break;
    const width = Math.min(found[0].length, found[1].length + found[2].length + 4);
    const body = [lines[at].slice(found[0].length)];
    at++;
    let blanks = 0;
    while (at < lines.length) {
      const line = lines[at];
      if (BLANK.test(line)) {
        blanks++;
        body.push("");
      } else if (indentOf(line) >= Math.min(width, found[1].length + 2)) {
        if (blanks) isLoose = true;
        body.push(line.slice(Math.min(width, indentOf(line))));
        blanks = 0;
      } else if (!blanks && !startsBlock(lines, at, depth)) body.push(line);
      else break;
      at++;
    }
    while (body.length > 1 && body.at(-1) === "") body.pop();
    if (blanks && ITEM.exec(lines[at] ?? "")?.[2].slice(-1) === kind) isLoose = true;
    const task = TASK.exec(body[0]);
    if (task) body[0] = body[0].slice(task[0].length);
    items.push({ isDone: task ? task[1] !== " " : null, blocks: parseBlocks(body, depth + 1) });
  }
  return [{ type: "list", isOrdered, start: isOrdered ? parseInt(first[2], 10) : null, isLoose, items }, at];
}

function indentOf(line) {
  return /^ */.exec(line)[0].length;
}

function startsBlock(lines, index, depth) {
  const line = lines[index];
  return (
    FENCE.test(line) ||
    HEADING.test(line) ||
    RULE.test(line) ||
    (depth < MAX_DEPTH && (QUOTE.test(line) || ITEM.test(line)))
  );
}

function isTableStart(lines, index) {
  const next = lines[index + 1];
  if (!lines[index].includes("|") || next === undefined || !next.includes("-") || !TABLE_RULE.test(next)) return false;
  return splitRow(lines[index]).length === splitRow(next).length;
}

function readTable(lines, index) {
  const header = splitRow(lines[index]).map((cell) => parseInlines(cell));
  const align = splitRow(lines[index + 1]).map((cell) => {
    const [left, right] = [cell.startsWith(":"), cell.endsWith(":")];
    return left && right ? "center" : right ? "right" : left ? "left" : null;
  });
  const rows = [];
  let at = index + 2;
  while (at < lines.length && lines[at].includes("|") && !BLANK.test(lines[at])) {
    const cells = splitRow(lines[at++]).slice(0, header.length);
    while (cells.length < header.length) cells.push("");
    rows.push(cells.map((cell) => parseInlines(cell)));
  }
  return [{ type: "table", header, align, rows }, at];
}

function splitRow(line) {
  const cells = [];
  let cell = "";
  const text = line.trim().replace(/^\|/, "");
  for (let at = 0; at < text.length; at++) {
    if (text[at] === "\\" && text[at + 1] === "|") cell += text[++at];
    else if (text[at] === "|") {
      cells.push(cell.trim());
      cell = "";
    } else cell += text[at];
  }
  if (cell.trim() || !text.endsWith("|")) cells.push(cell.trim());
  return cells;
}

function readParagraph(lines, index, depth) {
  const body = [lines[index].trimStart()];
  let at = index + 1;
  while (at < lines.length && !BLANK.test(lines[at]) && !startsBlock(lines, at, depth)) {
    const setext = /^ {0,3}(=+|-+)[ \t]*$/.exec(lines[at]);
    if (setext)
      return [{ type: "heading", level: setext[1][0] === "=" ? 1 : 2, inlines: parseInlines(body.join("\n")) }, at + 1];
    if (isTableStart(lines, at)) break;
    body.push(lines[at++].trimStart());
  }
  const last = lines[at];
  if (last !== undefined && /^ {0,3}-+[ \t]*$/.test(last) && last.trim().length > 1)
    return [{ type: "heading", level: 2, inlines: parseInlines(body.join("\n")) }, at + 1];
  return [{ type: "paragraph", inlines: parseInlines(body.join("\n").trimEnd()) }, at];
}

/* Inlines. */

const SPECIAL = /[\\`*_~[!<\n]|https?:\/\//g;
const ESCAPABLE = /[!-/:-@[-`{-~]/;
const BARE_URL = /^https?:\/\/[^\s<>"'`]+/;
const ANGLE = /^<((?:https?:\/\/|mailto:)[^\s<>]+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+)>/;

export function parseInlines(text, depth = 0) {
  const nodes = [];
  let plain = "";
  let at = 0;
  const push = (node) => {
    if (plain) nodes.push({ type: "text", text: plain });
    plain = "";
    nodes.push(node);
  };
  while (at < text.length) {
    SPECIAL.lastIndex = at;
    const special = SPECIAL.exec(text);
    if (!special) {
      plain += text.slice(at);
      break;
    }
    plain += text.slice(at, special.index);
    at = special.index;
    const found = readInline(text, at, depth, plain);
    if (found) {
      push(found.node);
      at = found.end;
    } else if (text[at] === "\\" && ESCAPABLE.test(text[at + 1] ?? "")) {
      plain += text[at + 1];
      at += 2;
    } else if (text[at] === "\n") {
      const isHard = / {2,}$/.test(plain.slice(-3)) || plain.endsWith("\\");
      plain = plain.replace(/(?: {1,40}|\\)$/, "");
      if (isHard) push({ type: "break" });
      else plain += "\n";
      at++;
    } else if ("*_~".includes(text[at]) && depth < MAX_INLINE_DEPTH) {
      const size = runLength(text, at);
      push(makeDelimiter(text, at, size));
      at += size;
    } else {
      const size = text[at] === "`" ? runLength(text, at) : 1;
      plain += text.slice(at, at + size);
      at += size;
    }
  }
  if (plain) nodes.push({ type: "text", text: plain });
  return mergeText(resolveDelimiters(nodes));
}

/* How often the character at a place is repeated. */
function runLength(text, at) {
  let end = at + 1;
  while (text[end] === text[at]) end++;
  return end - at;
}

/* Emphasis as in CommonMark: runs of marks are paired from the inside. */

const SPACE = /^\s?$/;
const PUNCTUATION = /^[\p{P}\p{S}]$/u;

function makeDelimiter(text, at, size) {
  const before = text[at - 1] ?? "";
  const after = text[at + size] ?? "";
  const isLeft = !SPACE.test(after) && (!PUNCTUATION.test(after) || SPACE.test(before) || PUNCTUATION.test(before));
  const isRight = !SPACE.test(before) && (!PUNCTUATION.test(before) || SPACE.test(after) || PUNCTUATION.test(after));
  const isWord = text[at] === "_";
  return {
    type: "delimiter",
    mark: text[at],
    size,
    left: size,
    canOpen: isLeft && (!isWord || !isRight || PUNCTUATION.test(before)),
    canClose: isRight && (!isWord || !isLeft || PUNCTUATION.test(after)),
  };
}

function resolveDelimiters(nodes) {
  const open = []; /* {delimiter, out}: `out` are the nodes after the delimiter */
  let out = [];
  const closeInto = (index) => {
    /* Delimiters above `index` open nothing: they are text. */
    while (open.length > index) {
      const { delimiter, outer } = open.pop();
      outer.push({ type: "text", text: delimiter.mark.repeat(delimiter.left) });
      for (const node of out) outer.push(node);
      out = outer;
    }
  };
  for (const node of nodes) {
    if (node.type !== "delimiter") {
      out.push(node);
      continue;
    }
    if (node.canClose) {
      for (let index = open.length - 1; index >= 0 && node.left > 0; index--) {
        const { delimiter } = open[index];
        if (!isPair(delimiter, node)) continue;
        closeInto(index + 1);
        while (node.left > 0 && isPair(delimiter, node)) {
          const used = delimiter.left >= 2 && node.left >= 2 ? 2 : 1;
          delimiter.left -= used;
          node.left -= used;
          out = [{ type: node.mark === "~" ? "del" : used === 2 ? "strong" : "em", inlines: mergeText(out) }];
        }
        if (delimiter.left > 0) continue;
        const { outer } = open.pop();
        for (const inner of out) outer.push(inner);
        out = outer;
      }
    }
    if (node.left > 0 && node.canOpen && open.length < MAX_OPEN) {
      open.push({ delimiter: node, outer: out });
      out = [];
    } else if (node.left > 0) out.push({ type: "text", text: node.mark.repeat(node.left) });
  }
  closeInto(0);
  return out;
}

function isPair(opener, closer) {
  if (opener.mark !== closer.mark || opener.left === 0) return false;
  if (opener.mark === "~") return opener.left === 2 && closer.left === 2;
  const isBoth = (opener.canClose || closer.canOpen) && (opener.size + closer.size) % 3 === 0;
  return !isBoth || (opener.size % 3 === 0 && closer.size % 3 === 0);
}

function mergeText(nodes) {
  const merged = [];
  for (const node of nodes) {
    const last = merged.at(-1);
    if (node.type === "text" && last?.type === "text")
      merged[merged.length - 1] = { type: "text", text: last.text + node.text };
    else merged.push(node);
  }
  return merged;
}

function readInline(text, at, depth, before) {
  const mark = text[at];
  if (mark === "`") return readCode(text, at);
  if (mark === "<") return readAngle(text, at);
  if (mark === "h") return /[\w/]$/.test(before) ? null : readBareUrl(text, at);
  if (depth >= MAX_INLINE_DEPTH) return null;
  if (mark === "[") return readLink(text, at, depth);
  if (mark === "!" && text[at + 1] === "[") {
    const link = readLink(text, at + 1, depth);
    if (!link) return null;
    return {
      node: { type: "image", alt: plainText(link.node.inlines), href: link.node.href, target: link.node.target },
      end: link.end,
    };
  }
  return null;
}

function readCode(text, at) {
  const size = runLength(text, at);
  const marks = text.slice(at, at + size);
  const limit = at + MAX_CODE;
  let end = at + size;
  for (;;) {
    end = text.indexOf(marks, end);
    if (end < 0 || end > limit) return null;
    const run = runLength(text, end);
    if (run === size) break;
    end += run;
  }
  let code = text.slice(at + size, end).replace(/\n/g, " ");
  if (code.startsWith(" ") && code.endsWith(" ") && code.trim()) code = code.slice(1, -1);
  return { node: { type: "code", text: code }, end: end + size };
}

function readAngle(text, at) {
  const found = ANGLE.exec(text.slice(at, at + 2048));
  if (!found) return null;
  const href = safeHref(found[1].includes(":") ? found[1] : `mailto:${found[1]}`);
  return href
    ? { node: { type: "link", href, inlines: [{ type: "text", text: found[1] }] }, end: at + found[0].length }
    : null;
}

function readBareUrl(text, at) {
  let url = (BARE_URL.exec(text.slice(at, at + 2048))?.[0] ?? "").replace(/[.,;:!?*_~]+$/, "");
  while (url.endsWith(")") && count(url, ")") > count(url, "(")) url = url.slice(0, -1);
  const href = safeHref(url);
  return href ? { node: { type: "link", href, inlines: [{ type: "text", text: url }] }, end: at + url.length } : null;
}

function count(text, mark) {
  return text.split(mark).length - 1;
}

function readLink(text, at, depth) {
  let level = 0;
  let close = -1;
  const limit = Math.min(text.length, at + 2000);
  for (let index = at; index < limit; index++) {
    if (text[index] === "\\") index++;
    else if (text[index] === "[") level++;
    else if (text[index] === "]" && --level === 0) {
      close = index;
      break;
    }
  }
  if (close < 0 || text[close + 1] !== "(") return null;
  const found = /^\(\s*(?:<([^<>\n]*)>|((?:[^\s()\\]|\\.|\([^\s()]*\))*))(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/.exec(
    text.slice(close + 1, close + 4000),
  );
  if (!found) return null;
  const target = found[1] ?? found[2] ?? "";
  const inlines = parseInlines(text.slice(at + 1, close), Math.max(depth + 1, MAX_INLINE_DEPTH - 2)).map(unlink);
  return { node: { type: "link", href: safeHref(target), target, inlines }, end: close + 1 + found[0].length };
}

/* A link inside of a link is text. */
function unlink(node) {
  return node.type === "link" ? { type: "text", text: plainText(node.inlines) } : node;
}

export function plainText(inlines) {
  return inlines
    .map(
      (node) => node.text ?? node.alt ?? (node.inlines ? plainText(node.inlines) : node.type === "break" ? "\n" : ""),
    )
    .join("");
}

/* The address if it may be followed, else null. */
export function safeHref(target) {
  if (
    typeof target !== "string" ||
    /[\u0000-\u0020\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\\]/.test(target)
  )
    return null;
  if (!/^(?:https?:\/\/|mailto:)/i.test(target)) return null;
  try {
    const url = new URL(target);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

/* Parses a growing text. Blocks before the last blank line outside of a fence are kept as they are. */
export class MarkdownStream {
  constructor() {
    this._text = "";
    this._stable = 0; /* characters that `_blocks` covers */
    this._blocks = [];
  }

  parse(text) {
    if (!text.startsWith(this._text.slice(0, this._stable)) || text.length < this._stable) {
      this._stable = 0;
      this._blocks = [];
    }
    this._text = text;
    const end = findStableEnd(text, this._stable);
    if (end > this._stable) {
      this._blocks = [...this._blocks, ...parseMarkdown(text.slice(this._stable, end))];
      this._stable = end;
    }
    return [...this._blocks, ...parseMarkdown(text.slice(end))];
  }
}

/* The end of the last blank line after which a new block starts for certain. */
function findStableEnd(text, from) {
  let end = from;
  let fence = null;
  let isAfterBlank = false;
  for (let at = from; at < text.length;) {
    const next = text.indexOf("\n", at);
    if (next < 0) break;
    const line = text.slice(at, next);
    const found = FENCE.exec(line);
    if (fence) {
      if (line.trim().startsWith(fence) && BLANK.test(line.trim().replace(/^[`~]+/, ""))) fence = null;
    } else {
      if (isAfterBlank && !/^[ \t]/.test(line) && !ITEM.test(line) && !QUOTE.test(line) && !BLANK.test(line)) end = at;
      if (found) fence = found[2];
    }
    isAfterBlank = !fence && BLANK.test(line);
    at = next + 1;
  }
  return end;
}
