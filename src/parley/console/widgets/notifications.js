/* Notifications of the browser for questions that come while the page is in the background. */

import { nameOf } from "../stores.js";
import { shorten } from "../text.js";
import { html, useConsole, useEffect, useState } from "../ui.js";
import { link } from "../router.js";
import { Icon } from "./icon.js";

const isSupported = () => "Notification" in globalThis && isSecureContext;

/* The browser keeps the permission, so that this page needs no storage. */
export function NotifyButton() {
  const [permission, setPermission] = useState(() => (isSupported() ? Notification.permission : "denied"));
  if (!isSupported() || permission === "granted") return null;
  if (permission === "denied") return html`<span class="muted small">Notifications are blocked by the browser.</span>`;
  return html`<button class="button" onClick=${async () => setPermission(await Notification.requestPermission())}><${Icon} name="bell" />Notify me</button>`;
}

/* Used once, by the shell. */
export function useNotifications() {
  const { questions, sessions } = useConsole();
  useEffect(() => {
    const known = new Set(questions.open.map((question) => question.request_id));
    let isFirst = !questions.isLoaded;
    return questions.subscribe(() => {
      for (const question of questions.open) {
        if (known.has(question.request_id)) continue;
        known.add(question.request_id);
        if (!isFirst && document.hidden && isSupported() && Notification.permission === "granted") notify(question, sessions.get(question.session));
      }
      isFirst = false;
    });
  }, [questions]);
}

function notify(question, session) {
  const { request } = question;
  const body = shorten(request.title ?? request.display_name ?? request.tool_name ?? question.kind, 120);
  const notification = new Notification(session ? `${shorten(nameOf(session), 60)} waits for you` : "A session waits for you", { body, tag: question.request_id });
  notification.onclick = () => {
    focus();
    location.hash = link.inbox();
    notification.close();
  };
}
