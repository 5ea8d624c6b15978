"""The second generator of the canary: everyday commands, slightly damaged, most of which are still fine.

It is independent of the first generator: it knows no bash, only which characters matter to a shell, and damages real
commands at random positions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from random import Random

from tests.helpers import paths

CORPORA = ("everyday.jsonl", "developer.jsonl")
MARKS = tuple(" \t\n'\"\\|&;<>()$`*?[]{}~#!^=%@,:+-./0a")
JOINTS = (" && ", " || ", "; ", " | ", "\n", " & ", ";", "|", "&&", " |& ", "\n\n", " ;\n")
BAIT = "canary"
LOOP_WORDS = (
    "*",
    "a.txt",
    "*.py",
    "src/*",
    "'a b'",
    "-o",
    "$(seq 1 3)",
    "{1..3}",
    "--pre=canary",
    "';canary'",
    "~",
    "$HOME",
)
PIECES = re.compile(r"\s+|[^\s]+")


def corpus() -> list[str]:
    files = (paths.DATA / "permissions" / name for name in CORPORA)
    return [json.loads(row)["command"] for file in files for row in file.read_text(encoding="utf-8").splitlines()]


def commands(random: Random) -> Iterator[str]:
    known = corpus()
    words = sorted({word for text in known for word in text.split()})
    damages = (
        _requoted, _reworded, _joined, _marked, _baited, _spaced, _trimmed, _doubled, _escaped, _sent, _fed, _at_home,
        _looped, _substituted, _branched,
    )  # fmt: skip
    while True:
        text = random.choice(known)
        for _ in range(random.choice((1, 1, 2, 2, 3))):
            text = random.choice(damages)(text, random, known, words)
        yield text


def _pick(text: str, random: Random) -> tuple[list[str], int]:
    """The pieces of a text, and the position of one that is a word."""
    pieces = PIECES.findall(text) or [BAIT]
    return pieces, random.choice([place for place, piece in enumerate(pieces) if piece.strip()] or [0])


def _requoted(text: str, random: Random, known: list[str], words: list[str]) -> str:
    pieces, place = _pick(text, random)
    quote = random.choice("'\"")
    cut = random.randrange(len(pieces[place]) + 1)
    pieces[place] = random.choice(
        (f"{quote}{pieces[place]}{quote}", f"{pieces[place][:cut]}{quote}{pieces[place][cut:]}{quote}", f"{quote * 2}")
    )
    return "".join(pieces)


def _reworded(text: str, random: Random, known: list[str], words: list[str]) -> str:
    pieces, place = _pick(text, random)
    pieces[place] = random.choice(words)
    return "".join(pieces)


def _joined(text: str, random: Random, known: list[str], words: list[str]) -> str:
    return text + random.choice(JOINTS) + random.choice((*known[:40], random.choice(known), BAIT))


def _marked(text: str, random: Random, known: list[str], words: list[str]) -> str:
    cut = random.randrange(len(text) + 1)
    return text[:cut] + random.choice(MARKS) + text[cut:]


def _baited(text: str, random: Random, known: list[str], words: list[str]) -> str:
    cut = random.choice([0, len(text), *(found.start() for found in re.finditer(r"\b|\s", text))])
    return (
        text[:cut]
        + random.choice(("", " ", "'", '"', "\\", ";", "\n"))
        + BAIT
        + random.choice(("", " ", "'", '"'))
        + text[cut:]
    )


def _spaced(text: str, random: Random, known: list[str], words: list[str]) -> str:
    blanks = [found.span() for found in re.finditer(r"\s+", text)] or [(0, 0)]
    begin, end = random.choice(blanks)
    return text[:begin] + random.choice(("\t", "  ", " \t ", "", "\n", "\\ ")) + text[end:]


def _trimmed(text: str, random: Random, known: list[str], words: list[str]) -> str:
    cut = random.randrange(len(text) + 1)
    return text[:cut] if random.random() < 0.5 else text[:cut] + text[cut + 1 :]


def _doubled(text: str, random: Random, known: list[str], words: list[str]) -> str:
    pieces, place = _pick(text, random)
    pieces.insert(place, pieces[place] + " ")
    return "".join(pieces)


def _escaped(text: str, random: Random, known: list[str], words: list[str]) -> str:
    cut = random.randrange(len(text) + 1)
    return text[:cut] + "\\" + text[cut:]


def _sent(text: str, random: Random, known: list[str], words: list[str]) -> str:
    return text + random.choice(
        (" 2>&1", " > /dev/null", " 2>/dev/null", " >&2", " < a.txt", " 2>&1 | " + BAIT, " >" + BAIT)
    )


def _fed(text: str, random: Random, known: list[str], words: list[str]) -> str:
    mark, body = random.choice(("EOF", "E", "end_1")), random.choice((BAIT, random.choice(known), random.choice(words)))
    quote = random.choice(("'", "'", "'", '"', ""))
    rest = random.choice(("", "", "\n", f"\n{random.choice(known)}", f"\n{BAIT}" if random.random() < 0.1 else ""))
    return f"{text} <<{random.choice(('', ' '))}{quote}{mark}{quote}\n{body}\n{mark}{rest}"


def _looped(text: str, random: Random, known: list[str], words: list[str]) -> str:
    items = " ".join(random.choice((*words, *LOOP_WORDS)) for _ in range(random.choice((1, 2, 3))))
    pieces, place = _pick(text, random)
    pieces[place] = random.choice(("$f", '"$f"', "${f}", '"x $f"', "$f.bak", "a$f", pieces[place]))
    name, joint = random.choice(("f", "f", "f", "PATH", "path")), random.choice((";", "\n", " ;", "; "))
    return f"for {name} in {items}{joint}do {''.join(pieces)}{joint}done" + random.choice(("", "", " | cat", " 2>&1"))


def _substituted(text: str, random: Random, known: list[str], words: list[str]) -> str:
    form = random.choice(("$(%s)", '"$(%s)"', '"x $(%s)"', "`%s`", '"`%s`"', "$(%s) $HOME", '"$PWD $(%s)"', "<(%s)"))
    return random.choice(("echo ", "printf '%s' ", "basename ", "test -n ", "cat ", "[ ")) + form % text


def _branched(text: str, random: Random, known: list[str], words: list[str]) -> str:
    return f"if {random.choice(known)}; then {text}; {random.choice(('', 'else ls; ', f'elif {BAIT}; then ls; '))}fi"


def _at_home(text: str, random: Random, known: list[str], words: list[str]) -> str:
    pieces, place = _pick(text, random)
    pieces[place] = random.choice(("~/", "~/", "~", "~/.")) + random.choice((pieces[place], "", BAIT))
    return "".join(pieces)
