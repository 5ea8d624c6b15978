/* A recorded conversation as a page of its own, which `parley tap --html` writes: a summary, and the view of the wire.
 *
 * The page has two elements with JSON: `recording` with the lines, and `schema`.
 */

import { formatBytes, formatDuration, formatNumber, shorten, visible } from "../text.js";
import { html, render, useEffect } from "../ui.js";
import { findUnknown, Schema, WireTimeline } from "../wire.js";
import { ShownCount, useShownRows, WireLines } from "./wire.js";

const MOST_ROWS = 50;

function Report({ recording, timeline, schema }) {
  const shown = useShownRows(timeline, schema, timeline.last);
  useEffect(() => {
    if (timeline.rows.length) shown.show(timeline.rows[0]); /* a list starts at its end */
  }, []);
  return html`<main class="wire" aria-labelledby="wire-title">
    <header class="conversation-head">
      <h1 id="wire-title" class="conversation-title">Conversation <${ShownCount} shown=${shown} /></h1>
      <code class="ellipsis muted">${visible(recording.command.join(" "))}</code>
    </header>
    <${Summary} recording=${recording} timeline=${timeline} schema=${schema} onShow=${shown.show} />
    <${WireLines} shown=${shown} empty="Nothing was said." />
  </main>`;
}

function Summary({ recording, timeline, schema, onShow }) {
  const latencies = groupLatencies(timeline.rows);
  const unknown = groupUnknown(timeline.rows, schema);
  const first = timeline.rows[0]?.time ?? 0;
  return html`<section class="report" aria-label="Summary">
    <dl class="figures">
      <div><dt>To the engine</dt><dd>${sumBytes(timeline.rows, "in")}</dd></div>
      <div><dt>From the engine</dt><dd>${sumBytes(timeline.rows, "out")}</dd></div>
      <div><dt>Time</dt><dd>${formatDuration((timeline.until - first) * 1000)}</dd></div>
      <div><dt>Without an answer</dt><dd>${timeline.open.length}</dd></div>
      <div><dt>Ended</dt><dd>${describeEnd(recording.exit_code)}</dd></div>
    </dl>
    ${recording.left_out > 0 && html`<p class="small" role="note">${formatNumber(recording.left_out, "line")} more did not fit into this page.</p>`}
    <div class="report-columns">
      ${latencies.length > 0 &&
      html`<details open><summary>Answers</summary><table class="cost-table"><thead><tr><th>Request</th><th>Count</th><th>Median</th><th>Most</th></tr></thead>
        <tbody>${latencies.map(({ name, ms }) => html`<tr key=${name}><th><bdi>${shorten(name, 60)}</bdi></th><td>${ms.length}</td><td>${formatDuration(ms[ms.length >> 1])}</td><td>${formatDuration(ms[ms.length - 1])}</td></tr>`)}</tbody></table></details>`}
      ${unknown.length > 0 &&
      html`<details open><summary>Not in the schema</summary><table class="cost-table"><thead><tr><th>Field</th><th>Lines</th><th>First</th></tr></thead>
        <tbody>${unknown.slice(0, MOST_ROWS).map(({ name, count, row }) => html`<tr key=${name}><th><code>${shorten(name, 80)}</code></th><td>${count}</td><td><button class="link-button" onClick=${() => onShow(row)}>#${row.number}</button></td></tr>`)}</tbody></table></details>`}
    </div>
  </section>`;
}

function sumBytes(rows, direction) {
  const found = rows.filter((row) => row.direction === direction);
  return `${found.length} · ${formatBytes(found.reduce((sum, row) => sum + row.bytes, 0))}`;
}

function describeEnd(code) {
  if (code === null) return "cut";
  return code < 0 ? `signal ${-code}` : `exit ${code}`;
}

export function groupLatencies(rows) {
  const groups = new Map();
  for (const row of rows) {
    if (!row.request) continue;
    const name = row.request.type === "user" ? "prompt" : row.request.detail || row.request.type;
    groups.set(name, [...(groups.get(name) ?? []), row.latencyMs]);
  }
  return [...groups].map(([name, ms]) => ({ name, ms: ms.sort((a, b) => a - b) }));
}

export function groupUnknown(rows, schema) {
  const groups = new Map();
  for (const row of rows)
    for (const path of findUnknown(row, schema)) {
      const name = `${row.type} ${row.type === "assistant" || row.type === "user" ? "" : row.detail}: ${path.replace(/\[\d+\]/g, "[]")}`.replace(" :", ":");
      const group = groups.get(name) ?? { name, count: 0, row };
      group.count++;
      groups.set(name, group);
    }
  return [...groups.values()];
}

function start() {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const recording = read("recording");
  const timeline = new WireTimeline();
  timeline.add(recording.lines);
  timeline.until = Math.max(timeline.until, recording.ended_at);
  render(html`<${Report} recording=${recording} timeline=${timeline} schema=${new Schema(read("schema"))} />`, document.getElementById("app"));
}

if (globalThis.document?.getElementById("recording")) start();
