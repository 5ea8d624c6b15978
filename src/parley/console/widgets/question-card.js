/* One open question with its controls. The controls have a look that content cannot have: content is inside of frames.
 *
 * In the card, when no text field has the focus: `a` allows, `d` denies, digits choose what "always" would add.
 */

import { diffLines, toHunks } from "../diff.js";
import { shorten, visible } from "../text.js";
import { html, useConsole, useLayoutEffect, useRef, useState } from "../ui.js";
import { Diff } from "./diff.js";
import { Icon } from "./icon.js";
import { CodeBlock, Markdown } from "./markdown.js";
import { Plain } from "./plain.js";

/* `onDone(decided)` after this page has decided it. `children` are shown above the buttons. */
export function QuestionCard({ question, onDone = () => {}, children }) {
  const { questions, toasts, can } = useConsole();
  const [isBusy, setBusy] = useState(false);
  const answer = async (response) => {
    setBusy(true);
    try {
      onDone(await questions.answer(question, response));
    } catch (error) {
      toasts.fail(error);
      setBusy(false);
    }
  };
  const { request } = question;
  const Form =
    question.kind === "elicitation"
      ? Elicitation
      : request.tool_name === "ExitPlanMode"
        ? Plan
        : request.tool_name === "AskUserQuestion"
          ? Choices
          : question.kind === "can_use_tool"
            ? Permission
            : Dialog;
  const mayAnswer = can("approve");
  return html`<section class="question" aria-label="Open question" data-kind=${question.kind}>
    <${Form} key=${question.request_id} question=${question} request=${request} isDisabled=${isBusy || !mayAnswer} answer=${answer}>${children}</${Form}>
    ${!mayAnswer && html`<p class="muted small">Your token cannot answer questions.</p>`}
  </section>`;
}

function useKeys(keys) {
  const element = useRef(null);
  const latest = useRef(keys);
  latest.current = keys;
  useLayoutEffect(() => {
    const { current } = element;
    const onKeyDown = (event) => {
      if (event.target.closest("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
      const action = latest.current[event.key.toLowerCase()];
      if (!action) return;
      event.preventDefault();
      action();
    };
    current.addEventListener("keydown", onKeyDown);
    return () => current.removeEventListener("keydown", onKeyDown);
  }, []);
  return element;
}

function Permission({ request, isDisabled, answer, children }) {
  const [message, setMessage] = useState("");
  const [isDenying, setDenying] = useState(false);
  const suggestions = request.suppress_always_allow_rule
    ? []
    : (request.permission_suggestions ?? []).filter((each) => describeSuggestion(each));
  const allow = (suggestion) =>
    answer({ behavior: "allow", updatedInput: request.input, ...(suggestion && { updatedPermissions: [suggestion] }) });
  const deny = () => answer({ behavior: "deny", message: message.trim() || "The user denied this." });
  const keys = { a: () => isDisabled || allow(), d: () => isDisabled || setDenying(true) };
  suggestions.forEach((suggestion, index) => (keys[index + 1] = () => isDisabled || allow(suggestion)));
  const element = useKeys(keys);
  return html`<div ref=${element}>
    <h2 class="question-title">
      <${Icon} name="question" />${shorten(request.title || `Allow ${request.display_name ?? request.tool_name}?`, 160)}
    </h2>
    <${Reason} request=${request} />
    <div class="content-frame"><${CallPreview} name=${request.tool_name} input=${request.input ?? {}} /></div>
    ${children}
    ${
      isDenying
        ? html`<form class="deny-form" onSubmit=${(event) => (event.preventDefault(), deny())}>
            <label
              >What should be done instead? <span class="muted">(optional)</span
              ><textarea
                rows="2"
                value=${message}
                ref=${focusOnce}
                onInput=${(event) => setMessage(event.target.value)}
              ></textarea>
            </label>
            <div class="question-buttons">
              <button class="button danger" disabled=${isDisabled}>Deny</button
              ><button type="button" class="button" onClick=${() => setDenying(false)}>Back</button>
            </div>
          </form>`
        : html`<div class="question-buttons">
            <button class="button allow" disabled=${isDisabled} onClick=${() => allow()}>Allow <kbd>A</kbd></button>
            <button class="button" disabled=${isDisabled} onClick=${() => setDenying(true)}>Deny <kbd>D</kbd></button>
            ${suggestions.map((suggestion, index) => html`<button key=${index} class="button quiet" disabled=${isDisabled} onClick=${() => allow(suggestion)}>${shorten(describeSuggestion(suggestion), 120)} <kbd>${index + 1}</kbd></button>`)}
          </div>`
    }
  </div>`;
}

function focusOnce(element) {
  if (element && !element.dataset.focused) {
    element.dataset.focused = "true";
    element.focus();
  }
}

function Reason({ request }) {
  const parts = [
    request.decision_reason,
    request.blocked_path && `It concerns ${request.blocked_path}`,
    request.agent_id && `Asked by a subagent`,
  ].filter(Boolean);
  if (!parts.length) return null;
  return html`<p class="question-reason">
    ${parts.map((part, index) => html`${index > 0 ? " · " : ""}<${Plain} text=${part} />`)}
  </p>`;
}

const PLACES = {
  __proto__: null,
  session: "for this session",
  localSettings: "in this folder, for you",
  projectSettings: "in this project",
  userSettings: "everywhere, for you",
};
const MODES = {
  __proto__: null,
  acceptEdits: "Accept all edits",
  bypassPermissions: "Ask nothing",
  plan: "Plan only",
  default: "Ask before changes",
};

export function describeSuggestion(suggestion) {
  const place = PLACES[suggestion?.destination] ?? "";
  if (suggestion?.type === "addRules" && suggestion.behavior === "allow")
    return `Always allow ${suggestion.rules.map(formatRule).join(", ")} ${place}`;
  if (suggestion?.type === "setMode") return `${MODES[suggestion.mode] ?? visible(suggestion.mode)} ${place}`;
  if (suggestion?.type === "addDirectories")
    return `Allow the folder ${suggestion.directories.map(visible).join(", ")} ${place}`;
  return "";
}

export function formatRule(rule) {
  return visible(rule.ruleContent ? `${rule.toolName}(${rule.ruleContent})` : rule.toolName);
}

/* What will run. */
export function CallPreview({ name, input }) {
  if (name === "Bash")
    return html`${input.description && html`<p class="small muted"><${Plain} text=${input.description} /></p>`}<${CodeBlock}
        language="bash"
        text=${String(input.command ?? "")}
        label="command"
        isWrapped
      />`;
  if (name === "Edit")
    return html`<${Diff}
      path=${String(input.file_path ?? "")}
      hunks=${toHunks(diffLines(String(input.old_string ?? ""), String(input.new_string ?? "")))}
    />`;
  if (name === "Write")
    return html`<${Diff}
      path=${String(input.file_path ?? "")}
      hunks=${toHunks(diffLines("", String(input.content ?? "")))}
    />`;
  return html`<${CodeBlock} language="json" text=${JSON.stringify(input, null, 2)} label=${visible(name)} isWrapped />`;
}

function Plan({ request, isDisabled, answer, children }) {
  const [message, setMessage] = useState("");
  const approve = (mode) =>
    answer({
      behavior: "allow",
      updatedInput: request.input,
      ...(mode && { updatedPermissions: [{ type: "setMode", mode, destination: "session" }] }),
    });
  const reject = () => answer({ behavior: "deny", message: message.trim() || "The user wants another plan." });
  return html`<div>
    <h2 class="question-title"><${Icon} name="plan" />Review the plan</h2>
    <div class="content-frame plan-frame"><${Markdown} text=${String(request.input?.plan ?? "")} /></div>
    ${children}
    <label class="comment"
      >Comments<textarea
        rows="2"
        value=${message}
        placeholder="What should be different?"
        onInput=${(event) => setMessage(event.target.value)}
      ></textarea>
    </label>
    <div class="question-buttons">
      <button
        class="button allow"
        disabled=${isDisabled || message.trim() !== ""}
        onClick=${() => approve("acceptEdits")}
      >
        Approve, accept edits
      </button>
      <button class="button" disabled=${isDisabled || message.trim() !== ""} onClick=${() => approve(null)}>
        Approve, ask before edits
      </button>
      <button class="button" disabled=${isDisabled} onClick=${reject}>
        ${message.trim() ? "Send comments" : "Keep planning"}
      </button>
    </div>
  </div>`;
}

const OTHER = "\u0000other";

function Choices({ request, isDisabled, answer, children }) {
  const list = Array.isArray(request.input?.questions) ? request.input.questions : [];
  const [chosen, setChosen] = useState(() => list.map(() => []));
  const [others, setOthers] = useState(() => list.map(() => ""));
  const pick = (index, label, isMulti) =>
    setChosen((all) =>
      all.map((labels, at) =>
        at !== index
          ? labels
          : isMulti
            ? labels.includes(label)
              ? labels.filter((each) => each !== label)
              : [...labels, label]
            : [label],
      ),
    );
  const answerOf = (index) =>
    chosen[index]
      .map((label) => (label === OTHER ? others[index].trim() : label))
      .filter(Boolean)
      .join(", ");
  const isComplete = list.every((_, index) => answerOf(index));
  const submit = (event) => {
    event.preventDefault();
    const answers = Object.fromEntries(list.map((each, index) => [each.question, answerOf(index)]));
    answer({ behavior: "allow", updatedInput: { ...request.input, answers } });
  };
  const skip = () => answer({ behavior: "deny", message: "The user skipped the question." });
  return html`<form onSubmit=${submit}>
    <h2 class="question-title"><${Icon} name="question" />The model asks</h2>
    ${list.map((each, index) => {
      const isMulti = Boolean(each.multiSelect);
      const type = isMulti ? "checkbox" : "radio";
      const name = `choice-${index}`;
      const options = Array.isArray(each.options) ? each.options : [];
      return html`<fieldset class="choices" key=${index}>
        <legend><${Plain} text=${each.question} /></legend>
        ${options.map(
          (option) =>
            html`<label class="choice" key=${option.label}
              ><input
                type=${type}
                name=${name}
                checked=${chosen[index].includes(option.label)}
                onChange=${() => pick(index, option.label, isMulti)}
                disabled=${isDisabled}
              /><span
                ><span class="choice-label"><${Plain} text=${option.label} /></span
                >${option.description && html`<span class="muted small"><${Plain} text=${option.description} /></span>`}</span
              ></label
            >`,
        )}
        <label class="choice"
          ><input
            type=${type}
            name=${name}
            checked=${chosen[index].includes(OTHER)}
            onChange=${() => pick(index, OTHER, isMulti)}
            disabled=${isDisabled} /><span class="choice-other"
            ><span class="choice-label">Other</span>
            <input
              type="text"
              aria-label="Other answer"
              value=${others[index]}
              onFocus=${() => chosen[index].includes(OTHER) || pick(index, OTHER, isMulti)}
              onInput=${(event) => setOthers((all) => all.with(index, event.target.value))}
              disabled=${isDisabled} /></span
        ></label>
      </fieldset>`;
    })}
    ${children}
    <div class="question-buttons">
      <button class="button allow" disabled=${isDisabled || !isComplete}>Answer</button
      ><button type="button" class="button" disabled=${isDisabled} onClick=${skip}>Skip</button>
    </div>
  </form>`;
}

/* A question of an MCP server: a form of flat fields, or an address to visit. */
function Elicitation({ request, isDisabled, answer, children }) {
  const properties = Object.entries(request.requested_schema?.properties ?? {});
  const required = new Set(request.requested_schema?.required ?? []);
  const submit = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const content = { __proto__: null };
    for (const [index, [name, schema]] of properties.entries()) {
      const value = form.get(`field-${index}`);
      if (schema.type === "boolean") content[name] = value !== null;
      else if (value !== null && value !== "")
        content[name] = schema.type === "number" || schema.type === "integer" ? Number(value) : value;
    }
    answer({ action: "accept", content });
  };
  return html`<form onSubmit=${submit}>
    <h2 class="question-title">
      <${Icon} name="question" />${shorten(request.display_name ?? request.mcp_server_name ?? "A server", 60)} asks
    </h2>
    <div class="content-frame">
      <p><${Plain} text=${request.message} /></p>
      ${
        request.url &&
        html`<p>
          <code><${Plain} text=${request.url} /></code>
        </p>`
      }
    </div>
    ${properties.map(([name, schema], index) => html`<label class="field" key=${name}><span>${shorten(schema.title ?? name, 80)}${required.has(name) ? "" : html` <span class="muted">(optional)</span>`}</span><${Field} name=${`field-${index}`} schema=${schema} isRequired=${required.has(name)} />${schema.description && html`<span class="muted small"><${Plain} text=${schema.description} /></span>`}</label>`)}
    ${children}
    <div class="question-buttons">
      <button class="button allow" disabled=${isDisabled}>Submit</button>
      <button type="button" class="button" disabled=${isDisabled} onClick=${() => answer({ action: "decline" })}>
        Decline
      </button>
      <button type="button" class="button" disabled=${isDisabled} onClick=${() => answer({ action: "cancel" })}>
        Cancel
      </button>
    </div>
  </form>`;
}

function Field({ name, schema, isRequired }) {
  if (Array.isArray(schema.enum))
    return html`<select name=${name} required=${isRequired}>
      ${!isRequired && html`<option value=""></option>`}${schema.enum.map((value, index) => html`<option key=${value} value=${value} selected=${schema.default === value}>${visible(schema.enumNames?.[index] ?? value)}</option>`)}
    </select>`;
  if (schema.type === "boolean") return html`<input type="checkbox" name=${name} checked=${schema.default === true} />`;
  if (schema.type === "number" || schema.type === "integer")
    return html`<input
      type="number"
      name=${name}
      required=${isRequired}
      min=${schema.minimum}
      max=${schema.maximum}
      step=${schema.type === "integer" ? 1 : "any"}
      defaultValue=${schema.default}
    />`;
  const type = { email: "email", uri: "url", date: "date", "date-time": "datetime-local" }[schema.format] ?? "text";
  return html`<input
    type=${type}
    name=${name}
    required=${isRequired}
    minlength=${schema.minLength}
    maxlength=${schema.maxLength}
    defaultValue=${schema.default}
  />`;
}

/* A kind that this page does not know: show it, and let it be declined. */
function Dialog({ request, isDisabled, answer, children }) {
  return html`<div>
    <h2 class="question-title">
      <${Icon} name="question" />${shorten(request.dialog_kind ?? request.subtype ?? "A question", 80)}
    </h2>
    <div class="content-frame">
      <${CodeBlock} language="json" text=${JSON.stringify(request.payload ?? request, null, 2)} label="request" />
    </div>
    ${children}
    <div class="question-buttons">
      <button class="button" disabled=${isDisabled} onClick=${() => answer({ action: "cancel" })}>Cancel it</button>
    </div>
  </div>`;
}
