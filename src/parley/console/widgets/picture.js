/* An image that came with a message. Only bytes that are in the message are shown: nothing is loaded. */

import { html, useState } from "../ui.js";

const TYPES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const BASE64 = /^[A-Za-z0-9+/\s]*={0,2}\s*$/;

export function Picture({ source, label = "Image" }) {
  const [isBroken, setBroken] = useState(false);
  const [isLarge, setLarge] = useState(false);
  const isShown =
    source?.type === "base64" &&
    TYPES.has(source.media_type) &&
    typeof source.data === "string" &&
    BASE64.test(source.data);
  if (!isShown || isBroken)
    return html`<p class="muted small">
      ${isShown ? "An image that cannot be shown" : `A ${source?.type === "url" ? "remote image, which is not loaded" : "file that is not an image"}`}
    </p>`;
  return html`<button
    class=${isLarge ? "picture large" : "picture"}
    aria-label=${`${label}, ${isLarge ? "smaller" : "larger"}`}
    onClick=${() => setLarge(!isLarge)}
  >
    <img src=${`data:${source.media_type};base64,${source.data}`} alt=${label} onError=${() => setBroken(true)} />
  </button>`;
}
