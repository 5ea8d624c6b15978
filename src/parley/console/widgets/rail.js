/* Beside a conversation: todos, agents and tasks, what fills the context, and a list of prompts to jump to. */

import { formatAge, formatCount, formatDuration, formatNumber, shorten, visible } from "../text.js";
import { html, useConsole, useEffect, useState } from "../ui.js";
import { Icon } from "./icon.js";
import { Guard } from "./items.js";
import { Changes } from "./review.js";
import { Todos } from "./todos.js";

export function Rail({ sessionId, conversation, isComplete, onJump, onClose }) {
  const tasks = conversation.rootTasks().filter((task) => task.isBackground || task.agent || task.status === "running");
  return html`<aside class="rail" aria-label="About this session">
    <button class="icon-button rail-close" aria-label="Close" onClick=${onClose}><${Icon} name="close" /></button>
    ${
      conversation.todos.length > 0 &&
      html`<section>
        <h2>Todos</h2>
        <${Todos} todos=${conversation.todos} />
      </section>`
    }
    ${
      tasks.length > 0 &&
      html`<section>
        <h2>Agents and tasks</h2>
        <${TaskTree} tasks=${tasks} conversation=${conversation} sessionId=${sessionId} onJump=${onJump} />
      </section>`
    }
    <${Guard} text="Changed files"><${Changes} conversation=${conversation} isComplete=${isComplete} onJump=${onJump} /></${Guard}>
    <${Context} sessionId=${sessionId} conversation=${conversation} />
    <${Requests} sessionId=${sessionId} conversation=${conversation} />
    <${JumpList} sessionId=${sessionId} conversation=${conversation} onJump=${onJump} />
  </aside>`;
}

export const STATUS = {
  __proto__: null,
  running: "running",
  completed: "done",
  failed: "failed",
  killed: "stopped",
  stopped: "stopped",
  pending: "waits",
};

function TaskTree({ tasks, conversation, sessionId, onJump }) {
  const { api, toasts, can } = useConsole();
  const childrenOf = (task) => [...conversation.tasks.values()].filter((each) => each.parentId === task.id);
  const stop = (task) => api.control(sessionId, { subtype: "stop_task", task_id: task.id }).catch(toasts.fail);
  const draw = (task) => {
    const children = childrenOf(task);
    const facts = [
      task.usage && formatNumber(task.usage.tool_uses, "call"),
      task.usage && formatNumber(task.usage.total_tokens, "token"),
      task.usage && formatDuration(task.usage.duration_ms),
    ].filter(Boolean);
    const item = conversation.tool(task.toolId);
    return html`<li key=${task.id} data-status=${STATUS[task.status] ? task.status : undefined}>
      <div class="task-row">
        <span
          class="dot"
          data-state=${task.status === "running" ? "running" : task.status === "failed" ? "failed" : "idle"}
          role="img"
          aria-label=${STATUS[task.status] ?? shorten(task.status, 30)}
        ></span>
        <button class="link-button" onClick=${() => item && onJump(item)} disabled=${!item}>
          <bdi>${shorten(task.description || task.id, 80)}</bdi>
        </button>
        ${task.status === "running" && can("prompt") && html`<button class="icon-button" aria-label="Stop the task" title="Stop" onClick=${() => stop(task)}><${Icon} name="stop" /></button>`}
      </div>
      <p class="muted small task-facts">
        ${[task.agent && shorten(task.agent, 30), STATUS[task.status] ?? shorten(task.status, 30), ...facts].filter(Boolean).join(" · ")}
      </p>
      ${task.status === "running" && task.activity && html`<p class="small task-activity ellipsis"><bdi>${shorten(task.activity, 100)}</bdi></p>`}
      ${
        children.length > 0 &&
        html`<ul>
          ${children.map(draw)}
        </ul>`
      }
    </li>`;
  };
  return html`<ul class="task-tree">
    ${tasks.map(draw)}
  </ul>`;
}

/* What fills the context window, as a stacked bar. */
function Context({ sessionId, conversation }) {
  const { api } = useConsole();
  const [usage, setUsage] = useState(null);
  const [problem, setProblem] = useState("");
  const [isOpen, setOpen] = useState(false);
  const turns = conversation.costUsd; /* it changes with every turn */
  useEffect(() => {
    if (!isOpen) return;
    setProblem("");
    api.control(sessionId, { subtype: "get_context_usage" }).then(setUsage, (error) => (setUsage(null), setProblem(error.message)));
  }, [isOpen, turns, conversation.state === "idle"]);
  return html`<section>
    <details onToggle=${(event) => setOpen(event.target.open)}>
      <summary><h2>Context window</h2></summary>
      ${usage ? html`<${ContextBar} usage=${usage} />` : html`<p class="muted small" role="status">${visible(problem) || "Asking the session…"}</p>`}
    </details>
  </section>`;
}

export function ContextBar({ usage }) {
  const used = (usage.categories ?? []).filter((each) => each.kind !== "free" && each.tokens > 0);
  const total = usage.maxTokens || used.reduce((sum, each) => sum + each.tokens, 0) || 1;
  return html`<div class="context">
    <div
      class="context-bar"
      role="img"
      aria-label=${`${Math.round((100 * usage.totalTokens) / total)} % of the context window is used`}
    >
      ${used.map((each, index) => html`<span key=${each.name} data-color=${index % 6} style=${{ flexBasis: `${Math.max(0.5, (100 * each.tokens) / total)}%` }}></span>`)}
    </div>
    <p class="small">${formatCount(usage.totalTokens)} of ${formatCount(total)} tokens</p>
    <ul class="context-legend">
      ${used.map((each, index) => html`<li key=${each.name}><span class="swatch" data-color=${index % 6}></span><span>${visible(each.name)}</span><span class="muted">${formatCount(each.tokens)}</span></li>`)}
    </ul>
  </div>`;
}

const SHOWN = 200;

/* What each request to a model read from the prompt cache, wrote to it and missed, and why; the newest first. */
function Requests({ sessionId, conversation }) {
  const { api } = useConsole();
  const [requests, setRequests] = useState(null);
  const [problem, setProblem] = useState("");
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    if (!isOpen) return;
    setProblem("");
    api.get(`/sessions/${encodeURIComponent(sessionId)}/requests`).then(setRequests, (error) => setProblem(error.message));
  }, [isOpen, conversation.costUsd, conversation.state === "idle"]);
  const rows = (requests ?? []).map((request, index) => ({ ...request, number: index + 1 })).slice(-SHOWN);
  return html`<section>
    <details onToggle=${(event) => setOpen(event.target.open)}>
      <summary><h2>Prompt cache</h2></summary>
      ${problem && html`<p class="small" role="alert">${visible(problem)}</p>`}
      ${!problem && !requests && html`<p class="muted small" role="status">Loading…</p>`}
      ${requests && !rows.length && html`<p class="muted small">No requests.</p>`}
      ${
        rows.length > 0 &&
        html`<table class="cost-table request-table" aria-label="Tokens of each request">
          <thead><tr><th scope="col">Read</th><th scope="col">Written</th><th scope="col">Fresh</th><th scope="col">Missed</th></tr></thead>
          ${rows.reverse().map(
            (request) =>
              html`<tbody key=${request.number}>
                <tr>
                  <th scope="rowgroup" colspan="4"><bdi>${`${request.number}. ${request.at.slice(11, 19)} · ${visible(request.model)}`}</bdi></th>
                </tr>
                <tr>
                  ${[request.read, request.written, request.fresh, request.missed].map((tokens) => html`<td>${formatCount(tokens)}</td>`)}
                </tr>
                ${request.reason && html`<tr><td colspan="4" class="muted">${visible(request.reason)}</td></tr>`}
              </tbody>`,
          )}
        </table>`
      }
    </details>
  </section>`;
}

function JumpList({ sessionId, conversation, onJump }) {
  const { api } = useConsole();
  const [prompts, setPrompts] = useState([]);
  const [query, setQuery] = useState("");
  const count = conversation.items.length && conversation.items.filter((item) => item.kind === "prompt").length;
  useEffect(() => {
    api.get(`/sessions/${encodeURIComponent(sessionId)}/index`).then(
      (found) => setPrompts(Array.isArray(found) ? found : (found.prompts ?? [])),
      () => {},
    );
  }, [sessionId, count]);
  const wanted = query.toLowerCase();
  const found = prompts.filter((prompt) => !wanted || prompt.text.toLowerCase().includes(wanted)).slice(-SHOWN);
  if (!prompts.length) return null;
  return html`<section class="jump">
    <h2>Prompts <span class="count">${prompts.length}</span></h2>
    ${prompts.length > 8 && html`<input type="search" aria-label="Search prompts" placeholder="Search prompts" value=${query} onInput=${(event) => setQuery(event.target.value)} />`}
    <ol class="jump-list">
      ${found.map(
        (prompt) =>
          html`<li key=${prompt.number}>
            <button class="link-button" onClick=${() => onJump(prompt)}>
              <bdi>${shorten(prompt.text || "Image", 100)}</bdi
              ><span class="muted small">${formatAge(prompt.time, api.now() / 1000)}</span>
            </button>
          </li>`,
      )}
    </ol>
  </section>`;
}
