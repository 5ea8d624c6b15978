/* Colours for code: comments, strings, numbers and keywords, good enough for most languages. */

const KEYWORDS = new Set(
  (
    "abstract and as async await bool boolean break case catch char class const continue crate def default del delete do double elif else end enum " +
    "except export extends extern False false final finally float fn for from func function global go goto if impl implements import in instanceof int " +
    "interface is lambda let local long loop match mod module move mut namespace new nil None not null nullptr of or override package pass print " +
    "private protected pub public raise ref return self short static string struct super switch template then this throw throws trait True true try " +
    "type typedef typeof undefined union unless unsafe until use using var virtual void where while with yield"
  ).split(" "),
);
const HASH = new Set([
  "py",
  "python",
  "sh",
  "bash",
  "shell",
  "zsh",
  "rb",
  "ruby",
  "yaml",
  "yml",
  "toml",
  "make",
  "makefile",
  "dockerfile",
  "r",
  "perl",
  "ini",
  "conf",
  "console",
]);
const DASHES = new Set(["sql", "lua", "haskell", "hs", "elm"]);
const PLAIN = new Set(["", "text", "txt", "plain", "output", "log", "markdown", "md"]);
const MAX_CHARS = 60000;

/* Parts of a text: [kind, text] with kind comment, string, number, keyword, name, added, removed, or null. */
export function highlight(text, language = "") {
  const name = language.toLowerCase();
  if (PLAIN.has(name) || text.length > MAX_CHARS) return [[null, text]];
  if (name === "diff" || name === "patch") return highlightDiff(text);
  const comment = HASH.has(name)
    ? "#[^\\n]*"
    : DASHES.has(name)
      ? "--[^\\n]*"
      : "//[^\\n]*|/\\*[\\s\\S]*?(?:\\*/|$)" + (name === "php" ? "|#[^\\n]*" : "");
  const markup = name === "html" || name === "xml" || name === "svg" ? "<!--[\\s\\S]*?(?:-->|$)|" : "";
  const pattern = new RegExp(
    `(${markup}${comment})|("""[\\s\\S]*?(?:"""|$)|"(?:\\\\.|[^"\\\\\\n])*"?|'(?:\\\\.|[^'\\\\\\n])*'?|\`(?:\\\\.|[^\`\\\\])*\`?)|(\\b\\d[\\w.]*)|([A-Za-z_$][\\w$]*)`,
    "g",
  );
  const parts = [];
  let from = 0;
  for (const found of text.matchAll(pattern)) {
    const kind = found[1]
      ? "comment"
      : found[2]
        ? "string"
        : found[3]
          ? "number"
          : KEYWORDS.has(found[4])
            ? "keyword"
            : text[found.index + found[0].length] === "("
              ? "name"
              : null;
    if (!kind) continue;
    if (found.index > from) parts.push([null, text.slice(from, found.index)]);
    parts.push([kind, found[0]]);
    from = found.index + found[0].length;
  }
  if (from < text.length) parts.push([null, text.slice(from)]);
  return parts;
}

function highlightDiff(text) {
  return text
    .split(/(?<=\n)/)
    .map((line) => [
      line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : line.startsWith("@@") ? "keyword" : null,
      line,
    ]);
}

/* The language of a file, by its name. */
export function languageOf(path) {
  const name = String(path ?? "")
    .split("/")
    .pop()
    .toLowerCase();
  if (/^(makefile|dockerfile)/.test(name)) return name.split(".")[0];
  return name.includes(".") ? name.split(".").pop() : "";
}
