"""The tables of hook events.

`EVENTS` has the events that are fired, `NEVER_FIRED` those that the official SDKs declare and that have no moment here.

See also: `event_types.py`, where each event is declared; `base.py` for the interface of a hook; `output.py` for
outputs; `scripts/gen_hooks.py` for the tables of the documentation.
"""

from __future__ import annotations

import parley.hooks.event_types  # noqa: F401  # declares the events
from parley.hooks.event_spec import DECLARED, DEFAULT_OUTPUT_FIELDS

EVENTS = {name: event for name, event in DECLARED.items() if not event.never}
NEVER_FIRED = {name: event.never for name, event in DECLARED.items() if event.never}
"""Declared events without a moment in this engine, and why. Hooks for them are reported by name."""
TOOL_EVENTS = frozenset(name for name, event in EVENTS.items() if "tool_input" in event.fields)
"""The events of a tool call, which `if` can be compared with."""
MUST_DECIDE = frozenset(name for name, event in EVENTS.items() if event.must_decide)


def find_output_fields(event: str) -> frozenset[str]:
    """The fields of `hookSpecificOutput` that are known for an event, which may be one that is never fired."""
    return EVENTS[event].output_fields if event in EVENTS else DEFAULT_OUTPUT_FIELDS
