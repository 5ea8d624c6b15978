"""Programs that only read, but whose arguments are more than flags and operands.

Each check takes the words of a command and the positions of globs among them. It returns the files that the command
reads, or None if the command may do more than read.

    edits_lines("s/a/b/; 1d")       a sed script without `w`, `e`, `r` and their flags
    only_prints("{print $1}")       an awk program without system(), pipes, redirections and getline

Both accept a subset of the language that every implementation reads in the same way: GNU, BSD and busybox sed; gawk,
mawk, busybox and the one true awk. Where they differ, as about `/` in a character class, the script is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from parley.permissions.base import word_set
from parley.permissions.shell.arguments import Program, accepts_globs, parse_arguments, read_operands
from parley.permissions.shell.strict_parser import HARMLESS_VARIABLES

Files = tuple[str, ...]
Check = Callable[[Sequence[str], Sequence[int]], Files | None]

SECONDS = re.compile(r"\d{1,4}(?:\.\d{1,3})?[smh]?")
FORMAT = re.compile(r"(?:[^%]|%%|%[-+ #0]*(?:[1-9]\d{0,3})?(?:\.\d{0,4})?[sbqcdiuoxXeEfgG])*", re.DOTALL)
JQ_REACHES_OUT = re.compile(r"\$__|\$?\bENV\b|\b(?:env|import|include|modulemeta|input_filename|get_search_list)\b")

FIND_TESTS = word_set(
    "-print -print0 -ls -empty -readable -writable -executable -prune -depth -d -xdev -mount -follow -true -false "
    "-nouser -nogroup -not ! -a -and -o -or ( ) , -daystart -noleaf -ignore_readdir_race -noignore_readdir_race "
    "-nowarn -warn -quit"
)
FIND_TESTS_WITH_VALUE = word_set(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -type -xtype -maxdepth -mindepth "
    "-size -mtime -mmin -atime -amin -ctime -cmin -newer -anewer -cnewer -perm -user -group -uid -gid -links -inum "
    "-samefile -lname -ilname -fstype -used -printf"
)
FIND_NEWER = re.compile(r"-newer[aBcm][aBcmt]")
FIND_FILE = re.compile(r"-(?:[ac]?newer|newer[aBcm][aBcm]|samefile)")
"""Tests whose value is a file."""

JQ = Program(
    short="rcSsnejMCa",
    long="raw-output compact-output sort-keys slurp null-input exit-status join-output monochrome-output color-output "
    "ascii-output raw-input tab indent=",
    operands="pattern",
    min_operands=1,
)
SED = Program(
    short="nErsuze:",
    long="quiet silent regexp-extended expression= separate unbuffered null-data posix debug sandbox",
    operands="pattern",
    pattern_flags="e expression",
)
AWK = Program(short="F:v:", operands="pattern", min_operands=1)
XXD_SWITCHES = word_set("-p -ps -plain -b -bits -e -E -i -include -u -C -a -autoskip -v -version -d")
XXD_VALUE = re.compile(r"-(?:c|cols|g|groupsize|l|len|s|seek|o)")
XXD_NUMBER = re.compile(r"[+-]?(?:0x)?[0-9a-fA-F]+")
PS_WORDS = word_set(
    "a x ax aux auxf auxw auxww axf axu f u l -a -A -e -ef -f -F -l -eF -aux -H -T -L --forest --no-headers "
    "--headers -ww -w"
)
TESTS = word_set("-b -c -d -e -f -g -h -k -p -r -s -u -w -x -L -O -G -N -S -n -z")
TEXT_TESTS = word_set("-n -z")
COMPARISONS = word_set("= == != -eq -ne -lt -le -gt -ge")
PS_VALUES = word_set("-o -eo -Ao -p -C -u -U -g --pid --ppid --sort -axo axo")
PS_VALUE = re.compile(r"(?!.*environ)[A-Za-z0-9_,:%=. +-]+", re.IGNORECASE)
SED_NUMBER = re.compile(r"[+~]?\d+(?:~\d+)?|\$")
SED_COMMA = re.compile(r"\s*,\s*")
CLASS = re.compile(r"\[\^?\]?(?:\[[:.=][^\]\n]*\]|[^\]\[\n\\]|\\[^\]\n])*\]")
SED_SIMPLE = re.compile(r"[=dDgGhHnNpPxzF]|[lqQ]\s*\d*")
SED_LABEL = re.compile(r"[:btT][ \t]*[\w.-]*")
SED_TEXT = re.compile(r"[aic](?:[^\\\n]|\\.|\\\n)*", re.DOTALL)
SED_FLAGS = re.compile(r"[gpIiMm0-9]*")
SED_GAP = re.compile(r"[\s;{}!]*")
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


def check_find(words: Sequence[str], globs: Sequence[int]) -> Files | None:
    """An allow-list of tests (CVE-2026-24887), without -exec, -delete, -fprint and unknown ones."""
    index = 1
    while index < len(words) and words[index] in ("-H", "-L", "-P"):
        index += 1
    begin = index
    while index < len(words) and words[index][:1] not in ("-", "(", ")", "!", ","):
        index += 1
    starts, files = tuple(words[begin:index]), []
    if any(at not in range(begin, index) or words[at][0] in "*?[" for at in globs):
        return None
    while index < len(words):
        word = words[index]
        if word in FIND_TESTS:
            index += 1
        elif (word in FIND_TESTS_WITH_VALUE or FIND_NEWER.fullmatch(word)) and index + 1 < len(words):
            files += [words[index + 1]] if FIND_FILE.fullmatch(word) else []
            index += 2
        else:
            return None
    return (*(starts or (".",)), *files)


def check_sed(words: Sequence[str], globs: Sequence[int]) -> Files | None:
    """Scripts that only print and change lines, without `-i` and `-f` (CVE-2025-64755)."""
    found = parse_arguments(SED, words)
    if found is None or not accepts_globs(SED, words, globs, found):
        return None
    scripts = found.values(*SED.pattern_flags.split()) or found.list_operands(words)[:1]
    return read_operands(SED, words, found) if scripts and all(map(edits_lines, scripts)) else None


def check_awk(words: Sequence[str], globs: Sequence[int]) -> Files | None:
    """A program that only prints, as an argument."""
    found = parse_arguments(AWK, words)
    if found is None or not accepts_globs(AWK, words, globs, found) or not only_prints(words[found.operands[0]]):
        return None
    return read_operands(AWK, words, found)


def check_date(words: Sequence[str], globs: Sequence[int]) -> Files | None:
    """An operand that is not a format would set the clock."""
    known = Program(
        short="uRI::d:", long="utc universal rfc-email iso-8601? date= rfc-3339=", operands="text", max_operands=1
    )
    found = parse_arguments(known, words)
    if globs or found is None or any(not words[index].startswith("+") for index in found.operands):
        return None
    return ()


def check_printf(words: Sequence[str], globs: Sequence[int]) -> Files | None:
    """No flags: `-v` evaluates a subscript. No `%n`: it assigns to any variable, even PATH."""
    if len(words) < 2 or words[1].startswith("-") or not FORMAT.fullmatch(words[1]) or 1 in globs:
        return None
    return ()


def check_jq(words: Sequence[str], globs: Sequence[int]) -> Files | None:
    """No program from a file, no modules, no environment variables."""
    found = parse_arguments(JQ, words)
    if found is None or JQ_REACHES_OUT.search(words[found.operands[0]]):
        return None
    files = found.operands[1:]
    if any(index not in files or words[index][0] in "*?[" for index in globs):
        return None
    return tuple(words[index] for index in files)


def check_xxd(words: Sequence[str], globs: Sequence[int]) -> Files | None:
    """One operand, because a second one would be written. No `-r`."""
    index, files = 1, []
    while index < len(words):
        word = words[index]
        if XXD_VALUE.fullmatch(word) and index + 1 < len(words) and XXD_NUMBER.fullmatch(words[index + 1]):
            index += 2
        elif word in XXD_SWITCHES:
            index += 1
        elif word.startswith(("-", "+")):
            return None
        else:
            files.append(word)
            index += 1
    return tuple(files) if len(files) <= 1 and not globs else None


def check_ps(words: Sequence[str], globs: Sequence[int]) -> Files | None:
    """Known words only: `ps e` would show the environment of other processes."""
    index = 1
    while index < len(words):
        word = words[index]
        if word in PS_WORDS or (word.startswith("--sort=") and PS_VALUE.fullmatch(word[7:])):
            index += 1
        elif word in PS_VALUES and index + 1 < len(words) and PS_VALUE.fullmatch(words[index + 1]):
            index += 2
        else:
            return None
    return None if globs else ()


def check_sleep(words: Sequence[str], globs: Sequence[int]) -> Files | None:
    return () if len(words) == 2 and not globs and SECONDS.fullmatch(words[1]) else None


def check_command(words: Sequence[str], globs: Sequence[int]) -> Files | None:
    """`command -v` looks a name up; `command` alone is a wrapper."""
    if len(words) < 3 or words[1] not in ("-v", "-V") or globs:
        return None
    return tuple(word for word in words[2:] if "/" in word)


def check_test(words: Sequence[str], globs: Sequence[int]) -> Files | None:
    """One test of one file, one text or two texts. Not `-v` and `-R`, which evaluate a subscript."""
    if words[0] == "[":
        words = words[:-1]
    if len(words) > 3 and words[1] == "!" and not globs:
        words = words[1:]
    if (len(words) == 3 and words[1] in TEXT_TESTS) or (len(words) == 4 and words[2] in COMPARISONS):
        return ()
    return (words[2],) if len(words) == 3 and words[1] in TESTS and not globs else None


def check_printenv(words: Sequence[str], globs: Sequence[int]) -> Files | None:
    """Named variables that hold no secret."""
    return () if len(words) > 1 and not globs and HARMLESS_VARIABLES.issuperset(words[1:]) else None


def check_text(words: Sequence[str], globs: Sequence[int]) -> Files | None:
    """Programs that only print their arguments, or do nothing."""
    return ()


CHECKS: dict[str, Check] = {
    "find": check_find,
    "sed": check_sed,
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), check_awk),
    "date": check_date,
    "printf": check_printf,
    "jq": check_jq,
    "xxd": check_xxd,
    "ps": check_ps,
    "sleep": check_sleep,
    "command": check_command,
    "test": check_test,
    "[": check_test,
    "echo": check_text,
    "printenv": check_printenv,
    ":": check_text,
}


# sed


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
