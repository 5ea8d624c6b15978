/* A modal dialog: the native element keeps the focus inside and gives it back. */

import { html, useEffect, useRef } from "../ui.js";
import { Icon } from "./icon.js";

export function Dialog({ title, isWide, onClose, children }) {
  const element = useRef(null);
  useEffect(() => {
    const { current } = element;
    current.showModal();
    return () => current.close();
  }, []);
  const onClick = (event) => {
    if (event.target === element.current) onClose();
  };
  return html`<dialog
    ref=${element}
    class=${isWide ? "dialog wide" : "dialog"}
    aria-labelledby="dialog-title"
    onClose=${onClose}
    onClick=${onClick}
  >
    <div class="dialog-box">
      <header>
        <h2 id="dialog-title">${title}</h2>
        <button class="icon-button" type="button" aria-label="Close" onClick=${onClose}>
          <${Icon} name="close" />
        </button>
      </header>
      ${children}
    </div>
  </dialog>`;
}
