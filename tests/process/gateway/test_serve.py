"""A real `parley serve`: sessions, sockets, cursors, questions, restarts."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest
import websockets

from tests.helpers.environment import base_environment
from tests.helpers.forked import run_parley
from tests.helpers.gateway import Server, following, read_until, user
from tests.helpers.patience import PATIENCE_SECONDS

RESULT = '{"type":"result"'
TOUCH = 'call Bash {"command": "touch made", "description": "Make a file"}'


async def wait_for_transcript(folder: Path, text: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            if any(text in path.read_text() for path in folder.glob("config/projects/*/*.jsonl")):
                return
            await asyncio.sleep(0.01)


async def test_a_prompt_over_a_socket_of_a_new_session(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        socket = await server.connect("/ws")
        await socket.send(user("say Hello."))
        lines = await read_until(socket, "result")
        assert [line["type"] for line in lines] == ["system", "assistant", "result"]
        assert lines[-1]["result"] == "Hello."
        await socket.send(user("say Again."))
        assert (await read_until(socket, "result"))[-1]["result"] == "Again."


async def test_a_client_that_comes_back_gets_exactly_what_it_missed(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        session_id = await server.create()
        async with following(server, session_id) as first:
            await server.request("POST", f"/sessions/{session_id}/prompts", {"content": "say One."})
            await first.wait_for(lambda: len(first.results()) == 1)
            seen = list(first.lines)
        await server.request("POST", f"/sessions/{session_id}/prompts", {"content": "say Two."})
        async with following(server, session_id) as late:
            await late.wait_for(lambda: len(late.results()) == 2)
        assert late.lines[: len(seen)] == seen
        assert [number for number, _ in late.lines] == list(range(1, len(late.lines) + 1))
        socket = await server.connect(f"/sessions/{session_id}/ws?numbered=true&after={late.last - 1}")
        frame = await socket.recv()
        assert frame == f"{late.last}\t{late.lines[-1][1]}\n"


async def test_a_slow_viewer_delays_no_one_and_gets_every_stored_line_later(tmp_path: Path) -> None:
    words = "x" * 300_000  # three lines of a turn have them; together they do not fit into sockets and queues
    limits = tmp_path / "limits.toml"
    limits.write_text(f"[limits]\nsend_seconds = {PATIENCE_SECONDS}\n")
    patient = ("--model", "offline", "--config", str(limits), "--ping-seconds", str(PATIENCE_SECONDS))
    async with Server(tmp_path, *patient) as server:
        session_id = await server.create()
        path = f"/sessions/{session_id}/ws?numbered=true&partial=true&after=0"
        slow = await server.connect(path, max_queue=1, ping_interval=0.2, ping_timeout=None)
        async with following(server, session_id) as fast:
            for turn in range(1, 26):
                await server.request("POST", f"/sessions/{session_id}/prompts", {"content": f"say {turn}{words}"})
                await fast.wait_for(lambda turn=turn: sum(line.startswith(RESULT) for _, line in fast.lines) == turn)
            seen: list[tuple[int, str]] = []
            notices: list[str] = []
            async with asyncio.timeout(PATIENCE_SECONDS):
                while len(seen) < len(fast.lines):
                    number, _, line = str(await slow.recv()).rstrip("\n").partition("\t")
                    if number:
                        seen.append((int(number), line))
                    elif line.startswith('{"type":"gateway"'):
                        notices.append(line)
        assert seen == fast.lines
        assert [json.loads(line)["subtype"] for line in notices] == ["resync"] * len(notices) != []


async def test_events_come_over_http_too(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        session_id = await server.create()
        async with following(server, session_id) as viewer:
            await server.request("POST", f"/sessions/{session_id}/prompts", {"content": "say One."})
            await viewer.wait_for(lambda: len(viewer.results()) == 1)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(
            f"GET /sessions/{session_id}/events HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: 1\r\n"
            f"Authorization: Bearer {server.token}\r\n\r\n".encode()
        )
        async with asyncio.timeout(PATIENCE_SECONDS):
            received = b""
            while b'"type":"result"' not in received:
                received += await reader.read(65536)
        writer.close()
        events = b"".join(b"id: %d\ndata: %s\n\n" % (number, line.encode()) for number, line in viewer.lines[1:])
        assert events in received


async def test_every_client_sees_the_prompts_of_the_others(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        session_id = await server.create()
        one = await server.connect(f"/sessions/{session_id}/ws")
        other = await server.connect(f"/sessions/{session_id}/ws")
        await one.send(user("say Hello.", uuid="11111111-1111-4111-8111-111111111111"))
        assert [line["type"] for line in await read_until(one, "result")][:2] == [
            "command_lifecycle",
            "command_lifecycle",
        ]
        seen = await read_until(other, "result")
        assert seen[0]["type"] == "user"
        assert seen[0]["message"]["content"] == "say Hello."


async def test_a_question_goes_to_everyone_and_the_first_answer_counts(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        session_id = await server.create()
        one = await server.connect(f"/sessions/{session_id}/ws")
        other = await server.connect(f"/sessions/{session_id}/ws")
        await one.send(user(TOUCH))
        question = (await read_until(one, "control_request"))[-1]
        assert (await read_until(other, "control_request"))[-1] == question
        _, inbox = await server.request("GET", "/questions")
        assert [found["request_id"] for found in inbox["questions"]] == [question["request_id"]]
        assert inbox["questions"][0]["request"]["input"]["command"] == "touch made"

        answer = {"behavior": "allow", "updatedInput": question["request"]["input"]}
        response = {"subtype": "success", "request_id": question["request_id"], "response": answer}
        line = json.dumps({"type": "control_response", "response": response}) + "\n"
        await other.send(line)
        withdrawn = (await read_until(one, "control_cancel_request"))[-1]
        assert withdrawn["request_id"] == question["request_id"]
        await one.send(line)
        told = await read_until(one, "result")
        assert "decided by 'admin'" in next(one["content"] for one in told if one.get("subtype") == "informational")
        assert (server.root / "made").exists()
        assert (await server.request("GET", "/questions"))[1] == {"questions": []}


async def test_a_question_survives_the_death_of_the_server(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        session_id = await server.create()
        async with following(server, session_id) as viewer:
            await server.request("POST", f"/sessions/{session_id}/prompts", {"content": TOUCH})
            await viewer.wait_for(lambda: any('"can_use_tool"' in line for _, line in viewer.lines))
            await server.kill()
            await server.start()
            _, inbox = await server.request("GET", "/questions")
            (question,) = inbox["questions"]
            path = f"/questions/{session_id}/{question['request_id']}/answer"
            status, decided = await server.request("POST", path, {"behavior": "allow"})
            assert (status, decided["state"], decided["decided_by"]) == (200, "decided", "admin")
            await viewer.wait_for(lambda: bool(viewer.results()))
        assert (server.root / "made").exists()
        assert [result["subtype"] for result in viewer.results()] == ["success"]


async def test_a_turn_that_the_server_did_not_survive_has_a_result(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        session_id = await server.create()
        async with following(server, session_id, partial=True) as viewer:
            await server.request("POST", f"/sessions/{session_id}/prompts", {"content": "wait 600\nsay Late."})
            await wait_for_transcript(tmp_path, "say Late.")  # a prompt that is not in it would run again
            await server.kill()
            await server.start()
            await viewer.wait_for(lambda: bool(viewer.results()))
            assert viewer.results()[0]["errors"] == ["the server stopped during this turn"]
            await server.request("POST", f"/sessions/{session_id}/prompts", {"content": "say Next."})
            await viewer.wait_for(lambda: len(viewer.results()) == 2)
        assert viewer.results()[1]["result"] == "Next."


async def test_a_prompt_that_is_sent_twice_runs_once(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        session_id = await server.create()
        body = {"content": "say Once.", "uuid": "22222222-2222-4222-8222-222222222222"}
        async with following(server, session_id) as viewer:
            for _ in range(3):
                status, _ = await server.request("POST", f"/sessions/{session_id}/prompts", body)
                assert status == 202
            await viewer.wait_for(lambda: bool(viewer.results()))
            await server.request("POST", f"/sessions/{session_id}/prompts", body)
            await server.request("POST", f"/sessions/{session_id}/prompts", {"content": "say Other."})
            await viewer.wait_for(lambda: len(viewer.results()) == 2)
        assert [result["result"] for result in viewer.results()] == ["Once.", "Other."]
        assert sum('"say Once."' in line for _, line in viewer.lines) == 1


async def test_control_requests_over_http_and_sockets_do_not_mix(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        session_id = await server.create()
        sockets = [await server.connect(f"/sessions/{session_id}/ws") for _ in range(2)]
        request = {"type": "control_request", "request_id": "1", "request": {"subtype": "get_session_cost"}}
        for socket in sockets:
            await socket.send(json.dumps(request) + "\n")
        for socket in sockets:
            (reply,) = await read_until(socket, "control_response")
            assert (reply["response"]["request_id"], reply["response"]["subtype"]) == ("1", "success")
        status, reply = await server.request("POST", f"/sessions/{session_id}/control", {"subtype": "get_session_cost"})
        assert status == 200
        assert "response" in reply
        status, refused = await server.request("POST", f"/sessions/{session_id}/control", {"subtype": "no_such"})
        assert (status, refused["error"]["code"]) == (400, "unsupported_request")


async def test_sigterm_lets_the_turn_finish_and_tells_the_clients(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        session_id = await server.create()
        socket = await server.connect(f"/sessions/{session_id}/ws")
        await socket.send(user("wait 0.5\nsay Done."))
        await read_until(socket, "system")
        stopping = asyncio.create_task(server.kill(signal.SIGTERM))
        lines = await read_until(socket, "result")
        assert [line["type"] for line in lines if line.get("subtype") == "worker_shutting_down"] == ["system"]
        assert lines[-1]["result"] == "Done."
        with pytest.raises(websockets.ConnectionClosed):
            await read_until(socket, "never")
        assert await stopping == 0


async def test_a_question_stays_open_when_the_server_is_stopped(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        session_id = await server.create()
        socket = await server.connect(f"/sessions/{session_id}/ws")
        await socket.send(user(TOUCH))
        question = (await read_until(socket, "control_request"))[-1]
        assert await server.kill(signal.SIGTERM) == 0
        await server.start()
        _, inbox = await server.request("GET", "/questions")
        assert [found["request_id"] for found in inbox["questions"]] == [question["request_id"]]
        path = f"/questions/{session_id}/{question['request_id']}/answer"
        async with following(server, session_id) as viewer:
            assert (await server.request("POST", path, {"behavior": "allow"}))[0] == 200
            await viewer.wait_for(lambda: bool(viewer.results()))
        assert (server.root / "made").exists()


async def test_a_session_in_a_process_of_its_own_behaves_alike(tmp_path: Path) -> None:
    async with Server(tmp_path, "--model", "offline", "--isolation", "process") as server:
        session_id = await server.create()
        async with following(server, session_id) as viewer:
            await server.request("POST", f"/sessions/{session_id}/prompts", {"content": TOUCH})
            await viewer.wait_for(lambda: any('"can_use_tool"' in line for _, line in viewer.lines))
            await server.kill()
            await server.start()
            (question,) = (await server.request("GET", "/questions"))[1]["questions"]
            path = f"/questions/{session_id}/{question['request_id']}/answer"
            assert (await server.request("POST", path, {"behavior": "allow"}))[0] == 200
            await viewer.wait_for(lambda: bool(viewer.results()))
        assert (server.root / "made").exists()


async def test_modules_of_the_working_directory_are_not_imported(tmp_path: Path) -> None:
    async with Server(tmp_path, "--model", "offline", "--isolation", "process") as server:
        for name in ("parley", "msgspec", "json", "sitecustomize"):
            (server.root / f"{name}.py").write_text("open('ran', 'w')")
        session_id = await server.create()
        async with following(server, session_id) as viewer:
            await server.request("POST", f"/sessions/{session_id}/prompts", {"content": "say Safe."})
            await viewer.wait_for(lambda: bool(viewer.results()))
        assert viewer.results()[0]["result"] == "Safe."
        assert not (server.root / "ran").exists()


async def test_an_idle_session_is_unloaded_and_comes_back(tmp_path: Path) -> None:
    async with Server(tmp_path, "--model", "offline", "--idle-seconds", "0") as server:
        session_id = await server.create()
        await server.request("POST", f"/sessions/{session_id}/prompts", {"content": "say One."})
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await server.request("GET", f"/sessions/{session_id}"))[1]["is_loaded"]:  # noqa: ASYNC110  # it is a process
                await asyncio.sleep(0.05)
        async with following(server, session_id) as viewer:
            await server.request("POST", f"/sessions/{session_id}/prompts", {"content": "say Two."})
            await viewer.wait_for(lambda: len(viewer.results()) == 2)
        assert [result["result"] for result in viewer.results()] == ["One.", "Two."]


WRONG_REQUESTS: list[tuple[str, str, object, int, str]] = [
    ("GET", "/sessions/nope", None, 404, "unknown_session"),
    ("POST", "/sessions", {"cwd": "/"}, 403, "outside_roots"),
    ("POST", "/sessions", {"cwd": "../.."}, 403, "outside_roots"),
    ("POST", "/sessions", {"cwd": "missing"}, 404, "unknown_directory"),
    ("POST", "/sessions", {"cwd": 7}, 400, "invalid_options"),
    ("POST", "/sessions", {"options": {"modle": "x"}}, 400, "invalid_options"),
    ("POST", "/sessions", {"options": {"args": ["--bogus"]}}, 400, "invalid_options"),
    ("GET", "/nope", None, 404, "not_found"),
    ("GET", "/sessions/", None, 404, "not_found"),
    ("PUT", "/sessions", {}, 405, "method_not_allowed"),
    ("POST", "/sessions", [1], 400, "invalid_body"),
    ("POST", "/tokens", {"name": "x", "scopes": ["all"]}, 400, "invalid_body"),
    *(("POST", "/tokens", {"name": name, "scopes": []}, 409, "name_taken") for name in ("admin", "local", "server")),
    ("DELETE", "/tokens/nobody", None, 404, "unknown_token"),
]


async def test_wrong_requests_have_a_code(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        for method, path, body, status, code in WRONG_REQUESTS:
            found, answer = await server.request(method, path, body)
            assert (found, answer["error"]["code"]) == (status, code), (method, path, body)
            assert (await server.request("GET", "/sessions"))[0] == 200


async def test_wrong_tokens_and_cursors_close_the_socket_with_a_code(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        session_id = await server.create()
        for path, code in (
            (f"/sessions/{session_id}/ws?after=99", 4409),
            (f"/sessions/{session_id}/ws?after=-1", 4400),
            ("/sessions/nope/ws", 4404),
        ):
            socket = await server.connect(path)
            with pytest.raises(websockets.ConnectionClosed) as closed:
                await socket.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == code
        with pytest.raises(websockets.InvalidStatus):
            await server.connect("/ws", token="wrong")


async def run_command(server: Server, *argv: str, token: str | None = None) -> tuple[int, str, str]:
    given = server.token if token is None else token
    environment = {**base_environment(), "HOME": str(server.folder), "PARLEY_TOKEN": given}
    done = await asyncio.to_thread(run_parley, argv, cwd=".", env=environment)
    return done.returncode, done.stdout, done.stderr


async def test_the_command_line_reads_sessions_of_a_gateway(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        session_id = await server.create(title="The \x1b[31mred\x1b[0m one")
        async with following(server, session_id) as viewer:
            await server.request("POST", f"/sessions/{session_id}/prompts", {"content": "say Hello."})
            await viewer.wait_for(lambda: bool(viewer.results()))
        url = f"{server.url}/sessions/{session_id}"
        code, out, _ = await run_command(server, "attach", url, "--no-follow", "--numbered", "--after", "1")
        assert code == 0
        assert out.startswith("".join(f"{number}\t{line}\n" for number, line in viewer.lines[1:]))
        code, out, _ = await run_command(server, "sessions", "list", "--server", server.url)
        assert code == 0
        assert session_id in out
        assert "\x1b" not in out
        code, out, _ = await run_command(server, "sessions", "fork", session_id, "--server", server.url)
        assert code == 0
        assert (await server.ask(out.strip(), "say More."))["result"] == "More."
        for argv, token, text in (
            (("sessions", "fork", "nope", "--server", server.url), None, "there is no session 'nope'"),
            (("attach", f"{server.url}/sessions/nope"), None, "there is no session 'nope'"),
            (("attach", url), "wrong", "the token is unknown"),
            (("attach", url), "", "a token is required: set PARLEY_TOKEN"),
            (("attach", server.url), None, "the URL of a session is"),
        ):
            code, out, errors = await run_command(server, *argv, token=token)
            assert code != 0
            assert out == ""
            assert text in errors
