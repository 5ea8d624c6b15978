"""What a program gives its own callbacks: the user, the request, connections.

    @tool
    async def list_orders(context: RunContext[Shop], city: str) -> list[str]:
        "List the orders of the user."
        return await context.deps.database.orders(context.deps.user, city)

    Options(tools=[list_orders], deps=Shop(database, user))         for the session
    await client.run("Where is my order?", deps=Shop(database, user))     for one turn

Hooks find it as `context["run"]`, `can_use_tool` as `context.run`, everything that they call as `RunContext.current()`.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

DepsT = TypeVar("DepsT")


@dataclass(frozen=True)
class RunContext(Generic[DepsT]):
    """The run that a callback of the program is called in.

    A tool has it as a parameter with this type, which the model does not see: `context: RunContext[Shop]`.
    """

    deps: DepsT
    """What was given as `deps` with the prompt, or else in `Options`. It never leaves the program."""
    session_id: str | None = None
    prompt_uuid: str | None = None
    """The id of the prompt (`Turn.uuid`); None if the engine works by itself."""

    @staticmethod
    def current() -> RunContext[Any]:
        """The context of the callback that is running. Raises LookupError elsewhere."""
        return CURRENT.get()


CURRENT: ContextVar[RunContext[Any]] = ContextVar("parley run")
