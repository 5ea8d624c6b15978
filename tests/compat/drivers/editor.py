"""Drive `parley acp` with the official Python library of the Agent Client Protocol, as the task says."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from acp import RequestError, schema, spawn_agent_process

task: dict[str, Any] = json.loads(sys.argv[1])


def tell(what: str, value: Any) -> None:
    sys.stdout.write(json.dumps([what, value]) + "\n")
    sys.stdout.flush()


class Editor:
    """The client. It answers permission requests as the task says, and tells what it is sent."""

    def __init__(self) -> None:
        self.answers: list[str] = list(task.get("answers", ()))
        self.connection: Any = None
        self.session_id = ""

    def on_connect(self, connection: Any) -> None:
        self.connection = connection

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        tell("update", dump(update))

    async def request_permission(self, session_id: str, tool_call: Any, options: list[Any], **_: Any) -> Any:
        tell("asked", {"toolCall": dump(tool_call), "options": [dump(option) for option in options]})
        wanted = self.answers.pop(0)
        if wanted in ("cancel", "cancel without an answer"):
            await self.connection.cancel(session_id=session_id)
            if wanted == "cancel without an answer":
                await asyncio.Event().wait()
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        chosen = next(option.option_id for option in options if wanted in (option.kind, option.option_id))
        return schema.RequestPermissionResponse(outcome=schema.AllowedOutcome(outcome="selected", option_id=chosen))

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        tell("form", {"message": message, "mode": dump(mode)})
        return schema.AcceptElicitationResponse(action="accept", content=task["form"])

    async def step(self, name: str, *given: Any) -> Any:
        conn, cwd = self.connection, os.getcwd()
        here = {"cwd": cwd, "session_id": self.session_id, "mcp_servers": []}
        match name:
            case "new":
                servers = [schema.McpServerStdio(**server) for server in (given[0] if given else [])]
                made = await conn.new_session(cwd=cwd, mcp_servers=servers)
                self.session_id = made.session_id
                return made
            case "prompt":
                return await conn.prompt(session_id=self.session_id, prompt=given[0])
            case "mode":
                return await conn.set_session_mode(session_id=self.session_id, mode_id=given[0])
            case "config":
                return await conn.set_config_option(session_id=self.session_id, config_id=given[0], value=given[1])
            case "load":
                return await conn.load_session(**here)
            case "resume":
                return await conn.resume_session(**here)
            case "fork":
                return await conn.fork_session(**here)
            case "list":
                return await conn.list_sessions(cwd=cwd)
            case "close":
                return await conn.close_session(session_id=self.session_id)
            case _:  # a method that the library has no name for
                return await conn._conn.send_request(
                    name, {"sessionId": self.session_id, **(given[0] if given else {})}
                )


def dump(value: Any) -> Any:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True) if hasattr(value, "model_dump") else value


async def main() -> None:
    editor = Editor()
    elicitation = schema.ElicitationCapabilities(form=schema.ElicitationFormCapabilities()) if "form" in task else None
    command = [task["engine"], "acp", *task.get("flags", ())]
    started = spawn_agent_process(editor, *command, env=dict(os.environ), use_unstable_protocol=True)
    async with started as (conn, process):
        capabilities = schema.ClientCapabilities(elicitation=elicitation)
        tell("result", dump(await conn.initialize(protocol_version=1, client_capabilities=capabilities)))
        for step in task["steps"]:
            try:
                tell("result", dump(await editor.step(*step)))
            except RequestError as exc:
                tell("error", {"code": exc.code, "message": str(exc)})
        assert process.stdin is not None
        process.stdin.close()
        tell("exit", await process.wait())


asyncio.run(main())
