"""The tools of a session, each made on first use.

The names are enough for the first messages of a session; importing all tools takes longer than the answer to
`initialize` may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from parley.protocol.base import Json
from parley.tools.base import Tool, server_name, tool_schema


class ToolRegistry(Mapping[str, Tool]):
    """The tools of a session by their names: built-in ones, then external ones (MCP servers, the client)."""

    def __init__(
        self,
        names: Iterable[str],
        make: Callable[[str], Tool],
        find_definition: Callable[[str], Json | None] = lambda name: None,
    ) -> None:
        """`find_definition` returns what is known of a tool's schema without making the tool."""
        self._made: dict[str, Tool | None] = dict.fromkeys(names)
        self._make = make
        self._find_definition = find_definition
        self._external: dict[str, Tool] = {}
        self._overrides: dict[str, Tool] = {}
        self._absent: Callable[[str], str] = lambda name: ""
        self._schemas: list[Json] | None = None
        self._external_schemas: list[Json] | None = None
        self._keeps: Callable[[str, str], bool] = lambda name, server: True
        self._may_offer: Callable[[str], bool] = lambda name: True
        self._own: set[str] = set()
        """Tools that a subset does not have."""
        self.revision = 0
        """Changes whenever the tools change."""

    def restrict(self, keeps: Callable[[str, str], bool]) -> None:
        """Offer only the tools for which `keeps(name, server)` is true, external ones included."""
        self._keeps = keeps
        self._made = {name: tool for name, tool in self._made.items() if keeps(name, "")}
        self.set_external(self._external, self._absent)
        self._reset()

    def _reset(self) -> None:
        """The tools have changed."""
        self._schemas = None
        self.revision += 1

    def may_offer(self, name: str) -> bool:
        """Whether a built-in tool may be added: an agent can be limited to certain tools."""
        return self._keeps(name, "") and self._may_offer(name)

    @property
    def has_external(self) -> bool:
        return bool(self._external)

    @property
    def external(self) -> dict[str, Tool]:
        """The tools of MCP servers and clients."""
        return dict(self._external)

    def set_external(self, tools: Mapping[str, Tool], absent: Callable[[str], str]) -> None:
        """Replace the external tools; `absent` explains why one is missing.

        Built-in tools come first and in a fixed order, so that a prompt cache keeps them.
        """
        self._external = {
            name: tool
            for name, tool in tools.items()
            if name not in self._made and self._keeps(name, server_name(tool))
        }
        self._absent = absent
        self._external_schemas = None
        self.revision += 1

    def set_overrides(self, tools: Mapping[str, Tool]) -> None:
        """Replace the tools that take precedence over those of the same names."""
        self._overrides = dict(tools)
        self.revision += 1

    def is_override(self, name: str) -> bool:
        """Whether the client runs the tool of this name."""
        return name in self._overrides

    def subset(self, keeps: Callable[[str, str], bool]) -> ToolRegistry:
        """A registry with some of these tools, for a subagent."""
        # The client runs overrides, and only for the main agent.
        part = ToolRegistry(
            (name for name in self._made if keeps(name, "") and name not in self._overrides and name not in self._own),
            self.__getitem__,
            self._find_definition,
        )
        part.set_external(
            {name: tool for name, tool in self._external.items() if keeps(name, server_name(tool))},
            self.explain_absence,
        )
        part._may_offer = lambda name: keeps(name, "") and self.may_offer(name)
        return part

    def builtin(self, name: str) -> Tool:
        """A built-in tool, whether it is offered or not."""
        return self._made.get(name) or self._make(name)

    def explain_absence(self, name: str) -> str:
        """Why a tool is missing; empty if unknown."""
        return self._absent(name)

    def __getitem__(self, name: str) -> Tool:
        if name in self._overrides:
            return self._overrides[name]
        if name in self._external:
            return self._external[name]
        tool = self._made[name]
        if tool is None:
            tool = self._made[name] = self._make(name)
        return tool

    def __contains__(self, name: object) -> bool:
        return name in self._made or name in self._external or name in self._overrides

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys([*self._made, *self._overrides, *self._external])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def add(self, tool: Tool, *, for_subsets: bool = True) -> None:
        """Add a tool after the others; it replaces one of the same name."""
        self._made[tool.name] = tool
        if not for_subsets:
            self._own.add(tool.name)
        self._reset()

    def remove(self, name: str) -> None:
        """Remove a built-in tool."""
        self._made.pop(name, None)
        self._reset()

    def schemas(self) -> list[Json]:
        """The tools as the model API lists them, in the same order every time for its prompt cache."""
        if self._overrides:
            return [tool_schema(self[name]) for name in self]
        if self._schemas is None:
            self._schemas = [self._define(name) for name in self._made]
        if self._external_schemas is None:
            self._external_schemas = [tool_schema(tool) for tool in self._external.values()]
        return self._schemas + self._external_schemas

    def _define(self, name: str) -> Json:
        """The schema of a built-in tool."""
        known = self._find_definition(name) if self._made[name] is None else None
        if known is None:
            return tool_schema(self[name])
        return known if known["description"] is not None else {**known, "description": self[name].description}
