/* What is made of a conversation (session.js) besides its rows: the timeline of a turn, changed files, a document. */

import { diffLines, fromPatch, toHunks } from "./diff.js";

/* The turn that a result ended, as spans {kind, name, from, until, item, usage} in seconds, in the order of their
 * start. kind: model, question, tool, agent. Null if the times are not known. */
export function timelineOf(items, result) {
  const end = items.indexOf(result);
  const start = items.findLastIndex((item, index) => index < end && item.kind === "result") + 1;
  const turn = items.slice(start, end).filter((item) => item.time);
  if (!turn.length || !result.time) return null;
  const spans = [];
  let ready = turn[0].time; /* since when the next model call could run */
  let call = null;
  for (const item of turn) {
    if (item.messageId && item.messageId === call?.id) call.until = Math.max(call.until, item.time);
    else if (item.kind === "text" || item.kind === "thinking" || item.kind === "tool") {
      const { model } = item;
      call = { kind: "model", id: item.messageId, name: model ?? "Model", from: ready, until: item.time, item, usage: item.usage };
      spans.push(call);
    }
    if (item.kind === "tool") {
      const { askedAt: asked, decidedAt: decided } = item.decision ?? {};
      const until = item.result?.time ?? result.time;
      if (asked) spans.push({ kind: "question", name: item.name, from: asked, until: decided ?? until, item });
      spans.push({ kind: item.task ? "agent" : "tool", name: item.name, from: decided ?? asked ?? item.time, until, item });
      ready = Math.max(ready, until);
    }
  }
  for (const span of spans) span.until = Math.max(span.from, span.until);
  return { from: turn[0].time, until: Math.max(result.time, ...spans.map((span) => span.until)), spans };
}

/* The seconds of each kind; the rest is what the engine did itself. */
export function sumTimeline({ from, until, spans }) {
  const sums = { model: 0, tool: 0, agent: 0, question: 0 };
  for (const span of spans) sums[span.kind] += span.until - span.from;
  const rest = until - from - Object.values(sums).reduce((sum, each) => sum + each, 0);
  return { ...sums, rest: Math.max(0, rest) }; /* calls that run together take more time than has passed */
}

/* The files that calls have changed: [{path, hunks, items}], in the order of their first change. */
export function changedFiles(items) {
  const files = new Map();
  const visit = (item) => {
    for (const child of item.children ?? []) visit(child);
    if (item.kind !== "tool" || !item.result || item.result.isError || !CHANGES.has(item.name)) return;
    const path = [item.result.details?.filePath, item.input?.file_path].find((each) => each && typeof each === "string");
    const hunks = path ? hunksOf(item) : [];
    if (!hunks.length) return;
    const file = files.get(path) ?? { path, hunks: [], items: [] };
    file.hunks.push(...hunks);
    file.items.push(item);
    files.set(path, file);
  };
  items.forEach(visit);
  return [...files.values()];
}

const CHANGES = new Set(["Edit", "MultiEdit", "Write"]);
const known = new WeakMap(); /* the hunks of results: a difference of long texts takes a while */

function hunksOf({ result, input }) {
  if (!known.has(result)) {
    try {
      known.set(result, editHunks(result, input));
    } catch {
      known.set(result, []); /* not the result of a tool that we know */
    }
  }
  return known.get(result);
}

export function editHunks(result, input) {
  const patch = result?.details?.structuredPatch;
  if (Array.isArray(patch) && patch.length) return fromPatch(patch);
  if (typeof input.content === "string") return toHunks(diffLines(result?.details?.originalFile ?? "", input.content));
  const edits = Array.isArray(input.edits) ? input.edits : [input];
  return edits.flatMap((edit) => toHunks(diffLines(String(edit?.old_string ?? ""), String(edit?.new_string ?? ""))));
}

/* The conversation as one Markdown document. */
export function toDocument(title, items) {
  const parts = [`# ${title}`];
  for (const item of items) {
    if (item.kind === "prompt") parts.push(`## ${item.text.split("\n")[0].slice(0, 100) || "Prompt"}`, quote(item.text));
    else if (item.kind === "text") parts.push(item.text);
    else if (item.kind === "tool") parts.push(`**${item.name}**`, fence(JSON.stringify(item.input, null, 2)), fence(outputOf(item.result)));
    else if (item.kind === "notice" || item.kind === "mark") parts.push(`_${item.text ?? item.mark}_`);
    else if (item.kind === "result" && item.isError) parts.push(fence(item.errors.join("\n")));
  }
  return `${parts.filter(Boolean).join("\n\n")}\n`;
}

function quote(text) {
  return text.replace(/^/gm, "> ");
}

/* A fence is longer than every one inside. */
function fence(text) {
  if (!text) return "";
  const marks = "`".repeat(Math.max(3, ...(text.match(/`+/g) ?? []).map((each) => each.length + 1)));
  return `${marks}\n${text}\n${marks}`;
}

function outputOf(result) {
  const { content } = result ?? {};
  if (!Array.isArray(content)) return String(content ?? "");
  return content.map((block) => block?.text ?? `[${block?.type}]`).join("\n");
}
