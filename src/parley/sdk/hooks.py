"""Hook callbacks.

hooks={"PreToolUse": [HookMatcher(matcher="Bash", hooks=[check])]}

async def check(input, tool_use_id, context) -> dict: ...        (or a plain `def`)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from parley.protocol.base import UNSET, Json
from parley.protocol.messages import requests as wire

RENAMED = {"async_": "async", "continue_": "continue"}
"""Keys of the wire that are Python keywords, and how they are written in Python."""


class HookContext(TypedDict):
    signal: Any | None
    """A `Signal`."""


HookCallback = Callable[[Any, str | None, HookContext], Awaitable[Any] | Any]


@dataclass
class HookMatcher:
    """Callbacks for the matching calls of an event; None and "" match all."""

    matcher: str | None = None
    hooks: list[HookCallback] = field(default_factory=list)
    timeout: float | None = None
    """Seconds."""
    on_failure: Literal["continue", "block"] | None = None
    """After an error, a timeout or an unreadable reply. Default: `block` for PreToolUse, else `continue`."""


class Registry:
    """The hooks of a session by callback id, which is how the engine refers to them."""

    def __init__(self, hooks: Mapping[Any, Sequence[HookMatcher]] | None) -> None:
        """Raises TypeError for a hook that is not callable."""
        self.callbacks: dict[str, HookCallback] = {}
        self.events: dict[str, list[str]] = {}
        self.matchers: dict[str, list[wire.HookMatcher]] = {}
        for event, matchers in (hooks or {}).items():
            self.matchers[event] = [self._register(event, matcher) for matcher in matchers]

    def _register(self, event: str, matcher: HookMatcher) -> wire.HookMatcher:
        ids = []
        for hook in matcher.hooks:
            if not callable(hook):
                raise TypeError(f"a hook for {event} must be a function, not {type(hook).__name__}")
            name = f"hook_{len(self.callbacks)}"
            self.callbacks[name] = hook
            ids.append(name)
        self.events.setdefault(event, []).extend(ids)
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

    def find(self, callback_id: str, event: str) -> list[HookCallback]:
        """Return the hook with this id, or all hooks of the event if the engine sent no known id."""
        if callback_id in self.callbacks:
            return [self.callbacks[callback_id]]
        return [self.callbacks[name] for name in self.events.get(event or callback_id, ())]


def unknown_keys(event: str, output: Json) -> tuple[str, ...]:
    """Return the keys of a hook's output that engines do not know. A misspelled decision would have no effect."""
    from parley.hooks.output import unknown_keys as find

    return find(event, output)


def encode_output(output: object) -> Json:
    """Encode a hook's output with the keys of the wire. Raises TypeError if it is not a dict or None."""
    if output is None:
        return {}
    if not isinstance(output, Mapping):
        raise TypeError(f"a hook must return a dict, not {type(output).__name__}: {output!r:.200}")
    return {RENAMED.get(str(key), str(key)): value for key, value in output.items()}
