"""A permission decision as lines: what would happen with a call, and why. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from parley.protocol.base import Json, encode_json
from parley.terminal.rendering.text import reveal_line


def format_decision(result: Json, *, mode_source: str = "", is_offered: bool = True) -> Iterator[str]:
    """`result`: the answer to `check_permission`. `mode_source`: where the mode is set."""
    yield reveal_line(f"{result['decision']}: {result['outcome']}")
    yield from format_rows(
        ("tool", result["tool"] if is_offered else f"{result['tool']} (not offered to the model)"),
        ("input", encode_json(result["input"]).decode()),
        ("mode", f"{result['mode']} ({mode_source})" if mode_source else result["mode"]),
        ("source", result["source"]),
        ("reason", result["reason"]),
        ("rule", format_rule(result["rule"])),
        ("path", result["blocked_path"] or ""),
        ("message", result["message"]),
    )


def format_rows(*pairs: tuple[str, str]) -> Iterator[str]:
    return (f"  {name:10} {reveal_line(value)}" for name, value in pairs if value)


def format_rule(rule: Json | None) -> str:
    if rule is None:
        return ""
    where = rule["source"]
    if "file" in rule:
        where += f", {rule['file']}" + ("" if rule["line"] is None else f":{rule['line']}")
    return f"{rule['behavior']} {rule['text']} ({where})"
