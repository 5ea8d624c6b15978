/* A list that draws only the rows near the viewport. Rows have any height; it is measured when they are drawn.
 *
 * What the reader looks at stays where it is when rows above change, unless the list follows its end.
 * `handle.current` gets {scrollTo(key), toEnd()}.
 */

import { html, useEffect, useLayoutEffect, useRef, useRefresh } from "../ui.js";

const OVERSCAN = 900; /* pixels that are drawn above and below the viewport */
const MARGIN = 300; /* pixels that must be drawn there */
const NEAR_END = 48;
const NEAR_START = 1500;
const MISSES = 4; /* drawings in a row that did not cover the viewport */
const TARGET_MS = 400; /* how long a row that was scrolled to is held while heights settle */

export function VirtualList({ items, estimate, draw, label, head, onNearStart, onFollow, handle }) {
  const refresh = useRefresh();
  const scroller = useRef(null);
  const body = useRef(null);
  const state = useRef(null);
  state.current ??= {
    heights: new Map(),
    top: 0,
    height: 1000,
    width: 0,
    anchor: null,
    target: null,
    isFollowing: true,
    misses: 0,
  };
  const self = state.current;
  const offsets = computeOffsets(items, self.heights, estimate);
  const [from, to] = chooseRange(self, items, offsets);

  /* Remember the first row that is visible, and where it is. */
  const remember = () => {
    const { current: element } = scroller;
    const isFollowing = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_END;
    if (isFollowing !== self.isFollowing) {
      self.isFollowing = isFollowing;
      onFollow?.(isFollowing);
    }
    const { top } = element.getBoundingClientRect();
    self.anchor = null;
    for (const row of body.current.children) {
      const box = row.getBoundingClientRect();
      if (box.bottom <= top) continue;
      /* After a long jump, the rows of the new place are not drawn yet. */
      if (box.top < top + element.clientHeight) self.anchor = { key: row.dataset.key, delta: box.top - top };
      break;
    }
  };

  const isCovered = (places) => {
    const last = items.length;
    const isAbove = from === 0 || places[from] <= self.top - MARGIN;
    return isAbove && (to === last || places[to] >= self.top + self.height + MARGIN);
  };

  const onScroll = () => {
    self.top = scroller.current.scrollTop;
    self.misses = 0;
    if (self.target === null) remember();
    if (!isCovered(offsets)) refresh();
    if (self.top < NEAR_START) onNearStart?.();
  };

  /* After each drawing: measure the rows, and put what the reader looks at back to its place. */
  const settle = () => {
    const { current: element } = scroller;
    for (const row of body.current.children) self.heights.set(row.dataset.key, row.getBoundingClientRect().height);
    self.height = element.clientHeight;
    /* The reader may have scrolled, and the event is still to come. A list that got shorter moves by itself. */
    const isAtEnd = element.scrollTop + element.clientHeight >= element.scrollHeight - 1;
    if (self.target === null && element.scrollTop !== self.top && !(isAtEnd && element.scrollTop < self.top)) remember();
    const key = self.target ?? (self.isFollowing ? null : self.anchor?.key);
    const row = key === null || key === undefined ? null : findRow(body.current, key);
    if (row) {
      const delta = self.target === null ? self.anchor.delta : 16;
      const moved = row.getBoundingClientRect().top - element.getBoundingClientRect().top - delta;
      if (Math.abs(moved) >= 1) element.scrollTop += moved;
    } else if (self.isFollowing) element.scrollTop = element.scrollHeight;
    self.top = element.scrollTop;
    if (isCovered(computeOffsets(items, self.heights, estimate))) {
      self.misses = 0;
      /* After a long jump, these are the first rows of the new place. Older ones may have come there meanwhile. */
      if (self.target === null && !self.isFollowing) {
        if (!self.anchor) remember();
        if (self.top < NEAR_START) onNearStart?.();
      }
    } else {
      /* Heights that were guessed can move an anchor away; where the reader is counts more. */
      if (++self.misses > MISSES) self.anchor = null;
      if (self.misses < 2 * MISSES) refresh();
    }
  };
  useLayoutEffect(settle);
  self.settle = settle;

  /* Heights change with the width, with folds, and while images load. */
  useEffect(() => {
    const observer = new ResizeObserver(() => {
      if (self.width !== scroller.current.clientWidth) {
        self.width = scroller.current.clientWidth;
        self.heights.clear();
      }
      self.settle();
    });
    observer.observe(scroller.current);
    observer.observe(body.current);
    return () => observer.disconnect();
  }, []);

  if (handle)
    handle.current = {
      scrollTo(key) {
        self.isFollowing = false;
        onFollow?.(false);
        self.target = String(key);
        refresh();
        clearTimeout(self.timer);
        self.timer = setTimeout(() => {
          self.target = null;
          if (scroller.current) remember();
        }, TARGET_MS);
      },
      toEnd() {
        self.isFollowing = true;
        self.target = null;
        onFollow?.(true);
        refresh();
      },
    };

  const padding = { paddingTop: `${offsets[from]}px`, paddingBottom: `${offsets[items.length] - offsets[to]}px` };
  return html`<div class="virtual" ref=${scroller} onScroll=${onScroll} tabindex="0" role="feed" aria-label=${label}>
    ${head && html`<p class="list-head">${head}</p>`}
    <div class="virtual-body" ref=${body} style=${padding}>
      ${items
        .slice(from, to)
        .map(
          (item, index) =>
            html`<article
              key=${item.key}
              data-key=${item.key}
              class="virtual-row"
              aria-posinset=${from + index + 1}
              aria-setsize=${items.length}
            >
              ${draw(item)}
            </article>`,
        )}
    </div>
  </div>`;
}

function chooseRange(self, items, offsets) {
  const total = offsets[items.length];
  let { top } = self;
  if (self.target !== null) {
    const index = items.findIndex((item) => String(item.key) === self.target);
    if (index >= 0) top = offsets[index];
  } else if (self.isFollowing) top = total - self.height;
  else if (self.anchor) {
    /* Rows may have come in front of what the reader looks at. */
    const index = items.findIndex((item) => String(item.key) === self.anchor.key);
    if (index >= 0) top = offsets[index] - self.anchor.delta;
  }
  return [indexAt(offsets, top - OVERSCAN), Math.min(items.length, indexAt(offsets, top + self.height + OVERSCAN) + 1)];
}

function findRow(body, key) {
  for (const row of body.children) if (row.dataset.key === key) return row;
  return null;
}

/* Where each row starts; the last entry is where the list ends. */
function computeOffsets(items, heights, estimate) {
  const offsets = new Float64Array(items.length + 1);
  let top = 0;
  for (let index = 0; index < items.length; index++) {
    offsets[index] = top;
    top += heights.get(String(items[index].key)) ?? estimate(items[index]);
  }
  offsets[items.length] = top;
  return offsets;
}

/* The row at a height. */
function indexAt(offsets, top) {
  let low = 0;
  let high = offsets.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (offsets[middle] <= top) low = middle;
    else high = middle - 1;
  }
  return Math.min(low, Math.max(0, offsets.length - 2));
}
