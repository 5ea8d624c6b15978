/* Differences of texts: lines, hunks as in a unified diff, pairs for a side-by-side view, changed parts of a line.
 *
 * A hunk is {oldStart, newStart, rows}; a row is {type: " " | "-" | "+", text, old, new} with line numbers.
 */

const MAX_COST = 400; /* lines that the search for a shortest script may change; above it, everything between is replaced */

/* The rows of a whole difference. */
export function diffLines(before, after) {
  const old = splitText(before);
  const now = splitText(after);
  let start = 0;
  while (start < old.length && start < now.length && old[start] === now[start]) start++;
  let oldEnd = old.length;
  let newEnd = now.length;
  while (oldEnd > start && newEnd > start && old[oldEnd - 1] === now[newEnd - 1]) {
    oldEnd--;
    newEnd--;
  }
  const rows = [];
  const keep = (at, other) => rows.push({ type: " ", text: old[at], old: at + 1, new: other + 1 });
  for (let at = 0; at < start; at++) keep(at, at);
  for (const [type, index, other] of shortestScript(old.slice(start, oldEnd), now.slice(start, newEnd))) {
    if (type === " ") keep(start + index, start + other);
    else if (type === "-") rows.push({ type, text: old[start + index], old: start + index + 1, new: null });
    else rows.push({ type, text: now[start + index], old: null, new: start + index + 1 });
  }
  for (let at = oldEnd; at < old.length; at++) keep(at, newEnd + at - oldEnd);
  return rows;
}

function splitText(text) {
  if (text === "" || text === null || text === undefined) return [];
  const lines = String(text).split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

/* Myers' shortest script: a list of [" ", old, new], ["-", old], ["+", new]. */
function shortestScript(old, now) {
  const trail = [];
  const reach = new Map([[1, 0]]);
  const goesDown = (reached, diagonal, cost) =>
    diagonal === -cost || (diagonal !== cost && reached.get(diagonal - 1) < reached.get(diagonal + 1));
  for (let cost = 0; cost <= MAX_COST; cost++) {
    trail.push(new Map(reach));
    for (let diagonal = -cost; diagonal <= cost; diagonal += 2) {
      let x = goesDown(reach, diagonal, cost) ? reach.get(diagonal + 1) : reach.get(diagonal - 1) + 1;
      while (x < old.length && x - diagonal < now.length && old[x] === now[x - diagonal]) x++;
      reach.set(diagonal, x);
      if (x >= old.length && x - diagonal >= now.length) return walkBack(trail, old.length, now.length, goesDown);
    }
  }
  return [...old.map((_, index) => ["-", index]), ...now.map((_, index) => ["+", index])];
}

function walkBack(trail, oldLength, newLength, goesDown) {
  const script = [];
  let x = oldLength;
  let y = newLength;
  for (let cost = trail.length - 1; cost >= 0; cost--) {
    const diagonal = x - y;
    const previous = goesDown(trail[cost], diagonal, cost) ? diagonal + 1 : diagonal - 1;
    const fromX = trail[cost].get(previous);
    const fromY = fromX - previous;
    while (x > fromX && y > fromY) script.push([" ", --x, --y]);
    if (cost > 0) script.push(x === fromX ? ["+", fromY] : ["-", fromX]);
    x = fromX;
    y = fromY;
  }
  return script.reverse();
}

/* The changed rows with some rows around them. */
export function toHunks(rows, context = 3) {
  const isShown = new Uint8Array(rows.length);
  rows.forEach((row, index) => {
    if (row.type !== " ") isShown.fill(1, Math.max(0, index - context), index + context + 1);
  });
  const hunks = [];
  rows.forEach((row, index) => {
    if (!isShown[index]) return;
    if (!isShown[index - 1]) hunks.push({ rows: [] });
    hunks.at(-1).rows.push(row);
  });
  for (const hunk of hunks) {
    hunk.oldStart = hunk.rows.find((row) => row.old)?.old ?? 0;
    hunk.newStart = hunk.rows.find((row) => row.new)?.new ?? 0;
  }
  return hunks;
}

/* Hunks of a `structuredPatch`: {oldStart, newStart, lines}, as edits report it. */
export function fromPatch(patch) {
  return patch.map((hunk) => numberRows(hunk.oldStart ?? 1, hunk.newStart ?? 1, hunk.lines ?? []));
}

function numberRows(oldStart, newStart, lines) {
  let old = oldStart;
  let now = newStart;
  const rows = [];
  for (const line of lines) {
    const type = line[0];
    const text = line.slice(1);
    if (type === "-") rows.push({ type, text, old: old++, new: null });
    else if (type === "+") rows.push({ type, text, old: null, new: now++ });
    else if (type === "\\") continue;
    else rows.push({ type: " ", text, old: old++, new: now++ });
  }
  return { oldStart, newStart, rows };
}

/* Files and hunks of a unified diff: [{path, hunks}]. */
export function parseUnified(text) {
  const files = [];
  let file = null;
  let hunk = null;
  const begin = (path) => {
    file = { path, hunks: [] };
    files.push(file);
    hunk = null;
  };
  let left = 0;
  for (const line of String(text).split("\n")) {
    const head = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/.exec(line);
    if (head) {
      if (!file) begin("");
      hunk = { old: Number(head[1]), new: Number(head[3]), lines: [] };
      left = Number(head[2] ?? 1) + Number(head[4] ?? 1);
      file.hunks.push(hunk);
    } else if (hunk && left > 0 && /^[-+ \\]|^$/.test(line)) {
      hunk.lines.push(line || " ");
      left -= line[0] === "-" || line[0] === "+" ? 1 : line[0] === "\\" ? 0 : 2;
    } else if (line.startsWith("--- ")) begin(cleanPath(line.slice(4)));
    else if (line.startsWith("+++ ") && file) {
      const path = cleanPath(line.slice(4));
      if (path !== "/dev/null") file.path = path;
    }
  }
  return files.map(({ path, hunks }) => ({
    path,
    hunks: hunks.map((each) => numberRows(each.old, each.new, each.lines)),
  }));
}

function cleanPath(path) {
  return path.replace(/\t.*$/, "").replace(/^[ab]\//, "");
}

export function countChanges(hunks) {
  let added = 0;
  let removed = 0;
  for (const { rows } of hunks)
    for (const { type } of rows) {
      if (type === "+") added++;
      else if (type === "-") removed++;
    }
  return { added, removed };
}

/* Pairs for two columns: {left: row | null, right: row | null}. */
export function pairRows(rows) {
  const pairs = [];
  let index = 0;
  while (index < rows.length) {
    if (rows[index].type === " ") {
      pairs.push({ left: rows[index], right: rows[index] });
      index++;
      continue;
    }
    const removed = [];
    const added = [];
    while (index < rows.length && rows[index].type === "-") removed.push(rows[index++]);
    while (index < rows.length && rows[index].type === "+") added.push(rows[index++]);
    for (let at = 0; at < Math.max(removed.length, added.length); at++)
      pairs.push({ left: removed[at] ?? null, right: added[at] ?? null });
  }
  return pairs;
}

/* The changed part of two lines: [{text, isChanged}] for each; null if most of the line is different. */
export function diffWords(before, after) {
  const limit = Math.min(before.length, after.length);
  let start = 0;
  while (start < limit && before[start] === after[start]) start++;
  let end = 0;
  while (end < limit - start && before[before.length - 1 - end] === after[after.length - 1 - end]) end++;
  if (start + end < Math.max(before.length, after.length) * 0.3) return null;
  /* Whole words read better than parts of them. */
  while (start > 0 && /\w/.test(before[start - 1]) && /\w/.test(before[start] ?? after[start] ?? "")) start--;
  while (
    end > 0 &&
    /\w/.test(before[before.length - end]) &&
    /\w/.test(before[before.length - end - 1] ?? after[after.length - end - 1] ?? "")
  )
    end--;
  const split = (text) =>
    [
      { text: text.slice(0, start), isChanged: false },
      { text: text.slice(start, text.length - end), isChanged: true },
      { text: text.slice(text.length - end), isChanged: false },
    ].filter((part) => part.text);
  return [split(before), split(after)];
}
