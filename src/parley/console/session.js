/* One session: the reducer from protocol lines to a conversation, and the connection that feeds it. No framework.
 *
 * `Conversation.apply(line, number, time)` takes the lines in the order of their numbers. It reads no clock and does no
 * I/O, so the same lines make the same conversation. Items are changed in place; `item.rev` grows with every change of
 * an item or of what is inside it, and `conversation.shape` when an item is added, moved or removed.
 *
 * Items:
 *   prompt    text, images, uuid, state: queued, sent, started, completed, cancelled
 *   text      Markdown of the model; isStreaming while it is written
 *   thinking  the same for reasoning
 *   tool      a call: name, input, result {content, details, isError}, children of a subagent, task, elapsedSeconds
 *   notice    text for the user: level info, warning or error
 *   mark      a line across the conversation: compaction, reset, interruption, model
 *   result    the end of a turn: cost, duration, tokens, errors
 *   unknown   a line that this page does not know
 */

import { backoffMs } from "./api.js";

const SILENT = new Set([
  "keep_alive",
  "control_response",
  "prompt_suggestion",
  "transcript_mirror",
  "tool_use_summary",
  "active_goal",
  "auth_status",
  "rate_limit_event",
  "system/status",
  "system/thinking_tokens",
  "system/background_tasks_changed",
  "system/commands_changed",
  "system/control_request_progress",
  "system/hook_started",
  "system/hook_progress",
  "system/elicitation_complete",
  "system/files_persisted",
  "system/memory_recall",
  "gateway/resync",
]);
const MESSAGES_KEPT = 20; /* messages whose finished blocks are counted */
const INTERRUPTED = /^\[Request interrupted by user/;
const COMMAND_OUTPUT = /^<local-command-stdout>([\s\S]*)<\/local-command-stdout>$/;
const NOTE_FROM_ENGINE = /^<(task-notification|system-reminder|local-command-caveat)>/;

export class Conversation {
  constructor() {
    this.items = [];
    this.shape = 0;
    this.revision = 0;
    this.first = null; /* number of the oldest line */
    this.last = 0; /* number of the newest line */
    this.state = "idle";
    this.model = null;
    this.mode = null;
    this.cwd = null;
    this.costUsd = null;
    this.todos = [];
    this.queue = [];
    this.requests = new Map(); /* open control requests of the engine, by id */
    this.decisions = new Map(); /* who decided a request, and how */
    this.tasks = new Map();
    this.status = null; /* what the engine does right now: requesting, compacting */
    this.commands = null;
    this._tools = new Map();
    this._prompts = new Map();
    this._byUuid = new Map();
    this._streams = new Map(); /* messages that are being written, by parent */
    this._finished = new Map(); /* how many blocks of the last messages are whole, by the message's id */
    this._todoItems = new Map(); /* TaskCreate's tasks */
    this._unresolved = []; /* lines about something in older lines that are not loaded */
    this._keys = 0;
  }

  apply(line, number = null, time = null) {
    if (number) {
      if (number <= this.last) return; /* a line that came twice after a reconnect */
      this.last = number;
      this.first ??= number;
    }
    this.revision++;
    const name = line.subtype === undefined ? line.type : `${line.type}/${line.subtype}`;
    const context = { line, number, time: time ?? readTime(line.timestamp) };
    const handler = HANDLERS[name] ?? HANDLERS[line.type];
    if (handler) handler.call(this, line, context);
    else if (!SILENT.has(name)) this._add({ kind: "unknown", name: String(name), line }, context);
  }

  find(uuid) {
    return this._byUuid.get(uuid) ?? null;
  }

  tool(id) {
    return this._tools.get(id) ?? null;
  }

  /* Tasks that no other task started, oldest first. */
  rootTasks() {
    return [...this.tasks.values()].filter((task) => !this.tasks.has(task.parentId));
  }

  /* Put older lines in front: `lines` are [number, time, line], oldest first. */
  prepend(lines) {
    const older = new Conversation();
    older._keys = this._lowestKey() - lines.length * 64;
    for (const [number, time, line] of lines) older.apply(line, number, time);
    older.first ??= this.first;
    this.absorb(older);
  }

  _lowestKey() {
    return this.items.length ? Math.min(this.items[0].key, 0) : 0;
  }

  /* Join an older conversation with this one. */
  absorb(older) {
    const pending = this._unresolved;
    this._unresolved = older._unresolved;
    for (const [id, prompt] of older._prompts) if (!this._prompts.has(id)) this._prompts.set(id, prompt);
    for (const name of ["_tools", "_byUuid", "tasks", "_todoItems", "decisions", "requests"])
      for (const [key, value] of older[name]) if (!this[name].has(key)) this[name].set(key, value);
    for (const stream of older._streams.values()) for (const item of stream.items) item.isStreaming = false;
    const queued = older.queue.filter((prompt) => !this.items.includes(prompt));
    this.queue = [...queued, ...this.queue];
    this.items = [...older.items, ...this.items];
    this.first = older.first ?? this.first;
    this.model ??= older.model;
    this.mode ??= older.mode;
    this.cwd ??= older.cwd;
    this.costUsd ??= older.costUsd;
    if (!this.todos.length) this.todos = older.todos;
    this.shape++;
    for (const { line, number, time } of pending) {
      const handler = HANDLERS[`${line.type}/${line.subtype}`] ?? HANDLERS[line.type];
      handler.call(this, line, { line, number, time });
    }
    for (const decision of this.decisions.values()) this._linkDecision(decision);
    this.revision++;
  }

  /* Changing items. */

  _add(item, { number, time, line }, parent = null) {
    const list = parent ? parent.children : this.items;
    Object.assign(item, { key: ++this._keys, rev: 0, number, time, parent });
    item.uuid ??= line?.uuid;
    if (item.uuid && !this._byUuid.has(item.uuid)) this._byUuid.set(item.uuid, item);
    list.push(item);
    this._touch(item);
    this.shape++;
    return item;
  }

  _touch(item) {
    for (let each = item; each; each = each.parent) each.rev++;
  }

  _remove(item) {
    const list = item.parent ? item.parent.children : this.items;
    const index = list.lastIndexOf(item);
    if (index >= 0) list.splice(index, 1);
    if (item.parent) this._touch(item.parent);
    this.shape++;
  }

  /* The call that a line of a subagent belongs to; undefined if it is in lines that are not loaded. */
  _parent(line) {
    const id = line.parent_tool_use_id;
    return id ? this._tools.get(id) : null;
  }

  _later(context) {
    this._unresolved.push(context);
  }

  /* The model's messages. */

  _onStreamEvent(line) {
    const { event } = line;
    const parent = this._parent(line);
    if (parent === undefined || !event) return;
    const slot = line.parent_tool_use_id ?? "";
    let stream = this._streams.get(slot);
    if (event.type === "message_start") {
      if (stream) this._dropStream(stream);
      stream = { id: event.message?.id, items: [], blocks: new Map() };
      this._streams.set(slot, stream);
      this.status = null;
    } else if (!stream) return;
    else if (event.type === "content_block_start") this._startBlock(stream, event, parent);
    else if (event.type === "content_block_delta") this._growBlock(stream, event);
    else if (event.type === "content_block_stop") {
      const item = stream.blocks.get(event.index);
      if (item) item.isWritten = true;
    }
  }

  _startBlock(stream, event, parent) {
    /* After a reconnect, the events of a block can come after the whole block. */
    if (event.index < (this._finished.get(stream.id) ?? 0)) return;
    const block = event.content_block ?? {};
    const shared = { isStreaming: true, messageId: stream.id };
    const context = { number: null, time: null };
    let item = null;
    if (block.type === "text") item = this._add({ kind: "text", text: block.text ?? "", ...shared }, context, parent);
    else if (block.type === "thinking")
      item = this._add({ kind: "thinking", text: block.thinking ?? "", ...shared }, context, parent);
    else if (block.type === "tool_use" || block.type === "server_tool_use")
      item = this._addTool({ ...block, input: {} }, shared, context, parent);
    if (!item) return;
    stream.items.push(item);
    stream.blocks.set(event.index, item);
  }

  _growBlock(stream, { index, delta }) {
    const item = stream.blocks.get(index);
    if (!item || !item.isStreaming) return;
    if (delta.type === "text_delta") item.text += delta.text;
    else if (delta.type === "thinking_delta") item.text += delta.thinking;
    else if (delta.type === "input_json_delta") item.partialInput = (item.partialInput ?? "") + delta.partial_json;
    else return;
    this._touch(item);
  }

  /* Parts of a message that will never be whole, because it is asked for again. */
  _dropStream(stream) {
    for (const item of stream.items) if (item.isStreaming) this._remove(item);
  }

  /* A turn ended: what was written so far stays. */
  _endStreams() {
    for (const stream of this._streams.values())
      for (const item of stream.items)
        if (item.isStreaming) {
          item.isStreaming = false;
          item.isCut = true;
          this._touch(item);
        }
    this._streams.clear();
  }

  _onAssistant(line, context) {
    const parent = this._parent(line);
    if (parent === undefined) return this._later(context);
    this.status = null;
    for (const uuid of line.supersedes ?? []) {
      const old = this._byUuid.get(uuid);
      if (old) this._remove(old);
    }
    const { message } = line;
    if (!parent && message.model && !message.model.startsWith("<")) this.model = message.model;
    this._countFinished(message);
    const stream = this._streams.get(line.parent_tool_use_id ?? "");
    for (const block of message.content ?? []) {
      const streamed = stream?.id === message.id ? this._takeStreamed(stream, block) : null;
      this._finishBlock(block, line, context, parent, streamed);
    }
  }

  _countFinished(message) {
    const count = (this._finished.get(message.id) ?? 0) + (message.content?.length ?? 0);
    this._finished.delete(message.id);
    this._finished.set(message.id, count);
    if (this._finished.size > MESSAGES_KEPT) this._finished.delete(this._finished.keys().next().value);
  }

  _takeStreamed(stream, block) {
    const kind = KIND_OF_BLOCK[block.type];
    return (
      stream.items.find(
        (item) => item.isStreaming && item.kind === kind && (kind !== "tool" || item.id === block.id),
      ) ?? null
    );
  }

  _finishBlock(block, line, context, parent, streamed) {
    const kind = KIND_OF_BLOCK[block.type];
    const source = { messageId: line.message.id, model: line.message.model, usage: line.message.usage };
    const isError = Boolean(line.error ?? line.is_api_error_message);
    if (kind === "tool") {
      const item = streamed ?? this._tools.get(block.id) ?? this._addTool(block, {}, context, parent);
      this._settle(
        item,
        { input: block.input ?? {}, partialInput: undefined, meta: line.tool_use_meta, ...source },
        line,
        context,
      );
      if (!parent) this._readTodos(item);
      return;
    }
    if (SERVER_RESULT.test(block.type)) return this._join(block, line, context, null);
    let text = block.text ?? block.thinking;
    if (block.type === "redacted_thinking") text = "";
    if (kind === undefined || typeof text !== "string") {
      this._add({ kind: "unknown", name: `block ${block.type}`, line: block }, context, parent);
      return;
    }
    if (!streamed && kind === "thinking" && !text) return;
    const found = { kind: isError ? "notice" : kind, level: isError ? "error" : undefined, text, ...source };
    found.durationMs = line.thinking_duration_ms;
    found.isCut = Boolean(line.aborted);
    if (streamed) this._settle(streamed, found, line, context);
    else this._add(found, context, parent);
  }

  /* A streamed item becomes the stored one. */
  _settle(item, fields, line, { number, time }) {
    Object.assign(item, fields, { isStreaming: false, number: number ?? item.number, time: time ?? item.time });
    if (!item.uuid && line.uuid) {
      item.uuid = line.uuid;
      this._byUuid.set(line.uuid, item);
    }
    this._touch(item);
  }

  _addTool(block, more, context, parent) {
    const item = { kind: "tool", id: block.id, name: String(block.name ?? "tool"), input: block.input ?? {} };
    Object.assign(item, { children: [], result: null, task: null, elapsedSeconds: null, ...more });
    this._add(item, context, parent);
    this._tools.set(block.id, item);
    return item;
  }

  /* Prompts and what the engine says as a user. */

  _onUser(line, context) {
    const content = line.message?.content;
    const blocks =
      typeof content === "string" ? [{ type: "text", text: content }] : Array.isArray(content) ? content : [];
    const parent = this._parent(line);
    if (parent === undefined) return this._later(context);
    const results = blocks.filter((block) => block.type === "tool_result");
    for (const block of results)
      this._join(block, line, context, results.length === 1 ? line.tool_use_result : undefined);
    const rest = blocks.filter((block) => block.type !== "tool_result");
    if (!rest.length) return;
    const text = rest
      .map((block) => (block.type === "text" ? block.text : ""))
      .filter(Boolean)
      .join("\n\n");
    const output = COMMAND_OUTPUT.exec(text);
    if (INTERRUPTED.test(text)) this._add({ kind: "mark", mark: "interruption", text }, context, parent);
    else if (output) this._add({ kind: "notice", level: "info", text: output[1], isOutput: true }, context, parent);
    else if (line.isSynthetic || NOTE_FROM_ENGINE.test(text))
      this._add({ kind: "notice", level: "quiet", text, title: titleOfNote(text) }, context, parent);
    else this._takePrompt(line, rest, text, context, parent);
  }

  _takePrompt(line, blocks, text, context, parent) {
    const known = line.uuid && this._prompts.get(line.uuid);
    if (known) {
      known.number ??= context.number;
      known.time ??= context.time;
      if (known.state === "pending") known.state = this.state === "idle" ? "sent" : "queued";
      return this._touch(known);
    }
    const images = blocks.filter((block) => block.type === "image" || block.type === "document");
    const prompt = { kind: "prompt", text, images, uuid: line.uuid, state: "sent", children: undefined };
    if (parent) return void this._add({ ...prompt, isToAgent: true }, context, parent);
    const isWaiting = line.isReplay !== true && this.state !== "idle" && line.uuid;
    if (isWaiting) {
      Object.assign(prompt, {
        state: "queued",
        key: ++this._keys,
        rev: 0,
        number: context.number,
        time: context.time,
        parent: null,
      });
      this.queue.push(prompt);
    } else this._add(prompt, context);
    if (line.uuid) {
      this._prompts.set(line.uuid, prompt);
      this._byUuid.set(line.uuid, prompt);
    }
    this.revision++;
  }

  /* Show a prompt of this page before the server has confirmed it. */
  expectPrompt(uuid, content) {
    this.apply({ type: "user", uuid, message: { role: "user", content } });
    const prompt = this._prompts.get(uuid);
    if (prompt.state === "sent") prompt.state = "pending";
    return prompt;
  }

  /* The server refused a prompt, or it was cancelled. */
  forgetPrompt(uuid) {
    const prompt = this._prompts.get(uuid);
    if (!prompt) return;
    this._prompts.delete(uuid);
    this._byUuid.delete(uuid);
    this._unqueue(prompt);
    if (this.items.includes(prompt)) this._remove(prompt);
    this.revision++;
  }

  _unqueue(prompt) {
    const index = this.queue.indexOf(prompt);
    if (index >= 0) this.queue.splice(index, 1);
    return index >= 0;
  }

  _startPrompt(uuid, state) {
    const prompt = this._prompts.get(uuid);
    if (!prompt) return false;
    if (this._unqueue(prompt)) {
      this.items.push(prompt);
      this.shape++;
    }
    prompt.state = state;
    this._touch(prompt);
    return true;
  }

  _onLifecycle(line, context) {
    const { command_uuid: uuid, state } = line;
    if (!this._prompts.has(uuid)) {
      if (state !== "completed") this._later(context);
      return;
    }
    if (state === "cancelled") {
      const prompt = this._prompts.get(uuid);
      if (this._unqueue(prompt)) this.forgetPrompt(uuid);
      else this._startPrompt(uuid, state);
    } else if (state === "started" || state === "completed") this._startPrompt(uuid, state);
  }

  /* Tool results. */

  _join(block, line, context, details) {
    const item = this._tools.get(block.tool_use_id);
    if (!item) return this._later({ ...context, line: { ...line, message: { ...line.message, content: [block] } } });
    item.result = {
      content: block.content ?? "",
      isError: Boolean(block.is_error) || /_error$/.test(block.content?.type ?? ""),
      details: details && typeof details === "object" ? details : null,
      time: context.time,
    };
    item.isStreaming = false;
    this._touch(item);
    if (!item.parent) this._readTodos(item);
  }

  _readTodos(item) {
    if (item.name === "TodoWrite" && Array.isArray(item.input.todos)) this.todos = item.input.todos.filter(isObject);
    else if (item.name === "TaskCreate" || item.name === "TaskUpdate") {
      const details = item.result?.details;
      if (!details) return;
      const id = details.task?.id ?? details.taskId;
      const { subject, status, activeForm } = item.input;
      const known = this._todoItems.get(id) ?? { content: details.task?.subject ?? `#${id}`, status: "pending" };
      const changed = {
        ...known,
        content: subject ?? known.content,
        status: status ?? known.status,
        activeForm: activeForm ?? known.activeForm,
      };
      if (status === "deleted") this._todoItems.delete(id);
      else this._todoItems.set(id, changed);
      this.todos = [...this._todoItems.values()];
    }
  }

  _onToolProgress(line) {
    const item = this._tools.get(line.tool_use_id);
    if (!item) return;
    item.elapsedSeconds = line.elapsed_time_seconds;
    this._touch(item);
  }

  /* Tasks. */

  _onTaskStarted(line, context) {
    const item = this._tools.get(line.tool_use_id);
    if (line.tool_use_id && !item) this._later(context);
    const task = this.tasks.get(line.task_id) ?? {
      id: line.task_id,
      parentId: null,
      toolId: line.tool_use_id,
      description: line.description,
      type: line.task_type,
      agent: line.subagent_type,
      prompt: line.prompt,
      isBackground: Boolean(line.is_backgrounded),
      status: "running",
      startedAt: context.time,
      usage: null,
      activity: null,
      summary: null,
      outputFile: null,
    };
    task.parentId = line.parent_task_id ?? this._taskAround(line.tool_use_id);
    this.tasks.set(line.task_id, task);
    if (item) {
      item.task = task;
      this._touch(item);
    }
  }

  _taskAround(toolId) {
    for (let item = this._tools.get(toolId)?.parent; item; item = item.parent) if (item.task) return item.task.id;
    return null;
  }

  _onTask(line, context) {
    const task = this.tasks.get(line.task_id);
    if (!task) return this._later(context);
    if (line.subtype === "task_progress") {
      task.usage = line.usage ?? task.usage;
      task.activity = line.description ?? line.last_tool_name;
      task.summary = line.summary ?? task.summary;
    } else if (line.subtype === "task_updated") {
      const { status, is_backgrounded: isBackground, error } = line.patch ?? {};
      if (status) task.status = status;
      if (isBackground !== undefined) task.isBackground = Boolean(isBackground);
      if (error) task.error = String(error);
    } else {
      task.status = line.status;
      task.summary = line.summary;
      task.usage = line.usage ?? task.usage;
      task.outputFile = line.output_file;
    }
    const item = this._tools.get(task.toolId);
    if (item) this._touch(item);
  }

  /* Questions. */

  _onRequest(line, context) {
    if (line.request?.subtype === "hook_callback" || line.request?.subtype === "mcp_message") return;
    this.requests.set(String(line.request_id), {
      id: String(line.request_id),
      request: line.request,
      time: context.time,
    });
    this._touchTool(line.request?.tool_use_id);
  }

  _onDecided(line, context) {
    const request = this._closeRequest(line.request_id);
    if (!request) this._later(context);
    const times = { askedAt: request?.time, decidedAt: context.time };
    const decision = { by: line.decided_by, behavior: line.behavior, request: request?.request, ...times };
    this.decisions.set(String(line.request_id), decision);
    this._linkDecision(decision);
  }

  _linkDecision(decision) {
    const item = this._tools.get(decision.request?.tool_use_id);
    if (!item || item.decision) return;
    item.decision = decision;
    this._touch(item);
  }

  _closeRequest(id) {
    const request = this.requests.get(String(id));
    this.requests.delete(String(id));
    this._touchTool(request?.request?.tool_use_id);
    return request;
  }

  _touchTool(id) {
    const item = id && this._tools.get(id);
    if (item) this._touch(item);
  }

  /* Turns. */

  _onInit(line) {
    this.cwd = line.cwd ?? this.cwd;
    this.model = line.model ?? this.model;
    this.mode = line.permissionMode ?? this.mode;
    this.commands = line.slash_commands ?? this.commands;
    for (const uuid of line.user_message_uuids ?? []) this._startPrompt(uuid, "started");
  }

  _onState(line) {
    this.state = line.state;
    if (line.state === "idle") {
      this.status = null;
      this._endStreams();
    }
  }

  _onStatus(line) {
    this.status = line.status ?? null;
    if (line.permissionMode) this.mode = line.permissionMode;
    if (line.compact_error) this._add({ kind: "notice", level: "error", text: line.compact_error }, { line });
  }

  _onResult(line, context) {
    for (const uuid of line.user_message_uuids ?? []) this._startPrompt(uuid, "completed");
    this._endStreams();
    this.status = null;
    if (typeof line.total_cost_usd === "number") this.costUsd = line.total_cost_usd;
    const errors = (line.errors ?? []).filter((text) => typeof text === "string");
    const isError = Boolean(line.is_error) || String(line.subtype).startsWith("error");
    if (isError && !errors.length && line.result) errors.push(line.result);
    const last = this.items.at(-1);
    const isKnown =
      isError && last?.kind === "notice" && last.level === "error" && errors.every((text) => text === last.text);
    this._add(
      {
        kind: "result",
        isError,
        outcome: line.subtype,
        reason: line.terminal_reason,
        errors: isKnown ? [] : errors /* not twice */,
        costUsd: costOfTurn(line),
        durationMs: line.duration_ms ?? null,
        apiMs: line.duration_api_ms ?? null,
        turns: line.num_turns ?? null,
        usage: line.usage ?? null,
        denials: line.permission_denials ?? [],
      },
      context,
    );
  }

  _onMark(line, context) {
    const mark = line.type === "conversation_reset" ? "reset" : "compaction";
    this._add({ kind: "mark", mark, details: line.compact_metadata ?? null }, context);
    if (mark === "reset") this.todos = [];
  }

  _onNotice(line, context) {
    const parent = this._parent(line) ?? null;
    this._add({ kind: "notice", ...NOTICES[line.subtype](line) }, context, parent);
  }

  _onHook(line, context) {
    if (line.outcome !== "success") {
      const text = [line.hook_name, line.outcome, line.stderr || line.output].filter(Boolean).join("\n");
      this._add({ kind: "notice", level: "warning", title: "Hook", text }, context);
    }
  }

  _onRetracted(line, context) {
    for (const uuid of line.retracted_message_uuids ?? []) {
      const item = this._byUuid.get(uuid);
      if (item) this._remove(item);
    }
    this._onNotice(line, context);
  }
}

/* Tables that are read with words of others have no prototype. */
const KIND_OF_BLOCK = {
  __proto__: null,
  text: "text",
  thinking: "thinking",
  redacted_thinking: "thinking",
  tool_use: "tool",
  server_tool_use: "tool",
};
const SERVER_RESULT = /_tool_result$/;

const { prototype } = Conversation;
const HANDLERS = {
  __proto__: null,
  assistant: prototype._onAssistant,
  user: prototype._onUser,
  stream_event: prototype._onStreamEvent,
  tool_progress: prototype._onToolProgress,
  command_lifecycle: prototype._onLifecycle,
  control_request: prototype._onRequest,
  result: prototype._onResult,
  conversation_reset: prototype._onMark,
  control_cancel_request(line, context) {
    if (!this._closeRequest(line.request_id) && !this.decisions.has(String(line.request_id))) this._later(context);
  },
  "gateway/question_decided": prototype._onDecided,
  "system/init": prototype._onInit,
  "system/session_state_changed": prototype._onState,
  "system/status": prototype._onStatus,
  "system/compact_boundary": prototype._onMark,
  "system/task_started": prototype._onTaskStarted,
  "system/task_progress": prototype._onTask,
  "system/task_updated": prototype._onTask,
  "system/task_notification": prototype._onTask,
  "system/hook_response": prototype._onHook,
  "system/model_refusal_fallback": prototype._onRetracted,
};

/* Messages that are shown as a line of text. */
const NOTICES = {
  informational: (line) => ({
    level: line.level === "warning" || line.level === "error" ? line.level : "info",
    text: line.content,
  }),
  notification: (line) => ({ level: "info", text: line.text }),
  local_command_output: (line) => ({ level: "info", text: line.content, isOutput: true }),
  permission_denied: (line) => ({ level: "warning", title: `${line.tool_name} was denied`, text: line.message }),
  api_retry: (line) => ({
    level: "warning",
    title: `The model call failed; attempt ${line.attempt} of ${line.max_retries} follows`,
    text: [line.error_status, line.error_message ?? line.error].filter(Boolean).join(" "),
  }),
  model_refusal_fallback: (line) => ({ level: "warning", text: line.content }),
  model_refusal_no_fallback: (line) => ({ level: "error", text: line.content }),
  session_writes_lost: (line) => ({ level: "error", text: `The transcript could not be written: ${line.error_code}` }),
  mirror_error: (line) => ({ level: "error", text: line.error }),
  plugin_install: (line) => ({
    level: line.error ? "error" : "info",
    text: [line.name, line.status, line.error].filter(Boolean).join(": "),
  }),
  worker_shutting_down: () => ({
    level: "info",
    text: "The server is stopping; the session continues when it is back.",
  }),
};
for (const subtype of Object.keys(NOTICES)) HANDLERS[`system/${subtype}`] ??= prototype._onNotice;

/* `total_cost_usd` is that of the session so far. */
function costOfTurn(line) {
  const models = Object.values(line.model_usage_since_last_result ?? {});
  return models.length ? models.reduce((sum, model) => sum + (model?.costUSD ?? 0), 0) : null;
}

function titleOfNote(text) {
  const tag = /^<([a-z-]+)>/.exec(text)?.[1];
  if (tag) return tag.replaceAll("-", " ");
  return text.startsWith("This session is being continued")
    ? "Summary of the conversation so far"
    : "Note of the engine";
}

function readTime(timestamp) {
  const ms = typeof timestamp === "string" ? Date.parse(timestamp) : NaN;
  return Number.isNaN(ms) ? null : ms / 1000;
}

function isObject(value) {
  return typeof value === "object" && value !== null;
}

/* How much of a frame (16 ms) is spent on lines before the browser may draw and take input. */
const BUDGET_MS = 8;
const PAGE_LINES = 400;

/* Follows a session: the newest stored lines, then the socket after the last of them. Reconnects by itself.
 *
 * status: loading, live, lost (it tries again at `retryAt`), ended (`error` says why).
 */
export class SessionConnection {
  constructor({ api, id, conversation = new Conversation(), onChange = () => {}, onStatus = () => {}, ...system }) {
    this.api = api;
    this.id = id;
    this.conversation = conversation;
    this.status = "loading";
    this.error = null;
    this.isComplete = false; /* whether the oldest line is loaded */
    this._onChange = onChange;
    this._onStatus = onStatus;
    this._openSocket = system.openSocket ?? ((url, protocols) => new WebSocket(url, protocols));
    this._schedule = system.schedule ?? scheduleFrame;
    this._clock = system.clock ?? (() => performance.now());
    this._frames = [];
    this._isScheduled = false;
    this._socket = null;
    this._attempt = 0;
    this._timer = null;
    this._loading = null;
  }

  async start() {
    try {
      await this._loadNewest();
    } catch (error) {
      if (isFinal(error)) return this._setStatus("ended", error);
      this._setStatus("lost", error);
      return this._retry(() => this.start());
    }
    this._connect();
  }

  stop() {
    this._isStopped = true;
    clearTimeout(this._timer);
    this._socket?.close();
  }

  get path() {
    return `/sessions/${encodeURIComponent(this.id)}`;
  }

  async _loadNewest() {
    const page = await this.api.get(`${this.path}/lines`, { limit: PAGE_LINES });
    if (this._isStopped) return;
    for (const [number, time, line] of page.lines) this.conversation.apply(line, number, time);
    if (page.last > this.conversation.last) this.conversation.last = page.last;
    this.isComplete = !page.lines.length || page.first <= 1;
    this._onChange();
  }

  /* Load the page of lines before the oldest one; resolves to false if there is none. */
  loadOlder(limit = PAGE_LINES) {
    if (this.isComplete || this._isStopped) return Promise.resolve(false);
    this._loading ??= this._loadOlder(limit).finally(() => (this._loading = null));
    return this._loading;
  }

  async _loadOlder(limit) {
    const before = this.conversation.first;
    const page = await this.api.get(`${this.path}/lines`, { before, limit });
    if (this._isStopped) return false;
    this.isComplete = !page.lines.length || page.first <= 1;
    if (page.lines.length) this.conversation.prepend(page.lines);
    this._onChange();
    return page.lines.length > 0;
  }

  /* Load older lines until a message is there; resolves to the item or null. */
  async loadUntil(uuid) {
    let item = this.conversation.find(uuid);
    while (!item && (await this.loadOlder(2000))) item = this.conversation.find(uuid);
    return item;
  }

  _connect() {
    if (this._isStopped) return;
    const query = { after: this.conversation.last, numbered: true, partial: true };
    const socket = this._openSocket(this.api.socketUrl(`${this.path}/ws`, query), this.api.socketProtocols());
    this._socket = socket;
    socket.onopen = () => {
      this._attempt = 0;
      this._setStatus("live");
    };
    socket.onmessage = (event) => this._receive(event.data);
    socket.onclose = (event) => this._onClose(event);
  }

  async _onClose(event) {
    if (this._isStopped) return;
    this._flushAll();
    const reason = event.reason || "The connection was lost.";
    this._setStatus("lost", new Error(reason));
    /* A refused socket tells little, so ask why: deleted, wrong token, or just away. */
    try {
      await this.api.get(this.path);
    } catch (error) {
      if (isFinal(error)) return this._setStatus("ended", error);
    }
    this._retry(() => this._connect());
  }

  _retry(action) {
    if (this._isStopped) return;
    const wait = backoffMs(this._attempt++);
    this.retryAt = Date.now() + wait;
    this._timer = setTimeout(action, wait);
  }

  /* Do not wait for the next attempt. */
  retryNow() {
    if (this.status !== "lost") return;
    clearTimeout(this._timer);
    this._connect();
  }

  _setStatus(status, error = null) {
    this.status = status;
    this.error = error;
    this._onStatus(this);
  }

  _receive(data) {
    this._frames.push(data);
    if (this._isScheduled) return;
    this._isScheduled = true;
    this._schedule(() => this._flush());
  }

  _flush() {
    this._isScheduled = false;
    const end = this._clock() + BUDGET_MS;
    let index = 0;
    while (index < this._frames.length) {
      this._apply(this._frames[index++]);
      if (index % 16 === 0 && this._clock() > end) break;
    }
    this._frames = index < this._frames.length ? this._frames.slice(index) : [];
    if (this._frames.length) {
      this._isScheduled = true;
      this._schedule(() => this._flush());
    }
    this._onChange();
  }

  _flushAll() {
    const frames = this._frames;
    this._frames = [];
    for (const frame of frames) this._apply(frame);
    if (frames.length) this._onChange();
  }

  _apply(frame) {
    for (const row of frame.split("\n")) {
      if (!row) continue;
      const tab = row.indexOf("\t");
      const number = Number(row.slice(0, tab)) || null;
      this.conversation.apply(JSON.parse(row.slice(tab + 1)), number, number ? this.api.now() / 1000 : null);
    }
  }
}

function isFinal(error) {
  return error.status === 401 || error.status === 403 || error.status === 404;
}

/* Frames stop in a hidden tab. */
function scheduleFrame(action) {
  if (document.hidden) setTimeout(action, 100);
  else requestAnimationFrame(action);
}
