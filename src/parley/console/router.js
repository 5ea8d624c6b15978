/* Routes are in the fragment, because the token may come in it too and fragments never reach a server. */

const ROUTES = [
  [/^\/?$/, () => ({ view: "sessions" })],
  [/^\/new$/, () => ({ view: "sessions", isNew: true })],
  [/^\/inbox$/, () => ({ view: "inbox" })],
  [/^\/costs$/, () => ({ view: "costs" })],
  [/^\/s\/([^/]+)$/, ([id]) => ({ view: "conversation", id })],
  [/^\/s\/([^/]+)\/m\/([^/]+)$/, ([id, uuid]) => ({ view: "conversation", id, uuid })],
  [/^\/s\/([^/]+)\/wire$/, ([id]) => ({ view: "wire", id })],
  [/^\/compare\/([^/]+)\/([^/]+)$/, ([left, right]) => ({ view: "compare", left, right })],
];

export function parseRoute(fragment) {
  const path = fragment.replace(/^#/, "");
  for (const [pattern, make] of ROUTES) {
    const found = pattern.exec(path);
    if (!found) continue;
    try {
      return make(found.slice(1).map(decodeURIComponent));
    } catch {
      break;
    }
  }
  return { view: "unknown", path };
}

const part = encodeURIComponent;
export const link = {
  sessions: () => "#/",
  newSession: () => "#/new",
  inbox: () => "#/inbox",
  costs: () => "#/costs",
  session: (id) => `#/s/${part(id)}`,
  message: (id, uuid) => `#/s/${part(id)}/m/${part(uuid)}`,
  wire: (id) => `#/s/${part(id)}/wire`,
  compare: (left, right) => `#/compare/${part(left)}/${part(right)}`,
};

/* Take the token out of the address, before anything else can see it. */
export function takeToken(place = location, past = history) {
  const found = /^#(?:(\/[^?]*)[?&])?token=([^&]+)$/.exec(place.hash);
  if (!found) return "";
  past.replaceState(null, "", `${place.pathname}${place.search}#${found[1] ?? "/"}`);
  return decodeURIComponent(found[2]);
}
