// The official network clients, connected to a gateway.

import { EventEmitter } from "node:events";
import { createRequire } from "node:module";
import { PassThrough, Writable } from "node:stream";
import { pathToFileURL } from "node:url";
import { options, sdk, task, tell, user } from "./telling.mjs";

const installed = createRequire(`${task.packages}/`).resolve("@anthropic-ai/claude-agent-sdk/browser");
export const browser = await import(pathToFileURL(installed));

/** `session`: the id of a session, and for event streams the last number that was seen of it. */
export function connect(prompt, callbacks, session) {
  return connections[task.gateway.kind](prompt, callbacks, session);
}

const connections = {
  /** The token comes in the first frame: browsers cannot set headers of a WebSocket. */
  websocket: (prompt, callbacks, { id }) => {
    const { url, token } = task.gateway;
    const path = id ? `/sessions/${id}/ws` : "/ws";
    const authMessage = { type: "auth", credential: { type: "oauth", token } };
    const websocket = { url: `${url.replace("http", "ws")}${path}?partial=${task.partial}`, authMessage };
    return browser.query({ prompt: asStream(prompt), ...callbacks, websocket });
  },
  sse: async (prompt, callbacks, { id, last }) => {
    const sessionId = id ?? (await createSession());
    const sendUrl = `${task.gateway.url}/v1/code/sessions/${sessionId}/events`;
    const streamUrl = `${sendUrl}/stream?partial=${task.partial}`;
    const sse = { streamUrl, sendUrl, sessionId, headers: makeHeaders(), fromSequenceNum: last };
    sse.onDeliveryUpdate = ({ event_id, status }) => tell("delivery", [event_id, status]);
    sse.onCatchUpTruncated = () => tell("truncated");
    sse.fetchStream = (url, init, overHttp) => {
      tell("stream", { url, headers: Object.keys(init.headers) });
      return last === undefined ? fetch(url, init) : overHttp(); // by our own means, and by those of the SDK
    };
    return browser.query({ prompt: asStream(prompt), ...callbacks, sse });
  },
  direct: (prompt, callbacks) =>
    sdk.query({ prompt, options: { ...options(), ...callbacks, spawnClaudeCodeProcess: () => new DirectProcess() } }),
};

/** `query()` takes no transport, but it takes a process: this one's pipes end in a DirectConnectTransport. */
class DirectProcess extends EventEmitter {
  killed = false;
  exitCode = null;
  stdout = new PassThrough();
  #transport = new sdk.DirectConnectTransport(
    sdk.parseDirectConnectUrl(`${task.gateway.url.replace("http", "cc")}/${task.gateway.token}`),
  );
  #turns = 0;
  #rest = "";
  #inputEnded = false;
  stdin = new Writable({
    write: (chunk, _, done) => {
      const lines = (this.#rest + chunk).split("\n");
      this.#rest = lines.pop();
      for (const line of lines) if (JSON.parse(line).type === "user") this.#turns++;
      this.#transport.ready.then(() => lines.map((line) => this.#transport.write(line + "\n"))).then(() => done(), done);
    },
    final: (done) => {
      this.#inputEnded = true;
      this.#closeIfDone();
      done();
    },
  });

  constructor() {
    super();
    this.#read();
  }

  async #read() {
    try {
      for await (const message of this.#transport.readMessages()) {
        this.stdout.write(JSON.stringify(message) + "\n");
        if (message.type === "result") this.#turns--;
        this.#closeIfDone();
      }
      this.exitCode = 0;
    } catch (flaw) {
      this.emit("error", flaw);
      this.exitCode = 1;
    }
    this.stdout.end();
    this.emit("exit", this.exitCode, null);
  }

  #closeIfDone() {
    if (this.#inputEnded && this.#turns <= 0) this.#transport.close();
  }

  kill() {
    this.killed = true;
    this.#transport.close();
    return true;
  }
}

function makeHeaders() {
  return { Authorization: `Bearer ${task.gateway.token}` };
}

async function createSession() {
  const response = await fetch(`${task.gateway.url}/sessions`, { method: "POST", headers: makeHeaders(), body: "{}" });
  return (await response.json()).session_id;
}

async function* asStream(prompt) {
  if (typeof prompt === "string") yield user(prompt);
  else yield* prompt;
}
