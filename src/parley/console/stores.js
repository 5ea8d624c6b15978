/* What several views share: the sessions, the open questions, and how well the server can be reached. */

import { shorten } from "./text.js";
import { Store } from "./ui.js";

/* Problems with the connection, by where they were noticed. The banner shows them. */
export class Health extends Store {
  constructor() {
    super();
    this.problems = new Map();
  }

  set(source, problem) {
    if (!problem && !this.problems.has(source)) return;
    if (problem) this.problems.set(source, problem);
    else this.problems.delete(source);
    this.changed();
  }

  get worst() {
    return [...this.problems.values()][0] ?? null;
  }
}

/* The questions of all sessions: open ones, and those that were decided while the page was open. */
export class QuestionStore extends Store {
  constructor(api, health) {
    super();
    this.api = api;
    this.isLoaded = false;
    this._health = health;
    this._known = new Map();
  }

  follow(signal) {
    return this.api.follow("/questions/events", {
      signal,
      onOpen: () => {
        this._health.set("questions", null);
        this._refresh();
      },
      onLost: (error) => this._health.set("questions", { text: error.message, error }),
      onEvent: (question) => this._take(question),
    });
  }

  /* Questions that were decided while the stream was away are not sent again. */
  async _refresh() {
    const before = new Map(this._known);
    const { questions } = await this.api.get("/questions").catch(() => ({ questions: null }));
    if (!questions) return;
    const open = new Set(questions.map(keyOf));
    // An event that came since is newer than the list.
    const isUnchanged = (key) => this._known.get(key) === before.get(key);
    for (const [key, question] of before) if (question.state === "open" && !open.has(key) && isUnchanged(key)) this._known.delete(key);
    for (const question of questions) if (isUnchanged(keyOf(question))) this._known.set(keyOf(question), question);
    this.isLoaded = true;
    this.changed();
  }

  _take(question) {
    this.isLoaded = true;
    this._known.set(keyOf(question), question);
    this.changed();
  }

  get open() {
    return [...this._known.values()]
      .filter((question) => question.state === "open")
      .sort((a, b) => a.asked_at - b.asked_at);
  }

  ofSession(id) {
    return this.open.filter((question) => question.session === id);
  }

  /* What was decided while the page was open, newest first. */
  get decisions() {
    return [...this._known.values()]
      .filter((question) => question.state !== "open")
      .sort((a, b) => (b.decided_at ?? 0) - (a.decided_at ?? 0));
  }

  decided(id) {
    return this.decisions.filter((question) => question.session === id);
  }

  find(session, requestId) {
    return this._known.get(keyOf({ session, request_id: requestId })) ?? null;
  }

  async answer(question, answer) {
    const decided = await this.api.post(`${pathOf(question)}/answer`, answer);
    this._take(decided);
    return decided;
  }
}

export function pathOf(question) {
  return `/questions/${encodeURIComponent(question.session)}/${encodeURIComponent(question.request_id)}`;
}

function keyOf(question) {
  return `${question.session}/${question.request_id}`;
}

const PAGE = 200;

/* The sessions that the search and the filter find, the last used first. */
export class SessionStore extends Store {
  constructor(api, health) {
    super();
    this.api = api;
    this.search = "";
    this.state = "";
    this.sessions = [];
    this.total = 0;
    this.isLoaded = false;
    this.error = null;
    this._health = health;
    this._request = 0;
  }

  follow(signal) {
    return this.api.follow("/sessions/events", {
      signal,
      onOpen: () => {
        this._health.set("sessions", null);
        this.load();
      },
      onLost: (error) => this._health.set("sessions", { text: error.message, error }),
      onEvent: (event) => this._take(event),
    });
  }

  find(query) {
    Object.assign(this, query);
    return this.load();
  }

  async load({ more = false } = {}) {
    const request = ++this._request;
    const offset = more ? this.sessions.length : 0;
    const limit = more ? PAGE : Math.max(PAGE, Math.min(1000, this.sessions.length));
    try {
      const page = await this.api.get("/sessions", { search: this.search, state: this.state, limit, offset });
      if (request !== this._request) return;
      const known = new Set(more ? this.sessions.map((each) => each.id) : []);
      this.sessions = more ? [...this.sessions, ...page.sessions.filter((each) => !known.has(each.id))] : page.sessions;
      this.total = page.total ?? this.sessions.length;
      this.error = null;
    } catch (error) {
      if (request !== this._request) return;
      this.error = error;
    }
    this.isLoaded = true;
    this.changed();
  }

  _take(event) {
    if (event.type === "deleted") {
      const before = this.sessions.length;
      this.sessions = this.sessions.filter((each) => each.id !== event.id);
      this.total -= before - this.sessions.length;
    } else if (event.type === "session") {
      const { session } = event;
      const index = this.sessions.findIndex((each) => each.id === session.id);
      if (index >= 0) {
        const isFiltered = this.state && session.state !== this.state;
        const changed = { ...session, match: this.sessions[index].match };
        if (isFiltered) this.sessions = this.sessions.filter((each) => each.id !== session.id);
        else this.sessions = this.sessions.with(index, changed);
      } else if (!this.search && (!this.state || this.state === session.state)) {
        this.sessions = [session, ...this.sessions];
        this.total++;
      }
      this.sessions = this.search ? this.sessions : this.sessions.toSorted((a, b) => b.used_at - a.used_at);
    }
    this.changed();
  }

  get(id) {
    return this.sessions.find((each) => each.id === id) ?? null;
  }
}

export const STATES = {
  __proto__: null,
  running: "Working",
  requires_action: "Waits for you",
  idle: "Idle",
  failed: "Failed",
  elsewhere: "In another program",
};

/* What a session is doing, or that another program runs it. */
export function shownState(session) {
  return session.is_elsewhere ? "elsewhere" : session.state;
}

export function nameOf(session) {
  return shorten(session.title || session.preview || "Untitled session", 80);
}
