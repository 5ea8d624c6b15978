"""What can be searched for in an entry: the words that were said, without regard to their case."""

from __future__ import annotations

import re

from parley.protocol.base import Json
from parley.stores.base import Entry, Hit

WORD = re.compile(r"[^\W_]+")
LONGEST_WORD = 64
"""Indexes refuse keys without an end, such as the base64 of a picture."""
SAID = ("user", "assistant")
LONGEST_PROMPT = 200
EXCERPT = 120
PASSAGE = 320
QUESTIONS = """
a about all also an and any are as at be been but by can could did do does for from had has have how i if in into is it
its me my no not of on or our so than that the their them then there these they this those to us was we were what when
where which who whom whose why will with would you your
"""
EMPTY = frozenset(QUESTIONS.split())
"""Words of which questions are full, and which say nothing of what they are about."""
MOST_WORDS = 64
NEAR = 10
"""So many other words may stand between the first and the last of those that are looked for."""


def words(text: str) -> list[str]:
    """The words of a text, in their order."""
    return [word[:LONGEST_WORD] for word in WORD.findall(text.casefold())]


def telling(text: str) -> list[str]:
    """The words of a question that say what it is about, each once; all of them if there are no others."""
    every = list(dict.fromkeys(words(text)))
    return ([word for word in every if word not in EMPTY] or every)[:MOST_WORDS]


def queries(wanted: list[str]) -> list[str]:
    """For SQLite's full-text search: what has all the words near each other, then anywhere, then what has any."""
    quoted = [f'"{word}"' for word in wanted]
    if len(quoted) < 2:
        return quoted
    return [f"NEAR({' '.join(quoted)}, {NEAR})", " ".join(quoted), " OR ".join(quoted)]


def said(kind: str, message: Json) -> str:
    """What a person or a model wrote in an entry, and what tools answered; "" for all else."""
    if kind not in SAID:
        return ""
    inner = message.get("message")
    return "\n".join(texts(inner.get("content"))) if isinstance(inner, dict) else ""


def texts(content: object) -> list[str]:
    """The texts in the content of a message."""
    if isinstance(content, str):
        return [content]
    found: list[str] = []
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict):
            found += [block["text"]] if isinstance(block.get("text"), str) else []
            found += texts(block.get("content"))
    return found


def first_prompt(kind: str, message: Json) -> str | None:
    """What the user asked for, in one line; None if the entry is no prompt of a person."""
    if kind != "user" or message.get("isSynthetic") or message.get("isMeta") or message.get("isCompactSummary"):
        return None
    inner = message.get("message")
    content = inner.get("content") if isinstance(inner, dict) else None
    if isinstance(content, list):
        content = "\n".join(
            block["text"] for block in content if isinstance(block, dict) and isinstance(block.get("text"), str)
        )
    text = " ".join(content.split()) if isinstance(content, str) else ""
    if not text or text.startswith(("<local-command-stdout>", "[Request interrupted by user")):
        return None
    return text if len(text) <= LONGEST_PROMPT else text[:LONGEST_PROMPT].rstrip() + "…"


def hit(session_id: str, entry: Entry, wanted: list[str]) -> Hit | None:
    """The find in an entry that has all the words."""
    text = said(entry.kind, entry.message)
    if not wanted or not set(wanted) <= set(words(text)):
        return None
    return Hit(id=session_id, seq=entry.seq, kind=entry.kind, at=entry.at, excerpt=excerpt(text, wanted))


def excerpt(text: str, wanted: list[str]) -> str:
    """A line of the text around the first of the words."""
    flat = " ".join(text.split())
    at = min((found for word in wanted if (found := flat.casefold().find(word)) >= 0), default=0)
    begin = max(0, at - EXCERPT // 3)
    cut = flat[begin : begin + EXCERPT]
    return f"{'…' if begin else ''}{cut}{'…' if begin + EXCERPT < len(flat) else ''}"


def passage(text: str, wanted: list[str]) -> str:
    """The lines of the text in which most of the words stand together; long ones count for more."""
    flat, weights = " ".join(text.split()), {word: len(word) for word in wanted}
    all_words = ((found.start(), found[0].casefold()[:LONGEST_WORD]) for found in WORD.finditer(flat))
    places = [(start, word) for start, word in all_words if word in weights]
    best, score, first = 0, -1, 0
    for last, (end, _) in enumerate(places):
        while end - places[first][0] > PASSAGE * 2 // 3:
            first += 1
        if (here := sum(weights[word] for word in {word for _, word in places[first : last + 1]})) > score:
            best, score = places[first][0], here
    begin = max(0, best - PASSAGE // 6)
    return f"{'…' if begin else ''}{flat[begin : begin + PASSAGE]}{'…' if begin + PASSAGE < len(flat) else ''}"
