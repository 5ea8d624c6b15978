"""What the console reads of one session: lines, prompts, turns, files, rewinds, and what a rule would have decided."""

from __future__ import annotations

import json
import signal
import sqlite3
import time
from pathlib import Path
from urllib.parse import quote

import pytest

from parley.models.script import Script, ScriptedTurn
from parley.stores.request_usage import FIRST, UNKNOWN
from tests.helpers.gateway import Server, following, open_question, run_turn

SCRIPT = """
[[turn]]
text = "Looked it up."
usage = { input_tokens = 1000, output_tokens = 100, cache_read_input_tokens = 500 }
"""


async def test_lines_come_in_pages_with_their_times(tmp_path: Path) -> None:
    before = time.time()
    async with Server(tmp_path) as server:
        session_id = await server.create()
        for number in range(3):
            await run_turn(server, session_id, f"say Answer {number}.")
        async with following(server, session_id) as viewer:
            stored = (await server.get(f"/sessions/{session_id}"))["last_line"]
            await viewer.wait_for(lambda: viewer.last == stored)
        newest = await server.get(f"/sessions/{session_id}/lines?limit=4")
        assert (newest["first"], newest["last"]) == (viewer.last - 3, viewer.last)
        found: list[list[object]] = []
        start = viewer.last + 1
        while start > 1:
            page = await server.get(f"/sessions/{session_id}/lines?limit=4&before={start}")
            found = page["lines"] + found
            start = page["first"]
        times = [float(str(at)) for _, at, _ in found]
        empty = await server.get(f"/sessions/{session_id}/lines?before=1")
    assert [(number, line) for number, _, line in found] == [(n, json.loads(line)) for n, line in viewer.lines]
    assert times == sorted(times)
    assert before <= times[0]
    assert times[-1] <= time.time()
    assert empty == {"lines": [], "first": 0, "last": 0}


async def test_a_permalink_finds_its_page_also_after_a_restart(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        session_id = await server.create()
        wanted = await run_turn(server, session_id, "say The one.")
        for number in range(3):
            await run_turn(server, session_id, f"say Answer {number}.")
        path = f"/sessions/{session_id}/lines?limit=3&around_uuid={wanted}"
        page = await server.get(path)
        assert any(line.get("uuid") == wanted for _, _, line in page["lines"])
        await server.kill(signal.SIGTERM)
        await server.start()
        assert await server.get(path) == page
        for uuid in ("nope", wanted[:-1], quote('"\\\n')):
            status, answer = await server.request("GET", f"/sessions/{session_id}/lines?around_uuid={uuid}")
            assert (status, answer["error"]["code"]) == (404, "unknown_message")
        for query in ("before=x", "before=-1", "before=1.5"):
            status, answer = await server.request("GET", f"/sessions/{session_id}/lines?{query}")
            assert (status, answer["error"]["code"]) == (400, "invalid_cursor")


async def test_the_index_lists_the_prompts(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        session_id = await server.create()
        first = await run_turn(server, session_id, 'say One.\ncall Bash {"command": "true"}\nshow')
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
        body = {"content": [{"type": "text", "text": "say  Two."}, image], "uuid": "2" * 8}
        await server.request("POST", f"/sessions/{session_id}/prompts", body)
        index = await server.get(f"/sessions/{session_id}/index")
        lines = (await server.get(f"/sessions/{session_id}/lines"))["lines"]
    assert [(row["uuid"], row["text"]) for row in index] == [
        (first, 'say One. call Bash {"command": "true"} show'),
        ("2" * 8, "say Two."),
    ]
    by_number = {number: (at, line) for number, at, line in lines}
    assert [by_number[row["number"]][1]["uuid"] for row in index] == [first, "2" * 8]
    assert [by_number[row["number"]][0] for row in index] == [row["time"] for row in index]


async def test_turns_and_costs(tmp_path: Path) -> None:
    (tmp_path / "script.toml").write_text('at_end = "repeat"' + SCRIPT)
    async with Server(tmp_path, "--model", f"scripted:{tmp_path}/script.toml") as server:
        session_id = await server.create(title="Paid")
        other = await server.create()
        for _ in range(2):
            await run_turn(server, session_id, "go")
        await run_turn(server, other, "go")
        turns = await server.get(f"/sessions/{session_id}/turns")
        costs = await server.get("/costs?days=1")
        await server.request("DELETE", f"/sessions/{session_id}")
        after = await server.get("/costs")
        status, answer = await server.request("GET", "/costs?days=9999999")
    assert [(turn["input_tokens"], turn["output_tokens"], turn["cache_read_tokens"]) for turn in turns] == [
        (1000, 100, 500)
    ] * 2
    assert all(turn["model"].startswith("scripted") and not turn["is_error"] for turn in turns)
    assert {row["id"]: (row["title"], row["turns"], row["output_tokens"]) for row in costs["by_session"]} == {
        session_id: ("Paid", 2, 200),
        other: ("go", 1, 100),
    }
    [model], [day] = costs["by_model"], costs["by_day"]
    assert (model["turns"], model["input_tokens"], day["turns"], day["cache_read_tokens"]) == (3, 3000, 3, 1500)
    assert day["day"] == time.strftime("%Y-%m-%d", time.gmtime())
    assert costs["budget"] == {"usd": None, "used": 0.0}
    assert after["by_session"] == costs["by_session"]
    assert (status, answer["error"]["code"]) == (400, "invalid_query")


async def test_requests_have_the_figures_of_parley_context(tmp_path: Path) -> None:
    usage = [(0, 5000), (2000, 3000)]
    turns = [
        ScriptedTurn(
            text="Yes.",
            usage={"input_tokens": 3, "cache_read_input_tokens": read, "cache_creation_input_tokens": written},
        )
        for read, written in usage
    ]
    (tmp_path / "script.json").write_bytes(Script(turns).to_json())
    async with Server(tmp_path, "--model", f"scripted:{tmp_path}/script.json") as server:
        session_id = await server.create()
        unused = await server.get(f"/sessions/{session_id}/requests")
        for _ in usage:
            await run_turn(server, session_id, "go")
        first, second = await server.get(f"/sessions/{session_id}/requests")
        _, made = await server.request("POST", "/tokens", {"name": "ann", "tenant": "other", "scopes": ["view"]})
        status, refused = await server.request("GET", f"/sessions/{session_id}/requests", token=made["token"])
    assert unused == []
    names = ("read", "written", "fresh", "missed", "reason")
    assert [first[name] for name in names] == [0, 5000, 3, 0, FIRST]
    assert [second[name] for name in names] == [2000, 3000, 3, 3000, UNKNOWN]
    assert first["model"].startswith("scripted")
    assert (status, refused["error"]["code"]) == (404, "unknown_session")


async def test_a_fork_is_not_paid_for_twice(tmp_path: Path) -> None:
    (tmp_path / "script.toml").write_text('at_end = "repeat"' + SCRIPT)
    async with Server(tmp_path, "--model", f"scripted:{tmp_path}/script.toml") as server:
        session_id = await server.create(title="First")
        await run_turn(server, session_id, "go")
        _, made = await server.request("POST", f"/sessions/{session_id}/fork", {})
        assert await server.get(f"/sessions/{made['session_id']}/turns") == []
        await run_turn(server, made["session_id"], "go on")
        costs = await server.get("/costs")
        prompts = await server.get(f"/sessions/{made['session_id']}/index")
        [found] = (await server.get("/sessions?search=go+on"))["sessions"]
    assert {row["id"]: row["output_tokens"] for row in costs["by_session"]} == {
        session_id: 100,
        made["session_id"]: 100,
    }
    assert [prompt["text"] for prompt in prompts] == ["go", "go on"]
    assert (found["id"], found["title"]) == (made["session_id"], "First (fork)")


async def test_files_are_completed_inside_the_working_directory(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        (tmp_path / "notes-outside.txt").write_text("")
        for name in ("notes.txt", "src/notes_too.py", "ignored/notes.log", ".git/HEAD"):
            (server.root / name).parent.mkdir(exist_ok=True)
            (server.root / name).write_text("")
        (server.root / ".gitignore").write_text("ignored/\n")
        session_id = await server.create()
        found = await server.get(f"/sessions/{session_id}/files?query=notes")
        assert found == {"files": ["notes.txt", "src/notes_too.py"]}
        assert (await server.get(f"/sessions/{session_id}/files?query=notes&limit=1"))["files"] == ["notes.txt"]
        assert (await server.get(f"/sessions/{session_id}/files?query=..%2Fnotes"))["files"] == []


async def test_a_rewind_is_shown_before_it_is_done(tmp_path: Path) -> None:
    async with Server(tmp_path, "--model", "offline", "--permission-mode", "acceptEdits") as server:
        (server.root / "notes.txt").write_text("one\ntwo\n")
        session_id = await server.create()
        edit = {"file_path": f"{server.root}/notes.txt", "old_string": "two", "new_string": "three"}
        write = {"file_path": f"{server.root}/new.txt", "content": "new"}
        read = json.dumps({"file_path": edit["file_path"]})
        uuid = await run_turn(
            server,
            session_id,
            f"call Read {read}\nshow\ncall Edit {json.dumps(edit)}\ncall Write {json.dumps(write)}\nsay Done.",
        )
        shown = (await server.get(f"/sessions/{session_id}/rewind?uuid={uuid}"))["files"]
        assert (server.root / "notes.txt").read_text() == "one\nthree\n"
        status, answer = await server.request("GET", f"/sessions/{session_id}/rewind?uuid=nope")
    assert [(row["path"], row["status"]) for row in shown] == [
        (f"{server.root}/notes.txt", "modified"),
        (f"{server.root}/new.txt", "deleted"),
    ]
    assert shown[0]["diff"].splitlines()[2:] == ["@@ -1,2 +1,2 @@", " one", "-three", "+two"]
    assert shown[1]["diff"].splitlines()[2:] == ["@@ -1 +0,0 @@", "-new", "\\ No newline at end of file"]
    assert (status, answer["error"]["message"]) == (400, "No file checkpoint found for this message.")


async def test_a_rule_is_tried_on_past_calls(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        past, session_id = await server.create(), await server.create()
        async with following(server, past) as viewer:
            calls = ["git tag one", "git tag two && touch x", "ls"]
            content = "\n".join(f"call Bash {json.dumps({'command': command})}" for command in calls)
            await server.request("POST", f"/sessions/{past}/prompts", {"content": f"{content}\nsay Done."})
            for _ in range(2):
                asked = await open_question(server, past)
                denial = {"behavior": "deny", "message": "No."}
                await server.request("POST", f"/questions/{past}/{asked['request_id']}/answer", denial)
            await viewer.wait_for(viewer.results)
        prompt = 'call Bash {"command": "git tag three"}'
        await server.request("POST", f"/sessions/{session_id}/prompts", {"content": prompt})
        question = await open_question(server, session_id)
        path = f"/questions/{session_id}/{question['request_id']}/simulate"
        status, found = await server.request("POST", path, {"rule": "Bash(git tag *)", "behavior": "allow"})
        _, denied = await server.request("POST", path, {"rule": "Bash(ls)", "behavior": "deny"})
        lines = {number: line for number, _, line in (await server.get(f"/sessions/{past}/lines"))["lines"]}
        for body in ({}, {"rule": ""}, {"rule": "Bash(x", "behavior": "allow"}, {"rule": "Bash", "behavior": "ask"}):
            refused, answer = await server.request("POST", path, body)
            assert (refused, answer["error"]["code"]) == (400, "invalid_body"), body
        missing = f"/questions/{session_id}/nope/simulate"
        assert (await server.request("POST", missing, {"rule": "Bash"}))[1]["error"]["code"] == "unknown_question"
    assert status == 200
    assert [(row["session"], row["tool"], row["input_summary"]) for row in found["would_allow"]] == [
        (session_id, "Bash", "git tag three"),
        (past, "Bash", "git tag one"),
    ]
    assert (found["rule"], found["would_deny"]) == ("Bash(git tag *)", [])
    assert (found["would_still_ask"], found["checked"]) == (1, 4)
    number = found["would_allow"][1]["number"]
    assert lines[number]["message"]["content"][0]["input"]["command"] == "git tag one"
    assert [row["input_summary"] for row in denied["would_deny"]] == ["ls"]


async def test_the_state_of_an_older_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "gateway.db").write_bytes(b"old")
    server = Server(tmp_path, "--state", str(state), "--model", "offline")
    with pytest.raises(AssertionError, match="has the state of an older version, which this Parley does not read; use"):
        await server.start()
    assert [(path.name, path.read_bytes()) for path in state.iterdir()] == [("gateway.db", b"old")]


async def test_projections_of_another_version_are_made_again(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with Server(tmp_path, "--state", str(state), "--model", "offline") as server:
        session_id = await server.create()
        await run_turn(server, session_id, "say The zebra was here.")
        before = await server.get("/sessions?search=zebra")
    with sqlite3.connect(state / "projections.db") as database:
        database.execute("PRAGMA user_version=99")
    database.close()
    async with Server(tmp_path, "--state", str(state), "--model", "offline") as server:
        after = await server.get("/sessions?search=zebra")
    for page in (before, after):
        for info in page["sessions"]:
            del info["is_loaded"], info["last_line"], info["clients"], info["state"]  # of the moment
    assert after == before
    assert after["total"] == 1
