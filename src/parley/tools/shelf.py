"""The tools of a session, each made when it is first taken.

Their names are enough for the first lines of a session; importing all of them takes
longer than the answer to `initialize` may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from parley.protocol.base import Json
from parley.tools.base import Tool, schema


class Shelf(Mapping[str, Tool]):
    def __init__(self, names: Iterable[str], make: Callable[[str], Tool]) -> None:
        self._made: dict[str, Tool | None] = dict.fromkeys(names)
        self._make = make
        self._schemas: list[Json] | None = None

    def __getitem__(self, name: str) -> Tool:
        tool = self._made[name]
        if tool is None:
            tool = self._made[name] = self._make(name)
        return tool

    def __contains__(self, name: object) -> bool:
        return name in self._made

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    def add(self, tool: Tool) -> None:
        """Put one more there, behind the others; one of the same name goes."""
        self._made[tool.name] = tool
        self._schemas = None

    def schemas(self) -> list[Json]:
        """The tools as a model is shown them: the same every time, for the sake of its prompt cache."""
        if self._schemas is None:
            self._schemas = [schema(self[name]) for name in self]
        return self._schemas
