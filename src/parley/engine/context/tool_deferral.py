"""The deferred tools of one conversation: the model sees their names, and gets a definition when it asks for it.

    deferral = ToolDeferral(registry, journal, policy)
    if deferral.is_active(model, window_tokens):
        request.tools = deferral.schemas(references)

What the model has loaded and which names it has been told is in the journal, so it survives a restart and a
compaction. A deferred tool that is called without being loaded runs, and is loaded from then on.

See also: `tools/tool_search.py` for the search, `models/tool_references.py` for what the API takes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from parley.engine.context.history import estimate_tokens
from parley.engine.session.config import ToolSearchPolicy
from parley.engine.session.journal import Journal
from parley.mcp.base import PREFIX
from parley.models.catalog import ModelRef
from parley.models.tool_references import DEFER
from parley.protocol.base import Json
from parley.tools.base import Tool, ToolRegistry, is_deferrable, tool_schema
from parley.tools.catalog import find_traits

SEARCH = "ToolSearch"
MAX_LISTED_CHARS = 8_000
"""The longest list of names."""
INTRODUCTION = (
    "These tools exist, but their definitions are not loaded. Load those that you need with ToolSearch, for example "
    'with the query "select:NAME,NAME"; names of MCP tools are the given prefix and one of the words after it.'
)


class ToolDeferral:
    def __init__(self, registry: ToolRegistry, journal: Journal, policy: ToolSearchPolicy) -> None:
        self._registry = registry
        self._journal = journal
        self._policy = policy
        self._revision = -1
        self._deferred: dict[str, None] = {}
        """The names of all deferred tools, in the order of the registry."""
        self._listed: frozenset[str] = frozenset()
        """The same as a set."""
        self._tools: dict[str, Tool] | None = None
        """The same with the tools, which are loaded for the first search."""
        self._from_servers: list[str] = []
        self._mcp_tokens: int | None = None
        self._shown: list[Json] = []
        """The definitions that are not deferred."""
        self._schemas: dict[str, Json] = {}
        """The definitions of loaded tools."""
        self._is_active = False

    def is_active(self, model: ModelRef, window_tokens: int) -> bool:
        """Whether tools are deferred. Once they are, they stay so: the conversation refers to it."""
        if self._revision != self._registry.revision:
            self._refresh()
        if not self._is_active and self._should_start(model, window_tokens):
            self._is_active = True
            self._registry.add(self._registry.builtin(SEARCH), for_subsets=False)
            self._refresh()
        return self._is_active

    def _should_start(self, model: ModelRef, window_tokens: int) -> bool:
        most = self._policy.max_tokens(model, window_tokens)
        if most is None or not self._from_servers or not self._registry.may_offer(SEARCH):
            return False
        return not most or self._count_tokens() > most

    def _count_tokens(self) -> int:
        """The tokens of the definitions of MCP tools, estimated."""
        if self._mcp_tokens is None:
            self._mcp_tokens = sum(estimate_tokens(tool_schema(self._registry[name])) for name in self._from_servers)
        return self._mcp_tokens

    def _refresh(self) -> None:
        """Sort the tools of the registry. Nothing else grows with their number."""
        self._deferred = dict.fromkeys(filter(self._may_defer, self._registry))
        self._from_servers = [name for name in self._deferred if name.startswith(PREFIX)]
        self._listed = frozenset(self._deferred)
        self._tools = self._mcp_tokens = None
        self._shown, self._schemas = [], {}
        self._revision = self._registry.revision

    def _may_defer(self, name: str) -> bool:
        if self._registry.is_override(name):
            return False
        if name.startswith(PREFIX):
            return is_deferrable(self._registry[name])
        return find_traits(name).is_deferrable

    # For the tool.

    def tools(self) -> Mapping[str, Tool]:
        if self._revision != self._registry.revision:  # a server has connected since the last request
            self._refresh()
        if self._tools is None:
            self._tools = {name: self._registry[name] for name in self._deferred}
        return self._tools

    def all_names(self) -> Collection[str]:
        return self._registry.keys()

    def load(self, names: Collection[str]) -> None:
        """Raises SessionError."""
        new = [name for name in names if name in self._deferred and name not in self._journal.loaded_tools]
        if new:
            self._journal.append_event("tools_loaded", {"names": new})

    # For the request.

    def schemas(self, referenced: Collection[str] = ()) -> list[Json]:
        """The definitions for the next request: first those that never change, then the loaded ones.

        `referenced` are the tools that the API puts in where a search has found them, so they are marked.
        """
        if not self._shown:
            self._shown = [tool_schema(self._registry[name]) for name in self._registry if name not in self._deferred]
        loaded = [self._schema(name) for name in self._journal.loaded_tools if name in self._deferred]
        return self._shown + [{**one, DEFER: True} if one["name"] in referenced else one for one in loaded]

    def withheld_schemas(self) -> list[Json]:
        """The definitions that the model does not have."""
        loaded = self._journal.loaded_tools
        return [tool_schema(self._registry[name]) for name in self._deferred if name not in loaded]

    def _schema(self, name: str) -> Json:
        if name not in self._schemas:
            self._schemas[name] = tool_schema(self._registry[name])
        return self._schemas[name]

    # For the conversation.

    def announce(self) -> str:
        """Journal which names the model knows. Returns the text for it; empty if it knows them all."""
        known, now = self._journal.listed_tools, self._listed
        if known == now:
            return ""
        self._journal.append_event("tools_listed", {"names": [*self._deferred]})
        added, removed = [name for name in self._deferred if name not in known], sorted(known - now)
        parts = [f"{INTRODUCTION}\n{format_names(added)}"] if added else []
        if removed:
            parts.append(f"These tools no longer exist:\n{format_names(removed)}")
        return "<deferred-tools>\n" + "\n".join(parts) + "\n</deferred-tools>"


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
