// Drive `parley acp` with the official TypeScript library of the Agent Client Protocol, as the task says.

import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const task = JSON.parse(process.argv[2]);
const require = createRequire(`${task.packages}/package.json`);
const { client, ndJsonStream, methods } = await import(pathToFileURL(require.resolve("@agentclientprotocol/sdk")).href);

const tell = (what, value) => process.stdout.write(`${JSON.stringify([what, value ?? null])}\n`);
const answers = [...(task.answers ?? [])];
let agent;
let sessionId = "";

const app = client({ name: "editor" })
  .onNotification(methods.client.session.update, ({ params }) => tell("update", params.update))
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

const child = spawn(task.engine, ["acp", ...(task.flags ?? [])], { stdio: ["pipe", "pipe", "inherit"] });
const exited = new Promise((resolve) => child.on("exit", resolve));
const connection = app.connect(ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout)));
agent = connection.agent;
const clientCapabilities = task.form ? { elicitation: { form: {} } } : {};
tell("result", await agent.request(methods.agent.initialize, { protocolVersion: 1, clientCapabilities }));
for (const [name, ...given] of task.steps) {
  try {
    tell("result", await (steps[name] ?? (() => agent.request(name, { sessionId, ...given[0] })))(...given));
  } catch (error) {
    if (typeof error?.code !== "number") throw error;
    tell("error", { code: error.code, message: error.message });
  }
}
child.stdin.end();
tell("exit", await exited);
process.exit(0);
