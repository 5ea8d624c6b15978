/* The raw lines of a session as a timeline: both directions, open requests, latencies, sizes, unknown fields. */

import { link } from "../router.js";
import { formatBytes, formatDuration, shorten, visible } from "../text.js";
import { html, memo, useConsole, useEffect, useMemo, useRef, useRefresh, useState } from "../ui.js";
import { findUnknown, matches, Schema, WireTimeline } from "../wire.js";
import { Icon } from "../widgets/icon.js";
import { CodeBlock } from "../widgets/markdown.js";
import { VirtualList } from "../widgets/virtual-list.js";

const PAGE = 1000;
const PAUSE_MS = 1500;
const ROW_PIXELS = 34;
const NO_FILTER = { text: "", direction: "", type: "", unknownOnly: false };

export function View({ id }) {
  const { timeline, schema, problem, revision } = useTimeline(id);
  const shown = useShownRows(timeline, schema, revision);
  return html`<section class="wire" aria-labelledby="wire-title">
    <header class="conversation-head">
      <a class="icon-button" href=${link.session(id)} aria-label="Back to the conversation" title="Back to the conversation"><${Icon} name="back" /></a>
      <h1 id="wire-title" class="conversation-title">Wire <${ShownCount} shown=${shown} /></h1>
      <${Export} id=${id} />
    </header>
    ${problem && html`<p class="empty-line" role="alert">${visible(problem.message)}</p>`}
    <${WireLines} shown=${shown} empty=${problem ? "" : "This session has not said anything yet."} />
  </section>`;
}

/* The rows that match a filter, and how to change it. `show` scrolls to a row. */
export function useShownRows(timeline, schema, revision) {
  const [filter, setFilter] = useState(NO_FILTER);
  const rows = useMemo(() => timeline.rows.filter((row) => matches(row, filter, schema)), [timeline, revision, filter, schema]);
  const types = useMemo(() => [...new Set(timeline.rows.map((row) => row.type))].sort(), [timeline, revision]);
  const handle = useRef(null);
  const show = (row) => {
    setFilter(NO_FILTER);
    requestAnimationFrame(() => handle.current?.scrollTo(row.key));
  };
  return { timeline, schema, revision, filter, setFilter, rows, types, handle, show };
}

export function ShownCount({ shown: { rows, timeline } }) {
  return html`<span class="count">${rows.length === timeline.rows.length ? rows.length : `${rows.length} of ${timeline.rows.length}`}</span>`;
}

/* The filter, what waits, and the lines. */
export function WireLines({ shown, empty }) {
  const { timeline, schema, revision, filter, setFilter, rows, types, handle, show } = shown;
  return html`<${Filters} filter=${filter} types=${types} onChange=${(change) => setFilter({ ...filter, ...change })} />
    <${OpenRequests} timeline=${timeline} revision=${revision} onShow=${show} />
    ${rows.length > 0
      ? html`<${VirtualList} items=${rows} estimate=${() => ROW_PIXELS} label="Lines" handle=${handle} draw=${(row) => html`<${Row} row=${row} schema=${schema} start=${timeline.rows[0].time} mark=${row.latencyMs ?? row.waitsFor} onShow=${show} />`} />`
      : html`<p class="empty-line">${timeline.rows.length ? "No line matches the filter." : empty}</p>`}`;
}

/* The lines so far, and new ones while the view is open. */
function useTimeline(id) {
  const { api } = useConsole();
  const refresh = useRefresh();
  const [schema, setSchema] = useState(null);
  const [problem, setProblem] = useState(null);
  const timeline = useMemo(() => new WireTimeline(), [id]);
  useEffect(() => {
    let isGone = false;
    let timer = null;
    const path = `/sessions/${encodeURIComponent(id)}/wire`;
    const load = async () => {
      let isMore = false;
      try {
        const before = timeline.last;
        if (!document.hidden) {
          const page = await api.get(path, { after: before, limit: PAGE });
          if (isGone) return;
          timeline.add(page.lines);
          isMore = timeline.last > before && timeline.last < page.last;
          if (timeline.last > before) refresh();
        }
        setProblem(null);
      } catch (error) {
        if (isGone) return;
        setProblem(error);
        if (error.status >= 400 && error.status < 500) return;
      }
      timer = setTimeout(load, isMore ? 0 : PAUSE_MS);
    };
    load();
    api.get("/schema.json").then((document) => isGone || setSchema(new Schema(document)), () => {});
    return () => {
      isGone = true;
      clearTimeout(timer);
    };
  }, [id]);
  return { timeline, schema, problem, revision: timeline.last };
}

function Filters({ filter, types, onChange }) {
  const directions = [["", "Both"], ["in", "To the engine"], ["out", "From the engine"]];
  return html`<div class="wire-filters">
    <div class="search"><${Icon} name="search" /><input type="search" aria-label="Search lines" placeholder="Search in lines" value=${filter.text} onInput=${(event) => onChange({ text: event.target.value })} /></div>
    <div class="filters" role="group" aria-label="Direction">
      ${directions.map(([direction, label]) => html`<button key=${direction} class="chip" aria-pressed=${String(filter.direction === direction)} onClick=${() => onChange({ direction })}>${label}</button>`)}
    </div>
    <select aria-label="Type" value=${filter.type} onChange=${(event) => onChange({ type: event.target.value })}>
      <option value="">All types</option>
      ${types.map((type) => html`<option key=${type} value=${type}>${shorten(type, 40)}</option>`)}
    </select>
    <button class="chip" aria-pressed=${String(filter.unknownOnly)} onClick=${() => onChange({ unknownOnly: !filter.unknownOnly })}>Unknown fields</button>
  </div>`;
}

function OpenRequests({ timeline, onShow }) {
  const { open } = timeline;
  if (!open.length) return null;
  return html`<section class="wire-open" aria-labelledby="wire-open-title">
    <h2 id="wire-open-title">Without an answer <span class="count">${open.length}</span></h2>
    <ul>${open.slice(-10).map((row) => html`<li key=${row.key}><button class="link-button" onClick=${() => onShow(row)}><${Arrow} row=${row} /> ${shorten(`${row.type} ${row.detail}`, 80)} <span class="muted">#${row.number}</span></button> <span class="muted small">${formatDuration((timeline.until - row.time) * 1000)}</span></li>`)}</ul>
  </section>`;
}

const ARROWS = { in: ["→", "to the engine"], out: ["←", "from the engine"], err: ["!", "stderr of the engine"] };

function Arrow({ row }) {
  const [arrow, label] = ARROWS[row.direction];
  return html`<span class="wire-arrow" data-direction=${row.direction} role="img" aria-label=${label}>${arrow}</span>`;
}

const opened = new WeakSet();

const Row = memo(
  ({ row, schema, start, onShow }) => {
    const refresh = useRefresh();
    const isOpen = opened.has(row);
    const toggle = () => {
      if (isOpen) opened.delete(row);
      else opened.add(row);
      refresh();
    };
    const unknown = findUnknown(row, schema);
    const other = row.answer ?? row.request;
    return html`<div class="wire-row" data-direction=${row.direction}>
      <button class="wire-line" aria-expanded=${String(isOpen)} onClick=${toggle}>
        <span class="wire-number muted">${row.number}</span>
        <time class="wire-time muted" datetime=${new Date(row.time * 1000).toISOString()}>+${formatDuration((row.time - start) * 1000)}</time>
        <${Arrow} row=${row} />
        <span class="wire-type ellipsis"><bdi>${shorten(row.type, 40)}</bdi> <span class="muted"><bdi>${shorten(row.detail, 60)}</bdi></span></span>
        ${unknown.length > 0 && html`<span class="wire-unknown">${unknown.length} unknown</span>`}
        ${row.waitsFor && html`<span class="wire-waits">waits</span>`}
        ${row.latencyMs !== null && html`<span class="wire-latency">${formatDuration(row.latencyMs)}</span>`}
        <span class="wire-size muted">${formatBytes(row.bytes)}</span>
      </button>
      ${isOpen &&
      html`<div class="wire-body">
        ${unknown.length > 0 && html`<p class="small">Not in the schema: ${unknown.map((name, index) => html`${index > 0 ? ", " : ""}<code>${shorten(name, 80)}</code>`)}</p>`}
        ${other && html`<p class="small"><button class="link-button" onClick=${() => onShow(other)}>${row.answer ? "Show the answer" : "Show the request"} #${other.number}</button></p>`}
        <${CodeBlock} language="json" label=${`line ${row.number}`} text=${JSON.stringify(row.line, null, 2)} isWrapped />
      </div>`}
    </div>`;
  },
  (before, after) => before.row === after.row && before.mark === after.mark && before.schema === after.schema,
);

/* The recording that `parley replay` plays. The token goes in a header, so that the browser cannot load it as a link. */
function Export({ id }) {
  const { api, toasts } = useConsole();
  const [isBusy, setBusy] = useState(false);
  const save = async () => {
    setBusy(true);
    try {
      const response = await api.fetchRaw(`/sessions/${encodeURIComponent(id)}/wire/recording`);
      const place = URL.createObjectURL(await response.blob());
      const anchor = document.createElement("a");
      anchor.href = place;
      anchor.download = `${id.replace(/[^\w.-]/g, "_")}.jsonl`;
      anchor.click();
      setTimeout(() => URL.revokeObjectURL(place), 10000);
    } catch (error) {
      toasts.fail(error);
    }
    setBusy(false);
  };
  return html`<button class="button small" disabled=${isBusy} onClick=${save} title="A file for parley replay; secrets are removed"><${Icon} name="file" />Export recording</button>`;
}
