"""The tools of a session, each made when it is first taken.

Their names are enough for the first lines of a session; importing all of them takes
longer than the answer to `initialize` may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from parley.protocol.base import Json
from parley.tools.base import Tool, schema, server_name


class Shelf(Mapping[str, Tool]):
    def __init__(self, names: Iterable[str], make: Callable[[str], Tool]) -> None:
        self._made: dict[str, Tool | None] = dict.fromkeys(names)
        self._make = make
        self._lent: dict[str, Tool] = {}
        self._stand_ins: dict[str, Tool] = {}
        self._absent: Callable[[str], str] = lambda name: ""
        self._schemas: list[Json] | None = None
        self._keeps: Callable[[str, str], bool] = lambda name, server: True

    def narrow(self, keeps: Callable[[str, str], bool]) -> None:
        """Offer only some of these from now on, and only some of what is lent. It is asked with a name and a server."""
        self._keeps = keeps
        self._made = {name: tool for name, tool in self._made.items() if keeps(name, "")}
        self.lend(self._lent, self._absent)
        self._schemas = None

    @property
    def lent(self) -> dict[str, Tool]:
        """What others have put here."""
        return dict(self._lent)

    def lend(self, tools: Mapping[str, Tool], absent: Callable[[str], str]) -> None:
        """Put tools of others behind our own, in the place of those lent before; `absent` knows why one is not there.

        Our own come first and in their order whatever is lent, so that a prompt cache keeps them.
        """
        self._lent = {
            name: tool
            for name, tool in tools.items()
            if name not in self._made and self._keeps(name, server_name(tool))
        }
        self._absent = absent

    def stand_in(self, tools: Mapping[str, Tool]) -> None:
        """Tools that go before those of the same names, in the place of those that did so before."""
        self._stand_ins = dict(tools)

    def part(self, keeps: Callable[[str, str], bool]) -> Shelf:
        """A shelf with some of these tools, for a subagent: those that it keeps by their names and servers."""
        # Somebody else runs what stands in for ours, and only for the session's own model.
        part = Shelf((name for name in self._made if keeps(name, "") and name not in self._stand_ins), self.__getitem__)
        part.lend({name: tool for name, tool in self._lent.items() if keeps(name, server_name(tool))}, self.absence)
        return part

    def own(self, name: str) -> Tool:
        """One of our tools, whether it is on the shelf or not."""
        return self._made.get(name) or self._make(name)

    def absence(self, name: str) -> str:
        """Why there is no such tool, if somebody knows."""
        return self._absent(name)

    def __getitem__(self, name: str) -> Tool:
        if name in self._stand_ins:
            return self._stand_ins[name]
        if name in self._lent:
            return self._lent[name]
        tool = self._made[name]
        if tool is None:
            tool = self._made[name] = self._make(name)
        return tool

    def __contains__(self, name: object) -> bool:
        return name in self._made or name in self._lent or name in self._stand_ins

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys([*self._made, *self._stand_ins, *self._lent])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def add(self, tool: Tool) -> None:
        """Put one more there, behind the others; one of the same name goes."""
        self._made[tool.name] = tool
        self._schemas = None

    def drop(self, name: str) -> None:
        """Take one of our own away."""
        self._made.pop(name, None)
        self._schemas = None

    def schemas(self) -> list[Json]:
        """The tools as a model is shown them: the same every time, for the sake of its prompt cache."""
        if self._stand_ins:
            return [schema(self[name]) for name in self]
        if self._schemas is None:
            self._schemas = [schema(self[name]) for name in self._made]
        return self._schemas + [schema(tool) for tool in self._lent.values()]
