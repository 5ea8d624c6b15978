"""The tools memory_search and memory_read."""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta

from parley._threads import run_in_thread
from parley.errors import SessionError, ToolError
from parley.memory.base import KnowledgeEntry, LogMessage, Recall, RecallResults
from parley.protocol.base import Json, Struct, to_builtins
from parley.tools.base import Context, Tool, ToolOutput
from parley.workspace.base import Scope

MOST_FOUND = 50
MOST_CHARS = 40_000
EXCERPT_CHARS = 400
SPARE = 3
"""How many times more results are fetched than shown: the model sees some already."""
REPEATS = {"recalled": True}
"""Marks results of memory tools, so that a search does not find them again."""
RANGE = re.compile(r"#?(\d{1,15})(?:\s*(?:-|–|\.\.)\s*#?(\d{1,15}))?")


class MemorySearchInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    query: Annotated[str, Meta(min_length=1, description="Words to look for; those with most of them come first")]
    limit: Annotated[int, Meta(ge=1, le=MOST_FOUND, description="How many of each kind")] = 8
    everywhere: Annotated[bool, Meta(description="Also search the messages of other sessions")] = False


class MemoryReadInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    slug: Annotated[str | None, Meta(description="An entry of the knowledge tree")] = None
    messages: Annotated[str | None, Meta(description="Messages by their numbers: 120 or 120-140")] = None
    session: Annotated[str | None, Meta(description="The session of the messages, if not this one")] = None


class MemorySearch(Tool):
    name = "memory_search"
    reads_only = True
    input = MemorySearchInput
    description = (
        "Looks for words in what you know from before: the knowledge tree (facts that were learned in any session), "
        "and every message of this session, also those that you no longer see. Use it whenever something "
        "may have been said or learned before that is not in front of you. memory_read then shows the whole of it."
    )

    async def run(self, call: MemorySearchInput, context: Context, reach: Scope) -> ToolOutput:
        recall = open_recall(context)
        try:
            found = await run_in_thread(
                lambda: recall.search(call.query, call.limit * SPARE, everywhere=call.everywhere)
            )
        except SessionError as exc:
            raise ToolError(str(exc)) from None
        # Limit the results of each kind; messages that the model sees anyway come last.
        in_view = context.session.in_view()
        limit = call.limit
        messages = sorted(found.messages, key=lambda hit: (hit.id, hit.seq) in in_view)
        found = RecallResults(entries=found.entries[:limit], messages=tuple(messages[:limit]))
        detail = {
            **REPEATS,
            "entries": [entry.slug for entry in found.entries],
            "messages": [{"session_id": hit.id, "seq": hit.seq} for hit in found.messages],
        }
        return ToolOutput(
            content=format_results(found) or "Nothing was found. Try other words, or fewer.", detail=detail
        )


class MemoryRead(Tool):
    name = "memory_read"
    reads_only = True
    input = MemoryReadInput
    description = (
        "Shows the whole of something from your memory: an entry of the knowledge tree by its slug, or messages by "
        "their numbers, word for word. Give exactly one of the two. "
        f"At most {MOST_CHARS:,} characters are shown at a time."
    )

    async def run(self, call: MemoryReadInput, context: Context, reach: Scope) -> ToolOutput:
        recall = open_recall(context)
        if (call.slug is None) == (call.messages is None):
            raise ToolError("Give exactly one of `slug` and `messages`.")
        try:
            return await run_in_thread(lambda: read_memory(recall, call))
        except SessionError as exc:
            raise ToolError(str(exc)) from None


def open_recall(context: Context) -> Recall:
    if context.session.open_memory is None:
        raise ToolError("The long-term memory is not available in this session.")
    return context.session.open_memory()


def read_memory(recall: Recall, call: MemoryReadInput) -> ToolOutput:
    """Raises ToolError, SessionError."""
    if call.slug is not None:
        entry = recall.entry(call.slug)
        if entry is None or entry.archived:
            raise ToolError(f"There is no entry {call.slug!r}. memory_search finds entries by their words.")
        return ToolOutput(
            content=cut(format_entry(entry, recall.below(call.slug))),
            detail={**REPEATS, **to_builtins(entry)},
            # An entry is in a database, not in a file that a client could open: so its text is here.
            memories=({"path": f"<memory:{entry.slug}>", "scope": "personal", "content": cut(entry.body)},),
        )
    first, last = parse_range(call.messages or "")
    lines = recall.messages(first, last, call.session)
    if not lines:
        raise ToolError(f"There are no messages from #{first} to #{last}.")
    detail: Json = {**REPEATS, "first": first, "last": last, "messages": len(lines)}
    return ToolOutput(content=fit_messages(lines), detail=detail)


def parse_range(text: str) -> tuple[int, int]:
    """Raises ToolError."""
    found = RANGE.fullmatch(text.strip())
    if found is None:
        raise ToolError(f"`messages` must be a number or a range, such as 120 or 120-140, not {text!r}.")
    first = int(found[1])
    return first, max(first, int(found[2] or first))


def format_results(found: RecallResults) -> str:
    entries = [f"- {entry.slug} ({entry.title}): {shorten(entry.body)}" for entry in found.entries]
    messages = [f"- #{hit.seq} {hit.kind}, {hit.at[:16]}, session {hit.id}: {hit.excerpt}" for hit in found.messages]
    parts = (("Knowledge", entries), ("Messages", messages))
    return "\n\n".join("\n".join([f"{title}:", *lines]) for title, lines in parts if lines)


def format_entry(entry: KnowledgeEntry, below: list[KnowledgeEntry]) -> str:
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


def fit_messages(lines: list[LogMessage]) -> str:
    """As many whole messages as fit, and where to continue."""
    shown, room = list[str](), MOST_CHARS
    for line in lines:
        text = f"[#{line.seq} {line.kind}]\n{line.text}"
        if len(text) > room:
            if not shown:
                shown.append(cut(text))
                continue
            shown.append(f"[More messages follow, starting with #{line.seq}: ask for them by number.]")
            break
        shown.append(text)
        room -= len(text)
    return "\n\n".join(shown)


def cut(text: str) -> str:
    return text if len(text) <= MOST_CHARS else f"{text[:MOST_CHARS]}\n[… {len(text) - MOST_CHARS} characters more …]"


def shorten(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= EXCERPT_CHARS else flat[:EXCERPT_CHARS].rstrip() + "…"
