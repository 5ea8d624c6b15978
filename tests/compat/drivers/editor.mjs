// Drive `parley acp` with the official TypeScript library of the Agent Client Protocol, as the task says.

import { spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const task = JSON.parse(process.argv[2]);
const require = createRequire(`${task.packages}/package.json`);
const { client, ndJsonStream, methods, RequestError } = await import(pathToFileURL(require.resolve("@agentclientprotocol/sdk")).href);

const tell = (what, value) => process.stdout.write(`${JSON.stringify([what, value ?? null])}\n`);
const answers = [...(task.answers ?? [])];
const buffers = { ...task.buffers };
let agent;
let sessionId = "";

const app = client({ name: "editor" })
  .onNotification(methods.client.session.update, ({ params }) => {
    tell("update", params.update);
    if (task.touch_after_output && params.update._meta?.terminal_output) writeFileSync(task.touch_after_output, "");
  })
  .onRequest(methods.client.fs.readTextFile, ({ params }) => {
    tell("read", params.path);
    return { content: buffers[params.path] ?? readFileSync(params.path, "utf-8") };
  })
  .onRequest(methods.client.fs.writeTextFile, ({ params }) => {
    tell("wrote", { path: params.path, content: params.content });
    if (task.refuses_writes) throw new RequestError(-32603, "the buffer is locked");
    delete buffers[params.path];
    writeFileSync(params.path, params.content);
    return {};
  })
  .onRequest(methods.client.elicitation.create, ({ params }) => {
    tell("form", { message: params.message, mode: params });
    return { action: "accept", content: task.form };
  })
  .onRequest(methods.client.session.requestPermission, async ({ params }) => {
    tell("asked", { toolCall: params.toolCall, options: params.options });
    const wanted = answers.shift();
    if (wanted.startsWith("cancel")) {
      await agent.notify(methods.agent.session.cancel, { sessionId });
      return wanted === "cancel" ? { outcome: { outcome: "cancelled" } } : await new Promise(() => {});
    }
    const chosen = params.options.find((option) => [option.kind, option.optionId].includes(wanted));
    return { outcome: { outcome: "selected", optionId: chosen.optionId } };
  });

const cwd = process.cwd();
const steps = {
  new: async (mcpServers = []) => {
    const made = await agent.request(methods.agent.session.new, { cwd, mcpServers });
    sessionId = made.sessionId;
    return made;
  },
  prompt: (prompt) => agent.request(methods.agent.session.prompt, { sessionId, prompt }),
  mode: (modeId) => agent.request(methods.agent.session.setMode, { sessionId, modeId }),
  config: (configId, value) => agent.request(methods.agent.session.setConfigOption, { sessionId, configId, value }),
  load: () => agent.request(methods.agent.session.load, { sessionId, cwd, mcpServers: [] }),
  resume: () => agent.request(methods.agent.session.resume, { sessionId, cwd, mcpServers: [] }),
  fork: () => agent.request("session/fork", { sessionId, cwd, mcpServers: [] }),
  list: () => agent.request(methods.agent.session.list, { cwd }),
  close: () => agent.request(methods.agent.session.close, { sessionId }),
};

let ended;
if (task.gateway) {
  const { createWebSocketStream } = await import(
    pathToFileURL(require.resolve("@agentclientprotocol/sdk/experimental/ws-client")).href
  );
  const protocols = ["parley", `parley.token.${task.gateway.token}`];
  const connection = app.connect(createWebSocketStream(`${task.gateway.url.replace("http", "ws")}/acp`, { protocols }));
  agent = connection.agent;
  ended = async () => {
    connection.close();
    return 0;
  };
} else {
  const child = spawn(task.engine, ["acp", ...(task.flags ?? [])], { stdio: ["pipe", "pipe", "inherit"] });
  const exited = new Promise((resolve) => child.on("exit", resolve));
  agent = app.connect(ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout))).agent;
  ended = () => {
    child.stdin.end();
    return exited;
  };
}
const form = task.form ? { elicitation: { form: {} } } : {};
const clientCapabilities = { ...form, ...task.capabilities };
tell("result", await agent.request(methods.agent.initialize, { protocolVersion: 1, clientCapabilities }));
for (const [name, ...given] of task.steps) {
  try {
    tell("result", await (steps[name] ?? (() => agent.request(name, { sessionId, ...given[0] })))(...given));
  } catch (error) {
    if (typeof error?.code !== "number") throw error;
    tell("error", { code: error.code, message: error.message });
  }
}
tell("exit", await ended());
process.exit(0);
