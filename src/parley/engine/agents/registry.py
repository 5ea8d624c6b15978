"""The agent definitions of a session: built-in, from files, the command line and the client.

Of two definitions with the same name, the closer source wins: client, command line, project, user, plugin,
built-in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property

from parley.protocol.base import Json
from parley.protocol.messages.requests import AgentDefinition
from parley.tools.catalog import built_in_with

GENERAL = "general-purpose"
REPORT = "Your last message is your report and all that the caller sees: facts, file names with lines, what is open."
READ_ONLY_TOOLS = list(built_in_with(for_read_only_agents=True))

BUILT_IN = {
    GENERAL: AgentDefinition(
        description="Work of several steps that needs all tools",
        prompt=f"You do one piece of work for another agent: all of it and nothing else. {REPORT}",
    ),
    "Explore": AgentDefinition(
        description="Finds things in code and files; changes nothing",
        prompt=(
            "You find things for another agent and change nothing: no file is written, no command runs that "
            f"changes anything. Search broadly first, then read what matters. {REPORT}"
        ),
        tools=READ_ONLY_TOOLS,
        model="inherit",
        omitClaudeMd=True,
    ),
    "Plan": AgentDefinition(
        description="Works out how to make a change; changes nothing",
        prompt=(
            "You plan a change for another agent and change nothing. Read the code that is concerned, then give the "
            f"steps, the files each step touches, and the risks. {REPORT}"
        ),
        tools=READ_ONLY_TOOLS,
        model="inherit",
        omitClaudeMd=True,
    ),
    "Bash": AgentDefinition(
        description="Runs commands and reports their output",
        prompt=f"You run commands for another agent, and look into what goes wrong with them. {REPORT}",
        tools=["Bash"],
        model="inherit",
        omitClaudeMd=True,
    ),
}


class AgentRegistry:
    """The definitions by name. The client can replace its own at any time."""

    def __init__(
        self,
        load: Callable[[], Mapping[str, AgentDefinition]] = dict,
        find_source: Callable[[str], str] = lambda name: "plugin",
    ) -> None:
        """`load` reads the definitions of files and the command line when first needed."""
        self._load = load
        self._find_source = find_source
        """Where a loaded definition comes from."""
        self._loaded: dict[str, AgentDefinition] | None = None
        self._host_agents: Mapping[str, AgentDefinition] = {}
        self._allowed: frozenset[str] | None = None

    def reload(self) -> None:
        """Read the files again."""
        self._loaded = None
        self._forget()

    def restrict(self, names: Iterable[str]) -> None:
        """Limit the agent types to these names."""
        self._allowed = frozenset(names)
        self._forget()

    def _forget(self) -> None:
        self.__dict__.pop("definitions", None)

    @cached_property
    def definitions(self) -> dict[str, AgentDefinition]:
        """All definitions by name, in alphabetical order."""
        if self._loaded is None:
            self._loaded = {**BUILT_IN, **self._load()}
        found = {
            name: kind
            for name, kind in {**self._loaded, **self._host_agents}.items()
            if self._allowed is None or name in self._allowed
        }
        return dict(sorted(found.items(), key=lambda item: item[0].lower()))

    def custom(self) -> Iterator[tuple[str, AgentDefinition, str]]:
        """The definitions that are not built in: name, definition and source."""
        for name, kind in self.definitions.items():
            if name in self._host_agents:
                yield name, kind, "client"
            elif BUILT_IN.get(name) is not kind:
                yield name, kind, self._find_source(name)

    def is_of_project(self, name: str) -> bool:
        """Whether a file of the project defines an agent."""
        wanted = name.lower()
        return any(key.lower() == wanted and source == "projectSettings" for key, _, source in self.custom())

    def set_host_agents(self, kinds: Mapping[str, AgentDefinition]) -> None:
        """Replace the definitions of the client."""
        self._host_agents = kinds
        self._forget()

    def find(self, name: str) -> AgentDefinition | None:
        """Find an agent by its name. An exact match wins; otherwise case is ignored."""
        known = self.definitions
        return known.get(name) or next((kind for key, kind in known.items() if key.lower() == name.lower()), None)

    def to_json(self) -> list[Json]:
        """The definitions as clients receive them."""
        return [
            {
                "name": name,
                "description": kind.description,
                **({"model": kind.model} if isinstance(kind.model, str) else {}),
            }
            for name, kind in self.definitions.items()
        ]
