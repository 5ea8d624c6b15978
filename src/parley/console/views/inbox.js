/* All open questions of all sessions: what will run, why it is asked, and what a rule would have allowed before. */

import { link } from "../router.js";
import { nameOf, pathOf } from "../stores.js";
import { formatAge, shorten, visible } from "../text.js";
import { html, useConsole, useLayoutEffect, useRef, useState, useStore } from "../ui.js";
import { Icon } from "../widgets/icon.js";
import { NotifyButton } from "../widgets/notifications.js";
import { formatRule, QuestionCard } from "../widgets/question-card.js";

export function View() {
  const { questions, sessions, api } = useConsole();
  useStore(questions);
  useStore(sessions);
  const [chosen, setChosen] = useState(null);
  const { open } = questions;
  const current = open.find((question) => keyOf(question) === chosen) ?? open[0] ?? null;
  const index = open.indexOf(current);
  const detail = useRef(null);
  const choose = (question) => question && setChosen(keyOf(question));
  const show = (question) => {
    choose(question);
    requestAnimationFrame(() => detail.current?.scrollIntoView({ block: "nearest" }));
  };
  useListKeys((step) => choose(open[index + step]));
  const now = api.now() / 1000;
  return html`<section class="inbox" aria-labelledby="inbox-title">
    <header class="page-head">
      <h1 id="inbox-title">Inbox <span class="count">${questions.isLoaded ? open.length : ""}</span></h1>
      <${NotifyButton} />
    </header>
    ${open.length === 0
      ? html`<div class="empty"><h2>${questions.isLoaded ? "Nothing waits for you" : "Loading…"}</h2>${questions.isLoaded && html`<p>Questions of all sessions appear here as they are asked.</p>`}</div>`
      : html`<div class="inbox-columns">
          <nav class="inbox-list" aria-label="Open questions">
            <ul>${open.map((question) => html`<li key=${keyOf(question)}><${Entry} question=${question} session=${sessions.get(question.session)} now=${now} isCurrent=${question === current} onChoose=${() => show(question)} /></li>`)}</ul>
            <p class="muted small inbox-help"><kbd>J</kbd> <kbd>K</kbd> next, previous · <kbd>A</kbd> allow · <kbd>D</kbd> deny</p>
          </nav>
          <div class="inbox-detail" ref=${detail}>
            <${Detail} key=${keyOf(current)} question=${current} session=${sessions.get(current.session)} now=${now} onDone=${() => choose(open[index + 1] ?? open[index - 1])} />
          </div>
        </div>`}
    <${Decided} questions=${questions.decisions} sessions=${sessions} now=${now} />
  </section>`;
}

const keyOf = (question) => `${question.session}/${question.request_id}`;

/* J and K move through the list from anywhere on the page, unless text is being typed. */
function useListKeys(move) {
  const latest = useRef(move);
  latest.current = move;
  useLayoutEffect(() => {
    const onKeyDown = (event) => {
      if (event.target.closest("input, textarea, select, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
      const step = { j: 1, k: -1 }[event.key.toLowerCase()];
      if (!step) return;
      event.preventDefault();
      latest.current(step);
    };
    addEventListener("keydown", onKeyDown);
    return () => removeEventListener("keydown", onKeyDown);
  }, []);
}

function titleOf(question) {
  const { request } = question;
  if (request.tool_name === "ExitPlanMode") return "A plan to review";
  if (request.tool_name === "AskUserQuestion") return request.input?.questions?.[0]?.question ?? "A question";
  if (question.kind === "elicitation") return request.message ?? "A question of an MCP server";
  return request.title ?? request.display_name ?? request.tool_name ?? question.kind;
}

function detailOf({ request }) {
  const { command, file_path: path, url, pattern } = request.input ?? {};
  return command ?? path ?? url ?? pattern ?? "";
}

function Entry({ question, session, now, isCurrent, onChoose }) {
  return html`<button class="inbox-entry" aria-current=${isCurrent ? "true" : undefined} onClick=${onChoose}>
    <span class="inbox-entry-top"><span class="ellipsis inbox-entry-title"><bdi>${shorten(titleOf(question), 90)}</bdi></span><span class="muted small">${formatAge(question.asked_at, now)}</span></span>
    ${detailOf(question) && html`<code class="ellipsis"><bdi>${shorten(detailOf(question), 120)}</bdi></code>`}
    <span class="muted small ellipsis"><bdi>${session ? nameOf(session) : "A session"}</bdi>${question.delegate ? ` · left to ${shorten(question.delegate, 30)}` : ""}</span>
  </button>`;
}

function Detail({ question, session, now, onDone }) {
  const element = useRef(null);
  useLayoutEffect(() => {
    /* The title gets the focus: keys work at once, and no button can be pressed by accident. */
    const title = element.current.querySelector(".question-title");
    if (!title || document.activeElement?.closest("input, textarea, dialog")) return;
    title.tabIndex = -1;
    title.focus({ preventScroll: true });
  }, []);
  return html`<div ref=${element}>
    <p class="inbox-where small">
      <a href=${link.session(question.session)}><bdi>${session ? nameOf(session) : "Open the session"}</bdi></a>
      ${session && html`<span class="muted ellipsis" title=${visible(session.cwd)}><bdi>${visible(session.cwd)}</bdi></span>`}
      ${question.expires_at && html`<span class="muted">expires in ${formatAge(now, question.expires_at)}</span>`}
    </p>
    <${QuestionCard} question=${question} onDone=${onDone}>
      <${Rules} question=${question} />
    </${QuestionCard}>
  </div>`;
}

/* The rules that "always" would add, and what each would have allowed. */
function Rules({ question }) {
  const { request } = question;
  if (question.kind !== "can_use_tool" || request.suppress_always_allow_rule) return null;
  const rules = (request.permission_suggestions ?? [])
    .filter((suggestion) => suggestion?.type === "addRules" && suggestion.behavior === "allow")
    .flatMap((suggestion) => suggestion.rules ?? [])
    .map(formatRule);
  const known = [...new Set(rules)];
  if (!known.length) return null;
  return html`<div class="rules"><h3>The rule that “always” would add</h3>${known.map((rule) => html`<${Simulation} key=${rule} question=${question} rule=${rule} />`)}</div>`;
}

const SHOWN_CALLS = 50;

function Simulation({ question, rule }) {
  const { api, can } = useConsole();
  const [outcome, setOutcome] = useState(null);
  const [problem, setProblem] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const run = () => {
    setBusy(true);
    api
      .post(`${pathOf(question)}/simulate`, { rule, behavior: "allow" })
      .then((found) => (setOutcome(found), setProblem(null)), setProblem)
      .finally(() => setBusy(false));
  };
  const calls = outcome?.would_allow ?? [];
  return html`<div class="rule">
    <p><code>${shorten(rule, 200)}</code> ${!outcome && can("approve") && html`<button type="button" class="link-button" disabled=${isBusy} onClick=${run}>What would it have allowed?</button>`}</p>
    ${problem && html`<p class="small" role="alert">${visible(problem.message)}</p>`}
    ${outcome &&
    html`<div role="status">
      <p class="small">${describeOutcome(outcome)}</p>
      ${calls.length > 0 && html`<ul class="rule-calls">${calls.slice(0, SHOWN_CALLS).map((call) => html`<li key=${`${call.session} ${call.number}`}><a href=${link.session(call.session)}>${formatAge(call.time, api.now() / 1000)}</a> <code class="ellipsis"><bdi>${shorten(`${call.tool} ${call.input_summary}`, 160)}</bdi></code></li>`)}</ul>`}
      ${calls.length > SHOWN_CALLS && html`<p class="muted small">and ${calls.length - SHOWN_CALLS} more</p>`}
    </div>`}
  </div>`;
}

function describeOutcome({ would_allow: calls, would_still_ask: asks, checked }) {
  if (!checked) return "There are no earlier calls to compare with.";
  return `Of ${checked} earlier ${checked === 1 ? "call" : "calls"} it would have allowed ${calls.length}; ${asks} would still be asked about.`;
}

const BEHAVIORS = { allow: "allowed", deny: "denied", accept: "accepted", decline: "declined", cancel: "cancelled" };

/* What was decided while the page was open, and by whom. */
function Decided({ questions, sessions, now }) {
  if (!questions.length) return null;
  return html`<section class="decided" aria-labelledby="decided-title">
    <h2 id="decided-title">Decided</h2>
    <ul>${questions.slice(0, 20).map((question) => {
      const session = sessions.get(question.session);
      const outcome = question.state === "withdrawn" ? "withdrawn by the session" : `${BEHAVIORS[question.behavior] ?? "answered"} by ${shorten(question.decided_by ?? "a client", 40)}`;
      return html`<li key=${keyOf(question)} class="small"><${Icon} name=${question.behavior === "allow" ? "check" : "close"} /><span class="ellipsis"><bdi>${shorten(`${titleOf(question)} ${detailOf(question)}`, 120)}</bdi></span><span class="muted">${outcome}${session ? html` · <a href=${link.session(session.id)}><bdi>${nameOf(session)}</bdi></a>` : ""} · ${formatAge(question.decided_at, now)}</span></li>`;
    })}</ul>
  </section>`;
}
