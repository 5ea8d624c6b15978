"""Drive `parley acp` with the official Python library of the Agent Client Protocol, as the task says."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from acp import RequestError, connect_to_agent, schema, spawn_agent_process

task: dict[str, Any] = json.loads(sys.argv[1])


def tell(what: str, value: Any) -> None:
    sys.stdout.write(json.dumps([what, value]) + "\n")
    sys.stdout.flush()


class Editor:
    """The client. It answers permission requests as the task says, and tells what it is sent."""

    def __init__(self) -> None:
        self.answers: list[str] = list(task.get("answers", ()))
        self.buffers: dict[str, str] = dict(task.get("buffers", {}))
        """Files with unsaved changes."""
        self.connection: Any = None
        self.session_id = ""

    def on_connect(self, connection: Any) -> None:
        self.connection = connection

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        tell("update", dump(update))
        if "touch_after_output" in task and "terminal_output" in (update.field_meta or {}):
            Path(task["touch_after_output"]).touch()

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

    async def read_text_file(self, path: str, session_id: str, **_: Any) -> Any:
        tell("read", path)
        return schema.ReadTextFileResponse(content=self.buffers.get(path) or Path(path).read_text())

    async def write_text_file(self, content: str, path: str, session_id: str, **_: Any) -> Any:
        tell("wrote", {"path": path, "content": content})
        if task.get("refuses_writes"):
            raise RequestError(-32603, "the buffer is locked")
        self.buffers.pop(path, None)
        Path(path).write_text(content)
        return schema.WriteTextFileResponse()

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


@asynccontextmanager
async def connect(editor: Editor) -> AsyncIterator[tuple[Any, Callable[[], Awaitable[int]]]]:
    """A connection, and how to end it: returns the exit code of the agent."""
    if "gateway" in task:
        from acp.ws.client import create_websocket_stream

        url, headers = task["gateway"]["url"], {"Authorization": f"Bearer {task['gateway']['token']}"}
        transport = await create_websocket_stream(f"{url.replace('http', 'ws')}/acp", headers=headers)
        conn = connect_to_agent(editor, transport, use_unstable_protocol=True)

        async def disconnect() -> int:
            await conn.close()
            return 0

        yield conn, disconnect
        return
    command = [task["engine"], "acp", *task.get("flags", ())]
    started = spawn_agent_process(editor, *command, env=dict(os.environ), use_unstable_protocol=True)
    async with started as (conn, process):
        assert process.stdin is not None
        stdin = process.stdin

        async def end() -> int:
            stdin.close()
            return int(await process.wait())

        yield conn, end


async def main() -> None:
    editor = Editor()
    form: dict[str, Any] = {"elicitation": {"form": {}}} if "form" in task else {}
    async with connect(editor) as (conn, end):
        capabilities = schema.ClientCapabilities.model_validate({**form, **task.get("capabilities", {})})
        tell("result", dump(await conn.initialize(protocol_version=1, client_capabilities=capabilities)))
        for step in task["steps"]:
            try:
                tell("result", dump(await editor.step(*step)))
            except RequestError as exc:
                tell("error", {"code": exc.code, "message": str(exc)})
        tell("exit", await end())


asyncio.run(main())
