"""Read command hooks from settings.

    {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "check.sh"}]}]}

`settings/merge.py` decides which sources apply; those of an untrusted project are not passed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from parley.hooks.base import EVENTS, describe_unknown_event, parse_failure_policy, parse_timeout
from parley.hooks.command import CommandEntry, CommandHook, HookEnvironment
from parley.hooks.matcher import Matcher
from parley.settings.base import SettingsProblem, SettingsValue
from parley.tools.base import Context

GROUP_KEYS = frozenset({"matcher", "hooks", "description"})
KNOWN = frozenset({"type", "command", "args", "timeout", "async", "onFailure", "statusMessage", "shell"})


def load_command_hooks(
    layers: Sequence[SettingsValue], context: Context, project: str
) -> tuple[list[CommandHook], list[SettingsProblem]]:
    """The command hooks of all sources, and the problems found."""
    environment = HookEnvironment(
        processes=context.processes,
        environment=context.environment,
        project=project,
    )
    found, problems = load_entries(layers)
    return [CommandHook(entry, environment) for entry in found], problems


def load_entries(layers: Sequence[SettingsValue]) -> tuple[list[CommandEntry], list[SettingsProblem]]:
    """All commands, strongest source first, without duplicates; and the problems found."""
    found: dict[tuple[Any, ...], CommandEntry] = {}
    problems: list[SettingsProblem] = []
    for layer in layers:
        for event, matcher, handler, invalid in iter_handlers(layer, problems):
            entry = build_entry(layer, event, matcher, handler, invalid or unusable_reason(handler), problems)
            if entry is not None:
                found.setdefault((entry.event, entry.matcher, entry.command, entry.args, entry.unusable), entry)
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


def unusable_reason(handler: dict[str, Any]) -> str:
    """Why a handler cannot run; empty if it can."""
    kind, line, words = handler.get("type", "command"), handler.get("command"), handler.get("args")
    if kind != "command":
        return f"hooks of type {kind!r:.100} are not supported (use command)"
    is_words = isinstance(words, list) and all(isinstance(word, str) for word in words)
    if not isinstance(line, str) or not line or not (words is None or is_words):
        return "command must be a string and args a list of strings"
    return ""


def find_wrong_values(handler: dict[str, Any], policy: str) -> Iterator[str]:
    """Warnings about values that are ignored or replaced."""
    timeout, on_failure = handler.get("timeout"), handler.get("onFailure")
    if timeout is not None and (not isinstance(timeout, int | float) or parse_timeout(timeout) != timeout):
        yield f"timeout {timeout!r:.100} is not a positive number of seconds; using {parse_timeout(timeout):g}"
    if on_failure not in (None, "block", "continue"):
        yield f"onFailure {on_failure!r:.100} must be block or continue; using {policy}"


def build_entry(
    layer: SettingsValue,
    event: str,
    matcher: str,
    handler: dict[str, Any],
    unusable: str,
    problems: list[SettingsProblem],
) -> CommandEntry | None:
    """A handler as a command entry; None if it cannot run. With the policy `block` it stays, and blocks by failing."""
    policy = parse_failure_policy(handler.get("onFailure"), event)
    if unusable:
        follows = f"; {EVENTS[event].block}" if policy == "block" and EVENTS[event].block else ""
        problems.append(SettingsProblem(path=layer.path, text=f"hooks.{event}: {unusable}{follows}"))
        if policy != "block":
            return None
    elif more := sorted(set(handler) - KNOWN):
        problems.append(SettingsProblem(path=layer.path, text=f"hooks.{event}: ignored keys: {', '.join(more)}"))
    problems += [
        SettingsProblem(path=layer.path, text=f"hooks.{event}: {text}") for text in find_wrong_values(handler, policy)
    ]
    words = handler.get("args")
    return CommandEntry(
        event=event,
        matcher=matcher,
        command="" if unusable else handler["command"],
        args=tuple(words) if words is not None and not unusable else None,
        timeout_seconds=parse_timeout(handler.get("timeout")),
        on_failure=policy,
        in_background=handler.get("async") is True,
        source=layer.path,
        unusable=unusable,
    )
