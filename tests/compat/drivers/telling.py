"""What the Python drivers share: the task that comes in, and what the SDK hands out, as JSON lines on stdout."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
from collections.abc import AsyncIterator
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions

# The SDK warns through logging; on stderr the test sees it.
logging.basicConfig(level=logging.WARNING)

TASK: dict[str, Any] = json.loads(sys.argv[1])
ERROR_FIELDS = ("exit_code", "subtype", "result", "errors", "api_error_status", "terminal_reason")


def tell(what: str, value: Any) -> None:
    sys.stdout.write(json.dumps([what, spelled(value)]) + "\n")
    sys.stdout.flush()


def spelled(value: Any) -> Any:
    """Objects of the SDK as JSON, with the names of their classes."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: spelled(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"class": type(value).__name__, **fields}
    return [spelled(item) for item in value] if isinstance(value, list) else value


def tell_error(problem: Exception) -> None:
    known = {name: getattr(problem, name) for name in ERROR_FIELDS if hasattr(problem, name)}
    tell("raised", {"classes": [cls.__name__ for cls in type(problem).__mro__], "text": str(problem), **known})


def options() -> Any:
    return ClaudeAgentOptions(
        cli_path=TASK["engine"],
        include_partial_messages=TASK["partial"],
        stderr=lambda line: tell("stderr", line),
        **TASK.get("options", {}),
    )


async def one_prompt(content: Any) -> AsyncIterator[dict[str, Any]]:
    yield {"type": "user", "message": {"role": "user", "content": content}, "parent_tool_use_id": None}
