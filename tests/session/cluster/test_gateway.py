"""A gateway of a cluster: any gateway reaches any session, and clients do not notice which host runs it."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.cluster import local_cluster


async def test_a_session_is_created_and_prompted_through_any_gateway(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as (cluster, server):
        other = await cluster.add_gateway()
        session = await server.create(cwd=".")
        result = await other.ask(session, "Hi")
        assert result["subtype"] == "success"
        found = await server.get(f"/sessions/{session}")
        assert (found["id"], found["turns"]) == (session, 1)
        listed = await other.get("/sessions")
        assert [row["id"] for row in listed["sessions"]] == [session]
