"""Scripts in the arguments of sed and awk: whether they only read and print.

    edits_lines("s/a/b/; 1d")       a sed script without `w`, `e`, `r` and their flags
    only_prints("{print $1}")       an awk program without system(), pipes, redirections and getline

Both accept a subset of the language that every implementation reads in the same way: GNU, BSD and busybox sed; gawk,
mawk, busybox and the original awk. Where they differ, as about `/` in a character class, the script is refused.
"""

from __future__ import annotations

import re

from parley.permissions.base import word_set

# sed

SED_NUMBER = re.compile(r"[+~]?\d+(?:~\d+)?|\$")
SED_COMMA = re.compile(r"\s*,\s*")
CLASS = re.compile(r"\[\^?\]?(?:\[[:.=][^\]\n]*\]|[^\]\[\n\\]|\\[^\]\n])*\]")
SED_SIMPLE = re.compile(r"[=dDgGhHnNpPxzF]|[lqQ]\s*\d*")
SED_LABEL = re.compile(r"[:btT][ \t]*[\w.-]*")
SED_TEXT = re.compile(r"[aic](?:[^\\\n]|\\.|\\\n)*", re.DOTALL)
SED_FLAGS = re.compile(r"[gpIiMm0-9]*")
SED_GAP = re.compile(r"[\s;{}!]*")


def edits_lines(script: str) -> bool:
    """Whether a sed script only prints and changes lines: no `w`, `e` or `r`. Linear in its length."""
    index = 0
    while True:
        index = _match_end(SED_GAP, script, index)
        if index < len(script) and script[index] == "#":
            index = script.find("\n", index) + 1 or len(script)
            continue
        index = _skip_address(script, index)
        if index < 0:
            return False
        index = _match_end(SED_GAP, script, index)
        if index >= len(script):
            return True
        if script[index] in "sy":
            end = _skip_substitution(script, index)
        else:
            ends = (_match_end(form, script, index) for form in (SED_SIMPLE, SED_LABEL, SED_TEXT))
            end = next((end for end in ends if end > index), -1)
        if end < 0 or (end < len(script) and script[end] not in " \t\n;}#"):
            return False
        index = end


def _match_end(pattern: re.Pattern[str], text: str, index: int) -> int:
    found = pattern.match(text, index)
    return index if found is None else found.end()


def _skip_address(script: str, index: int) -> int:
    """The end of the address of a command; -1 if it is not understood."""
    end = _skip_line_address(script, index)
    after = _match_end(SED_COMMA, script, end) if end > index else end
    return _skip_line_address(script, after) if after > end else end


def _skip_line_address(script: str, index: int) -> int:
    if script[index : index + 1] != "/":
        return _match_end(SED_NUMBER, script, index)
    end = _skip_half(script, index + 1, "/", is_pattern=True)
    while end > 0 and script[end : end + 1] in ("I", "M"):
        end += 1
    return end


def _skip_substitution(script: str, index: int) -> int:
    """The end of `s/a/b/g`; -1 if it is incomplete or does more."""
    kind, cut = script[index], script[index + 1 : index + 2]
    if cut in ("", "\\", "\n", "[", "]") or cut.isalnum() or not cut.isascii():
        return -1
    middle = _skip_half(script, index + 2, cut, is_pattern=kind == "s")
    end = _skip_half(script, middle, cut, is_pattern=False) if middle > 0 else -1
    return _match_end(SED_FLAGS, script, end) if kind == "s" and end > 0 else end


def _skip_half(script: str, index: int, cut: str, *, is_pattern: bool) -> int:
    """The position after the next delimiter; -1 if there is none. Within a character class it does not count."""
    while index < len(script):
        char = script[index]
        if char == cut:
            return index + 1
        if char == "\n":
            return -1  # after `-e 'a\\'` the rest would be a command of its own
        if char == "[" and is_pattern:
            found = CLASS.match(script, index)
            if found is None:
                return -1
            index = found.end()
        else:
            index += 2 if char == "\\" else 1
    return -1


# awk

AWK_TOKEN = re.compile(
    r"""
    (?P<blank>[ \t]+)
  | (?P<newline>\n)
  | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.]))
  | (?P<string>"(?:[^"\\\n]|\\[^\n])*")
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<divide>/)
  | (?P<close>[)\]]|\+\+|--)
  | (?P<operator>&&|\|\||[-+*%^!<>=~?:]=?|[{}(\[;,$])
    """,
    re.VERBOSE,
)
AWK_CALL = re.compile(r"[ \t]*\(")
AWK_REGEX = re.compile(r"/((?:[^/\\\n]|\\[^\n])*)/")
AWK_ESCAPE = re.compile(r"\\[^\[\]]")
AWK_FUNCTIONS = word_set(
    "length substr index split sub gsub match sprintf tolower toupper int sqrt exp log sin cos atan2 rand srand"
)
AWK_KEYWORDS = word_set("if else while for do break continue next exit delete in print printf BEGIN END")
AWK_VARIABLES = word_set("NR NF FNR FS OFS ORS RS RSTART RLENGTH FILENAME SUBSEP CONVFMT OFMT")
AWK_NAMES = AWK_KEYWORDS | AWK_FUNCTIONS | AWK_VARIABLES
AWK_VARIABLE = re.compile(
    r"(?!(?:system|close|fflush|getline|func|function|return|switch|case|default|nextfile|include|load|namespace)$)"
    r"[a-z_][A-Za-z0-9_]*"
)
"""Any name in lower case that is not a keyword of some awk; ENVIRON, ARGV and the like are in upper case."""


def only_prints(program: str) -> bool:
    """Whether an awk program only computes and prints. Linear in its length.

    `>` compares, unless a `print` before it has not ended: then it would open a file.
    """
    index, before, is_printing = 0, "", False
    while index < len(program):
        found = AWK_TOKEN.match(program, index)
        if found is None:
            return False
        kind, text = found.lastgroup or "", found[0]
        index = found.end()
        if kind == "divide":
            if before in ("number", "string", "name", "close"):
                # Between two of them there might be a regular expression, in which quotes mean nothing.
                if "/" in program[index:]:
                    return False
                kind = "operator"
            else:
                regex = AWK_REGEX.match(program, index - 1)
                if regex is None or "[" in AWK_ESCAPE.sub("", CLASS.sub("", regex[1])):
                    return False
                index, kind = regex.end(), "close"
        elif kind == "name":
            is_called = AWK_CALL.match(program, index) is not None
            known = AWK_KEYWORDS | AWK_FUNCTIONS if is_called else AWK_NAMES
            if text not in known and (is_called or not AWK_VARIABLE.fullmatch(text)):
                return False
            is_printing = is_printing or text in ("print", "printf")
            kind = "operator" if text in AWK_KEYWORDS else kind
        elif text in (";", "}"):
            is_printing = False
        elif text[0] == ">" and is_printing:
            return False
        before = before if kind == "blank" else kind
    return True
