/* All sessions: what each is doing, what it costs, and a search over what was said. */

import { link } from "../router.js";
import { nameOf, shownState, STATES } from "../stores.js";
import { html, memo, useConsole, useEffect, useRef, useState, useStore } from "../ui.js";
import { formatAge, formatUsd, shorten, visible } from "../text.js";
import { Dialog } from "../widgets/dialog.js";
import { Icon } from "../widgets/icon.js";
import { StatePill } from "../widgets/state.js";

const FILTERS = [["", "All"], ...Object.entries(STATES).filter(([state]) => state !== "elsewhere")];

export function View({ isNew }) {
  const { sessions, can, api } = useConsole();
  useStore(sessions);
  const [now, setNow] = useState(() => api.now() / 1000);
  useEffect(() => {
    const timer = setInterval(() => setNow(api.now() / 1000), 30000);
    return () => clearInterval(timer);
  }, []);
  useEffect(() => () => void (sessions.search && sessions.find({ search: "", state: "" })), []);
  const canCreate = can("create");
  return html`<section class="page sessions" aria-labelledby="sessions-title">
    <header class="page-head">
      <h1 id="sessions-title">Sessions <span class="count">${sessions.isLoaded ? sessions.total : ""}</span></h1>
      ${canCreate && html`<button class="button primary" title="New session (n)" onClick=${() => (location.hash = link.newSession())}><${Icon} name="plus" />New session</button>`}
    </header>
    <div class="toolbar">
      <${Search} store=${sessions} />
      <div class="filters" role="group" aria-label="State">
        ${FILTERS.map(([state, label]) => html`<button key=${state} class="chip" aria-pressed=${String(sessions.state === state)} onClick=${() => sessions.find({ state })}>${label}</button>`)}
      </div>
    </div>
    <${List} store=${sessions} now=${now} />
    ${isNew && canCreate && html`<${NewSession} onClose=${() => location.hash === link.newSession() && (location.hash = link.sessions())} />`}
  </section>`;
}

function Search({ store }) {
  const timer = useRef(null);
  const onInput = (event) => {
    const search = event.target.value;
    clearTimeout(timer.current);
    timer.current = setTimeout(() => store.find({ search }), 150);
  };
  useEffect(() => () => clearTimeout(timer.current), []);
  return html`<div class="search">
    <${Icon} name="search" />
    <input
      type="search"
      aria-label="Search sessions"
      placeholder="Search titles, folders and what was said"
      value=${store.search}
      onInput=${onInput}
    />
  </div>`;
}

function List({ store, now }) {
  if (store.error) return html`<p class="empty-line" role="alert">${visible(store.error.message)}</p>`;
  if (!store.isLoaded)
    return html`<ul class="session-list" aria-busy="true">
      ${[1, 2, 3].map((each) => html`<li key=${each} class="session-row skeleton"></li>`)}
    </ul>`;
  if (!store.sessions.length)
    return html`<div class="empty">
      <h2>${store.search || store.state ? "No session matches" : "No sessions yet"}</h2>
      <p>
        ${store.search || store.state ? "Change the search or the filter." : "Start one here, or connect a client to this server."}
      </p>
    </div>`;
  return html`<ul class="session-list">
      ${store.sessions.map((session) => html`<${Row} key=${session.id} session=${session} search=${store.search} now=${now} />`)}
    </ul>
    ${
      store.sessions.length < store.total &&
      html`<button class="button more" onClick=${() => store.load({ more: true })}>
        Show more (${store.total - store.sessions.length} left)
      </button>`
    }`;
}

const Row = memo(
  ({ session, search, now }) => {
    const { match, preview, last_error: failure, open_questions: waiting } = session;
    const excerpt = match || (session.state === "failed" && failure) || preview;
    return html`<li class="session-row" data-state=${shownState(session)}>
      <a href=${link.session(session.id)} class="session-link">
        <span class="session-top">
          <span class="session-name ellipsis"><bdi>${nameOf(session)}</bdi></span>
          <${StatePill} state=${shownState(session)} detail=${waiting > 1 ? waiting : null} />
        </span>
        ${excerpt && html`<span class=${match ? "session-text match" : "session-text"} dir="auto">${match ? drawMatch(match, search) : shorten(withoutMarks(excerpt), 180)}</span>`}
        <span class="session-facts">
          <span class="ellipsis folder" title=${visible(session.cwd)}><bdi>${shortPath(session.cwd)}</bdi></span>
          ${session.model && html`<span>${shorten(session.model, 40)}</span>`}
          <span>${formatUsd(session.cost_usd)}</span>
          <span>${session.turns} ${session.turns === 1 ? "turn" : "turns"}</span>
          <time class="age" datetime=${new Date(session.used_at * 1000).toISOString()}
            >${formatAge(session.used_at, now)}</time
          >
        </span>
      </a>
    </li>`;
  },
  (before, after) => before.session === after.session && before.now === after.now,
);

/* The start of an answer reads better without the marks of Markdown. */
function withoutMarks(text) {
  return text.replace(/(^|\s)#{1,6} /g, "$1").replace(/\*\*|`|(^|\s)[>|] ?/g, " ");
}

/* The excerpt with the words of the search marked. */
function drawMatch(match, search) {
  const words = search
    .split(/\s+/)
    .filter(Boolean)
    .map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const text = visible(match);
  if (!words.length) return text;
  return text
    .split(new RegExp(`(${words.join("|")})`, "gi"))
    .map((part, index) => (index % 2 ? html`<mark>${part}</mark>` : part));
}

export function shortPath(path) {
  const parts = visible(path).split("/").filter(Boolean);
  return parts.length > 2 ? `…/${parts.slice(-2).join("/")}` : visible(path);
}

function NewSession({ onClose }) {
  const { api, toasts, can } = useConsole();
  const [problem, setProblem] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const value = (name) => form.get(name)?.trim() || undefined;
    setBusy(true);
    setProblem(null);
    try {
      const options = { model: value("model"), permission_mode: value("mode") };
      const { session_id: id } = await api.post("/sessions", { title: value("title"), cwd: value("cwd"), options });
      const prompt = value("prompt");
      if (prompt)
        await api.post(`/sessions/${id}/prompts`, { content: prompt, uuid: crypto.randomUUID() }).catch(toasts.fail);
      location.hash = link.session(id);
    } catch (error) {
      setProblem(error);
      setBusy(false);
    }
  };
  return html`<${Dialog} title="New session" onClose=${onClose}>
    <form class="form" onSubmit=${submit}>
      ${problem && html`<p class="form-error" role="alert">${visible(problem.message)}</p>`}
      <label>First prompt<textarea name="prompt" rows="4" placeholder="What should be done?" autofocus></textarea></label>
      <div class="form-row">
        <label>Title<input name="title" placeholder="From the first prompt" /></label>
        <label>Folder<input name="cwd" placeholder="The root of the server" /></label>
      </div>
      <div class="form-row">
        <label>Model<input name="model" placeholder="The server's default" /></label>
        <label>Permissions
          <select name="mode">
            <option value="">As the server was started</option>
            <option value="default">Ask before changes</option>
            <option value="plan">Plan only</option>
            ${can("approve") && html`<option value="acceptEdits">Accept edits</option>`}
          </select>
        </label>
      </div>
      <footer><button type="button" class="button" onClick=${onClose}>Cancel</button><button class="button primary" disabled=${isBusy}>Create</button></footer>
    </form>
  </${Dialog}>`;
}
