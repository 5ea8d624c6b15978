"""memory_search and memory_read: what was learned and said before, also long ago."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated, ClassVar

from msgspec import Meta

from parley._threads import aside
from parley.errors import SessionError, ToolError
from parley.memory.base import Entry, Findings, Line, Recall, Summary
from parley.protocol.base import Json, Struct, plain
from parley.tools.base import Context, Result
from parley.workspace.base import Reach

MOST_FOUND = 50
MOST_CHARS = 40_000
EXCERPT_CHARS = 400
MOST_ID = 2**53
"""Far more than there will ever be, and what a database still takes as a number."""
SPARE = 3
"""So many times as many are looked for as are shown: some are in front of the model already."""
REPEATS = {"recalled": True}
"""Marks what was looked up, so that nobody finds it as if it had been said once more."""
RANGE = re.compile(r"#?(\d{1,15})(?:\s*(?:-|–|\.\.)\s*#?(\d{1,15}))?")


class SearchInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    query: Annotated[str, Meta(min_length=1, description="Words to look for; those with most of them come first")]
    limit: Annotated[int, Meta(ge=1, le=MOST_FOUND, description="How many of each kind")] = 8
    everywhere: Annotated[bool, Meta(description="Also what was said in other sessions")] = False


class ReadInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    slug: Annotated[str | None, Meta(description="An entry of the knowledge tree")] = None
    messages: Annotated[str | None, Meta(description="Messages by their numbers: 120 or 120-140")] = None
    session: Annotated[str | None, Meta(description="The session whose messages are meant, if not this one")] = None
    summary: Annotated[
        Annotated[int, Meta(ge=0, le=MOST_ID)] | None,
        Meta(description="A summary by its id: itself, and what it stands for"),
    ] = None


class MemorySearch:
    name: ClassVar[str] = "memory_search"
    reads_only: ClassVar[bool] = True
    input: ClassVar[type[Struct]] = SearchInput
    description: ClassVar[str] = (
        "Looks for words in what you know from before: the knowledge tree (facts that were learned in any session), "
        "summaries, and every message of this session, also those that you no longer see. Use it whenever something "
        "may have been said or learned before that is not in front of you. memory_read then shows the whole of it."
    )

    async def run(self, call: SearchInput, context: Context, reach: Reach) -> Result:
        recall = opened(context)
        try:
            found = await aside(lambda: recall.search(call.query, call.limit * SPARE, everywhere=call.everywhere))
        except SessionError as flaw:
            raise ToolError(str(flaw)) from None
        found = news_first(found, context.in_view(), call.limit)
        detail = {
            **REPEATS,
            "entries": [entry.slug for entry in found.entries],
            "summaries": [summary.id for summary in found.summaries],
            "messages": [{"session_id": hit.id, "seq": hit.seq} for hit in found.messages],
        }
        return Result(content=report(found) or "Nothing was found. Try other words, or fewer.", detail=detail)


class MemoryRead:
    name: ClassVar[str] = "memory_read"
    reads_only: ClassVar[bool] = True
    input: ClassVar[type[Struct]] = ReadInput
    description: ClassVar[str] = (
        "Shows the whole of something from your memory: an entry of the knowledge tree by its slug, messages by "
        "their numbers, word for word, or a summary by its id. Give exactly one of the three. "
        f"At most {MOST_CHARS:,} characters are shown at a time."
    )

    async def run(self, call: ReadInput, context: Context, reach: Reach) -> Result:
        recall = opened(context)
        if sum(given is not None for given in (call.slug, call.messages, call.summary)) != 1:
            raise ToolError("Give exactly one of `slug`, `messages` and `summary`.")
        try:
            return await aside(lambda: shown(recall, call))
        except SessionError as flaw:
            raise ToolError(str(flaw)) from None


def opened(context: Context) -> Recall:
    if context.open_memory is None:
        raise ToolError("This session has no memory.")
    return context.open_memory()


def shown(recall: Recall, call: ReadInput) -> Result:
    """Raises ToolError, SessionError."""
    if call.slug is not None:
        entry = recall.entry(call.slug)
        if entry is None or entry.archived:
            raise ToolError(f"There is no entry {call.slug!r}. memory_search finds entries by their words.")
        return Result(content=cut(whole(entry, recall.below(call.slug))), detail={**REPEATS, **plain(entry)})
    if call.summary is not None:
        found = recall.summary(call.summary)
        if found is None:
            raise ToolError(f"There is no summary {call.summary}.")
        above, below = found
        return Result(content=cut("\n\n".join(map(summarised, [above, *below]))), detail={**REPEATS, **plain(above)})
    first, last = range_of(call.messages or "")
    lines = recall.messages(first, last, call.session)
    if not lines:
        raise ToolError(f"Nothing was said from #{first} to #{last}.")
    detail: Json = {**REPEATS, "first": first, "last": last, "messages": len(lines)}
    return Result(content=fitting(lines), detail=detail)


def news_first(found: Findings, in_view: Collection[tuple[str, int]], limit: int) -> Findings:
    """As many of each as are wanted; messages that the model sees anyway come behind the others."""
    messages = sorted(found.messages, key=lambda hit: (hit.id, hit.seq) in in_view)
    return Findings(entries=found.entries[:limit], summaries=found.summaries[:limit], messages=tuple(messages[:limit]))


def range_of(text: str) -> tuple[int, int]:
    """Raises ToolError."""
    found = RANGE.fullmatch(text.strip())
    if found is None:
        raise ToolError(f"`messages` must be a number or two, as in 120-140, not {text!r}.")
    first = int(found[1])
    return first, max(first, int(found[2] or first))


def report(found: Findings) -> str:
    entries = [f"- {entry.slug} ({entry.title}): {short(entry.body)}" for entry in found.entries]
    summaries = [
        f"- summary {each.id}, of #{each.first} to #{each.last}: {short(each.text)}" for each in found.summaries
    ]
    messages = [f"- #{hit.seq} {hit.kind}, {hit.at[:16]}, session {hit.id}: {hit.excerpt}" for hit in found.messages]
    parts = (("Knowledge", entries), ("Summaries", summaries), ("Messages", messages))
    return "\n\n".join("\n".join([f"{title}:", *lines]) for title, lines in parts if lines)


def whole(entry: Entry, below: list[Entry]) -> str:
    about = [f"# {entry.title}", f"slug {entry.slug}, version {entry.version}, of {entry.at[:10]}"]
    if entry.parent:
        about.append(f"below {entry.parent}")
    if entry.links:
        about.append(f"see also {', '.join(entry.links)}")
    if below:
        about.append("above " + ", ".join(f"{child.slug} ({child.title})" for child in below))
    if entry.sources:
        about.append("from " + ", ".join(f"#{source.seq} of {source.session}" for source in entry.sources[-10:]))
    return "\n".join([*about, "", entry.body])


def summarised(summary: Summary) -> str:
    return f"[summary {summary.id}, order {summary.order}, of #{summary.first} to #{summary.last}]\n{summary.text}"


def fitting(lines: list[Line]) -> str:
    """As many messages as fit, whole; where to go on if some do not."""
    told, room = list[str](), MOST_CHARS
    for line in lines:
        text = f"[#{line.seq} {line.kind}]\n{line.text}"
        if len(text) > room:
            if not told:
                told.append(cut(text))
                continue
            told.append(f"[There is more from #{line.seq} on: ask for it by that number.]")
            break
        told.append(text)
        room -= len(text)
    return "\n\n".join(told)


def cut(text: str) -> str:
    return text if len(text) <= MOST_CHARS else f"{text[:MOST_CHARS]}\n[… {len(text) - MOST_CHARS} characters more …]"


def short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= EXCERPT_CHARS else flat[:EXCERPT_CHARS].rstrip() + "…"
