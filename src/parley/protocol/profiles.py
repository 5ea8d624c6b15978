"""Output profiles: which messages an engine sends with which options. A client that chooses nothing gets `default`."""

from __future__ import annotations

from collections.abc import Iterable

from parley.protocol.base import Struct

NEVER_SENT = frozenset(
    {"auth_status", "error", "tool_use_summary", "system/files_persisted", "system/local_command_output"}
    | {"system/mirror_error", "system/notification", "system/plugin_install", "system/worker_shutting_down"}
)
"""Messages that Parley reads but its engine does not send."""
OF_DIALECTS = frozenset(
    {"control", "jsonrpc", "system/consolidation", "system/error", "system/heartbeat_ack", "system/hook_execution"}
    | {"system/injected", "system/interrupted", "system/permission_request", "system/queued", "system/tool_result"}
)
"""Messages that only a dialect has."""
CONTROL = ("control_cancel_request", "control_request", "control_response", "keep_alive")


class OutputProfile(Struct, frozen=True, kw_only=True):
    """The messages that an engine sends with some options."""

    options: str
    """How it is chosen."""
    help: str
    adds: tuple[str, ...] = ()
    """The messages besides those of the default."""
    messages: tuple[str, ...] = ()
    """All its messages, if it has not those of the default."""


PROFILES = {
    "default": OutputProfile(options="--output-format stream-json --verbose", help="What every client gets."),
    "partial-messages": OutputProfile(
        options="--include-partial-messages",
        help="Also the events of the model's stream.",
        adds=("stream_event", "system/thinking_tokens"),
    ),
    "hook-events": OutputProfile(
        options="--include-hook-events",
        help="Also the runs of hooks of every event. The default has only those of SessionStart.",
        adds=("system/hook_progress", "system/hook_response", "system/hook_started"),
    ),
    "session-state": OutputProfile(
        options="CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS=1",
        help="Also every change between idle, running and requires_action, and of the session's goal.",
        adds=("active_goal", "system/session_state_changed"),
    ),
    "prompt-suggestions": OutputProfile(
        options="--prompt-suggestions", help="Also a suggested next prompt.", adds=("prompt_suggestion",)
    ),
    "session-mirror": OutputProfile(
        options="--session-mirror", help="Also every line of the transcript.", adds=("transcript_mirror",)
    ),
    "spec001": OutputProfile(
        options="--dialect spec001",
        help="The dialect spec001.",
        messages=(
            *("assistant", *CONTROL, "result", "stream_event", "system/error", "system/hook_execution", "system/init"),
            *("system/permission_request", "system/session_state_changed", "transcript_mirror", "user"),
        ),
    ),
    "miriad": OutputProfile(
        options="--stdio",
        help="The dialect miriad.",
        messages=(
            *("assistant", "control_response", "result", "system/consolidation", "system/error"),
            *("system/heartbeat_ack", "system/injected", "system/interrupted", "system/queued", "system/status"),
            "system/tool_result",
        ),
    ),
    "jsonrpc": OutputProfile(options="--dialect jsonrpc", help="miriad in JSON-RPC.", messages=("jsonrpc",)),
}
"""By name. Those that add something to the default can be combined."""


def list_profile(profile: OutputProfile, sent: Iterable[str]) -> list[str]:
    """The names of the messages of a profile. `sent`: those that an engine may send at all."""
    if profile.messages:
        return sorted(profile.messages)
    optional = {name for other in PROFILES.values() for name in other.adds if not name.startswith("system/hook_")}
    return sorted((set(sent) - NEVER_SENT - OF_DIALECTS - optional) | set(profile.adds))
