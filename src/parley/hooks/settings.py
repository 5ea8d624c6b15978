"""Read hooks from settings.

    {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "check.sh"}]}]}

`KINDS` has the kinds of handlers. `settings/merge.py` decides which sources apply; those of an untrusted project are
not passed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from parley.hooks.base import (
    DEFAULT_SECONDS,
    Condition,
    Hook,
    HookRuntime,
    Matcher,
    UnusableHook,
    describe_unknown_event,
    parse_failure_policy,
    parse_timeout,
)
from parley.hooks.command import CommandHook
from parley.hooks.events import EVENTS, TOOL_EVENTS
from parley.hooks.handlers import AgentHook, HttpHook, McpToolHook, PromptHook
from parley.protocol.base import Json
from parley.settings.base import TREE, SettingsProblem, SettingsValue

GROUP_KEYS = frozenset({"matcher", "hooks", "description"})
SHARED_KEYS = frozenset({"type", "timeout", "onFailure", "statusMessage", "if", "once"})
MakeCondition = Callable[[str, Callable[[str], None]], Condition]
"""Makes the condition of a rule, and reports what is wrong with it. An invalid rule matches every call."""


KINDS: dict[str, type[Hook]] = {hook.kind: hook for hook in (CommandHook, HttpHook, PromptHook, AgentHook, McpToolHook)}


def match_every_call(rule: str, warn: Callable[[str], None]) -> Condition:
    return lambda request: True


def load_hooks(
    layers: Sequence[SettingsValue],
    make_condition: MakeCondition = match_every_call,
    make_runtime: Callable[[SettingsValue], HookRuntime | None] = lambda layer: None,
) -> tuple[list[Hook], list[SettingsProblem]]:
    """All handlers, strongest source first, without duplicates; and the problems found.

    Without `make_runtime` they are only checked.

    A handler of the project does not take the place of the same one of the user: its timeout and what its failure
    means may differ."""
    found: dict[tuple[Any, ...], Hook] = {}
    problems: list[SettingsProblem] = []
    for layer in sorted(layers, key=lambda layer: layer.source in TREE):
        runtime = make_runtime(layer)
        for event, matcher, handler, invalid in iter_handlers(layer, problems):
            reader = HandlerReader(layer, event, matcher, problems, make_condition, runtime)
            hook = reader.read(handler, invalid)
            if hook is not None:
                key = (event, matcher, hook.kind, hook.condition_text, hook.unusable, repr(hook.own_json()))
                found.setdefault(key, hook)
    return list(found.values()), problems


def iter_handlers(
    layer: SettingsValue, problems: list[SettingsProblem]
) -> Iterator[tuple[str, str, dict[str, Any], str]]:
    """Event, matcher and handler of every entry, and what is wrong with it."""
    for event, groups in layer.value.items():
        if event not in EVENTS:
            problems.append(SettingsProblem(path=layer.path, text=f"hooks.{event}: {describe_unknown_event(event)}"))
            continue
        for group in groups if isinstance(groups, list) else [groups]:
            matcher = group.get("matcher") or "" if isinstance(group, dict) else ""
            hooks = group.get("hooks") if isinstance(group, dict) else None
            if not isinstance(hooks, list) or not isinstance(matcher, str):
                text = "an entry must be an object with a matcher (string) and hooks (list)"
                yield event, matcher if isinstance(matcher, str) else "", {}, text
                continue
            if more := sorted(set(group) - GROUP_KEYS):
                problems.append(
                    SettingsProblem(path=layer.path, text=f"hooks.{event}: ignored keys: {', '.join(more)}")
                )
            if (problem := Matcher(matcher).problem) is not None:
                problems.append(SettingsProblem(path=layer.path, text=f"hooks.{event}: {problem}"))
            for handler in hooks:
                if isinstance(handler, dict):
                    yield event, matcher, handler, ""
                else:
                    yield event, matcher, {}, "a hook must be an object"


class HandlerReader:
    """Reads the handlers of one group."""

    def __init__(
        self,
        layer: SettingsValue,
        event: str,
        matcher: str,
        problems: list[SettingsProblem],
        make_condition: MakeCondition,
        runtime: HookRuntime | None,
    ) -> None:
        self._runtime = runtime
        self._path = layer.path
        self._is_managed = layer.source == "managed"
        self._event = EVENTS[event]
        self._matcher = matcher
        self._problems = problems
        self._make_condition = make_condition

    def read(self, handler: Json, invalid: str) -> Hook | None:
        """The hook; None if it cannot run. With the policy `block` it stays, and blocks by failing."""
        name = handler.get("type", CommandHook.kind)
        kind = KINDS.get(name) if isinstance(name, str) else None
        own: Json | str = invalid
        if not invalid and kind is None:
            own = f"hooks of type {name!r:.100} are not supported (use {', '.join(KINDS)})"
        elif not invalid and kind is not None:
            own = kind.read_fields(handler)
            if kind.only_blocks and not self._event.block:
                own = f"hooks of type {name} can only block, and this event cannot be blocked (use command)"
        policy = parse_failure_policy(handler.get("onFailure"), self._event.name)
        if isinstance(own, str) or kind is None:
            return self._refuse(handler, str(own), policy)
        if more := sorted(set(handler) - SHARED_KEYS - kind.keys):
            self._warn(f"ignored keys: {', '.join(more)}")
        return kind(**self._shared(handler, policy, kind.default_seconds), **self._condition(handler), **own)

    def _refuse(self, handler: Json, reason: str, policy: Any) -> Hook | None:
        follows = f"; {self._event.block}" if policy == "block" and self._event.block else ""
        self._warn(f"{reason}{follows}")
        return UnusableHook(**self._shared(handler, policy), unusable=reason) if policy == "block" else None

    def _shared(self, handler: Json, policy: Any, default_seconds: float = DEFAULT_SECONDS) -> Json:
        """The fields that all kinds have. Wrong values are reported and replaced."""
        timeout, on_failure, message = (handler.get(key) for key in ("timeout", "onFailure", "statusMessage"))
        if timeout is not None and (not isinstance(timeout, int | float) or parse_timeout(timeout) != timeout):
            self._warn(
                f"timeout {timeout!r:.100} is not a positive number of seconds; using {parse_timeout(timeout):g}"
            )
        if on_failure not in (None, "block", "continue"):
            self._warn(f"onFailure must be block or continue, not {on_failure!r:.100}; using {policy}")
        return {
            "event": self._event.name,
            "matcher": self._matcher,
            "timeout_seconds": default_seconds if timeout is None else parse_timeout(timeout),
            "on_failure": policy,
            "source": self._path,
            "runtime": self._runtime,
            "is_managed": self._is_managed,
            "once": handler.get("once") is True,
            "status_message": message if isinstance(message, str) else "",
        }

    def _condition(self, handler: Json) -> Json:
        """`if`: a permission rule that the call must match."""
        rule = handler.get("if")
        if rule is None:
            return {}
        if not isinstance(rule, str) or not rule:
            self._warn("`if` must be a permission rule, as a string; the hook runs for every call")
            return {}
        if self._event.name not in TOOL_EVENTS:
            self._warn(f"`if`: {rule!r:.100} needs a tool call, and {self._event.name} has none; this hook never runs")
            return {"condition": lambda request: False, "condition_text": rule}
        return {"condition": self._make_condition(rule, self._warn), "condition_text": rule}

    def _warn(self, text: str) -> None:
        self._problems.append(SettingsProblem(path=self._path, text=f"hooks.{self._event.name}: {text}"))
