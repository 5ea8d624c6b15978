/* Asks for the token. It is kept in memory only, so a reload asks again. */

import { html, useEffect, useRef, useState } from "../ui.js";
import { visible } from "../text.js";

export function Login({ problem, onToken }) {
  const [token, setToken] = useState("");
  const [isBusy, setBusy] = useState(false);
  const input = useRef(null);
  useEffect(() => input.current.focus(), []);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    await onToken(token.trim());
    setBusy(false);
  };
  return html`<main class="login">
    <form onSubmit=${submit}>
      <svg class="logo large" viewBox="0 0 32 32" aria-hidden="true">
        <rect width="32" height="32" rx="8" />
        <path d="M9 24V9.5A1.5 1.5 0 0 1 10.5 8H18a5.5 5.5 0 0 1 0 11h-4.5" />
      </svg>
      <h1>Sign in to Parley</h1>
      ${problem && html`<p class="form-error" role="alert">${messageOf(problem)}</p>`}
      <label for="token">Token</label>
      <input
        id="token"
        ref=${input}
        type="password"
        autocomplete="off"
        spellcheck=${false}
        value=${token}
        onInput=${(event) => setToken(event.target.value)}
        required
        aria-describedby="token-help"
      />
      <p id="token-help" class="muted small">
        The server wrote it to its token file when it started. This page forgets it when it is closed.
      </p>
      <button class="button primary" disabled=${isBusy || !token.trim()}>${isBusy ? "Signing in…" : "Sign in"}</button>
    </form>
  </main>`;
}

function messageOf(problem) {
  if (problem.status === 401) return "The token is not valid, or it has expired. Enter another one.";
  return visible(problem.message);
}
