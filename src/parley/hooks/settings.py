"""The `hooks` of settings, read: which commands are there, and what is wrong with them.

    {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "check.sh"}]}]}

Which layers count at all is settings/merge.py's business: those of a tree that is not trusted do not come here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from parley.hooks.base import EVENTS, failure_policy, no_such_event, seconds
from parley.hooks.command import Command, Entry, Place
from parley.hooks.matcher import Matcher
from parley.settings.base import Flaw, Value
from parley.tools.base import Context

GROUP_KEYS = frozenset({"matcher", "hooks", "description"})
KNOWN = frozenset({"type", "command", "args", "timeout", "async", "onFailure", "statusMessage", "shell"})


def commands(layers: Sequence[Value], context: Context, project: str) -> tuple[list[Command], list[Flaw]]:
    """The commands of all layers as hooks, and what is wrong with them."""
    place = Place(
        processes=context.processes,
        environment=context.environment,
        project=project,
    )
    found, flaws = entries(layers)
    return [Command(entry, place) for entry in found], flaws


def entries(layers: Sequence[Value]) -> tuple[list[Entry], list[Flaw]]:
    """All commands in the order of their layers, the strongest first, none of them twice; and what is wrong."""
    found: dict[tuple[Any, ...], Entry] = {}
    flaws: list[Flaw] = []
    for layer in layers:
        for event, matcher, handler, wrong in handlers(layer, flaws):
            entry = command(layer, event, matcher, handler, wrong or why_unusable(handler), flaws)
            if entry is not None:
                found.setdefault((entry.event, entry.matcher, entry.command, entry.args, entry.unusable), entry)
    return list(found.values()), flaws


def handlers(layer: Value, flaws: list[Flaw]) -> Iterator[tuple[str, str, dict[str, Any], str]]:
    """Event, matcher and handler of everything that is written, and what is wrong with it."""
    for event, groups in layer.value.items():
        if event not in EVENTS:
            flaws.append(Flaw(path=layer.path, text=f"hooks.{event}: {no_such_event(event)}"))
            continue
        for group in groups if isinstance(groups, list) else [groups]:
            matcher = group.get("matcher") or "" if isinstance(group, dict) else ""
            listed = group.get("hooks") if isinstance(group, dict) else None
            if not isinstance(listed, list) or not isinstance(matcher, str):
                text = "an entry must be an object with a matcher (a text) and hooks (a list)"
                yield event, matcher if isinstance(matcher, str) else "", {}, text
                continue
            if more := sorted(set(group) - GROUP_KEYS):
                flaws.append(Flaw(path=layer.path, text=f"hooks.{event}: not heeded: {', '.join(more)}"))
            if (flaw := Matcher(matcher).flaw) is not None:
                flaws.append(Flaw(path=layer.path, text=f"hooks.{event}: {flaw}"))
            for handler in listed:
                if isinstance(handler, dict):
                    yield event, matcher, handler, ""
                else:
                    yield event, matcher, {}, "a hook must be an object"


def why_unusable(handler: dict[str, Any]) -> str:
    """Why a handler cannot be run; nothing if it can."""
    kind, line, words = handler.get("type", "command"), handler.get("command"), handler.get("args")
    if kind != "command":
        return f"hooks of type {kind!r:.100} are not run, only commands"
    is_words = isinstance(words, list) and all(isinstance(word, str) for word in words)
    if not isinstance(line, str) or not line or not (words is None or is_words):
        return "a command must be a text, its args a list of texts"
    return ""


def wrong_values(handler: dict[str, Any], policy: str) -> Iterator[str]:
    """What a handler says that is not taken as it is."""
    timeout, on_failure = handler.get("timeout"), handler.get("onFailure")
    if timeout is not None and (not isinstance(timeout, int | float) or seconds(timeout) != timeout):
        yield f"timeout {timeout!r:.100} is not a number of seconds above 0; it is {seconds(timeout):g}"
    if on_failure not in (None, "block", "continue"):
        yield f"onFailure {on_failure!r:.100} is neither block nor continue; it is {policy}"


def command(
    layer: Value, event: str, matcher: str, handler: dict[str, Any], unusable: str, flaws: list[Flaw]
) -> Entry | None:
    """One handler as a command; None if it cannot be run. One that must not fail stays: what it guards is blocked."""
    policy = failure_policy(handler.get("onFailure"), event)
    if unusable:
        follows = f"; {EVENTS[event].block}" if policy == "block" and EVENTS[event].block else ""
        flaws.append(Flaw(path=layer.path, text=f"hooks.{event}: {unusable}{follows}"))
        if policy != "block":
            return None
    elif more := sorted(set(handler) - KNOWN):
        flaws.append(Flaw(path=layer.path, text=f"hooks.{event}: not heeded: {', '.join(more)}"))
    flaws += [Flaw(path=layer.path, text=f"hooks.{event}: {text}") for text in wrong_values(handler, policy)]
    words = handler.get("args")
    return Entry(
        event=event,
        matcher=matcher,
        command="" if unusable else handler["command"],
        args=tuple(words) if words is not None and not unusable else None,
        timeout_seconds=seconds(handler.get("timeout")),
        on_failure=policy,
        in_background=handler.get("async") is True,
        source=layer.path,
        unusable=unusable,
    )
