"""The tools of one conversation: a fixed list, and deferred tools that the model gets when it asks for them.

    deferral = ToolDeferral(registry, journal, policy, has_pending, may_get_servers)
    deferral.fix(model, window_tokens)               # before each request
    request.tools = deferral.schemas(model)

The list is the start of every request, so it is fixed with the first one and journalled: a change would cost the prompt
cache, and the thinking of models that bind it to what comes before. The description of ToolSearch has the names of the
built-in tools that are deferred. What the model can use later is news at the end of the conversation: tools of servers
that connect late are listed by name, as are those that the policy defers, and ToolSearch loads them; tools that are
gone or have changed are named. Only a tool that cannot be deferred, or a missing ToolSearch, leads to a new list. A
compaction does too, because nothing of what came before is left.

How a loaded tool is called depends on the server. The Messages API takes `tool_reference`, and puts the definition
where a result refers to it. Others get the definition as text, and the model calls the tool through ToolSearch.

What the model has loaded and which names it has been told is in the journal, so it survives a restart. A deferred tool
that is called without being loaded runs.

See also: `tools/tool_search.py` for the search, `models/tool_references.py` for what the API takes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import msgspec

from parley.engine.context.history import estimate_tokens
from parley.engine.session.config import ToolSearchPolicy
from parley.engine.session.journal import Journal
from parley.mcp.base import PREFIX
from parley.models.base import DEFER
from parley.models.catalog import ModelRef
from parley.protocol.base import Json
from parley.tools.base import Tool, ToolRegistry
from parley.tools.catalog import find_traits

SEARCH = "ToolSearch"
MAX_LISTED_CHARS = 8_000
"""The longest list of names."""
INTRODUCTION = (
    "These tools exist, but their definitions are not loaded. Load those that you need with ToolSearch, for example "
    'with the query "select:NAME,NAME"; names of MCP tools are the given prefix and one of the words after it.'
)


CALLING = "Loads deferred tools, which are listed by name only: `query` finds them; then `call` and `input` call one."
NAMED = "\nDeferred: "
"""Before the names of built-in tools, at the end of the description of ToolSearch."""
CALL_FIELDS: Json = {
    "call": {"type": "string", "description": "The tool to call"},
    "input": {"type": "object", "description": "Its arguments"},
}
"""What ToolSearch is for servers that do not take references, and its further fields."""


class ToolDeferral:
    def __init__(
        self,
        registry: ToolRegistry,
        journal: Journal,
        policy: ToolSearchPolicy,
        has_pending: Callable[[], bool],
        may_get_servers: Callable[[], bool],
    ) -> None:
        """`has_pending`: whether servers are still connecting. `may_get_servers`: or can be added."""
        self._registry = registry
        self._journal = journal
        self._policy = policy
        self._has_pending = has_pending
        self._may_get_servers = may_get_servers
        self._seen: tuple[int, object] = (-1, None)
        """The revision of the registry, and the fixed list, that the following is made from."""
        self._deferred: dict[str, None] = {}
        """The names of all deferred tools, in the order of the registry."""
        self._fixed: dict[str, Json] = {}
        """The fixed list."""
        self._needs_fixing = True
        self._tools: dict[str, Tool] | None = None
        """The deferred tools, which are loaded for the first search."""
        self._from_servers: list[str] = []
        self._mcp_tokens: int | None = None
        self._lists: dict[tuple[bool, int], list[Json]] = {}
        """What `schemas` returned, with references to so many tools or without."""
        self._told: tuple[object, ...] = ()
        """When there was no news last."""
        self._defers_rare = False
        """Whether the policy defers built-in tools. Once it does, it stays so: the conversation refers to it."""
        self._defers_servers = False
        """The same for the tools of servers."""

    @property
    def is_in_use(self) -> bool:
        """Whether the model can search for tools."""
        return SEARCH in self._fixed or self._defers_rare

    def update(self, model: ModelRef, window_tokens: int) -> None:
        """Sort the tools, if they have changed."""
        if self._seen != (self._registry.revision, self._journal.fixed_tools):
            self._sort()
        defers_servers = self._defers_servers or self._should_defer_servers(model, window_tokens)
        defers_rare = self._defers_rare or defers_servers or self._should_defer_rare(model)
        if (defers_rare, defers_servers) != (self._defers_rare, self._defers_servers):
            self._defers_rare, self._defers_servers = defers_rare, defers_servers
            self._offer_search()
            self._sort()
        if self._journal.fixed_tools is None and not model.is_fake and self._expects_news():
            self._offer_search()

    def fix(self, model: ModelRef, window_tokens: int) -> None:
        """Journal the list of tools, if there is none for the next request. Raises SessionError."""
        self.update(model, window_tokens)
        if not self._needs_fixing:
            return
        if self._expects_news():
            self._offer_search()
        names = self._list_unfixed()
        external = self._registry.external
        rare = [name for name in self._deferred if name not in external]
        rows: list[str | Json] = [
            name_deferred(self._registry.schema(name), rare)
            if name == SEARCH and rare
            else self._registry.schema(name)
            if name in external
            else name
            for name in names
        ]
        self._journal.append_event("tools", {"tools": rows})
        self._sort()

    def _list_unfixed(self) -> list[str]:
        """What the list would have if it were fixed now."""
        loaded = [name for name in self._journal.loaded_tools if name in self._deferred]
        return [*(name for name in self._registry if name not in self._deferred), *loaded]

    def _expects_news(self) -> bool:
        """Whether the model needs ToolSearch, because tools may come later."""
        if self._policy.mode == "never" or not self._registry.may_offer(SEARCH):
            return False
        return self._registry.has_external or self._may_get_servers()

    def _offer_search(self) -> None:
        if SEARCH not in self._registry and self._registry.may_offer(SEARCH):
            self._registry.offer(SEARCH)
            self._sort()

    def _should_defer_rare(self, model: ModelRef) -> bool:
        """The list of a conversation that began without ToolSearch stays as it is."""
        fixed = self._journal.fixed_tools
        can_search = fixed is None or any(isinstance(row, dict) and row["name"] == SEARCH for row in fixed)
        return can_search and self._policy.defers_rare(model) and self._registry.may_offer(SEARCH)

    def _should_defer_servers(self, model: ModelRef, window_tokens: int) -> bool:
        most = self._policy.max_tokens(model, window_tokens)
        if most is None or not self._from_servers or not self._registry.may_offer(SEARCH):
            return False
        return not most or self._count_tokens() > most

    def _count_tokens(self) -> int:
        """The tokens of the definitions of MCP tools, estimated."""
        if self._mcp_tokens is None:
            self._mcp_tokens = sum(estimate_tokens(self._registry.schema(name)) for name in self._from_servers)
        return self._mcp_tokens

    def _sort(self) -> None:
        """Sort the tools of the registry. Nothing else grows with their number."""
        registry, rows = self._registry, self._journal.fixed_tools
        known = {row if isinstance(row, str) else row["name"]: row for row in rows or ()}
        if SEARCH in known and SEARCH not in registry and registry.may_offer(SEARCH):  # of an earlier process
            registry.offer(SEARCH)
        self._fixed = {
            name: registry.schema(name) if isinstance(row, str) else row
            for name, row in known.items()
            if not isinstance(row, str) or row in registry
        }
        by_policy = frozenset(filter(self._is_deferred, registry))
        late = [name for name in registry if name not in known and name not in by_policy]
        # After the first request a tool that comes late is deferred, if the model can search for it.
        self._needs_fixing = rows is None or (bool(late) and not (SEARCH in known and all(map(self._can_wait, late))))
        self._deferred = dict.fromkeys(
            name for name in registry if name not in known and (name in by_policy or not self._needs_fixing)
        )
        self._from_servers = [name for name in registry.external if name.startswith(PREFIX) and self._may_defer(name)]
        self._tools = self._mcp_tokens = None
        self._lists = {}
        self._seen = registry.revision, rows

    def _is_deferred(self, name: str) -> bool:
        """Whether the policy defers a tool now."""
        return (self._defers_servers if name.startswith(PREFIX) else self._defers_rare) and self._may_defer(name)

    def _may_defer(self, name: str) -> bool:
        """Whether the policy can defer a tool."""
        if self._registry.is_override(name):
            return False
        if name.startswith(PREFIX):
            return self._registry[name].is_deferrable
        return find_traits(name).is_deferrable

    def _can_wait(self, name: str) -> bool:
        """Whether a tool that comes late may be deferred."""
        return self._may_defer(name) or name in self._registry.external

    # For the tool.

    def tools(self) -> Mapping[str, Tool]:
        if self._seen[0] != self._registry.revision:  # a server has connected since the last request
            self._sort()
        if self._tools is None:
            self._tools = {name: self._registry[name] for name in self._deferred}
        return self._tools

    def all_names(self) -> Collection[str]:
        return self._registry.keys()

    def load(self, names: Collection[str]) -> None:
        """Journal the definitions that the model gets. Raises SessionError."""
        known = self._journal.loaded_definitions
        new = [name for name in names if name in self._deferred and name not in known]
        if new:
            definitions = [self._registry.schema(name) for name in new]
            self._journal.append_event("tools_loaded", {"names": new, "definitions": definitions})

    def record_call(self, name: str) -> None:
        """Journal that the model uses a tool: the next list has it. Raises SessionError."""
        if name in self._deferred and name not in self._journal.loaded_tools:
            self._journal.append_event("tools_loaded", {"names": [name]})

    # For the request.

    def schemas(self, model: ModelRef) -> list[Json]:
        """The definitions for the next request."""
        refers = self._policy.uses_references(model)
        loaded = self._journal.loaded_definitions if refers else {}
        made = self._lists.get((refers, len(loaded)))
        if made is None:
            made = list(self._fixed.values())
            if self._journal.fixed_tools is None:
                made = [self._registry.schema(name) for name in self._list_unfixed()]
            made = made if refers else [calling_schema(one) for one in made]
            made += [{**one, DEFER: True} for name, one in loaded.items() if name not in self._fixed]
            self._lists[refers, len(loaded)] = made
        return made

    def withheld_schemas(self) -> list[Json]:
        """The definitions that the model does not have."""
        loaded = self._journal.loaded_definitions
        return [self._registry.schema(name) for name in self._deferred if name not in loaded]

    # For the conversation.

    def announce(self) -> str:
        """Journal what the model knows of the tools. Returns the text for it; empty if there is no news."""
        journal, registry = self._journal, self._registry
        is_pending = self._has_pending()
        state = (*self._seen, journal.tool_news, is_pending)
        if self._told == state:
            return ""
        given = {**journal.loaded_definitions, **self._fixed}
        believed = {**given, **journal.changed_tools}
        current = {name: registry.schema(name) for name in believed if name in registry.external}
        listed, gone = frozenset(self._deferred), frozenset(name for name in given if name not in registry)
        if is_pending:  # in a resumed session, what is missing may be on its way
            listed, gone = listed | journal.listed_tools, gone & journal.gone_tools
        changed = {name: definition for name, definition in current.items() if definition != given.get(name)}
        if (journal.listed_tools, journal.gone_tools, journal.changed_tools) == (listed, gone, changed):
            self._told = state
            return ""
        named = list_named(self._fixed.get(SEARCH))
        news = {
            INTRODUCTION: [name for name in self._deferred if name not in journal.listed_tools and name not in named],
            "These tools no longer exist:": sorted(
                (journal.listed_tools - listed - given.keys()) | (gone - journal.gone_tools)
            ),
            "These tools exist again:": sorted(journal.gone_tools - gone),
        }
        parts = [f"{title}\n{format_names(names)}" for title, names in news.items() if names]
        if altered := [definition for name, definition in current.items() if definition != believed[name]]:
            definitions = "\n".join(msgspec.json.encode(definition).decode() for definition in altered)
            parts.append(f"These definitions replace earlier ones:\n{definitions}")
        journal.append_event("tools_listed", {"names": sorted(listed), "gone": sorted(gone), "changed": changed})
        return "<deferred-tools>\n" + "\n".join(parts) + "\n</deferred-tools>" if parts else ""


def name_deferred(definition: Json, names: Collection[str]) -> Json:
    """The definition of ToolSearch with the names of the tools that are deferred from the start."""
    return {**definition, "description": f"{definition['description']}{NAMED}{', '.join(names)}"}


def list_named(definition: Json | None) -> Collection[str]:
    """The names in such a definition."""
    return () if definition is None else definition["description"].partition(NAMED)[2].split(", ")


def calling_schema(definition: Json) -> Json:
    """The definition of ToolSearch for servers that do not take references. Other definitions stay as they are."""
    if definition["name"] != SEARCH:
        return definition
    fields = definition["input_schema"]
    _, mark, names = definition["description"].partition(NAMED)
    return {
        **definition,
        "description": f"{CALLING}{mark}{names}",
        "input_schema": {**fields, "properties": {**fields["properties"], **CALL_FIELDS}, "required": []},
    }


def format_names(names: Collection[str]) -> str:
    """The names, a line for each server, as far as they fit."""
    groups: dict[str, list[str]] = {}
    for name in names:
        prefix, mark, rest = name.removeprefix(PREFIX).partition("__")
        if name.startswith(PREFIX) and mark:
            groups.setdefault(f"{PREFIX}{prefix}__", []).append(rest)
        else:
            groups.setdefault("", []).append(name)
    lines, left = [], MAX_LISTED_CHARS
    for prefix, words in groups.items():
        shown, left = take_words(words, left)
        more = f" and {len(words) - len(shown)} more" if len(shown) < len(words) else ""
        lines.append((f"prefix {prefix}: " if prefix else "") + ", ".join(shown) + more)
    return "\n".join(lines)


def take_words(words: list[str], max_chars: int) -> tuple[list[str], int]:
    """As many words as fit, and the characters that are left."""
    shown: list[str] = []
    for word in words:
        if len(word) + 2 > max_chars:
            break
        shown.append(word)
        max_chars -= len(word) + 2
    return shown, max_chars
