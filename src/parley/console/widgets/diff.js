/* A difference, unified or side by side. */

import { countChanges, diffWords, pairRows } from "../diff.js";
import { html, useMemo, useState } from "../ui.js";
import { visible } from "../text.js";
import { Icon } from "./icon.js";
import { Plain } from "./plain.js";

const FOLDED_ROWS = 40;
let isWide = false; /* the last choice holds for the next difference */

export function Diff({ path, hunks, isOpen: isInitiallyOpen = false }) {
  const [isSplit, setSplit] = useState(isWide);
  const [isOpen, setOpen] = useState(isInitiallyOpen);
  const { added, removed } = useMemo(() => countChanges(hunks), [hunks]);
  const total = hunks.reduce((sum, hunk) => sum + hunk.rows.length, 0);
  const isLong = total > FOLDED_ROWS + 10;
  const shown = isLong && !isOpen ? foldHunks(hunks) : hunks;
  const choose = (value) => {
    isWide = value;
    setSplit(value);
  };
  return html`<div class="diff">
    <div class="code-head">
      <span class="ellipsis" title=${visible(path)}><bdi>${visible(path)}</bdi></span>
      <span class="diff-count"><span class="added">+${added}</span> <span class="removed">−${removed}</span></span>
      <button
        class="icon-button"
        aria-pressed=${String(isSplit)}
        onClick=${() => choose(!isSplit)}
        title="Side by side"
        aria-label="Side by side"
      >
        <${Icon} name="columns" />
      </button>
    </div>
    <div class="diff-frame" tabindex="0" role="region" aria-label=${`Changes in ${visible(path)}`}>
      ${isSplit ? html`<${Split} hunks=${shown} />` : html`<${Unified} hunks=${shown} />`}
    </div>
    ${isLong && html`<button class="fold-button" aria-expanded=${String(isOpen)} onClick=${() => setOpen(!isOpen)}>${isOpen ? "Show less" : `Show all ${total} lines`}</button>`}
  </div>`;
}

function foldHunks(hunks) {
  const shown = [];
  let left = FOLDED_ROWS;
  for (const hunk of hunks) {
    if (left <= 0) break;
    shown.push({ ...hunk, rows: hunk.rows.slice(0, left) });
    left -= hunk.rows.length;
  }
  return shown;
}

const KIND = { "+": "added", "-": "removed", " ": "same" };

function Unified({ hunks }) {
  return html`<table class="diff-table">
    <tbody>
      ${hunks.map((hunk, index) => [
        index > 0 &&
          html`<tr class="diff-gap">
            <td colspan="3">⋯</td>
          </tr>`,
        ...markWords(hunk.rows).map(
          ({ row, parts }) =>
            html`<tr class=${KIND[row.type]}>
              <td class="number">${row.old ?? ""}</td>
              <td class="number">${row.new ?? ""}</td>
              <td class="line"><span class="sign">${row.type}</span>${drawParts(row, parts)}</td>
            </tr>`,
        ),
      ])}
    </tbody>
  </table>`;
}

function Split({ hunks }) {
  return html`<table class="diff-table split">
    <tbody>
      ${hunks.map((hunk, index) => [
        index > 0 &&
          html`<tr class="diff-gap">
            <td colspan="4">⋯</td>
          </tr>`,
        ...pairRows(hunk.rows).map(({ left, right }) => {
          const words = left && right && left !== right ? diffWords(left.text, right.text) : null;
          return html`<tr>
            <td class=${`number ${left ? KIND[left.type] : "none"}`}>${left?.old ?? ""}</td>
            <td class=${`line ${left ? KIND[left.type] : "none"}`}>${left && drawParts(left, words?.[0])}</td>
            <td class=${`number ${right ? KIND[right.type] : "none"}`}>${right?.new ?? ""}</td>
            <td class=${`line ${right ? KIND[right.type] : "none"}`}>${right && drawParts(right, words?.[1])}</td>
          </tr>`;
        }),
      ])}
    </tbody>
  </table>`;
}

/* Rows with the changed words of a removed line and the added one that replaces it. */
function markWords(rows) {
  const marked = rows.map((row) => ({ row, parts: null }));
  const byRow = new Map(marked.map((each) => [each.row, each]));
  for (const { left, right } of pairRows(rows)) {
    if (!left || !right || left === right) continue;
    const words = diffWords(left.text, right.text);
    if (!words) continue;
    byRow.get(left).parts = words[0];
    byRow.get(right).parts = words[1];
  }
  return marked;
}

function drawParts(row, parts) {
  if (!parts) return html`<${Plain} text=${row.text || " "} />`;
  return parts.map((part) =>
    part.isChanged ? html`<mark><${Plain} text=${part.text} /></mark>` : html`<${Plain} text=${part.text} />`,
  );
}
