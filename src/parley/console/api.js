/* The HTTP API of the gateway: requests with a token, errors with a code, the server's clock, and event streams.
 *
 * The token lives in this object and nowhere else.
 */

export class ApiError extends Error {
  constructor(code, message, status) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

/* Codes of the page itself, besides those of the gateway. */
export const UNREACHABLE = "unreachable";
export const UNAUTHORIZED = "unauthorized";

export class Api {
  /* The page is at PREFIX/console/, where a proxy may have chosen the prefix. */
  constructor({ base = new URL("..", location.href).href.replace(/\/$/, ""), token = "", fetcher = (...args) => fetch(...args) } = {}) {
    this.base = base;
    this.token = token;
    this.skewMs = 0; /* what to add to our clock to get the server's */
    this.onUnauthorized = () => {};
    this._fetch = fetcher;
  }

  get(path, query) {
    return this._request("GET", path + formatQuery(query));
  }

  post(path, body = {}) {
    return this._request("POST", path, body);
  }

  /* The response itself, for downloads. */
  fetchRaw(path) {
    return this._request("GET", path, undefined, { raw: true });
  }

  delete(path) {
    return this._request("DELETE", path);
  }

  control(sessionId, request) {
    return this.post(`/sessions/${encodeURIComponent(sessionId)}/control`, request).then((reply) => reply.response);
  }

  /* The server's time in milliseconds. */
  now() {
    return Date.now() + this.skewMs;
  }

  socketUrl(path, query) {
    return this.base.replace(/^http/, "ws") + path + formatQuery(query);
  }

  /* Browsers cannot set headers of a WebSocket. */
  socketProtocols() {
    return this.token ? ["parley", `parley.token.${this.token}`] : ["parley"];
  }

  async _request(method, path, body, extra = {}) {
    const headers = { Accept: "application/json", ...extra.headers };
    if (this.token) headers.Authorization = `Bearer ${this.token}`;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const sentAt = Date.now();
    let response;
    try {
      response = await this._fetch(this.base + path, {
        method,
        headers,
        body: body === undefined ? undefined : JSON.stringify(body),
        signal: extra.signal,
        cache: "no-store",
        credentials: "omit",
      });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError(UNREACHABLE, "The server cannot be reached.", 0);
    }
    this._learnClock(response.headers.get("Date"), sentAt);
    if (extra.raw && response.ok) return response;
    const text = await response.text();
    let value = null;
    try {
      value = text ? JSON.parse(text) : null;
    } catch {
      if (response.ok)
        throw new ApiError("invalid_reply", `The reply to ${method} ${path} is not JSON.`, response.status);
    }
    if (response.ok) return value;
    const found = value?.error ?? {};
    const error = new ApiError(
      found.code ?? `http_${response.status}`,
      found.message ?? response.statusText,
      response.status,
    );
    if (response.status === 401) this.onUnauthorized(error);
    throw error;
  }

  /* `Date` has whole seconds, so that a difference below two seconds means nothing. */
  _learnClock(date, sentAt) {
    const server = Date.parse(date ?? "");
    if (Number.isNaN(server)) return;
    const skew = server + 500 - (sentAt + Date.now()) / 2;
    this.skewMs = Math.abs(skew) < 2000 ? 0 : skew;
  }

  /* Follow a stream of server-sent events until `signal` is aborted; reconnects by itself.
   * onEvent(data, id); onOpen() after each (re)connection; onLost(error) when it breaks. */
  async follow(path, { onEvent, onOpen = () => {}, onLost = () => {}, signal }) {
    let attempt = 0;
    while (!signal.aborted) {
      try {
        const response = await this._request("GET", path, undefined, {
          headers: { Accept: "text/event-stream" },
          signal,
          raw: true,
        });
        attempt = 0;
        onOpen();
        await readEvents(response.body, onEvent);
        onLost(new ApiError(UNREACHABLE, "The server closed the connection.", 0));
      } catch (error) {
        if (signal.aborted) return;
        onLost(error);
        if (error.status === 401 || error.status === 403 || error.status === 404) return;
      }
      await sleep(backoffMs(attempt++), signal);
    }
  }
}

async function readEvents(body, onEvent) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new EventParser(onEvent);
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    parser.feed(value);
  }
}

/* Splits a stream of server-sent events; calls onEvent with the parsed `data` of each. */
export class EventParser {
  constructor(onEvent) {
    this._onEvent = onEvent;
    this._rest = "";
    this._data = [];
    this._id = "";
  }

  feed(text) {
    const lines = (this._rest + text).split(/\r\n|\n|\r/);
    this._rest = lines.pop();
    for (const line of lines) this._line(line);
  }

  _line(line) {
    if (line === "") {
      if (this._data.length) this._onEvent(JSON.parse(this._data.join("\n")), this._id);
      this._data = [];
    } else if (line.startsWith("data:")) this._data.push(line.slice(line[5] === " " ? 6 : 5));
    else if (line.startsWith("id:")) this._id = line.slice(3).trim();
  }
}

/* Half a second, doubled up to 15 s, with a random part so that many pages do not come back at once. */
export function backoffMs(attempt, random = Math.random) {
  return Math.min(15000, 500 * 2 ** attempt) * (0.75 + random() / 2);
}

export function sleep(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

function formatQuery(query) {
  const given = Object.entries(query ?? {}).filter(
    ([, value]) => value !== undefined && value !== null && value !== "",
  );
  return given.length ? `?${new URLSearchParams(given)}` : "";
}
