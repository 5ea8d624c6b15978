"""What is derived from the entries of a log: the session in a list, the words to search for, hits and excerpts.

All of it is a function of the entries. Stores keep it in rows and indexes, or compute it when they are asked; where it
is lost, it is derived again. Search ignores case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from parley.protocol.base import Json, encode_json
from parley.stores.base import Entry, Info, SearchHit

WORD = re.compile(r"[^\W_]+")
LONGEST_WORD = 64
"""Longer words are truncated. Indexes reject very long keys, such as base64 data."""
SAID = ("user", "assistant")
LONGEST_PROMPT = 200
EXCERPT = 120
PASSAGE = 320
STOP_WORD_LIST = """
a about all also an and any are as at be been but by can could did do does for from had has have how i if in into is it
its me my no not of on or our so than that the their them then there these they this those to us was we were what when
where which who whom whose why will with would you your
"""
STOP_WORDS = frozenset(STOP_WORD_LIST.split())
"""Stop words: common in questions, and not specific to any subject."""
MOST_WORDS = 64
NEAR = 10
"""The distance in words for the NEAR query."""


def split_words(text: str) -> list[str]:
    """The words of a text in order, case-folded."""
    return [word[:LONGEST_WORD] for word in WORD.findall(text.casefold())]


def significant_words(text: str) -> list[str]:
    """The words of a question without stop words and duplicates; all of them if only stop words remain."""
    all_words = list(dict.fromkeys(split_words(text)))
    return ([word for word in all_words if word not in STOP_WORDS] or all_words)[:MOST_WORDS]


def build_queries(query_words: list[str]) -> list[str]:
    """SQLite FTS5 queries, strictest first: all words near each other, all words anywhere, any word."""
    quoted = [f'"{word}"' for word in query_words]
    if len(quoted) < 2:
        return quoted
    return [f"NEAR({' '.join(quoted)}, {NEAR})", " ".join(quoted), " OR ".join(quoted)]


def entry_text(kind: str, message: Json) -> str:
    """The text of a user or assistant entry, including tool results; "" for other kinds."""
    if kind not in SAID:
        return ""
    inner = message.get("message")
    return "\n".join(block_texts(inner.get("content"))) if isinstance(inner, dict) else ""


def block_texts(content: object) -> list[str]:
    """The texts in the content of a message."""
    if isinstance(content, str):
        return [content]
    found: list[str] = []
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict):
            found += [block["text"]] if isinstance(block.get("text"), str) else []
            found += block_texts(block.get("content"))
    return found


def first_prompt(kind: str, message: Json) -> str | None:
    """The user's prompt in one line; None if the entry is not a prompt typed by a user."""
    if kind != "user" or message.get("isSynthetic") or message.get("isMeta") or message.get("isCompactSummary"):
        return None
    inner = message.get("message")
    content = inner.get("content") if isinstance(inner, dict) else None
    if isinstance(content, list):
        content = "\n".join(
            block["text"] for block in content if isinstance(block, dict) and isinstance(block.get("text"), str)
        )
    text = " ".join(content.lstrip()[: 8 * LONGEST_PROMPT].split()) if isinstance(content, str) else ""
    if not text or text.startswith(("<local-command-stdout>", "[Request interrupted by user")):
        return None
    return text if len(text) <= LONGEST_PROMPT else text[:LONGEST_PROMPT].rstrip() + "…"


def summarize_entries(
    session_id: str, cwd: str, entries: Sequence[Entry], title: str | None, title_at: int, tag: str | None
) -> Info | None:
    """The session in a list; None without entries. `title` was given from outside, before entry number `title_at`."""
    if not entries:
        return None
    prompts = (first_prompt(entry.kind, entry.message) for entry in entries)
    titles = (entry.message.get("title") for entry in reversed(entries[title_at:]) if entry.kind == "title")
    return Info(
        id=session_id,
        cwd=cwd,
        title=next(map(str, titles), title),
        first_prompt=next((prompt for prompt in prompts if prompt is not None), None),
        created=entries[0].at,
        modified=entries[-1].at,
        size_bytes=sum(len(encode_json(entry.message)) for entry in entries),
        messages=sum(entry.kind in SAID for entry in entries),
        tag=tag,
    )


def search_entries(sessions: Iterable[tuple[str, Iterable[Entry]]], text: str, limit: int) -> list[SearchHit]:
    """The last entries with all the words, of sessions that are given with the most recently written first."""
    query_words, found = split_words(text), list[SearchHit]()
    for session_id, entries in sessions:
        if len(found) >= limit:
            break
        hits = [hit for entry in entries if (hit := make_hit(session_id, entry, query_words)) is not None]
        found += reversed(hits)
    return found[:limit]


def make_hit(session_id: str, entry: Entry, query_words: list[str]) -> SearchHit | None:
    """A hit for an entry that contains all the words; None for others."""
    text = entry_text(entry.kind, entry.message)
    if not query_words or not set(query_words) <= set(split_words(text)):
        return None
    return SearchHit(
        id=session_id, seq=entry.seq, kind=entry.kind, at=entry.at, excerpt=make_excerpt(text, query_words)
    )


def rank_entries(session_id: str, entries: Iterable[Entry], text: str, limit: int) -> list[SearchHit]:
    """Search a session without an index: most matching words first, then the latest."""
    words, scored = significant_words(text), list[tuple[int, int, SearchHit]]()
    for entry in entries:
        content = "" if is_repetition(entry) else entry_text(entry.kind, entry.message)
        score = len(set(words) & set(split_words(content)))
        if score:
            excerpt = find_passage(content, words)
            hit = SearchHit(id=session_id, seq=entry.seq, kind=entry.kind, at=entry.at, excerpt=excerpt)
            scored.append((score, entry.seq, hit))
    return [hit for _, _, hit in sorted(scored, key=lambda each: each[:2], reverse=True)[:limit]]


def is_repetition(entry: Entry) -> bool:
    """Whether an entry is a summary or the result of a memory tool."""
    detail = entry.message.get("tool_use_result")
    return bool(entry.context.get("isCompactSummary") or (isinstance(detail, dict) and detail.get("recalled")))


def make_excerpt(text: str, query_words: list[str]) -> str:
    """An excerpt of the text around the first of the words."""
    flat = " ".join(text.split())
    at = min((found for word in query_words if (found := flat.casefold().find(word)) >= 0), default=0)
    begin = max(0, at - EXCERPT // 3)
    cut = flat[begin : begin + EXCERPT]
    return f"{'…' if begin else ''}{cut}{'…' if begin + EXCERPT < len(flat) else ''}"


def find_passage(text: str, query_words: list[str]) -> str:
    """The passage of the text that contains most of the words, weighted by their length."""
    flat, weights = " ".join(text.split()), {word: len(word) for word in query_words}
    all_words = ((found.start(), found[0].casefold()[:LONGEST_WORD]) for found in WORD.finditer(flat))
    matches = [(start, word) for start, word in all_words if word in weights]
    best, best_score, first = 0, -1, 0
    for last, (end, _) in enumerate(matches):
        while end - matches[first][0] > PASSAGE * 2 // 3:
            first += 1
        if (score := sum(weights[word] for word in {word for _, word in matches[first : last + 1]})) > best_score:
            best, best_score = matches[first][0], score
    begin = max(0, best - PASSAGE // 6)
    return f"{'…' if begin else ''}{flat[begin : begin + PASSAGE]}{'…' if begin + PASSAGE < len(flat) else ''}"
