"""Hooks of other installed packages, as entry points of the group `parley.hooks`.

    async def check(input: dict) -> dict: ...

    HOOK = PackageHook(event="PreToolUse", matcher="Bash", run=check)

`run` gets the input of the event and returns an output, as a callback of a client does; None has no effect. What it
raises is a failure. A hook may be a guard, so one that cannot be loaded is an error and not skipped.

See also: `docs/extending.md`, `parley/entry_points.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import parley.entry_points as entry_points
from parley.entry_points import ExtensionError
from parley.hooks.base import (
    Condition,
    HookInvocation,
    HookRun,
    Progress,
    describe_unknown_event,
    parse_failure_policy,
)
from parley.hooks.events import EVENTS, OnFailure
from parley.hooks.matcher import Matcher
from parley.hooks.output import HookFailed, parse_answer
from parley.hooks.timeouts import DEFAULT_SECONDS
from parley.protocol.base import Json, Struct

GROUP = "parley.hooks"


class PackageHook(Struct, frozen=True, kw_only=True):
    """A hook that another package adds."""

    event: str
    run: Callable[[Json], Awaitable[Json | None]]
    matcher: str = ""
    timeout_seconds: float = DEFAULT_SECONDS
    on_failure: OnFailure | None = None
    """None for the default of the event: `block` for PreToolUse."""


class ExtensionHook:
    """Runs a hook of a package."""

    is_managed = False
    condition: Condition | None = None
    once = False
    status_message = ""
    starts_agent = False

    def __init__(self, name: str, package: str, declared: PackageHook) -> None:
        self._run = declared.run
        self.event = declared.event
        self.matcher = Matcher(declared.matcher)
        self.timeout_seconds = declared.timeout_seconds
        self.on_failure: OnFailure = parse_failure_policy(declared.on_failure, declared.event)
        self.source = f"package {package}"
        self.label = f"hook {name!r} of package {package}"

    async def run(self, invocation: HookInvocation, progress: Progress) -> HookRun:
        try:
            answer: Any = await self._run(dict(invocation.input))
        except Exception as exc:  # the code of a stranger must not end the turn
            raise HookFailed(f"{type(exc).__name__}: {exc}") from exc
        output, unknown = parse_answer(self.event, answer)
        return HookRun(output=output, unknown=unknown)

    def to_json(self) -> Json:
        return {
            "event": self.event,
            "matcher": self.matcher.text,
            "type": "package",
            "source": self.source,
            "timeout": self.timeout_seconds,
            "onFailure": self.on_failure,
        }


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
    return ExtensionHook(name, point.dist.name if point.dist is not None else "unknown", declared)
