"""Programs that only read, but whose arguments are more than flags and operands.

Each check takes the words of a command and the positions of globs among them. It returns the files that the command
reads, or None if the command may do more than read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from parley.permissions.base import word_set
from parley.permissions.shell.arguments import Program, accepts_globs, parse_arguments, read_operands
from parley.permissions.shell.readonly.scripts import edits_lines, only_prints
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
    given = [value for flag, value in found.flags if flag in SED.pattern_flags.split()]
    scripts = given or [words[index] for index in found.operands[:1]]
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
