"""Hook events and the interface of a hook.

`EVENTS` describes each event: what matchers are compared with, the input fields, and which parts of an output have an
effect. A `Hook` is a callback of the client (callback.py) or a command from settings (command.py). The engine runs
hooks in `engine/hooks/dispatcher.py`; `merge.py` merges their outputs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

from parley.hooks.matcher import Matcher
from parley.hooks.output import SPECIFIC_KEYS, HookOutput, find_similar
from parley.protocol.base import UNSET, Json, Struct, UnsetType

DEFAULT_SECONDS = 60.0
"""The default timeout of a hook."""
MAX_CONTEXT_CHARS = 100_000
"""The limit for the context that one hook adds."""
MAX_SECONDS = 365 * 24 * 3600.0
OnFailure = Literal["continue", "block"]


class HookEventSpec(Struct, frozen=True, kw_only=True):
    """One kind of event."""

    name: str
    when: str
    matched: str = ""
    """The input field that matchers are compared with. If empty, all hooks of the event run."""
    fields: tuple[str, ...] = ()
    """The input fields in addition to the common ones."""
    effects: tuple[str, ...] = ()
    """The output fields that have an effect, in addition to the general ones."""
    block: str = ""
    """What `decision: block`, exit code 2, or a failure with `onFailure: block` does; empty if nothing."""
    failure_blocks: bool = True
    """Whether `onFailure: block` has an effect."""
    failure: str = ""
    """What a failure with `onFailure: block` does, if it differs from a block."""
    on_failure: OnFailure = "continue"
    """The default of `onFailure`."""
    stops: str = ""
    """What `continue: false` ends; empty if nothing."""
    includes_mode: bool = False
    includes_effort: bool = False
    accepts_text: bool = False
    """Whether command output that is not JSON becomes context for the model."""


TOOL = ("tool_name", "tool_input", "tool_use_id")
CONTEXT = "additionalContext"

EVENTS: dict[str, HookEventSpec] = {
    event.name: event
    for event in (
        HookEventSpec(
            name="PreToolUse",
            when="before a call is decided and run",
            matched="tool_name",
            fields=TOOL,
            effects=("permissionDecision", "permissionDecisionReason", "updatedInput", CONTEXT),
            block="the call is denied",
            on_failure="block",
            stops="the turn",
            includes_mode=True,
            includes_effort=True,
        ),
        HookEventSpec(
            name="PermissionRequest",
            when="together with can_use_tool",
            matched="tool_name",
            fields=("tool_name", "tool_input", "permission_suggestions"),
            effects=("decision",),
            block="the call is denied",
            stops="the turn",
            includes_mode=True,
            includes_effort=True,
        ),
        HookEventSpec(
            name="PostToolUse",
            when="after a successful call",
            matched="tool_name",
            fields=("tool_name", "tool_input", "tool_response", "tool_use_id", "duration_ms"),
            effects=(CONTEXT, "updatedToolOutput", "updatedMCPToolOutput"),
            block="the model gets the reason",
            failure="the output is withheld",
            stops="the turn",
            includes_mode=True,
            includes_effort=True,
        ),
        HookEventSpec(
            name="PostToolUseFailure",
            when="after a call that ran and failed",
            matched="tool_name",
            fields=(*TOOL, "error", "is_interrupt", "duration_ms"),
            effects=(CONTEXT,),
            block="the model gets the reason",
            stops="the turn",
            includes_mode=True,
            includes_effort=True,
        ),
        HookEventSpec(
            name="PostToolBatch",
            when="after all calls of one model response",
            fields=("tool_calls",),
            effects=(CONTEXT,),
            block="the model gets the reason",
            stops="the turn",
            includes_mode=True,
            includes_effort=True,
        ),
        HookEventSpec(
            name="UserPromptSubmit",
            when="before a prompt is accepted and system/init is sent",
            fields=("prompt",),
            effects=(CONTEXT,),
            block="the prompt is dropped",
            stops="the turn",
            includes_mode=True,
            accepts_text=True,
        ),
        HookEventSpec(
            name="SessionStart",
            when="before the first turn (commands only) and after compaction",
            matched="source",
            fields=("source", "model"),
            effects=(CONTEXT,),
            accepts_text=True,
        ),
        HookEventSpec(name="SessionEnd", when="at the end of the session", matched="reason", fields=("reason",)),
        HookEventSpec(
            name="Stop",
            when="when the model is done, before the result",
            fields=("stop_hook_active", "last_assistant_message", "background_tasks", "session_crons"),
            effects=(CONTEXT,),
            block="the turn continues with the reason",
            stops="the turn",
            failure_blocks=False,
            includes_mode=True,
            includes_effort=True,
        ),
        HookEventSpec(
            name="StopFailure",
            when="when a model error ends the turn",
            fields=("error", "error_details", "last_assistant_message"),
            includes_mode=True,
            includes_effort=True,
        ),
        HookEventSpec(
            name="SubagentStart",
            when="when a subagent starts",
            matched="agent_type",
            fields=("agent_id", "agent_type"),
            effects=(CONTEXT,),
        ),
        HookEventSpec(
            name="SubagentStop",
            when="when a subagent finishes",
            matched="agent_type",
            fields=(
                *("stop_hook_active", "agent_id", "agent_type", "agent_transcript_path"),
                *("last_assistant_message", "background_tasks", "session_crons"),
            ),
            effects=(CONTEXT,),
            block="the subagent continues with the reason",
            stops="the subagent",
            failure_blocks=False,
            includes_mode=True,
            includes_effort=True,
        ),
        HookEventSpec(
            name="PreCompact",
            when="before compaction",
            matched="trigger",
            fields=("trigger", "custom_instructions"),
            block="compaction is skipped",
            stops="the compaction",
        ),
        HookEventSpec(
            name="PostCompact", when="after compaction", matched="trigger", fields=("trigger", "compact_summary")
        ),
        HookEventSpec(
            name="Notification",
            when="when a permission request stays unanswered",
            matched="notification_type",
            fields=("message", "title", "notification_type"),
        ),
        HookEventSpec(
            name="MessageDisplay",
            when="before model text is sent",
            fields=("turn_id", "message_id", "index", "final", "delta"),
        ),
    )
}


class HookInvocation(Struct, frozen=True, kw_only=True):
    """One occurrence of an event."""

    event: HookEventSpec
    input: Json
    tool_use_id: str
    subjects: tuple[str, ...] = ()
    """The names that matchers are compared with, the one in the input first."""
    shown: str = ""
    """The name in messages: `PreToolUse:Bash`."""


class HookRun(Struct, frozen=True, kw_only=True):
    """The result of one hook."""

    output: HookOutput = HookOutput()
    stdout: str = ""
    stderr: str = ""
    exit_code: int | UnsetType = UNSET
    blocks: str | None = None
    """Why it blocks, if it says so by exit code 2."""
    failure: str | None = None
    """Why it failed. `onFailure` decides what follows."""
    unknown: tuple[str, ...] = ()
    """Unknown keys of its output."""
    background: Awaitable[HookRun] | None = None
    """The eventual result of a hook that continues in the background."""


Progress = Callable[[str, str], None]
"""Called now and then with the stdout and stderr so far."""


class Hook(Protocol):
    event: str
    matcher: Matcher
    timeout_seconds: float
    on_failure: OnFailure
    source: str
    """`callback`, or the file that defines it."""
    label: str
    """A name for users."""

    async def run(self, invocation: HookInvocation, progress: Progress) -> HookRun:
        """Run the hook. Cancelling stops it. Raises HookFailed."""

    def to_json(self) -> Json:
        """For get_hooks_listing."""


def parse_timeout(value: object) -> float:
    """The timeout in seconds; the default if `value` is not a positive number."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        return DEFAULT_SECONDS
    return float(min(value, MAX_SECONDS))


def describe_unknown_event(event: str) -> str:
    """The warning about hooks for an unknown event."""
    guess = guess_event(event)
    return "unknown event, so these hooks never run" + (f" (did you mean {guess}?)" if guess else "")


def guess_event(event: str) -> str | None:
    """A known event with a similar name."""
    return None if event in SPECIFIC_KEYS else find_similar(event, frozenset(EVENTS))


def parse_failure_policy(value: object, event: str = "") -> OnFailure:
    """The failure policy. An unknown value means `block`."""
    if not value:
        known = EVENTS.get(event)
        return known.on_failure if known is not None else "continue"
    return "continue" if value == "continue" else "block"


def format_context(shown: str, text: str) -> str:
    """Context for the model, marked as from a hook and limited in size."""
    if len(text) > MAX_CONTEXT_CHARS:
        text = f"{text[:MAX_CONTEXT_CHARS]}\n[truncated: {len(text) - MAX_CONTEXT_CHARS} more characters]"
    return f"<hook-context from={shown!r}>\n{text}\n</hook-context>"
