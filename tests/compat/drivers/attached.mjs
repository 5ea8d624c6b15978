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

/** Send a prompt on a new connection and read until its result; the connection stays open for `use`. */
async function ask(content, session, use) {
  let finish;
  const finished = new Promise((resolve) => (finish = resolve));
  async function* prompts() {
    yield { ...user(content), uuid: session.id ? crypto.randomUUID() : uuid };
    await finished;
  }
  const conversation = await query({ prompt: prompts(), options: { ...options(), ...callbacks() }, ...session });
  let id;
  for (;;) {
    const { value: message } = await conversation.next();
    tell("message", message);
    id = message.session_id ?? id;
    if (message.type === "result") break;
  }
  await use(conversation);
  finish();
  const last = kind === "sse" ? browser.getSseLastSequenceNum(conversation) : undefined;
  if (kind === "sse") tell("dropped", browser.getSseDropCounts(conversation));
  conversation.close();
  return { id, last };
}

try {
  const session = await ask("Make it", {}, async (conversation) => {
    tell("rewound", await conversation.rewindFiles(uuid));
    await conversation.setPermissionMode("plan");
    tell("servers", await conversation.mcpServerStatus());
    if (kind === "sse") {
      tell("suspended", browser.suspendSseStream(conversation));
      tell("resumed", browser.resumeSseStream(conversation));
      tell("commands", await conversation.supportedCommands());
    }
  });
  tell("first", session);
  // A DirectConnectTransport always makes a session of its own.
  if (kind !== "direct") await ask("Again", session, async () => {});
} catch (flaw) {
  tellError(flaw);
}
