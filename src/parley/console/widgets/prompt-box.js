/* Where prompts are written: completion of commands and files, images, the queue, model and mode, interrupt. */

import { formatBytes, shorten, visible } from "../text.js";
import { html, useConsole, useEffect, useLayoutEffect, useRef, useState } from "../ui.js";
import { Icon } from "./icon.js";
import { Plain } from "./plain.js";

const IMAGE_TYPES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const MAX_IMAGE_BYTES = 5 * 1024 * 1024;
const MODES = [
  ["default", "Ask before changes"],
  ["acceptEdits", "Accept edits"],
  ["plan", "Plan only"],
  ["dontAsk", "Deny what would ask"],
  ["bypassPermissions", "Ask nothing"],
];
const SAFE_MODES = new Set(["default", "plan", "dontAsk"]);
/* What was typed in each session stays while the page is open. */
const drafts = new Map();

export function PromptBox({ sessionId, conversation, onChange, isConnected }) {
  const { api, can, toasts } = useConsole();
  const [text, setText] = useState(drafts.get(sessionId) ?? "");
  const [images, setImages] = useState([]);
  const [completion, setCompletion] = useState(null);
  const [isDragging, setDragging] = useState(false);
  const [facts, setFacts] = useState(null); /* what `initialize` says: models, commands */
  const area = useRef(null);
  const latest = useRef(null); /* the last request for completions */
  const isBusy = conversation.state !== "idle";
  const mayPrompt = can("prompt");

  useEffect(() => void drafts.set(sessionId, text), [text]);
  useLayoutEffect(() => {
    const { current: element } = area;
    element.style.height = "auto";
    element.style.height = `${Math.min(element.scrollHeight, innerHeight * 0.4)}px`;
  }, [text]);

  const loadFacts = () => {
    if (facts) return Promise.resolve(facts);
    return api.control(sessionId, { subtype: "initialize" }).then((found) => {
      setFacts(found);
      return found;
    });
  };

  const send = async () => {
    const content = makeContent(text, images);
    if (!content || !mayPrompt) return;
    const uuid = crypto.randomUUID();
    const [keptText, keptImages] = [text, images];
    setText("");
    setImages([]);
    setCompletion(null);
    conversation.expectPrompt(uuid, content);
    onChange();
    try {
      await api.post(`/sessions/${encodeURIComponent(sessionId)}/prompts`, { content, uuid });
    } catch (error) {
      conversation.forgetPrompt(uuid);
      setText((typed) => typed || keptText);
      setImages((added) => (added.length ? added : keptImages));
      toasts.fail(error);
      onChange();
    }
  };

  const interrupt = () => api.control(sessionId, { subtype: "interrupt" }).catch(toasts.fail);

  const addFiles = async (files) => {
    for (const file of files) {
      if (!IMAGE_TYPES.includes(file.type))
        toasts.show(`${visible(file.name)} is not an image of a known type (PNG, JPEG, GIF, WebP).`, {
          level: "error",
        });
      else if (file.size > MAX_IMAGE_BYTES)
        toasts.show(
          `${visible(file.name)} has ${formatBytes(file.size)}; an image may have ${formatBytes(MAX_IMAGE_BYTES)}.`,
          { level: "error" },
        );
      else {
        const data = await readBase64(file);
        setImages((all) => [...all, { name: file.name, type: file.type, data }]);
      }
    }
  };

  /* Completion. */

  const complete = async (value, caret) => {
    const wanted = findTrigger(value, caret);
    if (!wanted) return setCompletion(null);
    const request = { ...wanted };
    latest.current = request;
    let options;
    try {
      options =
        wanted.mark === "/"
          ? matchCommands((await loadFacts()).commands ?? [], wanted.word)
          : await matchFiles(api, sessionId, wanted.word);
    } catch {
      options = [];
    }
    if (latest.current !== request || area.current?.selectionStart !== caret) return;
    setCompletion(options.length ? { ...wanted, options, index: 0 } : null);
  };

  const choose = (option) => {
    const insert = `${completion.mark}${option.value} `;
    /* More may have been typed since the options were found. */
    const { end } = findTrigger(text, area.current.selectionStart) ?? completion;
    const value = text.slice(0, completion.start) + insert + text.slice(end);
    setText(value);
    setCompletion(null);
    const caret = completion.start + insert.length;
    requestAnimationFrame(() => {
      area.current.focus();
      area.current.setSelectionRange(caret, caret);
    });
  };

  const onKeyDown = (event) => {
    if (event.isComposing) return;
    if (completion) {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      const { options, index } = completion;
      if (step) {
        event.preventDefault();
        return setCompletion({ ...completion, index: (index + step + options.length) % options.length });
      }
      if (event.key === "Tab" || (event.key === "Enter" && !event.shiftKey)) {
        event.preventDefault();
        return choose(options[index]);
      }
      if (event.key === "Escape") {
        event.preventDefault();
        event.stopPropagation();
        return setCompletion(null);
      }
    }
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      send();
    } else if (event.key === "Escape" && isBusy) interrupt();
  };

  const onPaste = (event) => {
    const files = [...(event.clipboardData?.files ?? [])];
    if (!files.length) return;
    event.preventDefault();
    addFiles(files);
  };

  const onDrop = (event) => {
    event.preventDefault();
    setDragging(false);
    addFiles([...event.dataTransfer.files]);
  };

  const takeBack = async (prompt) => {
    try {
      const reply = await api.control(sessionId, { subtype: "cancel_async_message", message_uuid: prompt.uuid });
      if (reply?.cancelled === false) throw new Error("This prompt has started already.");
      conversation.forgetPrompt(prompt.uuid);
      onChange();
      return true;
    } catch (error) {
      toasts.fail(error);
      return false;
    }
  };

  const edit = async (prompt) => {
    if (!(await takeBack(prompt))) return;
    setText((typed) => [prompt.text, typed].filter(Boolean).join("\n\n"));
    setImages((all) => [
      ...prompt.images
        .filter((block) => block.source?.type === "base64")
        .map((block) => ({ name: "image", type: block.source.media_type, data: block.source.data })),
      ...all,
    ]);
    area.current.focus();
  };

  return html`<div
    class=${isDragging ? "composer dragging" : "composer"}
    onDragOver=${(event) => (event.preventDefault(), setDragging(true))}
    onDragLeave=${() => setDragging(false)}
    onDrop=${onDrop}
  >
    ${conversation.queue.length > 0 && html`<${Queue} prompts=${conversation.queue} onRemove=${takeBack} onEdit=${edit} mayEdit=${mayPrompt} />`}
    <div class="composer-box">
      ${
        images.length > 0 &&
        html`<ul class="attachments">
          ${images.map(
            (image, index) =>
              html`<li key=${index}>
                <img src=${`data:${image.type};base64,${image.data}`} alt=${visible(image.name)} /><button
                  class="icon-button"
                  aria-label=${`Remove ${visible(image.name)}`}
                  onClick=${() => setImages(images.filter((_, at) => at !== index))}
                >
                  <${Icon} name="close" />
                </button>
              </li>`,
          )}
        </ul>`
      }
      ${completion && html`<${Completion} completion=${completion} onChoose=${choose} />`}
      <textarea
        ref=${area}
        rows="1"
        aria-label="Prompt"
        title="/ for commands, @ for files, Enter to send"
        aria-autocomplete="list"
        aria-controls=${completion ? "completion" : undefined}
        aria-activedescendant=${completion ? `completion-${completion.index}` : undefined}
        placeholder=${mayPrompt ? (isBusy ? "Queue another prompt…" : "Write a prompt") : "Your token can only watch."}
        disabled=${!mayPrompt}
        value=${text}
        onInput=${(event) => {
          setText(event.target.value);
          complete(event.target.value, event.target.selectionStart);
        }}
        onKeyDown=${onKeyDown}
        onPaste=${onPaste}
        onBlur=${() => setTimeout(() => setCompletion(null), 150)}
      ></textarea>
      <div class="composer-tools">
        <label class="icon-button" title="Attach images"
          ><${Icon} name="attach" /><span class="visually-hidden">Attach images</span
          ><input
            type="file"
            class="visually-hidden"
            accept=${IMAGE_TYPES.join(",")}
            multiple
            disabled=${!mayPrompt}
            onChange=${(event) => (addFiles([...event.target.files]), (event.target.value = ""))}
        /></label>
        <${ModelSelect}
          sessionId=${sessionId}
          conversation=${conversation}
          facts=${facts}
          onOpen=${() => loadFacts().catch(toasts.fail)}
          onChange=${onChange}
        />
        <${ModeSelect} sessionId=${sessionId} conversation=${conversation} onChange=${onChange} />
        <span class="spacer"></span>
        ${isBusy && html`<button class="button stop" onClick=${interrupt} disabled=${!mayPrompt} title="Interrupt (Escape)"><${Icon} name="stop" /><span>Stop</span></button>`}
        <button
          class="button primary send"
          onClick=${send}
          disabled=${!mayPrompt || !makeContent(text, images)}
          aria-label=${isBusy ? "Queue the prompt" : "Send the prompt"}
          title=${isConnected ? "Send (Enter)" : "Send when the connection is back"}
        >
          <${Icon} name="send" />
        </button>
      </div>
    </div>
  </div>`;
}

function makeContent(text, images) {
  const trimmed = text.trim();
  if (!images.length) return trimmed || null;
  const blocks = images.map(({ type, data }) => ({
    type: "image",
    source: { type: "base64", media_type: type, data },
  }));
  return trimmed ? [...blocks, { type: "text", text: trimmed }] : blocks;
}

function readBase64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

function Queue({ prompts, onRemove, onEdit, mayEdit }) {
  return html`<section class="queue" aria-label="Queued prompts">
    <h2 class="queue-title">${prompts.length} queued</h2>
    <ol>
      ${prompts.map(
        (prompt) =>
          html`<li key=${prompt.uuid ?? prompt.key}>
            <span class="queue-text"><${Plain} text=${prompt.text || "Image"} /></span>
            ${mayEdit && prompt.uuid && html`<button class="icon-button" title="Edit" aria-label="Edit the queued prompt" onClick=${() => onEdit(prompt)}><${Icon} name="edit" /></button><button class="icon-button" title="Remove" aria-label="Remove the queued prompt" onClick=${() => onRemove(prompt)}><${Icon} name="trash" /></button>`}
          </li>`,
      )}
    </ol>
  </section>`;
}

/* The word at the caret that can be completed: `/command` at the start, `@file` anywhere. */
export function findTrigger(text, caret) {
  const before = text.slice(0, caret);
  const command = /^\/([\w:.-]*)$/.exec(before);
  if (command) return { mark: "/", word: command[1], start: 0, end: caret };
  const file = /(?:^|\s)@([^\s@]*)$/.exec(before);
  if (file) return { mark: "@", word: file[1], start: caret - file[1].length - 1, end: caret };
  return null;
}

function matchCommands(commands, word) {
  const wanted = word.toLowerCase();
  return commands
    .filter((command) =>
      [command.name, ...(command.aliases ?? [])].some((name) => String(name).toLowerCase().includes(wanted)),
    )
    .sort((a, b) => Number(b.name.startsWith(wanted)) - Number(a.name.startsWith(wanted)))
    .slice(0, 12)
    .map((command) => ({
      value: command.name,
      detail: [command.argumentHint, command.description].filter(Boolean).join(" — "),
    }));
}

async function matchFiles(api, sessionId, word) {
  const { files } = await api.get(`/sessions/${encodeURIComponent(sessionId)}/files`, { query: word, limit: 12 });
  return files.map((file) => ({ value: file, detail: "" }));
}

function Completion({ completion, onChoose }) {
  const { mark, options, index } = completion;
  return html`<ul class="completion" id="completion" role="listbox" aria-label=${mark === "/" ? "Commands" : "Files"}>
    ${options.map(
      (option, at) =>
        html`<li
          key=${option.value}
          id=${`completion-${at}`}
          role="option"
          aria-selected=${String(at === index)}
          onPointerDown=${(event) => (event.preventDefault(), onChoose(option))}
        >
          <span class="completion-value">${mark}${visible(option.value)}</span
          >${option.detail && html`<span class="completion-detail ellipsis">${shorten(option.detail, 120)}</span>`}
        </li>`,
    )}
  </ul>`;
}

function ModelSelect({ sessionId, conversation, facts, onOpen, onChange }) {
  const { api, can, toasts } = useConsole();
  const models = facts?.models ?? [];
  const current = conversation.model ?? "";
  const known = models.some((model) => model.value === current || model.resolvedModel === current);
  const chosen =
    models.find((model) => model.value === current)?.value ??
    models.find((model) => model.value !== "default" && model.resolvedModel === current)?.value ??
    current;
  const change = async (event) => {
    const model = event.target.value;
    try {
      const reply = await api.control(sessionId, { subtype: "set_model", model });
      conversation.model = reply?.model ?? model;
    } catch (error) {
      toasts.fail(error);
    }
    onChange();
  };
  return html`<select
    class="compact"
    aria-label="Model"
    value=${chosen}
    onFocus=${onOpen}
    onPointerEnter=${onOpen}
    onChange=${change}
    disabled=${!can("prompt")}
  >
    ${!known && html`<option value=${current}>${shorten(current || "Model", 40)}</option>`}
    ${models.map((model) => html`<option key=${model.value} value=${model.value} title=${visible(model.description ?? "")}>${visible(model.displayName ?? model.value)}</option>`)}
  </select>`;
}

function ModeSelect({ sessionId, conversation, onChange }) {
  const { api, can, toasts } = useConsole();
  const current = conversation.mode ?? "default";
  const change = async (event) => {
    const mode = event.target.value;
    try {
      await api.control(sessionId, { subtype: "set_permission_mode", mode });
      conversation.mode = mode;
    } catch (error) {
      event.target.value = current;
      toasts.fail(error);
    }
    onChange();
  };
  const shown = MODES.filter(([mode]) => mode === current || SAFE_MODES.has(mode) || can("approve"));
  return html`<select
    class="compact"
    aria-label="Permissions"
    value=${current}
    onChange=${change}
    disabled=${!can("prompt")}
  >
    ${shown.map(([mode, label]) => html`<option key=${mode} value=${mode}>${label}</option>`)}
    ${!MODES.some(([mode]) => mode === current) && html`<option value=${current}>${visible(current)}</option>`}
  </select>`;
}
