// The official browser client in a page: one prompt over each connection, and what it hands out, posted to the page's server.

const task = await (await fetch("task.json")).json();
const tell = (what, value) => fetch("told", { method: "POST", body: JSON.stringify([what, value ?? null]) });

async function* one(content, finished) {
  yield { type: "user", message: { role: "user", content }, parent_tool_use_id: null };
  await finished;
}

async function connection(kind) {
  const { url, token } = task;
  const headers = { Authorization: `Bearer ${token}` };
  if (kind === "websocket") {
    const authMessage = { type: "auth", credential: { type: "oauth", token } };
    return { websocket: { url: `${url.replace("http", "ws")}/ws?partial=true`, authMessage } };
  }
  const created = await fetch(`${url}/sessions`, { method: "POST", headers, body: "{}" });
  const { session_id: sessionId } = await created.json();
  const sendUrl = `${url}/v1/code/sessions/${sessionId}/events`;
  return { sse: { streamUrl: `${sendUrl}/stream?partial=true`, sendUrl, sessionId, headers } };
}

for (const kind of task.kinds) {
  try {
    const { query, createSdkMcpServer, tool } = await import("./browser-sdk.js");
    const canUseTool = async (name, input) => (await tell("asked", [kind, name]), { behavior: "allow", updatedInput: input });
    const secret = tool("secret", "Tells the secret", {}, async () => ({ content: [{ type: "text", text: "forty-two" }] }));
    const mcpServers = { host: createSdkMcpServer({ name: "host", tools: [secret] }) };
    const hooks = { PreToolUse: [{ hooks: [async ({ tool_name }) => (await tell("hook", [kind, tool_name]), {})] }] };
    const prompt = one(task.prompt, new Promise(() => {}));
    const conversation = query({ prompt, canUseTool, hooks, mcpServers, ...(await connection(kind)) });
    for await (const message of conversation) {
      await tell("message", [kind, message]);
      if (message.type === "result") break;
    }
    await tell("models", [kind, await conversation.supportedModels()]);
    conversation.close();
  } catch (flaw) {
    await tell("raised", [kind, `${flaw.name}: ${flaw.message}`.slice(0, 300)]);
  }
}
await tell("end");
