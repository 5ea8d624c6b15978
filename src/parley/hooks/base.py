"""What a hook is: somebody outside who is told of an event and may have a say in it.

`EVENTS` says of every event what a matcher is compared with, what its hooks are told beside
the common fields, and which parts of an answer count. A `Hook` is one carrier: a callback of
the host (callback.py) or a command of the settings (command.py). The engine fires events
(engine/hooks/dispatcher.py); what several answers come to is merge.py's business.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

from parley.hooks.matcher import Matcher
from parley.hooks.output import SPECIFIC_KEYS, HookOutput, find_similar
from parley.protocol.base import UNSET, Json, Struct, UnsetType

DEFAULT_SECONDS = 60.0
"""How long a hook may take, unless it says otherwise."""
MAX_CONTEXT_CHARS = 100_000
"""So much may a hook say to the model at a time."""
MAX_SECONDS = 365 * 24 * 3600.0
OnFailure = Literal["continue", "block"]


class HookEventSpec(Struct, frozen=True, kw_only=True):
    """One kind of event."""

    name: str
    when: str
    matched: str = ""
    """The input field that matchers are compared with; all hooks of the event fire if there is none."""
    fields: tuple[str, ...] = ()
    """What the input has beside the common fields."""
    effects: tuple[str, ...] = ()
    """Which parts of an answer count, beside those that count everywhere."""
    block: str = ""
    """What `decision: block`, exit code 2, or a failure with `onFailure: block` does; nothing if empty."""
    failure_blocks: bool = True
    """Whether `onFailure: block` counts."""
    failure: str = ""
    """What a failure with `onFailure: block` does, where that is more than a block."""
    on_failure: OnFailure = "continue"
    """What a failure does where the hook does not say it."""
    stops: str = ""
    """What `continue: false` ends; nothing if empty."""
    includes_mode: bool = False
    includes_effort: bool = False
    accepts_text: bool = False
    """Whether what a command writes, if it is no JSON, is context for the model."""


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
            when="when a permission question stays unanswered",
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
    """An event that has happened."""

    event: HookEventSpec
    input: Json
    tool_use_id: str
    subjects: tuple[str, ...] = ()
    """What matchers are compared with: the names it goes by, the one in the input first."""
    shown: str = ""
    """How it is called in lines and texts: `PreToolUse:Bash`."""


class HookRun(Struct, frozen=True, kw_only=True):
    """What came of one hook."""

    output: HookOutput = HookOutput()
    stdout: str = ""
    stderr: str = ""
    exit_code: int | UnsetType = UNSET
    blocks: str | None = None
    """Why it blocks, where it says so by other means than its answer: exit code 2."""
    failure: str | None = None
    """Why it did not come to an answer. `onFailure` says what follows."""
    unknown: tuple[str, ...] = ()
    """The keys of its answer that are not known."""
    background: Awaitable[HookRun] | None = None
    """It goes on in the background: what comes of it in the end. Nobody waits for that."""


Progress = Callable[[str, str], None]
"""Told now and then what a hook has written so far: stdout and stderr."""


class Hook(Protocol):
    event: str
    matcher: Matcher
    timeout_seconds: float
    on_failure: OnFailure
    source: str
    """`callback`, or the file that has it."""
    label: str
    """What people know it by."""

    async def run(self, fired: HookInvocation, progress: Progress) -> HookRun:
        """Ask it. Cancelling withdraws the question. Raises HookFailed."""

    def to_json(self) -> Json:
        """For get_hooks_listing."""


def parse_timeout(asked: object) -> float:
    """How long one may take; what is no time above zero is not heeded."""
    if not isinstance(asked, int | float) or isinstance(asked, bool) or not asked > 0:
        return DEFAULT_SECONDS
    return float(min(asked, MAX_SECONDS))


def describe_unknown_event(event: str) -> str:
    """What is said of hooks for an event that is not known."""
    meant = guess_event(event)
    return "there is no such event here, so it never fires" + (f" (did you mean {meant}?)" if meant else "")


def guess_event(event: str) -> str | None:
    """The event that one of another name may be a misspelling of."""
    return None if event in SPECIFIC_KEYS else find_similar(event, frozenset(EVENTS))


def parse_failure_policy(asked: object, event: str = "") -> OnFailure:
    """What a failure does. A value that is not known means `block`."""
    if not asked:
        known = EVENTS.get(event)
        return known.on_failure if known is not None else "continue"
    return "continue" if asked == "continue" else "block"


def format_context(shown: str, text: str) -> str:
    """What a hook has to say to the model, marked as such. Too much of it would leave no room for anything else."""
    if len(text) > MAX_CONTEXT_CHARS:
        text = f"{text[:MAX_CONTEXT_CHARS]}\n[cut here: {len(text) - MAX_CONTEXT_CHARS} more characters]"
    return f"<hook-context from={shown!r}>\n{text}\n</hook-context>"
