/* What sessions cost: by day, model and session, and each turn of a session. */

import { link } from "../router.js";
import { formatCount, formatDuration, formatUsd, shorten, visible } from "../text.js";
import { html, useConsole, useEffect, useState } from "../ui.js";
import { BarChart } from "../widgets/charts.js";
import { Icon } from "../widgets/icon.js";

const RANGES = [[7, "7 days"], [30, "30 days"], [90, "90 days"], [365, "1 year"]];
const MOST_SESSIONS = 200;
const MOST_TURNS = 120;

export function View() {
  const [days, setDays] = useState(30);
  const { costs, problem } = useCosts(days);
  return html`<section class="page costs" aria-labelledby="costs-title">
    <header class="page-head">
      <h1 id="costs-title">Costs</h1>
      <div class="filters" role="group" aria-label="Time">${RANGES.map(([range, label]) => html`<button key=${range} class="chip" aria-pressed=${String(days === range)} onClick=${() => setDays(range)}>${label}</button>`)}</div>
    </header>
    ${problem && html`<p class="empty-line" role="alert">${visible(problem.message)}</p>`}
    ${costs ? html`<${Figures} costs=${costs} days=${days} />` : !problem && html`<p class="empty-line" role="status">Loading…</p>`}
  </section>`;
}

const REFRESH_MS = 15000;

function useCosts(days) {
  const { api } = useConsole();
  const [costs, setCosts] = useState(null);
  const [problem, setProblem] = useState(null);
  useEffect(() => {
    let isGone = false;
    const load = () => document.hidden || api.get("/costs", { days }).then((found) => isGone || (setCosts(found), setProblem(null)), (error) => isGone || setProblem(error));
    load();
    const timer = setInterval(load, REFRESH_MS);
    return () => {
      isGone = true;
      clearInterval(timer);
    };
  }, [days]);
  return { costs, problem };
}

const DOLLARS = { name: "Spent", of: (row) => row.usd ?? 0, format: formatUsd };
/* For models without a price. */
const TOKENS = { name: "Tokens", of: (row) => row.input_tokens + row.cache_read_tokens + row.output_tokens, format: formatCount };

function Figures({ costs, days }) {
  const { api } = useConsole();
  const total = sum(costs.by_day, "usd");
  const turns = sum(costs.by_session, "turns");
  const measure = total ? DOLLARS : TOKENS;
  if (!turns) return html`<div class="empty"><h2>No turns in this time</h2><p>Costs appear here after the first turn.</p></div>`;
  return html`<dl class="figures">
      <div><dt>Spent</dt><dd>${formatUsd(total)}</dd></div>
      <div><dt>Turns</dt><dd>${formatCount(turns)}</dd></div>
      <div><dt>Tokens in</dt><dd>${formatCount(sum(costs.by_model, "input_tokens") + sum(costs.by_model, "cache_read_tokens"))}</dd></div>
      <div><dt>Tokens out</dt><dd>${formatCount(sum(costs.by_model, "output_tokens"))}</dd></div>
      <${Budget} budget=${costs.budget} />
    </dl>
    <section class="card"><h2>By day</h2><${BarChart} bars=${fillDays(costs.by_day, days, api.now(), measure)} names=${[measure.name]} format=${measure.format} label=${`${measure.name} by day`} /></section>
    <section class="card"><h2>By model</h2><${Table} rows=${costs.by_model} head="Model" name=${(row) => html`<bdi>${shorten(row.model, 60)}</bdi>`} keyOf=${(row) => row.model} /></section>
    <section class="card"><h2>By session</h2><${Table} rows=${costs.by_session.slice(0, MOST_SESSIONS)} head="Session" name=${(row) => html`<a href=${link.session(row.id)}><bdi>${shorten(row.title || "Untitled session", 70)}</bdi></a>`} keyOf=${(row) => row.id} detail=${(row) => html`<${Turns} id=${row.id} />`} /></section>`;
}

function Budget({ budget }) {
  if (!budget || typeof budget.usd !== "number") return null;
  const left = Math.max(0, budget.usd - budget.used);
  return html`<div><dt>Budget left</dt><dd>${formatUsd(left)} <span class="muted small">of ${formatUsd(budget.usd)}</span></dd>
    <meter min="0" max=${budget.usd} value=${left} low=${budget.usd * 0.1} aria-label="Budget left"></meter></div>`;
}

function sum(rows, name) {
  return rows.reduce((total, row) => total + (row[name] ?? 0), 0);
}

/* One bar for each day, also for those on which nothing was spent. */
export function fillDays(rows, days, now, measure) {
  const known = new Map(rows.map((row) => [row.day, row]));
  const bars = [];
  for (let back = days - 1; back >= 0; back--) {
    const day = new Date(now - back * 86400000).toISOString().slice(0, 10);
    const row = known.get(day);
    bars.push({ label: day, values: [row ? measure.of(row) : 0], title: row ? `${day}: ${measure.format(measure.of(row))}, ${row.turns} turns` : `${day}: nothing` });
  }
  return bars;
}

function Table({ rows, head, name, keyOf, detail }) {
  const [opened, setOpened] = useState(null);
  const highest = Math.max(...rows.map((row) => row.usd ?? 0), 0) || 1;
  return html`<div class="table-frame" tabindex="0" role="region" aria-label=${`Costs by ${head.toLowerCase()}`}><table class="cost-table">
    <thead><tr><th scope="col">${head}</th><th scope="col">Spent</th><th scope="col">Turns</th><th scope="col">In</th><th scope="col">Cached</th><th scope="col">Out</th></tr></thead>
    <tbody>${rows.map((row) => {
      const key = keyOf(row);
      const isOpen = opened === key;
      return html`<tr key=${key}>
          <th scope="row">${detail && html`<button class="icon-button fold" aria-expanded=${String(isOpen)} aria-label="Show the turns" onClick=${() => setOpened(isOpen ? null : key)}><${Icon} name=${isOpen ? "down" : "chevron"} /></button>`}${name(row)}
            <span class="cost-bar" aria-hidden="true" style=${{ width: `${(100 * (row.usd ?? 0)) / highest}%` }}></span></th>
          <td>${formatUsd(row.usd)}</td><td>${formatCount(row.turns)}</td><td>${formatCount(row.input_tokens)}</td><td>${formatCount(row.cache_read_tokens)}</td><td>${formatCount(row.output_tokens)}</td>
        </tr>
        ${isOpen && html`<tr key=${`${key} turns`} class="cost-detail"><td colspan="6">${detail(row)}</td></tr>`}`;
    })}</tbody>
  </table></div>`;
}

/* Tokens and time of each turn. */
export function Turns({ id }) {
  const { api } = useConsole();
  const [turns, setTurns] = useState(null);
  const [problem, setProblem] = useState(null);
  useEffect(() => {
    api.get(`/sessions/${encodeURIComponent(id)}/turns`).then((found) => setTurns((Array.isArray(found) ? found : found.turns).slice(-MOST_TURNS)), setProblem);
  }, [id]);
  if (problem) return html`<p class="small" role="alert">${visible(problem.message)}</p>`;
  if (!turns) return html`<p class="muted small" role="status">Loading…</p>`;
  if (!turns.length) return html`<p class="muted small">No turns.</p>`;
  const bars = (values) => turns.map((turn, index) => ({ label: `Turn ${index + 1}`, values: values(turn) }));
  return html`<div class="turn-charts">
    <${BarChart} label="Tokens per turn" names=${["In", "Out"]} format=${formatCount} bars=${bars((turn) => [turn.input_tokens ?? 0, turn.output_tokens ?? 0])} />
    <${BarChart} label="Time per turn" names=${["Model", "Everything else"]} format=${formatDuration} bars=${bars((turn) => [turn.duration_api_ms ?? 0, Math.max(0, (turn.duration_ms ?? 0) - (turn.duration_api_ms ?? 0))])} />
  </div>`;
}
