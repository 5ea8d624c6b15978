/* A button that opens a menu. Arrow keys move, Escape closes. */

import { html, useEffect, useRef, useState } from "../ui.js";
import { Icon } from "./icon.js";

export function Menu({ label, entries, icon = "more" }) {
  const [isOpen, setOpen] = useState(false);
  const place = useRef(null);
  const button = useRef(null);
  useEffect(() => {
    if (!isOpen) return undefined;
    place.current.querySelector("[role=menuitem]")?.focus();
    const close = (event) => {
      if (!place.current.contains(event.target)) setOpen(false);
    };
    addEventListener("pointerdown", close);
    return () => removeEventListener("pointerdown", close);
  }, [isOpen]);
  const onKeyDown = (event) => {
    if (!isOpen) return;
    const options = [...place.current.querySelectorAll("[role=menuitem]")];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      options[(options.indexOf(document.activeElement) + step + options.length) % options.length].focus();
    } else if (event.key === "Escape" || event.key === "Tab") {
      setOpen(false);
      if (event.key === "Escape") {
        event.stopPropagation();
        button.current.focus();
      }
    }
  };
  const choose = (entry) => {
    setOpen(false);
    button.current.focus();
    entry.run();
  };
  return html`<div class="menu-place" ref=${place} onKeyDown=${onKeyDown}>
    <button
      class="icon-button"
      ref=${button}
      aria-haspopup="menu"
      aria-expanded=${String(isOpen)}
      aria-label=${label}
      title=${label}
      onClick=${() => setOpen(!isOpen)}
    >
      <${Icon} name=${icon} />
    </button>
    ${
      isOpen &&
      html`<div class="menu" role="menu" aria-label=${label}>
        ${entries.map((entry) => html`<button key=${entry.label} role="menuitem" tabindex="-1" class=${entry.isDanger ? "danger" : undefined} onClick=${() => choose(entry)}><${Icon} name=${entry.icon} />${entry.label}</button>`)}
      </div>`
    }
  </div>`;
}
