"""A session of `parley serve` whose files are behind a workspace server."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.gateway import Server, read_until, user
from tests.helpers.remote_workspace import TOKEN, ServerThread


async def test_a_session_works_in_a_remote_workspace_and_other_kinds_are_refused(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("from the workspace\n")
    workspace = ServerThread(project, tmp_path / "state")
    try:
        async with Server(tmp_path, environment={"PARLEY_WORKSPACE_TOKEN": TOKEN}) as server:
            chosen = {"kind": "remote", "address": f"unix:{workspace.socket}"}
            session = await server.create(workspace=chosen)
            async with await server.connect(f"/sessions/{session}/ws") as client:
                await client.send(user('call Read {"file_path": "a.txt"}\nshow'))
                result = (await read_until(client, "result"))[-1]
            refused, body = await server.request("POST", "/sessions", {"workspace": {"kind": "shared"}})
            _, info = await server.request("GET", f"/sessions/{session}")
    finally:
        workspace.close()
    assert "from the workspace" in result["result"]
    assert info["workspace"]["address"] == chosen["address"]
    assert refused == 400
    assert "'remote' is possible" in str(body)
