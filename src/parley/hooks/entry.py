"""One handler from settings, and the hook that is made of it.

`HookEntry` has the fields that all kinds of handlers share; each kind adds its own (`command.py`, `http.py`,
`model.py`, `mcp_tool.py`). `HandlerHook` is the part of the `Hook` interface that follows from them.
"""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

from parley.hooks.base import Condition, HookInvocation, HookRun, Progress
from parley.hooks.events import OnFailure
from parley.hooks.matcher import Matcher
from parley.hooks.output import MUST_DECIDE, HookFailed
from parley.protocol.base import Json, Struct


class HookEntry(Struct, frozen=True, kw_only=True):
    """The fields of a handler that do not depend on its kind."""

    kind: ClassVar[str] = ""
    event: str
    matcher: str
    timeout_seconds: float
    on_failure: OnFailure = "continue"
    source: str
    """The file that defines it."""
    is_managed: bool = False
    condition: Condition | None = None
    condition_text: str = ""
    """`if` as it is written."""
    once: bool = False
    status_message: str = ""
    unusable: str = ""
    """Why it cannot run. It fails whenever it is called."""

    @property
    def subject(self) -> str:
        """What it runs, in a few words."""
        return ""

    def own_json(self) -> Json:
        """The fields of its kind, for get_hooks_listing."""
        return {}


Entry = TypeVar("Entry", bound=HookEntry)


class HandlerHook(Generic[Entry]):
    """A hook from settings. Subclasses implement `call`."""

    starts_agent = False

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.event = entry.event
        self.matcher = Matcher(entry.matcher)
        self.timeout_seconds = entry.timeout_seconds
        self.on_failure = entry.on_failure
        self.source = entry.source
        self.is_managed = entry.is_managed
        self.guards = entry.on_failure == "block" or entry.event in MUST_DECIDE
        """Whether something depends on its reply, so that one which cannot be read is a failure."""
        self.condition = entry.condition
        self.once = entry.once
        self.status_message = entry.status_message
        named = f"{entry.kind} {entry.subject!r} of {entry.source}"
        self.label = named if not entry.unusable else f"hook of {entry.source}"

    async def run(self, invocation: HookInvocation, progress: Progress) -> HookRun:
        if self.entry.unusable:
            raise HookFailed(self.entry.unusable)
        return await self.call(invocation, progress)

    async def call(self, invocation: HookInvocation, progress: Progress) -> HookRun:
        """Call the handler: each kind of handler implements it. Raises HookFailed."""
        raise NotImplementedError

    def to_json(self) -> Json:
        entry = self.entry
        return {
            "event": entry.event,
            "matcher": entry.matcher,
            "type": entry.kind,
            **entry.own_json(),
            **({"if": entry.condition_text} if entry.condition_text else {}),
            **({"once": True} if entry.once else {}),
            **({"statusMessage": entry.status_message} if entry.status_message else {}),
            "source": entry.source,
            "timeout": entry.timeout_seconds,
            "onFailure": entry.on_failure,
        }


class UnusableEntry(HookEntry, frozen=True, kw_only=True):
    """A handler that cannot run and must not be ignored: it fails, and so it blocks."""

    kind: ClassVar[str] = "unusable"


class UnusableHook(HandlerHook[UnusableEntry]):
    """Fails whenever it is called."""
