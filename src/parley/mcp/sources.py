"""The servers a session begins with, and the way to more, from everything that is written about them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from parley.host import Host
from parley.mcp.base import Found, Patience, Spec, Supply, Wire
from parley.protocol.base import Json

DEFAULT_TOKENS = 25_000


class Written(Protocol):
    """Some servers, as somebody wrote them."""

    @property
    def source(self) -> str: ...

    @property
    def place(self) -> str: ...

    @property
    def servers(self) -> Json: ...

    @property
    def by_tree(self) -> bool:
        """Whether the working tree says so."""


class Maker:
    """Reads what is written. Loaded with the first server: most sessions have none."""

    def __init__(self, ours: Mapping[str, str], childrens: Mapping[str, str]) -> None:
        self._ours = ours
        self._childrens = childrens

    def gather(self, written: Sequence[Written]) -> Found:
        """All servers, the strongest source first. A project does not get at our keys, however trusted it is."""
        if not written:
            return Found()
        from parley.mcp.config import read, together

        found = [
            read(
                one.servers,
                source=one.source,
                place=one.place,
                variables=self._childrens if one.by_tree else self._ours,
            )
            for one in written
        ]
        specs = together(part.specs for part in found)
        return Found(specs=tuple(specs.values()), flaws=tuple(flaw for part in found for flaw in part.flaws))

    def read(self, servers: Json) -> Found:
        from parley.mcp.config import read

        return read(servers, source="dynamic", place="mcp_set_servers", variables=self._ours)

    def of_agent(self, servers: Json, place: str) -> Found:
        """What an agent brings. Whoever wrote it does not get at our keys."""
        from parley.mcp.config import read

        return read(servers, source="dynamic", place=place, variables=self._childrens)

    def hosted(self, names: Sequence[str], configs: Json | None) -> Sequence[Spec]:
        from parley.mcp.config import hosted

        return hosted(names, configs)


def supply(
    maker: Maker,
    specs: tuple[Spec, ...],
    open_wire: Callable[[Spec, Host], Awaitable[Wire]],
    *,
    number: Callable[[str], int | None],
    denied: tuple[str, ...],
) -> Supply:
    """`number` looks a variable up: MCP_TIMEOUT and MCP_TOOL_TIMEOUT are milliseconds, and 0 for a tool is any time."""
    usual, connect, call = Patience(), number("MCP_TIMEOUT"), number("MCP_TOOL_TIMEOUT")
    return Supply(
        open_wire=open_wire,
        read=maker.read,
        hosted=maker.hosted,
        of_agent=maker.of_agent,
        specs=specs,
        patience=Patience(
            connect=connect / 1000 if connect else usual.connect, call=usual.call if call is None else call / 1000
        ),
        denied=denied,
        most_tokens=number("MAX_MCP_OUTPUT_TOKENS") or DEFAULT_TOKENS,
    )
