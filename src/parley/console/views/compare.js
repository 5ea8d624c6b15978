/* Two sessions side by side: what they have in common once, then what each did after the point where they part. */

import { link } from "../router.js";
import { nameOf } from "../stores.js";
import { html, useConsole, useEffect, useState } from "../ui.js";
import { formatUsd } from "../text.js";
import { Icon } from "../widgets/icon.js";
import { estimateHeight, Item } from "../widgets/items.js";
import { StatePill } from "../widgets/state.js";
import { VirtualList } from "../widgets/virtual-list.js";
import { Ended, useSession } from "./conversation.js";

export function View({ left, right }) {
  const first = useSession(left);
  const second = useSession(right);
  const isLoaded = useComplete(first, second);
  const [isCommonShown, setCommonShown] = useState(false);
  if (!first || !second) return null;
  for (const connection of [first, second])
    if (connection.status === "ended") return html`<${Ended} error=${connection.error} />`;
  const common = isLoaded ? countCommon(first.conversation.items, second.conversation.items) : 0;
  return html`<section class="compare" aria-labelledby="compare-title">
    <header class="conversation-head">
      <a class="icon-button back" href=${link.session(left)} aria-label="Back to the session"
        ><${Icon} name="back"
      /></a>
      <div class="conversation-title">
        <h1 id="compare-title">Compare</h1>
        <p class="muted small">
          ${isLoaded ? (common ? `The first ${common} entries are the same.` : "The sessions have nothing in common.") : "Loading…"}
        </p>
      </div>
      ${common > 0 && html`<button class="button small" aria-pressed=${String(isCommonShown)} onClick=${() => setCommonShown(!isCommonShown)}>${isCommonShown ? "Hide what is the same" : "Show what is the same"}</button>`}
    </header>
    <div class="compare-columns">
      <${Column} id=${left} connection=${first} skip=${isCommonShown ? 0 : common} />
      <${Column} id=${right} connection=${second} skip=${isCommonShown ? 0 : common} />
    </div>
  </section>`;
}

/* Whether all lines of both sessions are loaded: without the oldest ones, nothing can be said about a common start. */
function useComplete(first, second) {
  const [isDone, setDone] = useState(false);
  const isReady = first && second && first.status !== "loading" && second.status !== "loading";
  useEffect(() => {
    if (!isReady) return;
    const load = async (connection) => {
      while (await connection.loadOlder(2000));
    };
    Promise.all([load(first), load(second)]).then(
      () => setDone(true),
      () => {},
    );
  }, [isReady]);
  return isDone;
}

/* How many items two conversations share at their start. */
export function countCommon(left, right) {
  let count = 0;
  while (count < left.length && count < right.length && isSame(left[count], right[count])) count++;
  return count;
}

function isSame(a, b) {
  if (a.kind !== b.kind) return false;
  if (a.kind === "tool")
    return (
      a.id === b.id ||
      (a.name === b.name &&
        JSON.stringify(a.input) === JSON.stringify(b.input) &&
        JSON.stringify(a.result?.content) === JSON.stringify(b.result?.content))
    );
  if (a.kind === "result" || a.kind === "mark") return true;
  return a.text === b.text;
}

function Column({ id, connection, skip }) {
  const { api, sessions } = useConsole();
  const [info, setInfo] = useState(null);
  useEffect(() => {
    api.get(`/sessions/${encodeURIComponent(id)}`).then(setInfo, () => {});
  }, [id]);
  const { conversation } = connection;
  const shown = sessions.get(id) ?? info;
  const items = skip ? conversation.items.slice(skip) : conversation.items;
  return html`<section class="compare-column" aria-label=${nameOf(shown ?? {})}>
    <header>
      <h2 class="ellipsis">
        <a href=${link.session(id)}><bdi>${nameOf(shown ?? {})}</bdi></a>
      </h2>
      <span class="muted small">${formatUsd(conversation.costUsd)}</span><${StatePill} state=${conversation.state} />
    </header>
    <div class="compare-body">
      ${
        items.length
          ? html`<${VirtualList}
              items=${items}
              estimate=${estimateHeight}
              label=${nameOf(shown ?? {})}
              draw=${(item) => html`<${Item} item=${item} rev=${item.rev} actions=${() => []} />`}
            />`
          : html`<div class="empty"><p>Nothing happened after this point.</p></div>`
      }
    </div>
  </section>`;
}
