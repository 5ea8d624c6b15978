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
"""Words of Python that the wire uses as keys."""


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
    """All hooks of a session under the ids the engine calls them by."""

    def __init__(self, hooks: Mapping[Any, Sequence[HookMatcher]] | None) -> None:
        """Raises TypeError for what cannot be called."""
        self.callbacks: dict[str, HookCallback] = {}
        self.events: dict[str, list[str]] = {}
        self.matchers: dict[str, list[wire.HookMatcher]] = {}
        for event, matchers in (hooks or {}).items():
            self.matchers[event] = [self._filed(event, matcher) for matcher in matchers]

    def _filed(self, event: str, matcher: HookMatcher) -> wire.HookMatcher:
        ids = []
        for hook in matcher.hooks:
            if not callable(hook):
                raise TypeError(f"a hook of {event} must be a function, not {type(hook).__name__}")
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
        """Whether a hook that fails must block: an engine that cannot see to that must not be used."""
        return any(matcher.onFailure == "block" for listed in self.matchers.values() for matcher in listed)

    def find(self, callback_id: str, event: str) -> list[HookCallback]:
        """The hook of an id; where an engine names the event instead, all of that event."""
        if callback_id in self.callbacks:
            return [self.callbacks[callback_id]]
        return [self.callbacks[name] for name in self.events.get(event or callback_id, ())]


def unknown_keys(event: str, answer: Json) -> tuple[str, ...]:
    """The keys of an answer that an engine does not know: a decision that is misspelt is none."""
    from parley.hooks.output import unknown_keys as find

    return find(event, answer)


def spelled(answer: object) -> Json:
    """A hook's answer as the wire spells it. Raises TypeError for what is none."""
    if answer is None:
        return {}
    if not isinstance(answer, Mapping):
        raise TypeError(f"a hook must return a dict, not {type(answer).__name__}: {answer!r:.200}")
    return {RENAMED.get(str(key), str(key)): value for key, value in answer.items()}
