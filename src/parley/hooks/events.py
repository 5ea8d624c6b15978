"""The hook events: what matchers are compared with, the input fields, and which parts of an output have an effect.

`EVENTS` has the events that are fired, `NEVER_FIRED` those that the official SDKs declare and that have no moment here.

See also: `base.py` for the interface of a hook, `output.py` for outputs, `scripts/gen_hooks.py` for the tables of the
documentation.
"""

from __future__ import annotations

from typing import Literal

from parley.protocol.base import Struct

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
    inert: tuple[str, ...] = ()
    """The output fields that the official SDKs declare for it besides, and that have no effect here."""
    block: str = ""
    """What `decision: block`, exit code 2, or a failure with `onFailure: block` does; empty if nothing."""
    failure_blocks: bool = True
    """Whether `onFailure: block` has an effect."""
    failure: str = ""
    """What a failure with `onFailure: block` does, if it differs from a block."""
    on_failure: OnFailure = "continue"
    """The default of `onFailure`."""
    block_continues: bool = False
    """Whether the model continues after a block: with the reason, or without the call."""
    can_defer: bool = False
    """Whether `permissionDecision: defer` is known."""
    stops: str = ""
    """What `continue: false` ends; empty if nothing."""
    includes_mode: bool = False
    includes_effort: bool = False
    accepts_text: bool = False
    """Whether command output that is not JSON has an effect: as `text_field`."""
    text_field: str = "additionalContext"

    @property
    def must_decide(self) -> bool:
        """Whether its hooks guard something. An output that may be a misspelled decision is a failure."""
        return "permissionDecision" in self.effects

    @property
    def output_fields(self) -> frozenset[str]:
        """The fields of `hookSpecificOutput` that are known."""
        return frozenset((*self.effects, *self.inert)) or DEFAULT_OUTPUT_FIELDS


TOOL = ("tool_name", "tool_input", "tool_use_id")
CONTEXT = "additionalContext"
DEFAULT_OUTPUT_FIELDS = frozenset({CONTEXT})
SWITCH = (
    *("from_model", "to_model", "requested_model", "source", "context_tokens", "prompt_cache_warm", "cache_ttl"),
    *("estimated_cache_write_usd", "pricing"),
)

EVENTS: dict[str, HookEventSpec] = {
    event.name: event
    for event in (
        HookEventSpec(
            name="PreToolUse",
            when="before the engine decides about a tool call and runs it",
            matched="tool_name",
            fields=TOOL,
            effects=("permissionDecision", "permissionDecisionReason", "updatedInput", CONTEXT),
            block="the call is denied",
            on_failure="block",
            block_continues=True,
            can_defer=True,
            stops="the turn",
            includes_mode=True,
            includes_effort=True,
        ),
        HookEventSpec(
            name="PermissionRequest",
            when="when a tool call needs approval, at the same time as can_use_tool is sent",
            matched="tool_name",
            fields=("tool_name", "tool_input", "permission_suggestions"),
            effects=("decision",),
            block="the call is denied",
            block_continues=True,
            stops="the turn",
            includes_mode=True,
            includes_effort=True,
        ),
        HookEventSpec(
            name="PostToolUse",
            when="after a successful tool call",
            matched="tool_name",
            fields=("tool_name", "tool_input", "tool_response", "tool_use_id", "duration_ms"),
            effects=(CONTEXT, "updatedToolOutput", "updatedMCPToolOutput"),
            inert=("classifierContext",),
            block="the model gets the reason",
            failure="the output is withheld",
            stops="the turn",
            includes_mode=True,
            includes_effort=True,
        ),
        HookEventSpec(
            name="PostToolUseFailure",
            when="after a tool call that ran and failed",
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
            when="after all tool calls of one model response",
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
            fields=("prompt", "source", "session_title"),
            effects=(CONTEXT, "sessionTitle", "suppressOriginalPrompt"),
            block="the prompt is dropped",
            stops="the turn",
            includes_mode=True,
            accepts_text=True,
        ),
        HookEventSpec(
            name="SessionStart",
            when="before the first turn (not for callbacks of the client), and after compaction",
            matched="source",
            fields=(
                *("source", "model", "session_title", "seconds_since_last_response", "context_tokens"),
                *("prompt_cache_likely_expired", "estimated_cache_write_usd"),
            ),
            effects=(CONTEXT, "initialUserMessage", "sessionTitle", "watchPaths", "reloadSkills"),
            accepts_text=True,
        ),
        HookEventSpec(name="SessionEnd", when="at the end of the session", matched="reason", fields=("reason",)),
        HookEventSpec(
            name="Stop",
            when="when the model has finished, before the result is sent",
            fields=("stop_hook_active", "last_assistant_message", "background_tasks", "session_crons"),
            effects=(CONTEXT,),
            block="the turn continues, and the model gets the reason",
            block_continues=True,
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
            block="the subagent continues, and gets the reason",
            block_continues=True,
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
            block_continues=True,
            stops="the compaction",
        ),
        HookEventSpec(
            name="PostCompact", when="after compaction", matched="trigger", fields=("trigger", "compact_summary")
        ),
        HookEventSpec(
            name="Notification",
            when="when a permission request is not answered for some time",
            matched="notification_type",
            fields=("message", "title", "notification_type"),
            effects=(CONTEXT,),
        ),
        HookEventSpec(
            name="MessageDisplay",
            when="before a text of the model is sent to the client",
            fields=("turn_id", "message_id", "index", "final", "delta"),
            effects=("displayContent",),
        ),
        HookEventSpec(
            name="PermissionDenied",
            when="after a call was denied by a rule, the mode or a hook, or because no one could be asked",
            matched="tool_name",
            fields=(*TOOL, "reason"),
            effects=("retry",),
            includes_mode=True,
            includes_effort=True,
        ),
        HookEventSpec(
            name="UserPromptExpansion",
            when="before a slash command of the user becomes a prompt",
            matched="command_name",
            fields=("expansion_type", "command_name", "command_args", "command_source", "prompt"),
            effects=(CONTEXT, "suppressOriginalPrompt"),
            block="the command is not sent",
            stops="the turn",
            includes_mode=True,
        ),
        HookEventSpec(
            name="Elicitation",
            when="when an MCP server asks the user a question",
            matched="mcp_server_name",
            fields=("mcp_server_name", "message", "mode", "url", "elicitation_id", "requested_schema"),
            effects=("action", "content"),
            block="the question is declined",
        ),
        HookEventSpec(
            name="ElicitationResult",
            when="before the user's answer is sent to an MCP server",
            matched="mcp_server_name",
            fields=("mcp_server_name", "elicitation_id", "mode", "action", "content"),
            effects=("action", "content"),
            block="the question is declined",
        ),
        HookEventSpec(
            name="PreModelSwitch",
            when="before set_model or /model changes the model",
            matched="to_model",
            fields=SWITCH,
            effects=("permissionDecision", "permissionDecisionReason"),
            block="the model is not changed",
            on_failure="block",
        ),
        HookEventSpec(
            name="PostModelSwitch",
            when="after the model of the session changed",
            matched="to_model",
            fields=SWITCH,
            effects=(CONTEXT,),
        ),
        HookEventSpec(
            name="TaskCreated",
            when="before TaskCreate adds a task",
            fields=("task_id", "task_subject", "task_description"),
            block="the task is not added, and the model gets the reason",
            includes_mode=True,
        ),
        HookEventSpec(
            name="TaskCompleted",
            when="before TaskUpdate completes a task",
            fields=("task_id", "task_subject", "task_description"),
            block="the task stays open, and the model gets the reason",
            failure_blocks=False,
            includes_mode=True,
        ),
        HookEventSpec(
            name="WorktreeCreate",
            when="when an agent or the session needs a worktree; the hook creates it instead of git",
            matched="name",
            fields=("name",),
            effects=("worktreePath",),
            block="the agent does not start",
            accepts_text=True,
            text_field="worktreePath",
        ),
        HookEventSpec(
            name="WorktreeRemove",
            when="after git removed a worktree, or to remove a worktree that a hook created",
            fields=("worktree_path",),
        ),
        HookEventSpec(
            name="InstructionsLoaded",
            when="when a memory file is loaded",
            matched="load_reason",
            fields=("file_path", "memory_type", "load_reason", "trigger_file_path", "parent_file_path"),
        ),
        HookEventSpec(
            name="CwdChanged",
            when="after a command or set_cwd changed the working directory",
            fields=("old_cwd", "new_cwd"),
            effects=("watchPaths",),
        ),
        HookEventSpec(
            name="DirectoryAdded",
            when="after register_repo_root added a working directory",
            fields=("directory", "source"),
        ),
        HookEventSpec(
            name="ConfigChange",
            when="before update_settings takes effect, and after a settings file or the skills changed",
            matched="source",
            fields=("source", "file_path"),
            block="update_settings is refused",
        ),
        HookEventSpec(
            name="FileChanged",
            when="after a watched file changed",
            matched="file_path",
            fields=("file_path", "event"),
            effects=("watchPaths",),
        ),
    )
}

NEVER_FIRED = {
    "Setup": "there is no --init or --maintenance",
    "TeammateIdle": "there are no teammates",
}
"""Declared events without a moment in this engine, and why. Hooks for them are reported by name."""
TOOL_EVENTS = frozenset(name for name, event in EVENTS.items() if "tool_input" in event.fields)
"""The events of a tool call, which `if` can be compared with."""
MUST_DECIDE = frozenset(name for name, event in EVENTS.items() if event.must_decide)


def find_output_fields(event: str) -> frozenset[str]:
    """The fields of `hookSpecificOutput` that are known for an event, which may be one that is never fired."""
    return EVENTS[event].output_fields if event in EVENTS else DEFAULT_OUTPUT_FIELDS
