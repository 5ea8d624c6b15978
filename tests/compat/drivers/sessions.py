"""The functions that read transcripts from disk, with no engine."""

from __future__ import annotations

from claude_agent_sdk import get_session_messages, list_sessions
from telling import TASK, tell

for session in list_sessions(directory=TASK["directory"]):
    tell("session", session)
    for message in get_session_messages(session.session_id, directory=TASK["directory"]):
        tell("entry", message)
