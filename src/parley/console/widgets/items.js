/* The items of a conversation (session.js) as rows. */

import { formatCount, formatDuration, formatUsd, shorten, visible } from "../text.js";
import { Component, html, memo, useRefresh } from "../ui.js";
import { Icon } from "./icon.js";
import { Markdown } from "./markdown.js";
import { Menu } from "./menu.js";
import { Picture } from "./picture.js";
import { Plain } from "./plain.js";
import { ToolCard } from "./tool-card.js";

const folds = new WeakMap();

/* `actions(item)` returns the entries of a row's menu. */
export const Item = memo(
  ({ item, mark, actions }) => {
    const draw = (child) => html`<${Item} item=${child} rev=${child.rev} actions=${() => []} />`;
    const Shown = ITEMS[item.kind];
    const entries = actions(item);
    return html`<div class=${mark ? "item marked" : "item"} data-kind=${item.kind}>
      <${Guard} text=${item.text ?? item.name ?? item.kind}><${Shown} item=${item} draw=${draw} /></${Guard}>
      ${entries.length > 0 && html`<${Menu} label="Actions of this message" entries=${entries} />`}
    </div>`;
  },
  (before, after) => before.item === after.item && before.rev === after.rev && before.mark === after.mark,
);

/* What cannot be drawn must not take the page with it. */
export class Guard extends Component {
  componentDidCatch(error) {
    this.setState({ error });
  }
  render({ text, children }, { error }) {
    if (!error) return children;
    return html`<div class="notice" data-level="error">
      <div class="notice-body">
        <p class="notice-title">This entry cannot be shown (${error.message})</p>
        <pre tabindex="0"><${Plain} text=${text} /></pre>
      </div>
    </div>`;
  }
}

function Prompt({ item }) {
  const state = { pending: "sending…", cancelled: "cancelled" }[item.state];
  return html`<div class=${item.isToAgent ? "prompt to-agent" : "prompt"} data-state=${item.state}>
    <h2 class="visually-hidden">${item.isToAgent ? "Prompt of the agent" : "Prompt"}</h2>
    ${item.images.map((block, index) => html`<${Picture} key=${index} source=${block.source} label="Attached image" />`)}
    <${FoldedText} item=${item} />
    ${state && html`<p class="muted small">${state}</p>`}
  </div>`;
}

const PROMPT_CHARS = 3000;

/* A prompt is shown as it was typed. */
function FoldedText({ item }) {
  const refresh = useRefresh();
  const isOpen = folds.get(item) ?? false;
  const isLong = item.text.length > PROMPT_CHARS + 500;
  const toggle = () => {
    folds.set(item, !isOpen);
    refresh();
  };
  return html`<div class="prompt-text" dir="auto">
      <${Plain} text=${isLong && !isOpen ? item.text.slice(0, PROMPT_CHARS) : item.text} />
    </div>
    ${isLong && html`<button class="fold-button" aria-expanded=${String(isOpen)} onClick=${toggle}>${isOpen ? "Show less" : `Show all ${formatCount(item.text.length)} characters`}</button>`}`;
}

function Text({ item }) {
  return html`<div class="answer">
    <${Markdown}
      text=${item.text}
      isStreaming=${item.isStreaming}
    />${item.isCut && html`<p class="muted small">interrupted</p>`}
  </div>`;
}

function Thinking({ item }) {
  const refresh = useRefresh();
  const isOpen = folds.get(item) ?? false;
  const toggle = () => {
    folds.set(item, !isOpen);
    refresh();
  };
  const preview = item.isStreaming ? shorten(item.text.slice(-160), 120) : shorten(item.text.slice(0, 240), 120);
  return html`<div class="thinking">
    <button class="thinking-head" aria-expanded=${String(isOpen)} onClick=${toggle}>
      <${Icon} name="think" /><span
        >${item.isStreaming ? "Thinking" : item.durationMs ? `Thought for ${formatDuration(item.durationMs)}` : "Thought"}</span
      >
      ${!isOpen && html`<span class="thinking-preview ellipsis"><bdi>${preview}</bdi></span>`}
      <span class="fold" aria-hidden="true"><${Icon} name="chevron" /></span>
    </button>
    ${isOpen && html`<div class="thinking-text">${item.text ? html`<${Markdown} text=${item.text} isStreaming=${item.isStreaming} />` : html`<p class="muted small">The model did not show what it thought.</p>`}</div>`}
  </div>`;
}

const LONG_NOTICE = 400;

function Notice({ item }) {
  const text = String(item.text ?? "");
  const icon = item.level === "error" || item.level === "warning" ? "warning" : "info";
  const body = item.isOutput
    ? html`<${Markdown} text=${text} />`
    : html`<p class="notice-text"><${Plain} text=${text} /></p>`;
  const isFolded = item.level === "quiet" || (text.length > LONG_NOTICE && item.level !== "error");
  return html`<div
    class="notice"
    data-level=${item.level}
    role=${item.level === "error" ? "group" : undefined}
    aria-label=${item.level === "error" ? "Error" : undefined}
  >
    <${Icon} name=${icon} />
    <div class="notice-body">
      ${
        isFolded
          ? html`<details>
              <summary>${shorten(item.title ?? text, 100)}</summary>
              ${body}
            </details>`
          : html`${item.title && html`<p class="notice-title">${visible(item.title)}</p>`}${text && body}`
      }
    </div>
  </div>`;
}

const MARKS = {
  compaction: "The conversation so far was replaced by a summary",
  reset: "A new conversation starts here",
  interruption: "Interrupted",
};

function Mark({ item }) {
  const { trigger, pre_tokens: before, post_tokens: after } = item.details ?? {};
  const facts = [
    trigger && shorten(trigger === "auto" ? "automatic" : trigger, 30),
    before && after && `${formatCount(before)} → ${formatCount(after)} tokens`,
  ].filter(Boolean);
  return html`<div class="mark-line" data-mark=${item.mark}>
    <span>${MARKS[item.mark]}${facts.length ? html` <span class="muted">${facts.join(" · ")}</span>` : ""}</span>
  </div>`;
}

const REASONS = {
  __proto__: null,
  error_max_turns: "The limit of turns was reached",
  error_max_budget_usd: "The budget was used up",
  error_during_execution: "The turn was stopped",
};

function Result({ item }) {
  const usage = item.usage ?? {};
  const tokens =
    (usage.input_tokens ?? 0) + (usage.cache_read_input_tokens ?? 0) + (usage.cache_creation_input_tokens ?? 0);
  const facts = [
    item.costUsd ? formatUsd(item.costUsd) : null,
    item.durationMs !== null && formatDuration(item.durationMs),
    tokens && `${formatCount(tokens)} in, ${formatCount(usage.output_tokens ?? 0)} out`,
    usage.cache_read_input_tokens && `${formatCount(usage.cache_read_input_tokens)} of them from the cache`,
  ].filter(Boolean);
  if (!item.isError) return html`<div class="result"><span>${facts.join(" · ")}</span></div>`;
  const isInterrupted = /^aborted/.test(item.reason ?? "");
  return html`<div
    class=${isInterrupted ? "result" : "result failure"}
    role=${isInterrupted ? undefined : "group"}
    aria-label=${isInterrupted ? undefined : "Error"}
  >
    ${
      isInterrupted
        ? html`<span>Interrupted${facts.length ? ` · ${facts.join(" · ")}` : ""}</span>`
        : html`<p class="notice-title"><${Icon} name="warning" /> ${REASONS[item.outcome] ?? "The turn failed"}</p>
            ${item.errors.map((text, index) => html`<pre key=${index} tabindex="0"><${Plain} text=${text} /></pre>`)}
            ${facts.length > 0 && html`<p class="muted small">${facts.join(" · ")}</p>`}`
    }
  </div>`;
}

function Unknown({ item }) {
  return html`<details class="unknown">
    <summary>A message that this page does not know: <code>${shorten(item.name, 60)}</code></summary>
    <pre tabindex="0"><${Plain} text=${JSON.stringify(item.line, null, 2).slice(0, 20000)} /></pre>
  </details>`;
}

const ITEMS = {
  prompt: Prompt,
  text: Text,
  thinking: Thinking,
  tool: ToolCard,
  notice: Notice,
  mark: Mark,
  result: Result,
  unknown: Unknown,
};

/* A guess at the height of a row that was not drawn yet. */
export function estimateHeight(item) {
  if (item.kind === "text") return 40 + Math.ceil(item.text.length / 90) * 24;
  if (item.kind === "prompt") return 70 + Math.ceil(Math.min(item.text.length, PROMPT_CHARS) / 80) * 23;
  if (item.kind === "tool") return 120;
  return 48;
}
