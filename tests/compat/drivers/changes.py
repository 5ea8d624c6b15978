"""The functions that change transcripts on disk, with no engine."""

from __future__ import annotations

import claude_agent_sdk as sdk
from telling import TASK, tell

for name, arguments in TASK["changes"]:
    tell("changed", getattr(sdk, name)(*arguments, directory=TASK["directory"]))
for session in sdk.list_sessions(directory=TASK["directory"]):
    tell("session", session)
    tell("info", sdk.get_session_info(session.session_id, directory=TASK["directory"]))
