"""The observer interface: notified when turns, model calls, tool calls, hooks and permission requests start and end.

    with observer.tool("Bash", "toolu_1") as observation:
        ...
        observation.set_attributes(is_error=True)

These classes do nothing; implementations override them (see `telemetry/`). An observer receives names and counts,
never the content of messages. It must not raise and must not change what the engine does.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

AttributeValue = str | int | float | bool | None


class Observation:
    """One unit of work, used as a context manager. An exception that leaves the block is recorded as its outcome."""

    def set_attributes(self, **attributes: AttributeValue) -> None:
        """Add attributes that are known only later. Attributes that are None are ignored."""

    def headers(self) -> Mapping[str, str]:
        """Headers to add to model requests, such as `traceparent`."""
        return {}

    def __enter__(self) -> Observation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Record the end of the work."""


class Observer:
    """Starts an observation for each unit of work."""

    is_enabled = False
    """Whether observations are recorded. If not, models are not wrapped."""

    def turn(self, session_id: str, agent: str | None, traceparent: str | None = None) -> Observation:
        """A turn of the session, or of a subagent of type `agent`. `traceparent` is the client's span, if any."""
        return NULL_OBSERVATION

    def model_call(self, provider: str, model: str) -> Observation:
        """A model request, from its first byte to its last. It may end in another task than the one that started it."""
        return NULL_OBSERVATION

    def tool(self, name: str, tool_use_id: str) -> Observation:
        """A tool call, including its hooks and its permission request."""
        return NULL_OBSERVATION

    def hook(self, event: str, label: str) -> Observation:
        return NULL_OBSERVATION

    def permission(self, tool: str, tool_use_id: str) -> Observation:
        """A permission request that waits for its answer."""
        return NULL_OBSERVATION

    def child_environment(self) -> Mapping[str, str]:
        """Environment variables for child processes of the current work."""
        return {}

    def close(self) -> None:
        """The session has ended; flush and close."""


NULL_OBSERVATION = Observation()
NULL_OBSERVER = Observer()
