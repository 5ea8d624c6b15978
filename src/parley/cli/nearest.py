"""What is wrong with a command line, for the person who wrote it; and the word that a mistyped one was meant to be.

Loaded only if something is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from parley.cli.main import SUBCOMMANDS, is_driven
from parley.errors import InvalidArguments
from parley.protocol.options import BY_FLAG, ROWS, CliOptions, ParsedArgs

LETTERS_PER_TYPO = 4
"""A word of eight letters may have two typos; a shorter one may have one."""
SHORT = 4
"""Names of up to this many letters are too close to ordinary words: `lint` and `unit` are not `link` and `init`."""


def find_nearest(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean X?)`, or nothing if no known word is similar."""
    from difflib import get_close_matches

    names = {name.lstrip("-"): name for name in known}
    near = get_close_matches(word.lstrip("-"), names, n=1)
    return f" (did you mean {names[near[0]]}?)" if near else ""


def find_mistyped_command(words: Sequence[str]) -> str | None:
    """Return the subcommand that the first of these words was probably meant to be; None if it is a prompt.

    The words after it can tell: `mcpp list` has the name of an action, and `conformance` alone is no sentence.
    """
    word, *rest = words
    if (name := find_mistyped(word, SUBCOMMANDS)) is not None:
        return name
    if not rest:
        return next((name for name in sorted(SUBCOMMANDS) if len(name) > SHORT and word.startswith(name)), None)
    name = find_mistyped(word, SUBCOMMANDS, is_followed=True)
    if name is None:
        return None
    from parley.cli.commands.catalog import BY_NAME

    return name if rest[0] in BY_NAME[name].actions else None


def find_mistyped(word: str, known: Iterable[str], *, is_followed: bool = False) -> str | None:
    """Return the known word that differs by a typo or two; None if none does.

    Stricter than `find_nearest`: a word that is probably something else must not be taken for a mistake.
    `is_followed`: a letter more or less is a typo in a very short name too, because the next word fits it.
    """
    typos, name = min(((count_typos(word, name), name) for name in known), default=(0, ""))
    if typos > max(1, len(name) // LETTERS_PER_TYPO):
        return None
    is_swapped = sorted(word) == sorted(name)
    if len(name) <= SHORT and not is_swapped and ((len(name) < SHORT and not is_followed) or len(word) == len(name)):
        return None
    return name or None


def count_typos(one: str, other: str) -> int:
    """How many letters must be inserted, removed, replaced or swapped with the next to make the words equal."""
    before: list[int] = []
    last = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        current = [row]
        for column, wanted in enumerate(other, 1):
            best = min(last[column] + 1, current[-1] + 1, last[column - 1] + (letter != wanted))
            if row > 1 and column > 1 and letter == other[column - 2] and one[row - 2] == wanted:
                best = min(best, before[column - 2] + 1)
            current.append(best)
        before, last = last, current
    return last[-1]


def check_unknown(parsed: ParsedArgs) -> None:
    """Raises InvalidArguments for an unknown option, unless a client is driving.

    Clients pass options of other versions, and those that read messages receive the warning as one. A person or a
    script would pay for a prompt with the wrong options.
    """
    if parsed.options.version or parsed.options.help or is_driven(parsed.options):
        return
    flag = parsed.unknown[0]
    raise InvalidArguments(
        f"unknown option '{flag}'{find_nearest(flag, BY_FLAG)}; see `parley --help`, and put -- before a prompt that "
        "starts with a dash"
    )


def describe_missing_prompt(options: CliOptions, reason: str = "") -> str:
    """`reason`: why the session cannot continue without one."""
    greedy = describe_greedy_options(options)
    if not (options.print or is_driven(options) or options.output_format):
        reason = f", and {reason}" if reason else greedy
        return (
            f"no prompt given{reason}. Give the prompt as an argument, as in parley "
            '"What does this project do?", or on stdin. If stdin and stdout are terminals, parley opens a '
            "conversation. To continue the last session, add --continue. See `parley help`"
        )
    reason = f": {reason}" if reason else f" (give a prompt, or use --input-format stream-json{greedy})"
    # Clients look for the start of this sentence.
    return f"Input must be provided either through stdin or as a prompt argument when using --print{reason}"


def describe_greedy_options(options: CliOptions) -> str:
    """Name the options that may have consumed the prompt as a value; empty if there are none."""
    greedy = [row for row in ROWS if row.kind.words in ("many", "maybe") and row.field in options.given]
    if not greedy:
        return ""
    names = ", ".join(row.flags[0] for row in greedy)
    return f"; {names} takes the arguments after it as values, so put the prompt before it or after --"
