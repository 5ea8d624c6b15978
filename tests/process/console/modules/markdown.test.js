import assert from "node:assert/strict";
import test from "node:test";

import { MarkdownStream, parseInlines, parseMarkdown, plainText, safeHref } from "../console/markdown.js";

const text = (value) => ({ type: "text", text: value });
const paragraph = (...inlines) => ({ type: "paragraph", inlines: inlines.map((each) => (typeof each === "string" ? text(each) : each)) });
const shape = (blocks) => blocks.map((block) => block.type);

test("paragraphs, headings and rules", () => {
  assert.deepEqual(parseMarkdown("# One\ntext\nmore\n\nTwo\n===\n\n---\n## Three ##"), [
    { type: "heading", level: 1, inlines: [text("One")] },
    paragraph("text\nmore"),
    { type: "heading", level: 1, inlines: [text("Two")] },
    { type: "rule" },
    { type: "heading", level: 2, inlines: [text("Three")] },
  ]);
});

test("emphasis, code and their nesting", () => {
  assert.deepEqual(parseInlines("a **b *c*** `d*` ~~e~~ snake_case_name 2 * 3 * 4"), [
    text("a "),
    { type: "strong", inlines: [text("b "), { type: "em", inlines: [text("c")] }] },
    text(" "),
    { type: "code", text: "d*" },
    text(" "),
    { type: "del", inlines: [text("e")] },
    text(" snake_case_name 2 * 3 * 4"),
  ]);
  assert.deepEqual(parseInlines("\\*not\\* ``a ` b``"), [text("*not* "), { type: "code", text: "a ` b" }]);
});

test("fenced code keeps its text, also while it is open", () => {
  assert.deepEqual(parseMarkdown("```js\nlet a = '# no';\n\n* b\n```\nafter"), [{ type: "code", language: "js", text: "let a = '# no';\n\n* b", isOpen: false }, paragraph("after")]);
  assert.deepEqual(parseMarkdown("~~~\nopen\n```"), [{ type: "code", language: "", text: "open\n```", isOpen: true }]);
});

test("lists nest, number and have tasks", () => {
  const [list] = parseMarkdown("3. one\n   - in\n   - out\n4. [x] two\n5. [ ] three");
  assert.deepEqual([list.isOrdered, list.start, list.items.length], [true, 3, 3]);
  assert.deepEqual(shape(list.items[0].blocks), ["paragraph", "list"]);
  assert.deepEqual(list.items.map((item) => item.isDone), [null, true, false]);
});

test("tables have aligned columns and as many cells as headers", () => {
  const [table] = parseMarkdown("| a | b |\n|:--|--:|\n| 1 | 2\\|3 | 4 |\n| 5 |");
  assert.deepEqual(table.align, ["left", "right"]);
  assert.deepEqual(table.rows.map((row) => row.map(plainText)), [["1", "2|3"], ["5", ""]]);
});

test("quotes hold blocks", () => {
  assert.deepEqual(parseMarkdown("> a\n> - b\n\nc"), [{ type: "quote", blocks: [paragraph("a"), { type: "list", isOrdered: false, start: null, isLoose: false, items: [{ isDone: null, blocks: [paragraph("b")] }] }] }, paragraph("c")]);
});

test("links are followed only to http, https and mailto", () => {
  for (const target of ["https://a.example/x?y=1", "http://a.example/", "mailto:a@b.example"]) assert.equal(safeHref(target), target);
  for (const target of [
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "java\tscript:alert(1)",
    " javascript:alert(1)",
    "data:text/html,x",
    "vbscript:x",
    "file:///etc/passwd",
    "//evil.example",
    "/relative",
    "https:\\\\evil.example",
    "https://a.example/\u202egpj",
    "blob:https://a.example/x",
    "http:",
    "",
    null,
  ])
    assert.equal(safeHref(target), null, String(target));
});

test("a link that is not followed keeps its text and its target", () => {
  assert.deepEqual(parseInlines("[x](javascript:alert(1))"), [{ type: "link", href: null, target: "javascript:alert(1)", inlines: [text("x")] }]);
  assert.deepEqual(parseInlines("see https://a.example/b_(c)."), [text("see "), { type: "link", href: "https://a.example/b_(c)", inlines: [text("https://a.example/b_(c)")] }, text(".")]);
});

test("an image is an address that is not loaded", () => {
  assert.deepEqual(parseInlines("![cat](https://a.example/c.png)"), [{ type: "image", alt: "cat", href: "https://a.example/c.png", target: "https://a.example/c.png" }]);
});

test("markup in the text is text", () => {
  const found = parseMarkdown('<script>alert(1)</script>\n\n<img src=x onerror="alert(1)">');
  assert.deepEqual(found, [paragraph("<script>alert(1)</script>"), paragraph('<img src=x onerror="alert(1)">')]);
});

test("no text of the source is lost", () => {
  const source = "One *two* [three](javascript:x) `four`\n\n- five\n  - six\n\n| seven |\n|---|\n| eight |\n\n> nine\n\n```\nten\n```";
  const words = (value) => (typeof value === "string" ? value : Object.values(value ?? {}).map((each) => (typeof each === "object" || typeof each === "string" ? words(each) : "")).join(" "));
  const all = words(parseMarkdown(source));
  for (const word of ["One", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]) assert.ok(all.includes(word), word);
});

test("a growing text ends as the whole text does, at every step", () => {
  const source = "# Title\n\nText with **bold** and `code`.\n\n- a\n- b\n\n  more\n\n1. x\n\n```py\ndef f():\n\n    pass\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quote\n\nSee https://a.example/x and <https://b.example> or ![i](https://c.example/i.png) ~~old~~.\n\nThe end.\n";
  const stream = new MarkdownStream();
  for (let length = 0; length <= source.length; length++) assert.deepEqual(stream.parse(source.slice(0, length)), parseMarkdown(source.slice(0, length)), `after ${length} characters`);
});

test("finished blocks of a growing text stay the same objects", () => {
  const stream = new MarkdownStream();
  const [first] = stream.parse("one\n\ntwo\n\nthr");
  assert.equal(stream.parse("one\n\ntwo\n\nthree and four")[0], first);
  assert.deepEqual(stream.parse("other"), [paragraph("other")]);
});

test("adversarial texts keep their characters", () => {
  const letters = (value) => JSON.stringify(value).replace(/[^x]/g, "").length;
  for (const part of ["*", "_", "`", "[", "![", "~~", "<", "|", "#", "(", "\\", "* a ", "**a ", "[a](", "`a``", "a_b*", "https://", "*a_ "])
    assert.equal(letters(parseMarkdown(`x ${part.repeat(5000)} x\nx ${part.repeat(5000)} x`).map((block) => plainText(block.inlines ?? []))), 4, part);
  assert.ok(JSON.stringify(parseMarkdown(`${"> ".repeat(500)}a`)).length < 10000);
});
