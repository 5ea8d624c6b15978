"""Hook callbacks.

    async def check(
        input: PreToolUseHookInput, tool_use_id: str | None, context: HookContext
    ) -> HookJSONOutput: ...                                              (or a plain `def`)

    Options(hooks={"PreToolUse": [HookMatcher(matcher="Bash", hooks=[check])]})

A hook that returns a misspelled or misplaced key fails with a TypeError that names the right one.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict

from parley.hooks.event_spec import DECLARED
from parley.hooks.event_types import HookJSONOutput
from parley.protocol.base import UNSET, Json
from parley.protocol.messages import requests as wire
from parley.sdk.context import RunContext
from parley.sdk.errors import InvalidReturn
from parley.sdk.permissions import Signal
from parley.sdk.spelling import checks_names
from parley.sdk.types.generic import InputT_contra

log = logging.getLogger("parley.sdk")
RENAMED = {"async_": "async", "continue_": "continue"}
"""Keys of the wire that are Python keywords, and how they are written in Python."""


class HookContext(TypedDict):
    """What a hook receives besides its input."""

    signal: Signal | None
    """Tells whether the call of the hook was cancelled."""
    run: RunContext[Any]
    """The run: `context["run"].deps` is what the program gave it."""


HookCallback = Callable[
    [InputT_contra, str | None, HookContext], Awaitable[HookJSONOutput] | Awaitable[None] | HookJSONOutput | None
]
"""A hook: it gets its input, the id of the tool call if there is one, and a context."""


@checks_names
@dataclass
class HookMatcher(Generic[InputT_contra]):
    """Callbacks for the matching calls of an event.

    HookMatcher(matcher="Edit|Write", hooks=[check], timeout=10)
    """

    matcher: str | None = None
    """A tool name, several (`Edit|Write`) or a regular expression; None and "" match all."""
    hooks: list[HookCallback[InputT_contra]] = field(default_factory=list)
    """The callbacks, async or plain functions."""
    timeout: float | None = None
    """Seconds."""
    on_failure: Literal["continue", "block"] | None = None
    """After an error, a timeout or an unreadable reply. Default: `block` for PreToolUse, else `continue`."""


if TYPE_CHECKING:
    from parley.hooks.event_types import Hooks as Hooks  # noqa: PLC0414  # exports it
else:
    Hooks = TypedDict(
        "Hooks", {name: Sequence[HookMatcher[event.input]] for name, event in DECLARED.items()}, total=False
    )
    Hooks.__doc__ = "The hooks of a session by event, each with the input of its event."


class Registry:
    """The hooks of a session by callback id, which is how the engine refers to them."""

    def __init__(self, hooks: Mapping[Any, Any] | None) -> None:
        self.callbacks: dict[str, HookCallback[Any]] = {}
        self.events: dict[str, list[str]] = {}
        self.lenient: set[str] = set()
        """The callbacks with `on_failure="continue"`."""
        self.matchers: dict[str, list[wire.HookMatcher]] = {}
        for event, matchers in (hooks or {}).items():
            self.matchers[event] = [self._register(event, matcher) for matcher in matchers]

    def _register(self, event: str, matcher: HookMatcher[Any]) -> wire.HookMatcher:
        ids = []
        for hook in matcher.hooks:
            name = f"hook_{len(self.callbacks)}"
            self.callbacks[name] = hook
            ids.append(name)
        self.events.setdefault(event, []).extend(ids)
        if matcher.on_failure == "continue":
            self.lenient.update(ids)
        return wire.HookMatcher(
            matcher=matcher.matcher,
            hookCallbackIds=ids,
            timeout=UNSET if matcher.timeout is None else matcher.timeout,
            onFailure=UNSET if matcher.on_failure is None else matcher.on_failure,
        )

    @property
    def needs_failure_support(self) -> bool:
        """Whether a hook uses `on_failure="block"`. An engine without support for it must not be used."""
        return any(matcher.onFailure == "block" for listed in self.matchers.values() for matcher in listed)

    def find(self, callback_id: str, event: str) -> list[HookCallback[Any]]:
        """Return the hook with this id, or all hooks of the event if the engine sent no known id."""
        if callback_id in self.callbacks:
            return [self.callbacks[callback_id]]
        return [self.callbacks[name] for name in self.events.get(event or callback_id, ())]


def check_output(event: str, output: Json) -> None:
    """Raises InvalidReturn for a key that is misspelled or in the wrong place: what it says would have no effect.

    A key that resembles none may be known to a newer engine and is only logged.
    """
    from parley.hooks.output import unknown_keys

    if event not in Hooks.__annotations__:
        return  # an event of a newer engine
    unknown = unknown_keys(event, output)
    # Only a key for which there is a better one has a hint in parentheses.
    if wrong := [text for text in unknown if text.endswith(")")]:
        raise InvalidReturn(f"the answer of a {event} hook has invalid keys: {', '.join(wrong)}")
    if unknown:
        log.warning("the answer of a %s hook has unknown keys: %s", event, ", ".join(unknown))


def is_denial(event: str, output: Json) -> bool:
    """Whether an output blocks or denies, whatever else it says."""
    from parley.hooks.events import MUST_DECIDE
    from parley.hooks.output import HookFailed, parse_output
    from parley.hooks.output import is_denial as denies

    try:
        parsed = parse_output(output)
    except HookFailed:
        return False
    if event in MUST_DECIDE:
        return denies(parsed)
    decision = parsed.hookSpecificOutput.decision if parsed.hookSpecificOutput is not None else None
    refuses = decision is not None and decision.get("behavior") == "deny"
    return parsed.continues is False or parsed.decision == "block" or refuses


def build_denial(event: str, reason: str) -> Json:
    """A denial of the call, for engines that ignore hooks that fail."""
    specific = {"hookEventName": event, "permissionDecision": "deny", "permissionDecisionReason": reason}
    return {"hookSpecificOutput": specific}


def encode_output(output: object) -> Json:
    """Encode a hook's output with the keys of the wire. Raises InvalidReturn if it is not a dict or None."""
    if output is None:
        return {}
    if not isinstance(output, Mapping):
        raise InvalidReturn(f"a hook must return a dict, not {type(output).__name__}: {output!r:.200}")
    return {RENAMED.get(str(key), str(key)): value for key, value in output.items()}
