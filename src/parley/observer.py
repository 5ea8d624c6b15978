"""An observer hears when the work of a session begins and ends: turns, model calls, tool calls, hooks, questions.

    with observer.tool("Bash", "toolu_1") as watch:
        ...
        watch.set_attributes(is_error=True)

These classes are the observer that nobody listens to, and the interface of others. An observer changes nothing: what
it is told are names and counts, never what was said, and what goes wrong in it is its own business.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

AttributeValue = str | int | float | bool | None


class Observation:
    """One piece of work. An exception that leaves the block is how it ended."""

    def set_attributes(self, **attributes: AttributeValue) -> None:
        """What is known of it only later. A fact that is None is none."""

    def headers(self) -> Mapping[str, str]:
        """What requests to a model carry on behalf of this work."""
        return {}

    def __enter__(self) -> Observation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """It is over."""


class Observer:
    is_enabled = False
    """Whether anybody listens: models are not wrapped for nothing."""

    def turn(self, session_id: str, agent: str | None, traceparent: str | None = None) -> Observation:
        """A turn of the session, or of a subagent of this kind, within the work that the client names."""
        return NULL_OBSERVATION

    def model_call(self, provider: str, model: str) -> Observation:
        """A request to a model, from its first byte to its last. It may end in another place than it began."""
        return NULL_OBSERVATION

    def tool(self, name: str, tool_use_id: str) -> Observation:
        """The life of a call: its hooks, its question, its run."""
        return NULL_OBSERVATION

    def hook(self, event: str, label: str) -> Observation:
        return NULL_OBSERVATION

    def permission(self, tool: str, tool_use_id: str) -> Observation:
        """A question that waits for its answer."""
        return NULL_OBSERVATION

    def child_environment(self) -> Mapping[str, str]:
        """What a child process of the current work is told."""
        return {}

    def close(self) -> None:
        """The session is over: nothing more will come."""


NULL_OBSERVATION = Observation()
NULL_OBSERVER = Observer()
