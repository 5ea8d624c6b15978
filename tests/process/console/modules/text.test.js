import assert from "node:assert/strict";
import test from "node:test";

import { backoffMs, EventParser } from "../console/api.js";
import { highlight } from "../console/highlight.js";
import { link, parseRoute, takeToken } from "../console/router.js";
import { formatAge, formatCount, formatDuration, formatUsd, shorten, splitHidden, stripAnsi, visible } from "../console/text.js";

test("hidden characters are shown by their numbers", () => {
  assert.equal(visible("a\u202eb\u0007c\u200bd"), "a⟨U+202E⟩b⟨U+0007⟩c⟨U+200B⟩d");
  assert.deepEqual(splitHidden("x\ufeff"), ["x", { code: 0xfeff }]);
  assert.deepEqual(splitHidden("\u{e0041}"), [{ code: 0xe0041 }]);
  assert.deepEqual(splitHidden("\ud800"), [{ code: 0xd800 }]);
});

test("ordinary text stays as it is", () => {
  for (const text of ["tab\tand\nnewline\r\n", "Füße, שלום, 日本語", "👩‍💻 👍🏽", ""]) assert.equal(visible(text), text);
});

test("terminal sequences are removed", () => {
  assert.equal(stripAnsi("\u001b[31mred\u001b[0m \u001b]0;title\u0007x"), "red x");
});

test("long text is shortened on one line", () => {
  assert.equal(shorten("a\n  b", 10), "a b");
  assert.equal(shorten("abcdefghij", 5), "abcd…");
});

test("figures are short", () => {
  assert.deepEqual([formatUsd(0), formatUsd(0.004), formatUsd(1.239), formatUsd(null)], ["$0", "<$0.01", "$1.24", "–"]);
  assert.deepEqual([formatCount(999), formatCount(1500), formatCount(2_500_000)], ["999", "1.5k", "2.5M"]);
  assert.deepEqual([formatDuration(12), formatDuration(1500), formatDuration(61_000), formatDuration(7_260_000)], ["12 ms", "1.5 s", "1 min 1 s", "2 h 1 min"]);
  assert.deepEqual([formatAge(100, 90), formatAge(100, 400), formatAge(100, 8000)], ["now", "5 min", "2 h"]);
});

test("routes are read from the fragment and written to it", () => {
  assert.deepEqual(parseRoute(""), { view: "sessions" });
  assert.deepEqual(parseRoute(link.message("s/1", "u 2")), { view: "conversation", id: "s/1", uuid: "u 2" });
  assert.deepEqual(parseRoute(link.compare("a", "b")), { view: "compare", left: "a", right: "b" });
  assert.deepEqual(parseRoute("#/s/x/wire"), { view: "wire", id: "x" });
  assert.equal(parseRoute("#/s/%E0%A4%A").view, "unknown");
  assert.equal(parseRoute("#/elsewhere").view, "unknown");
});

test("the token leaves the address", () => {
  const visit = (hash) => {
    const seen = [];
    const token = takeToken({ hash, pathname: "/console/", search: "" }, { replaceState: (_, __, url) => seen.push(url) });
    return [token, ...seen];
  };
  assert.deepEqual(visit("#token=abc-_1"), ["abc-_1", "/console/#/"]);
  assert.deepEqual(visit("#/inbox?token=abc"), ["abc", "/console/#/inbox"]);
  assert.deepEqual(visit("#/inbox"), [""]);
});

test("server-sent events are split wherever the bytes are cut", () => {
  const source = ': connected\n\nid: 4\ndata: {"a":1}\n\ndata: {"b":\ndata: 2}\n\n';
  for (let cut = 0; cut <= source.length; cut++) {
    const seen = [];
    const parser = new EventParser((data, id) => seen.push([data, id]));
    parser.feed(source.slice(0, cut));
    parser.feed(source.slice(cut));
    assert.deepEqual(seen, [[{ a: 1 }, "4"], [{ b: 2 }, "4"]]);
  }
});

test("attempts to reconnect become rarer, up to a limit", () => {
  assert.deepEqual([0, 1, 2, 20].map((attempt) => backoffMs(attempt, () => 0.5)), [500, 1000, 2000, 15000]);
});

test("highlighting keeps every character", () => {
  const source = "# a\ndef f(x): return \"s\" + 'open\n/* c */ 1.5 `t`";
  for (const language of ["python", "js", "sql", "", "diff", "html"]) assert.equal(highlight(source, language).map(([, part]) => part).join(""), source);
});
