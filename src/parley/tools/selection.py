"""Which tools a session offers to its model, and the names they go by.

    offered(TOOLS, Wishes(asked=("Read", "Agent")))      # what `--tools Read,Agent` leaves of them

A tool is offered if it is there, if what it needs is there, if it is asked for (or, when
nothing is, if it belongs to the default list), and unless it is denied by its bare name.

The subagent tool is listed as Task while the model knows it as Agent; both names are
understood everywhere, as are the older names of other tools.
"""

from __future__ import annotations

from collections.abc import Iterable

from parley.protocol.base import Struct

ALIASES = {
    "Agent": "Task",
    "KillShell": "TaskStop",
    "BashOutput": "TaskOutput",
    "ListMcpResources": "ListMcpResourcesTool",
    "ReadMcpResource": "ReadMcpResourceTool",
    # As agents with a database of their own have called them (source 002's family).
    "ltm_search": "memory_search",
    "ltm_read": "memory_read",
}
MODEL_NAMES = {"Task": "Agent"}
"""What the model calls a tool that is listed under another name."""

NEED_A_PERSON = frozenset({"AskUserQuestion", "EnterPlanMode", "ExitPlanMode"})
"""Offered only where the host answers questions."""
NEED_A_MEMORY = frozenset({"memory_search", "memory_read"})
ONLY_WHEN_ASKED_FOR = frozenset({"ListMcpResourcesTool", "ReadMcpResourceTool"})
TASKS = frozenset({"TaskCreate", "TaskGet", "TaskList", "TaskUpdate"})
TODOS = frozenset({"TodoWrite"})


class Wishes(Struct, frozen=True, kw_only=True):
    """What decides on the list."""

    asked: tuple[str, ...] | None = None
    """`--tools`: None if it was not given; `default` stands for the default list."""
    denied: tuple[str, ...] = ()
    """`--disallowedTools`; rules with contents do not count here."""
    has_person: bool = False
    has_memory: bool = False
    tasks: bool | None = None
    """CLAUDE_CODE_ENABLE_TASKS: the Task family, or TodoWrite; None if it does not say."""


def canonical(name: str) -> str:
    """The name a tool is listed under."""
    return ALIASES.get(name, name)


def known_as(name: str) -> tuple[str, ...]:
    """Every name of a tool, the one it is listed under first."""
    listed = canonical(name)
    return (listed, *(alias for alias, tool in ALIASES.items() if tool == listed))


def offered(known: Iterable[str], wishes: Wishes) -> list[str]:
    """The names, in the order the model sees them."""
    asked = None if wishes.asked is None else frozenset(map(canonical, wishes.asked))
    closed = frozenset(map(canonical, wishes.denied)) | the_other_list(asked, wishes.tasks)
    if not wishes.has_person:
        closed |= NEED_A_PERSON
    if not wishes.has_memory:
        closed |= NEED_A_MEMORY
    if asked is None or "default" in asked:
        closed |= ONLY_WHEN_ASKED_FOR - (asked or frozenset())
    else:
        known = asked & frozenset(known)
    return sorted(frozenset(known) - closed, key=lambda name: MODEL_NAMES.get(name, name))


def the_other_list(asked: frozenset[str] | None, tasks: bool | None) -> frozenset[str]:
    """One list of work is enough: todos unless the Task family is switched on or asked for by name."""
    if tasks is None:
        tasks = bool(asked and asked & TASKS)
    return TODOS if tasks else TASKS
