"""A gateway as the target of the suite: through a bridge that makes a session look like an engine on a pipe.

Only conversations are judged: a gateway has no command line, exit code, environment or transcript of its own.
"""

from __future__ import annotations

import os
import sys

from parley.conformance.runner import Plan

TOKEN = "PARLEY_TOKEN"
SCENARIOS = (
    "two-turns", "stream-events", "no-initialize", "pipelined", "max-turns", "json-schema", "api-error-alive",
    "retries", "commands", "bad-calls", "subagent", "background-command", "stop-task", "control-requests",
    "control-during-turn", "interrupt-stream", "interrupt-tool", "interrupt-question",
    "queued-prompt", "odd-lines", "big-line", "allow",
    "deny", "deny-interrupt", "changed-input", "bad-answers", "rules", "accept-edits", "bypass", "dont-ask", "plan",
    "plan-rejected", "question", "hooks", "hook-decides", "hook-context", "hook-blocks-prompt", "hook-permission",
    "hook-fails", "hook-agents", "hosted-server", "compaction",
)  # fmt: skip
"""What can be judged over a WebSocket."""


def is_gateway(word: str) -> bool:
    return word.startswith(("http://", "https://"))


def gateway_command(url: str) -> tuple[str, ...]:
    return (sys.executable, "-P", "-m", "parley.conformance.gateway_bridge", url)


def gateway_plan(plan: Plan) -> Plan:
    """The plan for a gateway: its scenarios, and the token for the bridge."""
    import msgspec

    token = os.environ.get(TOKEN)
    return msgspec.structs.replace(plan, scenarios=SCENARIOS, env={TOKEN: token} if token else {})
