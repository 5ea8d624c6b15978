/* Draws the tree of markdown.js. */

import { MarkdownStream } from "../markdown.js";
import { highlight } from "../highlight.js";
import { html, memo, useMemo, useRef, useState } from "../ui.js";
import { visible } from "../text.js";
import { Icon } from "./icon.js";
import { Plain } from "./plain.js";

export function Markdown({ text, isStreaming }) {
  const stream = useRef(null);
  stream.current ??= new MarkdownStream();
  const blocks = useMemo(() => stream.current.parse(text), [text]);
  return html`<div class=${isStreaming ? "markdown streaming" : "markdown"} dir="auto">
    ${blocks.map((block, index) => html`<${Block} key=${index} block=${block} />`)}
  </div>`;
}

const Block = memo(
  ({ block }) => BLOCKS[block.type](block),
  (before, after) => before.block === after.block,
);

/* Headings of a message are below those of the page. */
const HEADINGS = ["h3", "h4", "h5", "h6", "h6", "h6"];

const BLOCKS = {
  paragraph: ({ inlines }) => html`<p>${drawInlines(inlines)}</p>`,
  heading: ({ level, inlines }) =>
    html`<${HEADINGS[level - 1]} class=${`level-${level}`}>${drawInlines(inlines)}</${HEADINGS[level - 1]}>`,
  code: ({ language, text }) => html`<${CodeBlock} language=${language} text=${text} />`,
  quote: ({ blocks }) => html`<blockquote>${drawBlocks(blocks)}</blockquote>`,
  rule: () => html`<hr />`,
  list: ({ isOrdered, start, isLoose, items }) => {
    const tag = isOrdered ? "ol" : "ul";
    return html`<${tag} start=${start ?? undefined} class=${isLoose ? "loose" : undefined}>${items.map((item) => drawItem(item))}</${tag}>`;
  },
  table: ({ header, align, rows }) =>
    html`<div class="table-frame" tabindex="0" role="region" aria-label="Table">
      <table>
        <thead>
          <tr>
            ${header.map((cell, index) => html`<th class=${alignClass(align[index])}>${drawInlines(cell)}</th>`)}
          </tr>
        </thead>
        <tbody>
          ${rows.map(
            (row) =>
              html`<tr>
                ${row.map((cell, index) => html`<td class=${alignClass(align[index])}>${drawInlines(cell)}</td>`)}
              </tr>`,
          )}
        </tbody>
      </table>
    </div>`,
};

function alignClass(align) {
  return align ? `align-${align}` : undefined;
}

function drawBlocks(blocks) {
  return blocks.map((block) => BLOCKS[block.type](block));
}

function drawItem({ isDone, blocks }) {
  if (isDone === null) return html`<li>${drawItemBody(blocks)}</li>`;
  return html`<li class="task">
    <span class="task-box" data-done=${String(isDone)} role="img" aria-label=${isDone ? "done" : "to do"}></span
    >${drawItemBody(blocks)}
  </li>`;
}

/* The text of a short item needs no paragraph. */
function drawItemBody([first, ...rest]) {
  if (!first) return null;
  if (first.type !== "paragraph") return drawBlocks([first, ...rest]);
  return [html`<span>${drawInlines(first.inlines)}</span>`, ...drawBlocks(rest)];
}

function drawInlines(inlines) {
  return inlines.map((node) => INLINES[node.type](node));
}

const INLINES = {
  text: ({ text }) => html`<${Plain} text=${text} />`,
  code: ({ text }) => html`<code><${Plain} text=${text} /></code>`,
  strong: ({ inlines }) => html`<strong>${drawInlines(inlines)}</strong>`,
  em: ({ inlines }) => html`<em>${drawInlines(inlines)}</em>`,
  del: ({ inlines }) => html`<del>${drawInlines(inlines)}</del>`,
  break: () => html`<br />`,
  link: ({ href, target, inlines }) =>
    href
      ? html`<a href=${href} target="_blank" rel="noopener noreferrer nofollow" title=${visible(href)}
          >${drawInlines(inlines)}</a
        >`
      : html`<span class="dead-link" title=${`Not followed: ${visible(target)}`}>${drawInlines(inlines)}</span>`,
  /* Images of others are never loaded: asking for one would tell its server who reads this. */
  image: ({ alt, href, target }) =>
    html`<span class="image-link"
      >Image${alt ? ": " : ""}<${Plain} text=${alt} />
      ${href ? html`<a href=${href} target="_blank" rel="noopener noreferrer nofollow">${visible(href)}</a>` : html`<span class="dead-link">${visible(target)}</span>`}</span
    >`,
};

const FOLDED_LINES = 40;

export function CodeBlock({ language, text, label, isWrapped }) {
  const [isOpen, setOpen] = useState(false);
  const lines = text.split("\n");
  const isLong = lines.length > FOLDED_LINES + 10;
  const shown = isLong && !isOpen ? lines.slice(0, FOLDED_LINES).join("\n") : text;
  const parts = useMemo(() => highlight(shown, language), [shown, language]);
  return html`<div class="code-block">
    <div class="code-head">
      <span class="ellipsis">${visible(label ?? language ?? "")}</span><${CopyButton} text=${text} />
    </div>
    <pre
      tabindex="0"
      class=${isWrapped ? "wrapped" : undefined}
    ><code>${parts.map(([kind, part]) => (kind ? html`<span class=${`hl-${kind}`}><${Plain} text=${part} /></span>` : html`<${Plain} text=${part} />`))}</code></pre>
    ${isLong && html`<button class="fold-button" onClick=${() => setOpen(!isOpen)} aria-expanded=${String(isOpen)}>${isOpen ? "Show less" : `Show all ${lines.length} lines`}</button>`}
  </div>`;
}

export function CopyButton({ text, label = "Copy" }) {
  const [isDone, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text).catch(() => {});
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return html`<button class="icon-button copy" onClick=${copy} title=${label} aria-label=${isDone ? "Copied" : label}>
    <${Icon} name=${isDone ? "check" : "copy"} />
  </button>`;
}
