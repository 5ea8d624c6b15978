/* Where the time of a turn went, and the files that a session has changed. */

import { changedFiles, sumTimeline } from "../review.js";
import { countChanges } from "../diff.js";
import { formatCount, formatDuration, shorten, visible } from "../text.js";
import { html, useState } from "../ui.js";
import { Dialog } from "./dialog.js";
import { Diff } from "./diff.js";

const KINDS = { model: "Model", tool: "Tools", agent: "Subagents", question: "Waiting for an answer", rest: "Everything else" };
const ONE = { model: "model", tool: "tool", agent: "subagent", question: "question" };

export function Timeline({ timeline, onJump, onClose }) {
  const length = timeline.until - timeline.from || 1;
  const sums = Object.entries(sumTimeline(timeline)).filter(([, seconds]) => seconds > 0);
  const place = (span) => ({
    insetInlineStart: `${(100 * (span.from - timeline.from)) / length}%`,
    width: `${Math.max(0.5, (100 * (span.until - span.from)) / length)}%`,
  });
  return html`<${Dialog} title="Where the time of this turn went" isWide onClose=${onClose}>
    <ul class="timeline-sums small">
      ${sums.map(([kind, seconds]) => html`<li key=${kind}><span class="swatch" data-span=${kind}></span>${KINDS[kind]} <strong>${formatDuration(1000 * seconds)}</strong></li>`)}
      <li>Whole turn <strong>${formatDuration(1000 * length)}</strong></li>
    </ul>
    <div class="table-frame" tabindex="0" role="region" aria-label="Steps of the turn"><table class="cost-table timeline">
      <thead><tr><th scope="col">Step</th><th scope="col">Time</th><th scope="col">Tokens in</th><th scope="col">Cached</th></tr></thead>
      <tbody>${timeline.spans.map((span, index) => {
        const tokens = readTokens(span);
        return html`<tr key=${index}>
          <th scope="row"><button class="link-button" onClick=${() => onJump(span.item)}><bdi>${shorten(span.name, 60)}</bdi></button> <span class="muted small">${ONE[span.kind]}</span>
            <span class="timeline-track" aria-hidden="true"><span data-span=${span.kind} style=${place(span)}></span></span></th>
          <td>${formatDuration(1000 * (span.until - span.from))}</td>
          ${tokens.map((count, column) => html`<td key=${column}>${count === null ? "" : formatCount(count)}</td>`)}
        </tr>`;
      })}</tbody>
    </table></div>
    <footer><button class="button" onClick=${onClose}>Close</button></footer>
  </${Dialog}>`;
}

function readTokens({ usage, item, kind }) {
  if (kind === "agent") return [item.task?.usage?.total_tokens ?? null, null];
  if (!usage) return [null, null];
  const { input_tokens: fresh = 0, cache_creation_input_tokens: written = 0, cache_read_input_tokens: read = 0 } = usage;
  return [fresh + written + read, read];
}

export function Changes({ conversation, isComplete, onJump }) {
  const [opened, setOpened] = useState(null);
  const files = changedFiles(conversation.items);
  if (!files.length) return null;
  return html`<section class="changes">
    <h2>Changed files <span class="count">${files.length}${isComplete ? "" : "+"}</span></h2>
    <ul>${files.map((file) => {
      const { added, removed } = countChanges(file.hunks);
      return html`<li key=${file.path}>
        <button class="link-button" onClick=${() => setOpened(file)}><bdi>${visible(file.path.split("/").at(-1))}</bdi></button>
        <span class="diff-count"><span class="added">+${added}</span> <span class="removed">−${removed}</span></span>
      </li>`;
    })}</ul>
    ${opened && html`<${Dialog} title="Changes of the session" isWide onClose=${() => setOpened(null)}>
      <${Diff} path=${opened.path} hunks=${opened.hunks} />
      <footer><button class="button" onClick=${() => (setOpened(null), onJump(opened.items.at(-1)))}>Show the last change</button><button class="button" onClick=${() => setOpened(null)}>Close</button></footer>
    </${Dialog}>`}
  </section>`;
}
