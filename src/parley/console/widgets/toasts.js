/* Short messages about what just happened. They are read out, and go away by themselves unless they are errors. */

import { html, Store, useStore } from "../ui.js";
import { visible } from "../text.js";
import { Icon } from "./icon.js";

const SECONDS = 6;

export class ToastStore extends Store {
  constructor() {
    super();
    this.toasts = [];
    this._count = 0;
  }

  show(text, { level = "info", action = null } = {}) {
    const toast = { id: ++this._count, text, level, action };
    this.toasts = [...this.toasts.slice(-3), toast];
    if (level !== "error") setTimeout(() => this.close(toast.id), SECONDS * 1000);
    this.changed();
  }

  /* For `.catch`: says what went wrong. */
  fail = (error) => {
    if (error?.status !== 401) this.show(error?.message ?? String(error), { level: "error" });
  };

  close(id) {
    this.toasts = this.toasts.filter((toast) => toast.id !== id);
    this.changed();
  }
}

export function Toasts({ store }) {
  useStore(store);
  return html`<div class="toasts" role="status" aria-live="polite">
    ${store.toasts.map(
      (toast) =>
        html`<div class="toast" data-level=${toast.level} key=${toast.id}>
          <span>${visible(toast.text)}</span>
          ${toast.action && html`<button class="button small" onClick=${toast.action.run}>${toast.action.label}</button>`}
          <button class="icon-button" aria-label="Close" onClick=${() => store.close(toast.id)}>
            <${Icon} name="close" />
          </button>
        </div>`,
    )}
  </div>`;
}
