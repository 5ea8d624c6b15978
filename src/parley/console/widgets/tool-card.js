/* A tool call: what was called, how it goes, and what came out, in the form that fits the tool. */

import { languageOf } from "../highlight.js";
import { formatDuration, formatNumber, shorten, stripAnsi, visible } from "../text.js";
import { html, useRefresh, useState } from "../ui.js";
import { safeHref } from "../markdown.js";
import { editHunks } from "../review.js";
import { Diff } from "./diff.js";
import { Icon } from "./icon.js";
import { CodeBlock, CopyButton, Markdown } from "./markdown.js";
import { Plain } from "./plain.js";
import { Picture } from "./picture.js";
import { Todos } from "./todos.js";

/* What is unfolded survives the row leaving the viewport. */
const folds = new WeakMap();

export function ToolCard({ item, draw }) {
  const refresh = useRefresh();
  const shape = SHAPES[item.name] ?? (item.name.startsWith("mcp__") ? MCP : OTHER);
  const isOpen = folds.get(item) ?? isOpenAtFirst(item, shape);
  const toggle = () => {
    folds.set(item, !isOpen);
    refresh();
  };
  const state = stateOf(item);
  const summary = shape.summary(item.input ?? {}, item);
  return html`<section class="tool" data-state=${state} data-tool=${SHAPES[item.name] ? item.name : undefined}>
    <button class="tool-head" aria-expanded=${String(isOpen)} onClick=${toggle}>
      <span class="tool-icon"><${Icon} name=${shape.icon} /></span>
      <span class="tool-name">${shape.title ? shape.title(item) : shorten(item.name, 60)}</span>
      <span class=${shape.isCode ? "tool-summary code" : "tool-summary"}
        ><bdi>${shorten(summary ?? "", 300)}</bdi></span
      >
      <${ToolState} item=${item} state=${state} />
      <span class="fold" aria-hidden="true"><${Icon} name="chevron" /></span>
    </button>
    ${isOpen && html`<div class="tool-body"><${Body} item=${item} shape=${shape} draw=${draw} /></div>`}
  </section>`;
}

export function stateOf(item) {
  if (item.result) return item.result.isError ? "failed" : item.task?.status === "running" ? "running" : "done";
  if (item.isStreaming) return "writing";
  if (item.isWaiting) return "waiting";
  if (item.isQueued) return "queued";
  return item.isCut ? "cut" : "running";
}

function isOpenAtFirst(item, shape) {
  if (item.isWaiting) return false; /* the question shows it */
  return shape.isOpen || Boolean(item.result?.isError);
}

const LABELS = {
  writing: "being written",
  waiting: "waits for you",
  queued: "queued",
  cut: "interrupted",
  running: "running",
  done: "done",
  failed: "failed",
};

function ToolState({ item, state }) {
  const seconds = item.elapsedSeconds;
  const text = state === "done" ? "" : state === "running" && seconds ? formatDuration(seconds * 1000) : LABELS[state];
  return html`<span class="tool-state" data-state=${state}>
    ${item.decision && html`<span class="decision" title=${`${item.decision.behavior ?? "answered"} by ${visible(item.decision.by)}`}>${item.decision.behavior === "deny" ? "denied" : "allowed"} by ${shorten(item.decision.by, 24)}</span>`}
    ${text}${state === "running" || state === "writing" ? html`<span class="spinner" aria-hidden="true"></span>` : ""}
    ${state === "done" ? html`<span class="visually-hidden">done</span><${Icon} name="check" />` : state === "failed" ? html`<${Icon} name="close" />` : ""}
  </span>`;
}

function Body({ item, shape, draw }) {
  const { result } = item;
  const input = item.input ?? {};
  const children = item.children.filter((child) => child.kind !== "prompt" || child.text !== input.prompt);
  return html`
    ${shape.before?.(input, item)}
    ${children.length > 0 && html`<div class="tool-children">${children.map((child) => html`<div key=${child.key} class="child" data-kind=${child.kind}>${draw(child)}</div>`)}</div>`}
    ${item.task && html`<${TaskLine} task=${item.task} />`}
    ${result && (result.isError ? html`<${ErrorText} content=${result.content} />` : (shape.after?.(result, input, item) ?? html`<${Output} content=${result.content} />`))}
    ${!result && item.partialInput && html`<${Output} content=${item.partialInput} />`}
  `;
}

function TaskLine({ task }) {
  if (!task.usage && !task.activity) return null;
  const facts = [
    task.usage && formatNumber(task.usage.tool_uses, "call"),
    task.usage && formatNumber(task.usage.total_tokens, "token"),
    task.usage && formatDuration(task.usage.duration_ms),
  ];
  return html`<p class="task-line muted small">
    ${task.agent ? html`<bdi>${shorten(task.agent, 40)}</bdi> · ` : ""}${shorten(task.status, 30)}${facts.filter(Boolean).map((fact) => ` · ${fact}`)}${task.status === "running" && task.activity ? html` · <bdi>${shorten(task.activity, 120)}</bdi>` : ""}
  </p>`;
}

/* The parts of a result. */

export function textOf(content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return content ? JSON.stringify(content, null, 2) : "";
  return content
    .map((block) => (block?.type === "text" ? block.text : ""))
    .filter(Boolean)
    .join("\n");
}

function imagesOf(content) {
  return Array.isArray(content) ? content.filter((block) => block?.type === "image") : [];
}

function ErrorText({ content }) {
  const text = textOf(content).replace(/^<tool_use_error>([\s\S]*)<\/tool_use_error>$/, "$1");
  return html`<div class="tool-error"><${Output} content=${text} label="Error" /></div>`;
}

const FOLDED_LINES = 14;

export function Output({ content, label = "Output" }) {
  const [isOpen, setOpen] = useState(false);
  const text = stripAnsi(textOf(content)).replace(/\s+$/, "");
  const images = imagesOf(content);
  const lines = text.split("\n");
  const isLong = lines.length > FOLDED_LINES + 4 || text.length > 6000;
  const shown = isLong && !isOpen ? lines.slice(0, FOLDED_LINES).join("\n").slice(0, 6000) : text;
  return html`
    ${images.map((block, index) => html`<${Picture} key=${index} source=${block.source} />`)}
    ${
      text &&
      html`<div class="output">
        <pre tabindex="0" aria-label=${label}><${Plain} text=${shown} /></pre>
        <${CopyButton} text=${text} label="Copy output" />
        ${isLong && html`<button class="fold-button" aria-expanded=${String(isOpen)} onClick=${() => setOpen(!isOpen)}>${isOpen ? "Show less" : `Show all ${lines.length} lines`}</button>`}
      </div>`
    }
    ${!text && !images.length && html`<p class="muted small">No output</p>`}
  `;
}

function EditBody({ input, result }) {
  return html`<${Diff} path=${result?.details?.filePath ?? input.file_path ?? ""} hunks=${editHunks(result, input)} />`;
}

function Hits({ result, input }) {
  const { details } = result;
  if (!details) return null;
  const files = Array.isArray(details.filenames) ? details.filenames : [];
  if (details.mode === "content" || details.mode === "count")
    return html`<${SearchLines} text=${details.content ?? ""} pattern=${input.pattern} />`;
  if (!files.length) return html`<p class="muted small">Nothing was found</p>`;
  return html`<ul class="hits">
      ${files.slice(0, 200).map(
        (file) =>
          html`<li key=${file}>
            <bdi><${Plain} text=${file} /></bdi>
          </li>`,
      )}
    </ul>
    ${files.length > 200 && html`<p class="muted small">and ${files.length - 200} more</p>`}`;
}

/* Lines of a search, by file: `path:number:text`. */
function SearchLines({ text, pattern }) {
  const groups = new Map();
  for (const line of String(text).split("\n").slice(0, 400)) {
    const found = /^(.*?)[:-](\d+)[:-](.*)$/.exec(line);
    const [path, number, rest] = found ? [found[1], found[2], found[3]] : ["", "", line];
    if (!groups.has(path)) groups.set(path, []);
    groups.get(path).push([number, rest]);
  }
  const matcher = makeMatcher(pattern);
  return html`<div class="hit-groups">
    ${[...groups].map(
      ([path, lines]) =>
        html`<div key=${path}>
          ${
            path &&
            html`<p class="hit-file">
              <bdi><${Plain} text=${path} /></bdi>
            </p>`
          }
          <pre tabindex="0">
${lines.map(([number, rest]) => html`<span class="hit-line"><span class="number">${number}</span>${markHits(rest, matcher)}${"\n"}</span>`)}</pre>
        </div>`,
    )}
  </div>`;
}

function makeMatcher(pattern) {
  if (typeof pattern !== "string" || !/^[\w .,:;=/-]{1,100}$/.test(pattern)) return null;
  return new RegExp(`(${pattern.replace(/[.]/g, "\\.")})`, "gi");
}

function markHits(text, matcher) {
  if (!matcher) return html`<${Plain} text=${text} />`;
  return text
    .split(matcher)
    .map((part, index) => (index % 2 ? html`<mark><${Plain} text=${part} /></mark>` : html`<${Plain} text=${part} />`));
}

function WebHits({ result }) {
  const results = Array.isArray(result.details?.results) ? result.details.results : [];
  const pages = results.flatMap((each) => (Array.isArray(each?.content) ? each.content : []));
  if (!pages.length) return null;
  return html`<ul class="hits">
    ${pages.slice(0, 50).map(({ title, url }) => {
      const href = safeHref(url);
      return html`<li>
        ${href ? html`<a href=${href} target="_blank" rel="noopener noreferrer nofollow">${visible(title || href)}</a>` : visible(title)}
        <span class="muted small"><bdi>${visible(url)}</bdi></span>
      </li>`;
    })}
  </ul>`;
}

function FileText({ result, input }) {
  const file = result.details?.file;
  if (file?.base64) return html`<${Picture} source=${{ type: "base64", media_type: file.type, data: file.base64 }} />`;
  if (typeof file?.content !== "string") return null;
  return html`<${CodeBlock}
    language=${languageOf(input.file_path)}
    text=${file.content.replace(/\n$/, "")}
    label=${`${file.startLine ?? 1}–${(file.startLine ?? 1) + (file.numLines ?? 1) - 1} of ${file.totalLines ?? "?"}`}
  />`;
}

function BashOutput({ result }) {
  const { details } = result;
  if (!details || typeof details.stdout !== "string") return null;
  const text = [details.stdout, details.stderr].filter(Boolean).join("\n");
  if (imagesOf(result.content).length) return html`<${Output} content=${result.content} />`;
  return html`<${Output} content=${text || (details.backgroundTaskId ? "Runs in the background" : "")} />`;
}

function Answers({ result }) {
  const answers = result.details?.answers;
  if (!answers || typeof answers !== "object") return null;
  return html`<dl class="answers">
    ${Object.entries(answers).map(
      ([question, answer]) =>
        html`<dt><${Plain} text=${question} /></dt>
          <dd><${Plain} text=${String(answer)} /></dd>`,
    )}
  </dl>`;
}

function Arguments({ input }) {
  const entries = Object.entries(input ?? {});
  if (!entries.length) return null;
  return html`<dl class="arguments">
    ${entries.map(
      ([name, value]) =>
        html`<dt><${Plain} text=${name} /></dt>
          <dd>
            <pre
              tabindex="0"
            ><${Plain} text=${typeof value === "string" ? value : JSON.stringify(value, null, 2)} /></pre>
          </dd>`,
    )}
  </dl>`;
}

/* What is true of each tool: its icon, its summary in one line, and how its input and result look. */

const EDIT = {
  icon: "pencil",
  isOpen: true,
  isCode: true,
  summary: (input) => input.file_path,
  before: (input, item) =>
    item.result || Object.keys(input).length ? html`<${EditBody} input=${input} result=${item.result} />` : null,
  after: () => "",
};
const AGENT = {
  icon: "agent",
  isOpen: true,
  title: (item) => `Agent ${shorten(item.input.subagent_type ?? "", 40)}`,
  summary: (input) => input.description,
  before: (input) =>
    html`<details class="agent-prompt">
      <summary>Prompt</summary>
      <${Markdown} text=${String(input.prompt ?? "")} />
    </details>`,
  after: (result) => html`<${Markdown} text=${textOf(result.details?.content ?? result.content)} />`,
};
const QUIET = { icon: "todo", summary: (input) => input.subject ?? input.taskId };
const OTHER = {
  icon: "tool",
  summary: (input) => Object.values(input).find((value) => typeof value === "string"),
  before: (input) => html`<${Arguments} input=${input} />`,
};
const MCP = { ...OTHER, title: (item) => shorten(item.name.split("__").slice(1).join(" · "), 60) };

const SHAPES = {
  __proto__: null /* names of tools are words of others */,
  Bash: {
    icon: "terminal",
    isOpen: true,
    isCode: true,
    summary: (input) => input.description ?? input.command,
    before: (input) =>
      html`<${CodeBlock}
        language="bash"
        text=${String(input.command ?? "")}
        label=${input.run_in_background ? "in the background" : "command"}
        isWrapped
      />`,
    after: (result) =>
      result.details && typeof result.details.stdout === "string" ? html`<${BashOutput} result=${result} />` : null,
  },
  Edit: EDIT,
  MultiEdit: EDIT,
  Write: EDIT,
  NotebookEdit: {
    ...EDIT,
    summary: (input) => input.notebook_path,
    before: (input, { result }) =>
      html`<${Diff}
        path=${input.notebook_path ?? ""}
        hunks=${toHunks(diffLines(result?.details?.old_source ?? "", String(input.new_source ?? "")))}
      />`,
  },
  Read: {
    icon: "file",
    isCode: true,
    summary: (input) => input.file_path,
    after: (result, input) => (result.details?.file ? html`<${FileText} result=${result} input=${input} />` : null),
  },
  Grep: {
    icon: "search",
    isCode: true,
    summary: (input) => [input.pattern, input.path ?? input.glob].filter(Boolean).join("  in "),
    after: (result, input) => (result.details ? html`<${Hits} result=${result} input=${input} />` : null),
  },
  Glob: {
    icon: "search",
    isCode: true,
    summary: (input) => input.pattern,
    after: (result, input) => (result.details ? html`<${Hits} result=${result} input=${input} />` : null),
  },
  WebSearch: {
    icon: "globe",
    summary: (input) => input.query,
    after: (result) => (result.details ? html`<${WebHits} result=${result} />` : null),
  },
  WebFetch: {
    icon: "globe",
    summary: (input) => input.url,
    after: (result) => html`<${Markdown} text=${textOf(result.details?.result ?? result.content)} />`,
  },
  TodoWrite: {
    icon: "todo",
    title: () => "Todos",
    isOpen: true,
    summary: (input) => todoSummary(input.todos),
    before: (input) => html`<${Todos} todos=${Array.isArray(input.todos) ? input.todos : []} />`,
    after: () => "",
  },
  TaskCreate: QUIET,
  TaskUpdate: QUIET,
  TaskList: QUIET,
  TaskGet: QUIET,
  Task: AGENT,
  Agent: AGENT,
  ExitPlanMode: {
    icon: "plan",
    title: () => "Plan",
    isOpen: true,
    summary: () => "",
    before: (input) => html`<${Markdown} text=${String(input.plan ?? "")} />`,
    after: () => "",
  },
  AskUserQuestion: {
    icon: "question",
    title: () => "Question",
    isOpen: true,
    summary: (input) => (Array.isArray(input.questions) ? input.questions[0]?.question : ""),
    after: (result) => (result.details?.answers ? html`<${Answers} result=${result} />` : null),
  },
};

function todoSummary(todos) {
  if (!Array.isArray(todos)) return "";
  return `${todos.filter((todo) => todo?.status === "completed").length} of ${todos.length} done`;
}
