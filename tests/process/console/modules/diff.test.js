import assert from "node:assert/strict";
import test from "node:test";

import { countChanges, diffLines, diffWords, fromPatch, pairRows, parseUnified, toHunks } from "../console/diff.js";

const signs = (rows) => rows.map((row) => row.type + row.text);

test("changed lines are removed and added with their numbers", () => {
  assert.deepEqual(diffLines("a\nb\nc\n", "a\nB\nc\nd\n"), [
    { type: " ", text: "a", old: 1, new: 1 },
    { type: "-", text: "b", old: 2, new: null },
    { type: "+", text: "B", old: null, new: 2 },
    { type: " ", text: "c", old: 3, new: 3 },
    { type: "+", text: "d", old: null, new: 4 },
  ]);
  assert.deepEqual(diffLines("", ""), []);
  assert.deepEqual(signs(diffLines("", "new\nfile")), ["+new", "+file"]);
});

test("both texts can be read from their difference", () => {
  let seed = 7;
  const random = (below) => (seed = (seed * 48271) % 2147483647) % below;
  for (let round = 0; round < 2000; round++) {
    const make = () => Array.from({ length: random(14) }, () => "abcd"[random(4)]).join("\n");
    const [before, after] = [make(), make()];
    const rows = diffLines(before, after);
    const read = (type) => rows.filter((row) => row.type !== type).map((row) => row.text).join("\n");
    assert.equal(read("+"), before);
    assert.equal(read("-"), after);
  }
});

test("texts that have little in common are replaced", () => {
  const many = (prefix) => Array.from({ length: 3000 }, (_, index) => prefix + index).join("\n");
  assert.deepEqual(countChanges([{ rows: diffLines(many("a"), many("b")) }]), { added: 3000, removed: 3000 });
});

test("hunks have three lines around a change", () => {
  const before = Array.from({ length: 30 }, (_, index) => `line ${index + 1}`);
  const after = before.with(4, "five").with(20, "twenty-one");
  const hunks = toHunks(diffLines(before.join("\n"), after.join("\n")));

  assert.deepEqual(hunks.map((hunk) => [hunk.oldStart, hunk.newStart, hunk.rows.length]), [[2, 2, 8], [18, 18, 8]]);
  assert.deepEqual(toHunks(diffLines("a", "a")), []);
});

test("a patch of an edit is numbered", () => {
  assert.deepEqual(fromPatch([{ oldStart: 3, newStart: 4, lines: [" a", "-b", "+c", "\\ No newline at end of file"] }])[0].rows, [
    { type: " ", text: "a", old: 3, new: 4 },
    { type: "-", text: "b", old: 4, new: null },
    { type: "+", text: "c", old: null, new: 5 },
  ]);
});

test("a unified difference of several files is read", () => {
  const files = parseUnified("--- a/x.txt\n+++ b/x.txt\n@@ -1,2 +1,2 @@\n-old\n+new\n same\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n--- not a header\n");
  assert.deepEqual(files.map((file) => [file.path, file.hunks.map((hunk) => signs(hunk.rows))]), [
    ["x.txt", [["-old", "+new", " same"]]],
    ["gone", [["--- not a header"]]],
  ]);
});

test("rows are paired for two columns", () => {
  const pairs = pairRows(diffLines("a\nb\nc", "a\nx\ny\nc"));
  assert.deepEqual(pairs.map(({ left, right }) => [left?.text ?? null, right?.text ?? null]), [["a", "a"], ["b", "x"], [null, "y"], ["c", "c"]]);
});

test("the changed words of a line are marked", () => {
  assert.deepEqual(diffWords("print('hello')", "print('goodbye')"), [
    [{ text: "print('", isChanged: false }, { text: "hello", isChanged: true }, { text: "')", isChanged: false }],
    [{ text: "print('", isChanged: false }, { text: "goodbye", isChanged: true }, { text: "')", isChanged: false }],
  ]);
  assert.equal(diffWords("completely", "different"), null);
});
