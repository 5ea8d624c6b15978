/* Text of others: nothing in it is markup, and hidden characters are shown by their numbers. */

import { codeName, splitHidden } from "../text.js";
import { html } from "../ui.js";

export function Plain({ text }) {
  return splitHidden(String(text ?? "")).map((part) =>
    typeof part === "string"
      ? part
      : html`<span class="hidden-char" title="This character is invisible or changes the order of others"
          >${codeName(part.code)}</span
        >`,
  );
}
