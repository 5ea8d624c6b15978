"""The functions that read the transcripts of subagents from disk, with no engine."""

from __future__ import annotations

from claude_agent_sdk import get_subagent_messages, list_subagents
from telling import TASK, tell

for agent in list_subagents(TASK["session_id"], directory=TASK["directory"]):
    tell("agent", agent)
    for message in get_subagent_messages(TASK["session_id"], agent, directory=TASK["directory"]):
        tell("said", message)
