"""ToolSearch: finds tools whose definitions the model does not have yet, and loads them.

    select:mcp__git__log,WebFetch     these tools
    commit history                    the tools that fit best, by the words of their names and descriptions
    +git history                      only tools that have the word `git`

The result names the tools in `tool_reference` blocks. The engine adds their definitions to the next model call.

See also: `engine/context/tool_deferral.py` for which tools are deferred, `catalog.py` for built-in ones.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated

from msgspec import Meta

from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.tools.base import Context, DeferredTools, Tool, ToolOutput
from parley.workspace.base import Scope

SELECT = "select:"
MAX_RESULTS = 50
MAX_NAMED = 50
"""How many names a result without a match lists."""
WAIT_SECONDS = 10.0
"""How long a search without a match waits for servers that are still connecting."""
NAME_WORD, NAME_PART, HINT_WORD, TEXT_WORD, TEXT_PART = 10, 5, 4, 2, 1
"""What a word is worth that is a word or a part of the name, of the hint, and of the description."""


class ToolSearchInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    query: Annotated[str, Meta(description='"select:NAME,NAME" for these tools, or keywords; +word must occur')]
    max_results: Annotated[int, Meta(description="How many tools keywords may load at most", ge=1)] = 5


class SearchEntry(Struct, frozen=True):
    """One tool as it is searched."""

    name: str
    words: frozenset[str]
    """The words of its name."""
    hint: frozenset[str]
    text: str
    """Its description, in lower case."""
    text_words: frozenset[str]

    def score(self, word: str) -> int:
        """How well a word fits; 0 if it does not occur."""
        if word in self.words:
            return NAME_WORD
        if word in self.name.lower():
            return NAME_PART
        if word in self.hint:
            return HINT_WORD
        return TEXT_WORD if word in self.text_words else TEXT_PART if word in self.text else 0


class ToolSearch(Tool):
    name = "ToolSearch"
    reads_only = True
    input = ToolSearchInput
    description = (
        "Loads the definitions of deferred tools, which are listed by name only. Search before you call one; "
        "once found, it can be called like any other tool."
    )

    async def run(self, call: ToolSearchInput, context: Context, reach: Scope) -> ToolOutput:
        deferred = context.session.deferred_tools()
        if deferred is None:
            raise ToolError("No tools are deferred: the definitions of all tools are loaded.")
        if not call.query.removeprefix(SELECT).strip(" ,+"):
            raise ToolError(f'The query is empty. Use "{SELECT}NAME,NAME" or keywords. {list_names(deferred.tools())}')
        found = self._find(call, context, deferred)
        servers = context.session.pending_servers
        if not found and servers is not None and (connecting := servers.names()):
            # Their tools are not known yet.
            await servers.wait(connecting, WAIT_SECONDS)
            found = self._find(call, context, deferred)
        deferred.load(found)
        detail: Json = {"matches": found, "query": call.query, "total_deferred_tools": len(deferred.tools())}
        if not found:
            pending = servers.names() if servers is not None else []
            if pending:
                detail["pending_mcp_servers"] = pending
            return ToolOutput(content=no_match(call.query, deferred.tools(), pending), detail=detail)
        return ToolOutput(content=[{"type": "tool_reference", "tool_name": name} for name in found], detail=detail)

    def _find(self, call: ToolSearchInput, context: Context, deferred: DeferredTools) -> list[str]:
        tools = deferred.tools()
        if call.query.startswith(SELECT):
            return select(call.query.removeprefix(SELECT).split(","), [*tools, *deferred.all_names()])
        # The index is kept until the tools change.
        known, entries = context.state.notes.get(self.name) or (None, [])
        if known is not tools:
            entries = [make_entry(name, tool) for name, tool in tools.items()]
            context.state.notes[self.name] = (tools, entries)
        return search(call.query, entries, min(call.max_results, MAX_RESULTS))


def select(asked: Iterable[str], names: Collection[str]) -> list[str]:
    """The tools of these names; a name without its server's prefix is enough if only one tool has it."""
    exact = {name.lower(): name for name in names}
    short: dict[str, set[str]] = {}
    for name in names:
        short.setdefault(name.rpartition("__")[2].lower(), set()).add(name)
    found: list[str] = []
    for word in (word.strip().lower() for word in asked):
        if word in exact:
            found.append(exact[word])
        elif len(short.get(word, ())) == 1:
            found += short[word]
    return list(dict.fromkeys(found))


def search(query: str, entries: Sequence[SearchEntry], limit: int) -> list[str]:
    """The tools that fit best, first those with the highest score, then in the order they are listed."""
    words = query.lower().split()
    required = [word[1:] for word in words if len(word) > 1 and word.startswith("+")]
    plain = list(dict.fromkeys(part for word in words for part in split_words(word)))
    scored: list[tuple[int, str]] = []
    for entry in entries:
        if any(not entry.score(word) for word in required):
            continue
        total = sum(map(entry.score, plain))
        if total:
            scored.append((total, entry.name))
    scored.sort(key=lambda pair: -pair[0])
    return [name for _, name in scored[:limit]]


def make_entry(name: str, tool: Tool) -> SearchEntry:
    text = tool.description.lower()
    return SearchEntry(
        name,
        frozenset((*split_words(name), tool.server_name.lower())),
        frozenset(split_words(tool.search_hint)),
        text,
        frozenset(split_words(text)),
    )


def split_words(text: str) -> list[str]:
    """The words of a text or a name, in lower case: `mcp__git__createIssue` has mcp, git, create and issue."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    return re.findall(r"[^\W_]+", parted.lower())


def no_match(query: str, tools: Mapping[str, Tool], pending: Sequence[str]) -> str:
    text = f"No deferred tool matches {query!r}. {list_names(tools)}"
    return f"{text} Still connecting: {', '.join(pending)}." if pending else text


def list_names(tools: Mapping[str, Tool]) -> str:
    names = list(tools)
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"Deferred tools: {', '.join(names[:MAX_NAMED])}{more}."
