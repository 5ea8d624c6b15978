// `query()` with a stream of prompts: one step after the other with one engine.

import { options, query, task, tell, tellError, user } from "./telling.mjs";

let handOver;
let next = new Promise((resolve) => (handOver = resolve));

/** Each prompt when its step has come; null ends the input. */
async function* prompts() {
  for (let content = await next; content !== null; content = await next) {
    next = new Promise((resolve) => (handOver = resolve));
    yield user(content);
  }
}

const conversation = await query({ prompt: prompts(), options: options() });

async function untilResult(seen = () => {}) {
  for (;;) {
    const { value: message, done } = await conversation.next();
    if (done) throw new Error("the stream ended before its result");
    tell("message", message);
    await seen(message);
    if (message.type === "result") return;
  }
}

const showsText = ({ type, event }) =>
  type === "assistant" || (type === "stream_event" && event.type === "content_block_delta");

const steps = {
  ask: async (prompt) => {
    handOver(prompt);
    await untilResult();
  },
  /** Interrupt as soon as the first text is seen. */
  ask_and_interrupt: async (prompt) => {
    let interrupted = false;
    handOver(prompt);
    await untilResult(async (message) => {
      if (interrupted || !showsText(message)) return;
      interrupted = true;
      tell("receipt", await conversation.interrupt());
    });
  },
  set_model: (name) => conversation.setModel(name ?? undefined),
  /** Call a method of the query object by its name. */
  call: async (name, ...values) => {
    try {
      tell("answered", [name, (await conversation[name](...values)) ?? null]);
    } catch (flaw) {
      tell("refused", [name, flaw.message]);
    }
  },
  /** The methods that the query object has, declared or not. */
  methods: () => tell("methods", Object.getOwnPropertyNames(Object.getPrototypeOf(conversation))),
  server_info: async () => tell("server_info", await conversation.initializationResult()),
};

try {
  for (const [name, ...values] of task.steps) await steps[name](...values);
  handOver(null);
  if (task.gateway) conversation.close(); // a socket stays open after its last prompt
  for await (const message of conversation) tell("message", message);
} catch (flaw) {
  tellError(flaw);
}
