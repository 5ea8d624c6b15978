/* The shell: who is signed in, which view is shown, the navigation, and the banner for problems. */

import { Api } from "./api.js";
import { parseRoute, link, takeToken } from "./router.js";
import { Health, nameOf, QuestionStore, SessionStore, shownState, STATES } from "./stores.js";
import { Console, html, render, useConsole, useEffect, useState, useStore } from "./ui.js";
import { shorten } from "./text.js";
import { Icon } from "./widgets/icon.js";
import { useNotifications } from "./widgets/notifications.js";
import { Keys, useKeys } from "./widgets/keys.js";
import { StateDot } from "./widgets/state.js";
import { Toasts, ToastStore } from "./widgets/toasts.js";
import { Login } from "./views/login.js";

/* Views are loaded when they are first shown. */
const VIEWS = {
  sessions: () => import("./views/sessions.js"),
  conversation: () => import("./views/conversation.js"),
  inbox: () => import("./views/inbox.js"),
  costs: () => import("./views/costs.js"),
  wire: () => import("./views/wire.js"),
  compare: () => import("./views/compare.js"),
};

/* Of the pages that are not about one session. */
const TITLES = { sessions: "Sessions", inbox: "Inbox", costs: "Costs", compare: "Compare", unknown: "" };

/* Before anything is drawn: the token leaves the address. */
const api = new Api({ token: takeToken() });

function useRoute() {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const update = () => {
      const token = takeToken();
      if (token) {
        api.token = token;
        location.reload();
        return;
      }
      setRoute(parseRoute(location.hash));
    };
    addEventListener("hashchange", update);
    return () => removeEventListener("hashchange", update);
  }, []);
  return route;
}

function App() {
  const [me, setMe] = useState(undefined); /* undefined: not known yet; null: signed out */
  const [problem, setProblem] = useState(null);
  const signIn = async (token) => {
    api.token = token;
    try {
      setMe(await api.get("/me"));
      setProblem(null);
    } catch (error) {
      setMe(null);
      if (error.status !== 401 || token) setProblem(error);
    }
  };
  const signOut = (error = null) => {
    api.token = "";
    setProblem(error);
    setMe(null);
  };
  useEffect(() => {
    api.onUnauthorized = (error) => {
      if (api.token) signOut(error);
    };
    signIn(api.token);
  }, []);
  if (me === undefined) return html`<div class="boot" role="status">Connecting…</div>`;
  if (me === null) return html`<${Login} problem=${problem} onToken=${signIn} />`;
  return html`<${Shell} key=${me.name} me=${me} onSignOut=${() => signOut()} />`;
}

function makeContext(me) {
  const health = new Health();
  const can = (scope) => me.scopes.includes(scope) || me.scopes.includes("admin");
  return {
    api,
    me,
    can,
    health,
    questions: new QuestionStore(api, health),
    sessions: new SessionStore(api, health),
    toasts: new ToastStore(),
  };
}

function Shell({ me, onSignOut }) {
  const [context] = useState(() => makeContext(me));
  const route = useRoute();
  const [hasKeys, setKeys] = useState(false);
  useKeys({ canCreate: context.can("create"), onHelp: () => setKeys(true) });
  useEffect(() => {
    const stop = new AbortController();
    context.questions.follow(stop.signal);
    context.sessions.follow(stop.signal);
    return () => stop.abort();
  }, [context]);
  return html`<${Console.Provider} value=${context}>
    <a class="skip" href="#main" onClick=${skipToMain}>Skip to content</a>
    <div class="shell" data-view=${route.view}>
      <${Navigation} route=${route} onSignOut=${onSignOut} />
      <div class="stage">
        <${Banner} />
        <main id="main" tabindex="-1"><${View} route=${route} /></main>
      </div>
      <${Toasts} store=${context.toasts} />
      ${hasKeys && html`<${Keys} onClose=${() => setKeys(false)} />`}
    </div>
  </${Console.Provider}>`;
}

function skipToMain(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function Banner() {
  const { health } = useConsole();
  useStore(health);
  const problem = health.worst;
  return html`<div class="banner-place" role="status">
    ${
      problem &&
      html`<div class="banner">
        <${Icon} name="offline" />
        <span
          >${problem.title ?? "The connection to the server was lost."}
          <span class="muted">${problem.text} Trying again…</span></span
        >
        ${problem.retry && html`<button class="button small" onClick=${problem.retry}>Try now</button>`}
      </div>`
    }
  </div>`;
}

function Navigation({ route, onSignOut }) {
  const { me, questions, sessions } = useConsole();
  useStore(questions);
  useStore(sessions);
  useNotifications();
  const waiting = questions.open.length;
  const session = sessions.get(route.id);
  const title = TITLES[route.view] ?? (session ? shorten(nameOf(session), 60) : "Session");
  useEffect(() => {
    document.title = [waiting && `(${waiting})`, title && `${title} ·`, "Parley"].filter(Boolean).join(" ");
  }, [waiting, title]);
  const recent = sessions.search || sessions.state ? [] : sessions.sessions.slice(0, 12);
  return html`<nav class="nav" aria-label="Main">
    <a class="brand" href=${link.sessions()}><${Logo} /><span>Parley</span></a>
    <ul class="nav-main">
      <${NavItem} href=${link.sessions()} icon="sessions" label="Sessions" isHere=${route.view === "sessions"} />
      <${NavItem} href=${link.inbox()} icon="inbox" label="Inbox" isHere=${route.view === "inbox"} count=${waiting} />
      <${NavItem} href=${link.costs()} icon="costs" label="Costs" isHere=${route.view === "costs"} />
    </ul>
    ${
      recent.length > 0 &&
      html`<h2 class="nav-title" id="nav-recent">Recent</h2>
        <ul class="nav-recent" aria-labelledby="nav-recent">
          ${recent.map(
            (session) =>
              html`<li key=${session.id}>
                <a
                  href=${link.session(session.id)}
                  aria-current=${route.id === session.id ? "page" : undefined}
                  title=${`${STATES[session.state] ?? session.state}: ${nameOf(session)}`}
                >
                  <${StateDot} state=${shownState(session)} /><span class="ellipsis"><bdi>${nameOf(session)}</bdi></span>
                </a>
              </li>`,
          )}
        </ul>`
    }
    <div class="nav-foot">
      <span class="nav-me ellipsis" title=${me.scopes.join(", ")}
        ><${Icon} name="person" /> <bdi>${shorten(me.name, 40)}</bdi></span
      >
      <button class="icon-button" onClick=${onSignOut} title="Sign out" aria-label="Sign out">
        <${Icon} name="exit" />
      </button>
    </div>
  </nav>`;
}

function NavItem({ href, icon, label, isHere, count }) {
  return html`<li>
    <a href=${href} aria-current=${isHere ? "page" : undefined}>
      <${Icon} name=${icon} /><span>${label}</span>
      ${count > 0 && html`<span class="badge" aria-label=${`${count} open`}>${count}</span>`}
    </a>
  </li>`;
}

function Logo() {
  return html`<svg class="logo" viewBox="0 0 32 32" aria-hidden="true">
    <rect width="32" height="32" rx="8" />
    <path d="M9 24V9.5A1.5 1.5 0 0 1 10.5 8H18a5.5 5.5 0 0 1 0 11h-4.5" />
  </svg>`;
}

function View({ route }) {
  const [loaded, setLoaded] = useState({});
  const [error, setError] = useState(null);
  const load = VIEWS[route.view];
  useEffect(() => {
    setError(null);
    if (load && !loaded[route.view])
      load().then(
        (module) => setLoaded((all) => ({ ...all, [route.view]: module.View })),
        (reason) => setError(reason),
      );
    document.getElementById("main").scrollTop = 0;
  }, [route.view]);
  if (!load)
    return html`<${Empty} title="There is nothing here">This address does not exist. <a href="#/">Show all sessions</a></${Empty}>`;
  if (error) return html`<${Empty} title="This part of the page could not be loaded">${error.message}</${Empty}>`;
  const Shown = loaded[route.view];
  return Shown
    ? html`<${Shown} key=${route.id ?? route.left ?? ""} ...${route} />`
    : html`<div class="boot" role="status">Loading…</div>`;
}

function Empty({ title, children }) {
  return html`<div class="empty">
    <h1>${title}</h1>
    <p>${children}</p>
  </div>`;
}

render(html`<${App} />`, document.getElementById("app"));
