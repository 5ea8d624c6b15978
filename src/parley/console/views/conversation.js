/* One session: what was said and done, the questions that wait, and the box for the next prompt. */

import { link } from "../router.js";
import { timelineOf, toDocument } from "../review.js";
import { nameOf } from "../stores.js";
import { SessionConnection } from "../session.js";
import { formatUsd, shorten, visible } from "../text.js";
import { html, useConsole, useEffect, useRef, useRefresh, useState, useStore } from "../ui.js";
import { Dialog } from "../widgets/dialog.js";
import { Icon } from "../widgets/icon.js";
import { estimateHeight, Item } from "../widgets/items.js";
import { Menu } from "../widgets/menu.js";
import { PromptBox } from "../widgets/prompt-box.js";
import { QuestionCard } from "../widgets/question-card.js";
import { Rail } from "../widgets/rail.js";
import { Timeline } from "../widgets/review.js";
import { Rewind } from "../widgets/rewind.js";
import { StatePill } from "../widgets/state.js";
import { VirtualList } from "../widgets/virtual-list.js";
import { shortPath } from "./sessions.js";

/* The connection of a session while it is shown. */
export function useSession(id) {
  const { api, health } = useConsole();
  const refresh = useRefresh();
  const [connection, setConnection] = useState(null);
  useEffect(() => {
    const made = new SessionConnection({
      api,
      id,
      onChange: refresh,
      onStatus: ({ status, error }) => {
        const retry = () => made.retryNow();
        health.set(`session ${id}`, status === "lost" ? { text: error?.message ?? "", retry } : null);
        refresh();
      },
    });
    setConnection(made);
    made.start();
    const onVisible = () => document.hidden || made.retryNow();
    document.addEventListener("visibilitychange", onVisible);
    addEventListener("online", onVisible);
    return () => {
      document.removeEventListener("visibilitychange", onVisible);
      removeEventListener("online", onVisible);
      made.stop();
      health.set(`session ${id}`, null);
    };
  }, [id]);
  return connection;
}

export function View({ id, uuid }) {
  const connection = useSession(id);
  if (!connection) return null;
  if (connection.status === "ended") return html`<${Ended} error=${connection.error} />`;
  return html`<${Conversation} id=${id} uuid=${uuid} connection=${connection} />`;
}

export function Ended({ error }) {
  const isGone = error?.status === 404;
  return html`<div class="empty" role="alert">
    <h1>${isGone ? "This session does not exist" : "This session cannot be shown"}</h1>
    <p>${isGone ? "It was deleted, or your token cannot see it." : visible(error?.message)}</p>
    <p><a class="button" href=${link.sessions()}>Show all sessions</a></p>
  </div>`;
}

function Conversation({ id, uuid, connection }) {
  const { api, can, questions, sessions, toasts } = useConsole();
  useStore(questions);
  useStore(sessions);
  const refresh = useRefresh();
  const list = useRef(null);
  const [isFollowing, setFollowing] = useState(true);
  const [isRailOpen, setRailOpen] = useState(false);
  const [marked, setMarked] = useState(null);
  const [dialog, setDialog] = useState(null);
  const [info, setInfo] = useState(null);
  const { conversation } = connection;
  const shown = sessions.get(id) ?? info;
  const open = questions.ofSession(id);

  useEffect(() => {
    api.get(`/sessions/${encodeURIComponent(id)}`).then(setInfo, () => {});
  }, [id]);

  const jump = async (target) => {
    const item = target.kind ? rootOf(target) : await connection.loadUntil(target.uuid);
    if (!item) return toasts.show("This message is not in the session.", { level: "error" });
    const root = rootOf(item);
    setMarked(root.key);
    setRailOpen(false);
    refresh();
    requestAnimationFrame(() => requestAnimationFrame(() => list.current?.scrollTo(root.key)));
  };

  /* A permalink, once the first lines are there. */
  const isLoaded = connection.status !== "loading";
  useEffect(() => {
    if (uuid && isLoaded) jump({ uuid });
  }, [uuid, isLoaded]);

  const actions = (item) => {
    if (item.kind === "result") {
      const timeline = timelineOf(conversation.items, item);
      const run = () => setDialog({ kind: "timeline", timeline });
      return timeline ? [{ label: "Where the time went", icon: "clock", run }] : [];
    }
    if (!item.uuid || (item.kind !== "prompt" && item.kind !== "text")) return [];
    const entries = [
      { label: "Copy link", icon: "link", run: () => copyLink(id, item.uuid, toasts) },
      { label: "Copy text", icon: "copy", run: () => navigator.clipboard.writeText(item.text) },
    ];
    if (can("create")) entries.push({ label: "Fork from here", icon: "fork", run: () => fork(item.uuid) });
    if (item.kind === "prompt" && can("prompt"))
      entries.push({
        label: "Rewind files to here",
        icon: "rewind",
        run: () => setDialog({ kind: "rewind", uuid: item.uuid }),
      });
    return entries;
  };

  const fork = async (from) => {
    try {
      const { session_id: forked } = await api.post(`/sessions/${encodeURIComponent(id)}/fork`, {
        uuid: from,
        title: `${nameOf(shown ?? {})} (fork)`,
      });
      toasts.show("The session was forked.", {
        action: { label: "Compare", run: () => (location.hash = link.compare(id, forked)) },
      });
      location.hash = link.session(forked);
    } catch (error) {
      toasts.fail(error);
    }
  };

  const remove = async () => {
    try {
      await api.delete(`/sessions/${encodeURIComponent(id)}`);
      location.hash = link.sessions();
      toasts.show("The session was deleted. Its transcript stays on the server.");
    } catch (error) {
      toasts.fail(error);
    }
  };

  const take = () => api.post(`/sessions/${encodeURIComponent(id)}/take`).catch(toasts.fail);
  const giveBack = async () => {
    try {
      await api.post(`/sessions/${encodeURIComponent(id)}/release`);
      toasts.show(`Another program can continue it: parley --resume ${id}`);
    } catch (error) {
      toasts.fail(error);
    }
  };

  const menu = [
    ...(can("approve") ? [{ label: "Wire view", icon: "wire", run: () => (location.hash = link.wire(id)) }] : []),
    ...(can("create") ? [{ label: "Fork the session", icon: "fork", run: () => fork(null) }] : []),
    { label: "Compare with…", icon: "columns", run: () => setDialog({ kind: "compare" }) },
    { label: "Export as Markdown", icon: "file", run: () => exportDocument(nameOf(shown ?? {}), connection).catch(toasts.fail) },
    ...(can("prompt") && shown?.is_loaded ? [{ label: "Give back", icon: "exit", run: () => giveBack() }] : []),
    ...(can("create")
      ? [{ label: "Delete", icon: "trash", isDanger: true, run: () => setDialog({ kind: "delete" }) }]
      : []),
  ];

  const waiting = new Set(open.map((question) => question.request.tool_use_id));
  const firstWaiting = conversation.items.findIndex((item) => waiting.has(item.id));
  const state = shown?.is_elsewhere
    ? "elsewhere"
    : open.length
    ? "requires_action"
    : conversation.state === "requires_action"
      ? "running"
      : conversation.state === "idle" && shown?.state === "failed"
        ? "failed"
        : conversation.state;
  const draw = (item) => {
    if (item.kind === "tool") markWaiting(item, waiting, firstWaiting >= 0 && conversation.items.indexOf(item) > firstWaiting);
    return html`<${Item} item=${item} rev=${item.rev} mark=${marked === item.key} actions=${actions} />`;
  };
  return html`<div class=${isRailOpen ? "conversation rail-open" : "conversation"}>
    <header class="conversation-head">
      <a class="icon-button back" href=${link.sessions()} aria-label="All sessions"><${Icon} name="back" /></a>
      <div class="conversation-title">
        <h1 class="ellipsis"><bdi>${nameOf(shown ?? {})}</bdi></h1>
        <p class="muted small ellipsis">
          <bdi>${shortPath(conversation.cwd ?? shown?.cwd ?? "")}</bdi
          >${conversation.model ? ` · ${shorten(conversation.model, 40)}` : ""}${conversation.costUsd ? ` · ${formatUsd(conversation.costUsd)}` : ""}
        </p>
      </div>
      <${StatePill} state=${state} />
      <button
        class="icon-button rail-button"
        aria-label="About this session"
        aria-expanded=${String(isRailOpen)}
        onClick=${() => setRailOpen(!isRailOpen)}
      >
        <${Icon} name="panel" />
      </button>
      <${Menu} label="Session" entries=${menu} />
    </header>
    <div class="conversation-main">
      <div class="conversation-scroll">
        ${connection.status === "loading" && !conversation.items.length && html`<div class="boot" role="status">Loading…</div>`}
        ${
          isLoaded &&
          !conversation.items.length &&
          html`<div class="empty">
            <h2>Nothing was said yet</h2>
            <p>Write the first prompt below.</p>
          </div>`
        }
        <${VirtualList}
          items=${conversation.items}
          estimate=${estimateHeight}
          draw=${draw}
          label="Conversation"
          head=${conversation.items.length > 0 && (connection.isComplete ? "Start of the session" : "Loading older messages…")}
          handle=${list}
          onNearStart=${() => connection.loadOlder().catch(() => {})}
          onFollow=${setFollowing}
        />
        ${!isFollowing && html`<button class="button to-end" onClick=${() => list.current.toEnd()}><${Icon} name="down" />Newest</button>`}
      </div>
      <${Activity} conversation=${conversation} isWaiting=${open.length > 0} />
      ${open.length > 0 && html`<${Approvals} questions=${open} />`}
      ${
        shown?.is_elsewhere
          ? html`<div class="elsewhere" role="region" aria-label="Prompt">
              <p>Another program runs this session. You see what it does.</p>
              ${can("prompt") && html`<button class="button" onClick=${() => setDialog({ kind: "take" })}>Take over</button>`}
            </div>`
          : html`<${PromptBox}
              sessionId=${id}
              conversation=${conversation}
              onChange=${refresh}
              isConnected=${connection.status === "live"}
            />`
      }
    </div>
    <${Rail} sessionId=${id} conversation=${conversation} isComplete=${connection.isComplete} onJump=${jump} onClose=${() => setRailOpen(false)} />
    ${dialog?.kind === "rewind" && html`<${Rewind} sessionId=${id} uuid=${dialog.uuid} onClose=${() => setDialog(null)} />`}
    ${dialog?.kind === "timeline" && html`<${Timeline} ...${dialog} onJump=${(item) => (setDialog(null), jump(item))} onClose=${() => setDialog(null)} />`}
    ${dialog?.kind === "take" && html`<${Dialog} title="Take this session over?" onClose=${() => setDialog(null)}><p>It runs here from now on. The other program can no longer continue it, and a turn that it runs now is cut.</p><footer><button class="button" onClick=${() => setDialog(null)}>Cancel</button><button class="button primary" onClick=${() => (setDialog(null), take())}>Take over</button></footer></${Dialog}>`}
    ${dialog?.kind === "compare" && html`<${ChooseSession} except=${id} onClose=${() => setDialog(null)} onChoose=${(other) => (location.hash = link.compare(id, other))} />`}
    ${dialog?.kind === "delete" && html`<${Dialog} title="Delete this session?" onClose=${() => setDialog(null)}><p>It stops, and leaves the list of everybody. Its transcript stays on the server.</p><footer><button class="button" onClick=${() => setDialog(null)}>Keep</button><button class="button danger" onClick=${remove}>Delete</button></footer></${Dialog}>`}
  </div>`;
}

function rootOf(item) {
  let root = item;
  while (root.parent) root = root.parent;
  return root;
}

/* Calls after one that waits for an answer have not started, unless they report how long they run. */
function markWaiting(item, waiting, isAfter = false) {
  const isWaiting = waiting.has(item.id);
  const isQueued = isAfter && !isWaiting && !item.elapsedSeconds && !item.task;
  if (Boolean(item.isWaiting) !== isWaiting || Boolean(item.isQueued) !== isQueued) {
    Object.assign(item, { isWaiting, isQueued });
    item.rev++;
  }
  for (const child of item.children) {
    if (child.kind !== "tool") continue;
    const before = child.rev;
    markWaiting(child, waiting);
    if (child.rev !== before) item.rev++;
  }
}

/* Download the whole conversation as one file. */
async function exportDocument(name, connection) {
  while (await connection.loadOlder(2000));
  const file = new Blob([toDocument(name, connection.conversation.items)], { type: "text/markdown" });
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(file), download: `${shorten(name, 60).replace(/[^\p{L}\p{N} _-]/gu, "")}.md` });
  link.click();
  URL.revokeObjectURL(link.href);
}

async function copyLink(id, uuid, toasts) {
  const address = `${location.origin}${location.pathname}${link.message(id, uuid)}`;
  await navigator.clipboard.writeText(address).then(
    () => toasts.show("The link was copied."),
    () => toasts.show(address),
  );
}

/* One line about what happens right now; it is read out when it changes. */
function Activity({ conversation, isWaiting }) {
  const text = isWaiting
    ? ""
    : conversation.status === "compacting"
      ? "Summarizing the conversation…"
      : conversation.state === "running"
        ? "Working…"
        : "";
  return html`<div class="activity" role="status">
    ${text && html`<span class="spinner" aria-hidden="true"></span>${text}`}${isWaiting && html`<span class="visually-hidden">A question waits for you</span>`}
  </div>`;
}

/* The questions of this session, one at a time. */
function Approvals({ questions }) {
  const [index, setIndex] = useState(0);
  const at = Math.min(index, questions.length - 1);
  return html`<div class="approvals" role="region" aria-label="Approvals">
    ${questions.length > 1 && html`<div class="approvals-count"><span>${at + 1} of ${questions.length} questions</span><button class="button small" onClick=${() => setIndex((at + 1) % questions.length)}>Next</button></div>`}
    <${QuestionCard} key=${questions[at].request_id} question=${questions[at]} />
  </div>`;
}

function ChooseSession({ except, onClose, onChoose }) {
  const { sessions } = useConsole();
  const [query, setQuery] = useState("");
  const found = sessions.sessions
    .filter((session) => session.id !== except && nameOf(session).toLowerCase().includes(query.toLowerCase()))
    .slice(0, 30);
  return html`<${Dialog} title="Compare with" onClose=${onClose}>
    <input type="search" aria-label="Search sessions" placeholder="Search" value=${query} onInput=${(event) => setQuery(event.target.value)} />
    <ul class="choose-list">${found.map(
      (session) =>
        html`<li key=${session.id}>
          <button class="link-button" onClick=${() => onChoose(session.id)}>
            <bdi>${nameOf(session)}</bdi><span class="muted small">${shortPath(session.cwd)}</span>
          </button>
        </li>`,
    )}</ul>
    ${!found.length && html`<p class="muted">No other session</p>`}
  </${Dialog}>`;
}
