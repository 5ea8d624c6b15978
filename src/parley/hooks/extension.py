"""Hooks that are functions: of other installed packages, and callbacks of the client.

A package declares its hooks as entry points of the group `parley.hooks`:

    async def check(input: dict) -> dict: ...

    HOOK = PackageHook(event="PreToolUse", matcher="Bash", run=check)

`run` gets the input of the event and returns an output, as a callback of a client does; None has no effect. What it
raises is a failure. A hook may be a guard, so one that cannot be loaded is an error and not skipped.

A client registers callbacks with `initialize`, and they are called with `hook_callback`.

See also: `docs/extending.md`, `parley/entry_points.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar

import parley.entry_points as entry_points
from parley.entry_points import ExtensionError
from parley.hooks.base import (
    DEFAULT_SECONDS,
    Hook,
    HookInvocation,
    HookRun,
    Matcher,
    Progress,
    describe_unknown_event,
    parse_failure_policy,
    parse_timeout,
)
from parley.hooks.event_spec import OnFailure
from parley.hooks.events import EVENTS
from parley.hooks.output import HookFailed, parse_answer
from parley.host import Host, HostError, HostGone
from parley.protocol.base import Json, Struct
from parley.protocol.messages.requests import HookCallback, HookMatcher

GROUP = "parley.hooks"


class PackageHook(Struct, frozen=True, kw_only=True):
    """A hook that another package adds."""

    event: str
    run: Callable[[Json], Awaitable[Json | None]]
    matcher: str = ""
    timeout_seconds: float = DEFAULT_SECONDS
    on_failure: OnFailure | None = None
    """None for the default of the event: `block` for PreToolUse."""


class ExtensionHook(Hook, frozen=True, kw_only=True, eq=False):
    kind: ClassVar[str] = "package"
    name: str
    function: Callable[[Json], Awaitable[Json | None]]

    @property
    def label(self) -> str:
        return f"hook {self.name!r} of {self.source}"

    async def call(self, invocation: HookInvocation, progress: Progress) -> HookRun:
        try:
            answer: Any = await self.function(dict(invocation.input))
        except Exception as exc:  # the code of a stranger must not end the turn
            raise HookFailed(f"{type(exc).__name__}: {exc}") from exc
        output, unknown = parse_answer(self.event, answer)
        return HookRun(output=output, unknown=unknown)


def load_extension_hooks() -> list[ExtensionHook]:
    """The hooks of all packages. Raises ExtensionError, which names the one that cannot be used."""
    return [load_hook(name) for name in entry_points.discover(GROUP)]


def load_hook(name: str) -> ExtensionHook:
    declared, described = entry_points.load(GROUP, name), entry_points.describe(GROUP, name)
    if not isinstance(declared, PackageHook) or not callable(declared.run):
        raise ExtensionError(f"{described} is not a parley.hooks.extension.PackageHook")
    if declared.event not in EVENTS:
        raise ExtensionError(f"{described} is for {declared.event!r:.100}: {describe_unknown_event(declared.event)}")
    if (problem := Matcher(declared.matcher).problem) is not None:
        raise ExtensionError(f"{described}: {problem}")
    point = entry_points.discover(GROUP)[name]
    return ExtensionHook(
        name=name,
        function=declared.run,
        event=declared.event,
        matcher=declared.matcher,
        timeout_seconds=declared.timeout_seconds,
        on_failure=parse_failure_policy(declared.on_failure, declared.event),
        source=f"package {point.dist.name if point.dist is not None else 'unknown'}",
    )


# Callbacks of the client.


class CallbackHook(Hook, frozen=True, kw_only=True, eq=False):
    kind: ClassVar[str] = "callback"
    callback_id: str
    host: Host

    @property
    def label(self) -> str:
        return f"callback {self.callback_id}"

    def own_json(self) -> Json:
        return {"callbackId": self.callback_id}

    async def call(self, invocation: HookInvocation, progress: Progress) -> HookRun:
        id, input, tool_use_id = self.callback_id, invocation.input, invocation.tool_use_id
        try:
            answer = await self.host.request(HookCallback(callback_id=id, input=input, tool_use_id=tool_use_id))
        except HostGone as exc:
            raise HookFailed(str(exc)) from None
        except HostError as exc:
            raise HookFailed(f"the client answered with an error: {exc}") from None
        output, unknown = parse_answer(self.event, answer)
        return HookRun(output=output, unknown=unknown)


def build_callbacks(host: Host, hooks: Mapping[str, Sequence[HookMatcher]]) -> list[CallbackHook]:
    """The callbacks of one registration, in order."""
    return [
        CallbackHook(
            callback_id=callback_id,
            host=host,
            event=event,
            matcher=matcher.matcher or "",
            timeout_seconds=parse_timeout(matcher.timeout),
            on_failure=parse_failure_policy(matcher.onFailure, event),
            source="callback",
        )
        for event, matchers in hooks.items()
        for matcher in matchers
        for callback_id in matcher.hookCallbackIds
    ]
