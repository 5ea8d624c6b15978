"""A denied call in one line, with the flags that would have allowed it."""

from __future__ import annotations

from shlex import quote

from parley.models.redaction import Redactor
from parley.permissions.rule import format_rule, split_alternatives
from parley.protocol.base import Json
from parley.protocol.messages.dialects import CallDenied
from parley.sdk.runtime.wording import MAX_REASON_CHARS
from parley.settings.base import printable


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
