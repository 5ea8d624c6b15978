/* What a session is doing, as a dot or a pill. */

import { STATES } from "../stores.js";
import { visible } from "../text.js";
import { html } from "../ui.js";

export function StateDot({ state }) {
  return html`<span class="dot" data-state=${state} role="img" aria-label=${STATES[state] ?? visible(state)}></span>`;
}

export function StatePill({ state, detail }) {
  return html`<span class="pill" data-state=${state}
    ><span class="dot" data-state=${state} aria-hidden="true"></span
    >${STATES[state] ?? visible(state)}${detail ? ` · ${detail}` : ""}</span
  >`;
}
