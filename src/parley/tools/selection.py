"""Which tools a session offers to its model.

    select_tools(BUILT_IN, ToolSelection(asked=("Read", "Agent")))      # what `--tools Read,Agent` leaves of them

A tool is offered if it exists, if what it needs exists, if it is requested (without a request: if it belongs to
the default list), and unless it is denied by its bare name.

See also: `catalog.py` for what is known of each tool, and the names it goes by.
"""

from __future__ import annotations

from collections.abc import Iterable

from parley.protocol.base import Struct
from parley.tools.catalog import SHELL, canonical_name, find_traits, model_name


class ToolSelection(Struct, frozen=True, kw_only=True):
    """What the list depends on."""

    asked: tuple[str, ...] | None = None
    """`--tools`: None if it is not given; `default` stands for the default list."""
    denied: tuple[str, ...] = ()
    """`--disallowedTools`; rules with contents have no effect here."""
    has_person: bool = False
    has_memory: bool = False
    is_brief: bool = False
    """`--brief`: the user reads only what SendUserMessage shows."""
    in_repository: bool = False
    """The working directory is in a git repository."""
    has_input: bool = False
    """The client can send more prompts, so that the session waits between turns."""
    tasks: bool | None = None
    """CLAUDE_CODE_ENABLE_TASKS: the Task family, or TodoWrite; None if it is not set."""


def select_tools(known: Iterable[str], selection: ToolSelection) -> list[str]:
    """The names, in the order the model sees them."""
    asked = None if selection.asked is None else frozenset(map(canonical_name, selection.asked))
    denied = frozenset(map(canonical_name, selection.denied))
    names = frozenset(known) if asked is None or "default" in asked else asked & frozenset(known)
    offered = (name for name in names - denied if is_available(name, asked, selection))
    if SHELL in denied:  # a rule against all commands holds for every tool that runs them
        offered = (name for name in offered if find_traits(name).effect != "runs_commands")
    return sorted(offered, key=model_name)


def is_available(name: str, asked: frozenset[str] | None, selection: ToolSelection) -> bool:
    """Whether what a tool needs exists, and it is on the list by default or requested by name."""
    traits = find_traits(name)
    is_asked = name in (asked or ())
    available = {
        "": True,
        "person": selection.has_person,
        "memory": selection.has_memory,
        "brief": selection.is_brief or is_asked,
        "repository": selection.in_repository or is_asked,
        "input": selection.has_input or is_asked,
    }
    if not available[traits.needs] or (traits.only_on_request and not is_asked):
        return False
    return not traits.work_list or traits.work_list == choose_work_list(asked, selection.tasks)


def choose_work_list(asked: frozenset[str] | None, tasks: bool | None) -> str:
    """One work list is enough: todos, unless the Task family is enabled or requested by name."""
    if tasks is None:
        tasks = any(find_traits(name).work_list == "tasks" for name in asked or ())
    return "tasks" if tasks else "todos"
