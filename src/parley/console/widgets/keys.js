/* The keys of the page, and the list of them. Keys of one part, such as the prompt, are handled there. */

import { html, useEffect } from "../ui.js";
import { link } from "../router.js";
import { Dialog } from "./dialog.js";

const KEYS = [
  ["n", "start a new session"],
  ["s, i, c", "show sessions, inbox, costs"],
  ["/", "search, or write a prompt"],
  ["Enter, Ctrl+Enter", "send a prompt, a form"],
  ["Shift+Enter", "start a new line"],
  ["Escape", "interrupt the turn; close what is open"],
  ["?", "show this list"],
];

export function useKeys({ canCreate, onHelp }) {
  useEffect(() => {
    const go = (hash) => () => (location.hash = hash);
    const search = () => document.querySelector("input[type=search], .composer textarea")?.focus();
    const actions = { "?": onHelp, "/": search, s: go(link.sessions()), i: go(link.inbox()), c: go(link.costs()) };
    if (canCreate) actions.n = go(link.newSession());
    const onKeyDown = (event) => {
      const { target, key } = event;
      if (event.isComposing || event.defaultPrevented) return;
      if (key === "Enter" && (event.ctrlKey || event.metaKey)) return target.form?.requestSubmit();
      if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(actions, key)) return;
      // Not where the event comes from: a dialog that has just closed still has the focus.
      if (target.closest("input, textarea, select, [contenteditable]") || document.querySelector("dialog[open]")) return;
      event.preventDefault();
      actions[key]();
    };
    addEventListener("keydown", onKeyDown);
    return () => removeEventListener("keydown", onKeyDown);
  }, [canCreate]);
}

export function Keys({ onClose }) {
  return html`<${Dialog} title="Keys" onClose=${onClose}>
    <dl class="keys">
      ${KEYS.map(([key, effect]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${effect}</dd></div>`)}
    </dl>
  </${Dialog}>`;
}
