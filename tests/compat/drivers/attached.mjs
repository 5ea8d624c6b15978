// Two connections to one session of a gateway, with a hook, `canUseTool` and an MCP server of the client.

import { browser } from "./network.mjs";
import { options, query, sdk, task, tell, tellError, user } from "./telling.mjs";

const { kind } = task.gateway;
const uuid = crypto.randomUUID();

function callbacks() {
  const { tool, createSdkMcpServer } = kind === "direct" ? sdk : browser;
  const secret = tool("secret", "Tells the secret", {}, async () => ({ content: [{ type: "text", text: "forty-two" }] }));
  const note = async ({ hook_event_name, tool_name }) => (tell("hook", [hook_event_name, tool_name]), {});
  return {
    canUseTool: async (name, input) => (tell("asked", name), { behavior: "allow", updatedInput: input }),
    hooks: { PreToolUse: [{ hooks: [note] }] },
    mcpServers: { host: createSdkMcpServer({ name: "host", tools: [secret] }) },
  };
}

/** Send a prompt on a new connection, then what `use` hands to `send`. */
async function converse(content, session, use) {
  let handOver;
  let next = new Promise((resolve) => (handOver = resolve));
  async function* prompts() {
    yield { ...user(content), uuid: session.id ? crypto.randomUUID() : uuid };
    for (let more = await next; more !== null; more = await next) {
      next = new Promise((resolve) => (handOver = resolve));
      yield user(more);
    }
  }
  const conversation = await query({ prompt: prompts(), options: { ...options(), ...callbacks() }, ...session });
  let id;
  async function untilResult() {
    for (;;) {
      const { value: message } = await conversation.next();
      tell("message", message);
      id = message.session_id ?? id;
      if (message.type === "result") return;
    }
  }
  await untilResult();
  await use(conversation, async (more) => (handOver(more), await untilResult()));
  handOver(null);
  const last = kind === "sse" ? browser.getSseLastSequenceNum(conversation) : undefined;
  if (kind === "sse") tell("dropped", browser.getSseDropCounts(conversation));
  conversation.close();
  return { id, last };
}

tell("prompt", uuid);
try {
  const session = await converse("Make it", {}, async (conversation, send) => {
    tell("rewound", await conversation.rewindFiles(uuid));
    tell("servers", await conversation.mcpServerStatus());
    if (kind !== "sse") return;
    // The stream is opened again without a new `initialize`; the callbacks must still be found.
    tell("suspended", browser.suspendSseStream(conversation));
    tell("resumed", browser.resumeSseStream(conversation));
    await send("And the secret?");
    tell("commands", await conversation.supportedCommands());
  });
  tell("first", session);
  // A DirectConnectTransport always makes a session of its own.
  if (kind !== "direct") await converse("Again", session, async () => {});
} catch (flaw) {
  tellError(flaw);
}
