"""Permission requests, decisions and denials as lines: what would run, why it is asked, what answers change. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

import msgspec

from parley.models.redaction import Redactor
from parley.permissions.rule import format_rule, split_alternatives
from parley.protocol.base import Json, encode_json
from parley.protocol.messages.dialects import CallDenied
from parley.sdk.runtime.wording import MAX_REASON_CHARS
from parley.settings.base import printable
from parley.terminal.rendering.style import Styles
from parley.terminal.rendering.text import cell_width, reveal_line, reveal_text, wrap
from parley.tools.catalog import find_traits

PLACES = {
    "session": "for this session",
    "localSettings": "saved for this project, in .claude/settings.local.json",
    "projectSettings": "saved for everyone in this project, in .claude/settings.json",
    "userSettings": "saved for all your projects, in settings.json of your home",
    "cliArg": "for this run",
}
MAX_LINES = 12
"""How many lines of a long value are shown at first."""
MIN_COLUMNS = 10
INDENT = "    "


def list_input(tool_name: str, given: Json, styles: Styles, width: int, max_lines: int | None) -> list[str]:
    """The input, field by field. What the call is about, such as the command, is never cut."""
    lines: list[str] = []
    subject = find_traits(tool_name).subject_field
    for name, value in given.items():
        text = value_text(value)
        if name == subject:
            lines += [f"{INDENT}{styles.code(line)}" for line in text.split("\n")]
            continue
        label = styles.dim(f"{reveal_line(name)}:")
        rows = break_lines(text, width)
        if len(rows) == 1 and cell_width(f"{INDENT}{name}: {text}") <= width:
            lines.append(f"{INDENT}{label} {text}")
            continue
        lines += [f"{INDENT}{label}", *(f"{INDENT}  {row}" for row in rows[:max_lines])]
        if max_lines is not None and len(rows) > max_lines:
            lines.append(INDENT + styles.dim(f"  … {len(rows) - max_lines} more lines (v shows them)"))
    return lines


def hides_lines(tool_name: str, given: Json, width: int) -> bool:
    """Whether a value is too long to be shown at once."""
    subject = find_traits(tool_name).subject_field
    values = [value for name, value in given.items() if name != subject]
    return any(len(break_lines(value_text(value), width)) > MAX_LINES for value in values)


def break_lines(text: str, width: int, indent: int = len(INDENT) + 2) -> list[str]:
    """The lines of a text that is indented, broken to fit."""
    return wrap(text, max(MIN_COLUMNS, width - indent))


def label_lines(label: str, text: str, styles: Styles, width: int) -> list[str]:
    """A dim line that begins with a label, broken to fit."""
    parts = break_lines(reveal_line(text), width, len(label) + 3)
    return [f"  {styles.dim((label if index == 0 else ' ' * len(label)) + part)}" for index, part in enumerate(parts)]


def explain(decision_reason: object, blocked_path: object) -> str:
    """Why the person is asked."""
    if isinstance(decision_reason, str) and decision_reason:
        return decision_reason
    if isinstance(blocked_path, str):
        return f"it writes a file, and no rule allows that: {blocked_path}"
    return "no rule allows it"


def describe_update(update: Json) -> str:
    """A permission update in words, with the place where it is stored."""
    place = PLACES.get(str(update.get("destination")), f"in {update.get('destination')}")
    return f"{describe_change(update)} – {place}"


def describe_change(update: Json) -> str:
    """A permission update in words."""
    match update.get("type"):
        case "addRules":
            rules = [
                rule["toolName"] + (f"({rule['ruleContent']})" if rule.get("ruleContent") else "")
                for rule in update.get("rules", ())
            ]
            return f"{update.get('behavior', 'allow')} {', '.join(rules)}"
        case "addDirectories":
            return f"work in {', '.join(update.get('directories', ()))} too"
        case "setMode":
            return f"permission mode {update.get('mode')}"
    return encode_json(update).decode()


def value_text(value: object) -> str:
    """A value of an input as text."""
    return reveal_text(value if isinstance(value, str) else encode_json(value).decode()).rstrip("\n")


def parse_input(name: str, text: str) -> Json:
    """The input of a call as a person types it: a JSON object, or the text of its main field. Raises ValueError."""
    if text.lstrip().startswith("{") or not text:
        try:
            return dict(msgspec.json.decode(text or "{}"))
        except (msgspec.DecodeError, RecursionError) as exc:
            raise ValueError(f"INPUT is not valid JSON: {exc}") from None
    subject = find_traits(name).subject_field
    if not subject:
        raise ValueError(f"INPUT for {name} must be a JSON object; got {reveal_line(text)!r}")
    return {subject: text}


def format_decision(result: Json, *, mode_source: str = "", is_offered: bool = True) -> Iterator[str]:
    """`result`: the answer to `check_permission`. `mode_source`: where the mode is set."""
    yield reveal_line(f"{result['decision']}: {result['outcome']}")
    yield from format_rows(
        ("tool", result["tool"] if is_offered else f"{result['tool']} (not offered to the model)"),
        ("input", encode_json(result["input"]).decode()),
        ("mode", f"{result['mode']} ({mode_source})" if mode_source else result["mode"]),
        ("source", result["source"]),
        ("reason", result["reason"]),
        ("rule", describe_rule(result["rule"])),
        ("path", result["blocked_path"] or ""),
        ("message", result["message"]),
    )


def format_rows(*pairs: tuple[str, str]) -> Iterator[str]:
    return (f"  {name:10} {reveal_line(value)}" for name, value in pairs if value)


def describe_rule(rule: Json | None) -> str:
    if rule is None:
        return ""
    where = rule["source"]
    if "file" in rule:
        where += f", {rule['file']}" + ("" if rule["line"] is None else f":{rule['line']}")
    return f"{rule['behavior']} {rule['text']} ({where})"


def denial_text(denial: CallDenied) -> str:
    """Describe a denied call in one line, with the flags that would have allowed it."""
    redact = Redactor().redact_text
    about, reason = printable(redact(denial.about)), printable(redact(denial.reason), MAX_REASON_CHARS)
    alternatives = [
        " ".join(flag for update in group for flag in update_flags(update))
        for group in split_alternatives(denial.suggestions)
    ]
    flags = " or ".join(filter(None, alternatives))
    # Flags that cannot be copied as they are shown are left out.
    advice = f" To allow it: {flags}" if flags and flags == printable(redact(flags), MAX_REASON_CHARS) else ""
    return f"denied: {denial.tool_name}{f' ({about})' if about else ''}: {reason}{advice}"


def update_flags(update: Json) -> list[str]:
    """The flags that have the effect of a permission update from the start."""
    match update:
        case {"type": "addRules", "behavior": "allow", "rules": rules}:
            return [
                "--allowedTools",
                *(quote(format_rule(rule["toolName"], rule.get("ruleContent"))) for rule in rules),
            ]
        case {"type": "addDirectories", "directories": folders}:
            return [part for folder in folders for part in ("--add-dir", quote(folder))]
        case {"type": "setMode", "mode": mode}:
            return ["--permission-mode", quote(mode)]
    return []
