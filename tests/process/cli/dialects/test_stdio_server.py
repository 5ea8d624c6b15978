"""`--stdio` through the real executable: two dialects, one conversation per database."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.process.cli.conftest import PARLEY

Json = dict[str, Any]
OFFLINE = ("--db", "agent.db", "--model", "offline")
STATUS = {"type": "control", "action": "status"}
INTERRUPT = {"type": "control", "action": "interrupt"}
INITIALIZE = {"type": "control_request", "request_id": "1", "request": {"subtype": "initialize"}}


def prompt(text: Any, **fields: Any) -> Json:
    return {"type": "user", "message": {"role": "user", "content": text}, **fields}


def call(method: str, id: Any, **params: Any) -> Json:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def lines(*said: Json) -> str:
    return "".join(json.dumps(line) + "\n" for line in said)


def read(done: subprocess.CompletedProcess[str]) -> list[Json]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def results(found: list[Json]) -> list[Json]:
    inner = [line.get("result", line) if "jsonrpc" in line else line for line in found]
    return [line for line in inner if line.get("type") == "result"]


def test_the_server_of_the_document_starts_and_stays_for_the_next_prompt(run: Any) -> None:
    done = run("--stdio", *OFFLINE, stdin=lines(prompt("say One", session_id="s1"), prompt("say Two")), IS_SANDBOX="1")

    assert [line["result"] for line in results(read(done))] == ["One", "Two"]
    assert (done.returncode, done.stderr) == (0, "")


def test_the_parley_miriad_executable_behaves_the_same(run: Any, tmp_path: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [f"{PARLEY}-miriad", *OFFLINE],
        input=lines(prompt("say Hi")),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        timeout=60,
        check=True,
    )

    assert [line["result"] for line in results(read(done))] == ["Hi"]


def test_a_host_that_cannot_be_asked_is_not_taken_for_one_that_left(run: Any) -> None:
    text = 'call Write {"file_path": "a.txt", "content": "hi"}\nshow'
    asking = ("--permission-mode", "default", "--permission-prompt-tool", "stdio")
    done = run("--stdio", *asking, *OFFLINE, stdin=lines(prompt(text)))

    assert "there is no one to ask" in json.loads(done.stdout.splitlines()[-1])["result"]


def test_a_tool_runs_without_being_asked_about_and_is_announced_before(run: Any) -> None:
    text = 'call Bash {"command": "echo hi"}\nshow'
    done = run("--stdio", *OFFLINE, stdin=lines(prompt(text)), IS_SANDBOX="1")

    kinds = [(line["type"], line.get("subtype")) for line in read(done)]
    assert kinds == [("assistant", None), ("system", "tool_result"), ("assistant", None), ("result", "success")]


@pytest.mark.skipif(os.geteuid() != 0, reason="it is about root")
def test_root_is_informed_that_nothing_is_allowed_by_itself(run: Any) -> None:
    done = run("--stdio", *OFFLINE, stdin=lines(prompt('call Bash {"command": "touch x"}\nshow')))

    (output,) = [line["tool_result"] for line in read(done) if line.get("subtype") == "tool_result"]
    assert output["is_error"] is True
    assert done.stderr.count("root cannot bypass permissions") == 1


def test_a_mode_that_is_given_counts(run: Any) -> None:
    argv = ("--stdio", *OFFLINE, "--permission-mode", "dontAsk")
    done = run(*argv, stdin=lines(prompt('call Bash {"command": "touch x"}\nshow')), IS_SANDBOX="1")

    (output,) = [line["tool_result"] for line in read(done) if line.get("subtype") == "tool_result"]
    assert output["is_error"] is True


def test_a_database_holds_one_conversation_with_one_id(run: Any, tmp_path: Path) -> None:
    first = read(run("--stdio", *OFFLINE, stdin=lines(STATUS, prompt("say One"))))
    (tmp_path / "elsewhere").mkdir()
    second = read(run("--stdio", *OFFLINE, stdin=lines(STATUS)))

    assert first[0] == {**first[0], "running": False, "queued_messages": 0}
    assert first[0]["session_id"] == first[-1]["session_id"] == second[0]["session_id"]
    assert second == [first[0]]


def test_the_id_is_that_of_the_database_before_anything_was_said_and_for_everybody(run: Any) -> None:
    before = [read(run("--stdio", *OFFLINE, stdin=lines(STATUS)))[0]["session_id"] for _ in range(2)]
    done = run("--stdio", *OFFLINE, stdin=lines(prompt("say One")))

    assert {line["session_id"] for line in results(read(done))} == set(before)


def test_another_session_in_the_database_does_not_take_the_place_of_the_conversation(run: Any) -> None:
    own = read(run("--stdio", *OFFLINE, stdin=lines(prompt("say One"))))[-1]["session_id"]
    other = json.loads(run("-p", "--output-format", "json", *OFFLINE, "say Two").stdout)["session_id"]

    assert other != own
    assert read(run("--stdio", *OFFLINE, stdin=lines(STATUS)))[0]["session_id"] == own


def test_a_session_that_was_in_the_database_before_is_its_conversation(run: Any) -> None:
    other = json.loads(run("-p", "--output-format", "json", *OFFLINE, "say One").stdout)["session_id"]

    assert read(run("--stdio", *OFFLINE, stdin=lines(STATUS)))[0]["session_id"] == other


def test_status_is_answered_without_a_look_at_what_was_said(run: Any, tmp_path: Path) -> None:
    """It must not read a large database; here there is none to read."""
    own = read(run("--stdio", *OFFLINE, stdin=lines(STATUS, prompt("say One"))))[0]["session_id"]
    with sqlite3.connect(tmp_path / "agent.db") as database:
        database.execute("DROP TABLE parley_messages")
    database.close()

    done = run("--stdio", *OFFLINE, stdin=lines(STATUS))

    assert [line["session_id"] for line in read(done)] == [own]
    assert done.returncode == 0


def test_nothing_of_the_engine_is_loaded_for_a_status(tmp_path: Path, environment: dict[str, str]) -> None:
    program = (
        "import sys; from parley.cli.main import main; main(sys.argv[1:]); sys.stderr.write(' '.join(sys.modules))"
    )
    done = subprocess.run(
        [str(Path(PARLEY).with_name("python")), "-c", program, "--stdio", *OFFLINE],
        input=lines(STATUS),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        timeout=60,
        check=True,
    )

    assert not {"asyncio", "parley.engine.session.session", "parley.cli.run"} & set(done.stderr.split())
    assert read(done)[0]["subtype"] == "status"


def test_a_last_line_without_its_end_is_answered(run: Any) -> None:
    assert [line["subtype"] for line in read(run("--stdio", *OFFLINE, stdin=json.dumps(STATUS)))] == ["status"]
    assert len(results(read(run("--stdio", *OFFLINE, stdin=json.dumps(prompt("say Hi")))))) == 1


@pytest.mark.parametrize("argv", [["--stdio"], ["--dialect", "miriad"]])
def test_a_host_that_says_nothing_leaves_nothing_behind(run: Any, tmp_path: Path, argv: list[str]) -> None:
    done = run(*argv, *OFFLINE)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tmp_path / "agent.db").exists()


def test_bad_lines_are_answered_and_the_next_prompt_is_run(run: Any) -> None:
    bad = b'no json\n[]\n\xff\n{"type":"dance"}\n{"type":"user"}\n' + lines(prompt("say Hi")).encode()
    found = read(run("--stdio", *OFFLINE, stdin=bad))

    assert [line["subtype"] for line in found if line["type"] == "system"] == [*["error"] * 4, "queued"]
    assert [line["subtype"] for line in results(found)] == ["error", "success"]


def test_a_line_that_is_too_long_is_answered(run: Any) -> None:
    long = b'{"type":"control","action":"' + b"x" * (33 * 1024 * 1024) + b'"}\n'
    found = read(run("--stdio", *OFFLINE, stdin=lines(STATUS).encode() + long + lines(prompt("say Hi")).encode()))

    assert [line.get("subtype") for line in found] == ["status", "error", None, "success"]


def test_a_database_that_is_in_use_is_reported_as_a_result(
    tmp_path: Path, run: Any, environment: dict[str, str]
) -> None:
    holder = subprocess.Popen(
        [PARLEY, "--stdio", *OFFLINE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path, env=environment
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        holder.stdin.write(lines(prompt("say One")).encode())
        holder.stdin.flush()
        while json.loads(holder.stdout.readline())["type"] != "result":
            pass

        done = run("--stdio", *OFFLINE, stdin=lines(prompt("say Two", session_id="s2")))
        over_rpc = run("--stdio", *OFFLINE, stdin=lines(call("run", "r1", prompt="say Two")))
    finally:
        holder.communicate(timeout=60)

    (line,) = read(done)
    assert (line["type"], line["subtype"], line["is_error"]) == ("result", "error", True)
    assert done.returncode == 1
    (refused,) = read(over_rpc)
    assert (refused["id"], refused["error"]["code"]) == ("r1", -32602)
    assert holder.returncode == 0


def test_a_file_that_is_not_a_database_is_reported(run: Any, tmp_path: Path) -> None:
    (tmp_path / "agent.db").write_text("this is not a database, and long enough to be looked at" * 50)

    done = run("--stdio", *OFFLINE, stdin=lines(prompt("say Hi")))

    assert [line["subtype"] for line in results(read(done))] == ["error"]
    assert "agent.db" in done.stderr
    assert done.returncode == 1


def test_a_wrong_command_line_is_reported_to_the_one_who_waits(run: Any) -> None:
    argv = ("--stdio", "--db", "agent.db", "--model", "scripted:nowhere.toml")
    done = run(*argv, stdin=lines(STATUS, prompt("say Hi")))
    over_rpc = run(*argv, stdin=lines(call("run", 1, prompt="say Hi")))

    status, ended = read(done)
    assert (status["subtype"], ended["subtype"]) == ("status", "error")
    assert "nowhere.toml" in ended["result"]
    assert [line["error"]["code"] for line in read(over_rpc)] == [-32602]
    assert (done.returncode, over_rpc.returncode) == (1, 1)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ([call("run", 1, prompt="x"), call("run", 2, prompt="y"), call("cancel", 3), call("status", 4)], [1, 2, 3, 4]),
        ([prompt("x"), prompt("y"), INTERRUPT, STATUS], ["error", "error", "error", "status"]),
        ([prompt(5), prompt("y", mcp_servers={}), STATUS], ["error", "error", "error", "status"]),
        ([INITIALIZE, prompt("x")], [None, "error"]),
    ],
    ids=["jsonrpc", "miriad", "bad lines", "a request"],
)
def test_without_a_session_every_line_that_came_is_answered(
    run: Any, tmp_path: Path, said: list[Json], wanted: list[Any]
) -> None:
    (tmp_path / "agent.db").write_text("this is not a database, and long enough to be looked at" * 50)

    done = run("--stdio", *OFFLINE, stdin=lines(*said))

    assert [line.get("id", line.get("subtype")) for line in read(done)] == wanted
    assert done.returncode == 1


@pytest.mark.parametrize("said", [prompt("fail"), call("run", 1, prompt="fail")], ids=["miriad", "jsonrpc"])
def test_the_end_of_stdin_is_a_good_end_however_the_last_turn_went(run: Any, tmp_path: Path, said: Json) -> None:
    (tmp_path / "script.toml").write_text("[[turn]]\nerror = { status = 400, message = 'no' }\n")

    done = run("--stdio", "--db", "agent.db", "--model", "scripted:script.toml", stdin=lines(said))

    assert [line["subtype"] for line in results(read(done))] == ["error"]
    assert done.returncode == 0


@pytest.mark.parametrize(
    "argv", [("--stdio",), *(("--dialect", name, "-p") for name in ("miriad", "jsonrpc", "auto"))], ids="-".join
)
def test_a_prompt_on_the_command_line_of_a_server_is_an_error(run: Any, argv: tuple[str, ...]) -> None:
    done = run(*argv, *OFFLINE, "say x")

    assert (done.returncode, done.stdout) == (1, "")
    assert "send prompts on stdin" in done.stderr


def test_the_first_line_under_stdio_chooses_json_rpc(run: Any) -> None:
    found = read(run("--stdio", *OFFLINE, stdin=lines(call("status", 1), call("run", "r", prompt="say Hi"))))

    assert [line["id"] for line in found] == [1, "r", "r"]
    assert results(found)[0]["result"] == "Hi"


def test_a_dialect_that_is_named_needs_no_first_line(run: Any) -> None:
    assert read(run("--dialect", "jsonrpc", *OFFLINE, stdin="no json\n"))[0]["error"]["code"] == -32700
    assert read(run("--dialect", "miriad", *OFFLINE, stdin=lines(call("run", 1))))[0]["subtype"] == "error"


@pytest.mark.parametrize(
    ("said", "kinds"),
    [
        ([STATUS, prompt("say Hi")], {"system", "assistant", "result"}),
        ([call("run", 1, prompt="say Hi")], {None}),
        ([INITIALIZE, prompt("say Hi")], {"control_response", "system", "assistant", "result"}),
        ([prompt("say Hi", timestamp="2027-01-15T08:00:00Z")], {"system", "assistant", "result", "stream_event"}),
        ([prompt("say Hi")], {"system", "assistant", "result"}),
    ],
    ids=["miriad", "jsonrpc", "stream-json", "spec001", "a prompt"],
)
def test_auto_receives_the_dialect_in_the_first_line(run: Any, said: list[Json], kinds: set[Any]) -> None:
    done = run("--dialect", "auto", *OFFLINE, stdin=lines(*said))

    assert {line.get("type") for line in read(done)} == kinds
    assert [line["result"] for line in results(read(done))] == ["Hi"]


@pytest.mark.parametrize("mark", ["\ufeff", "\ufeff\n", "\ufeff \r\n\n"])
def test_a_byte_order_mark_does_not_hide_the_dialect(run: Any, mark: str) -> None:
    over_rpc = read(run("--stdio", *OFFLINE, stdin=mark + lines(call("status", 1))))
    over_miriad = read(run("--dialect", "auto", *OFFLINE, stdin=mark + lines(STATUS)))

    assert [line["result"]["subtype"] for line in over_rpc] == ["status"]
    assert [line["subtype"] for line in over_miriad] == ["status"]


def test_a_session_that_began_in_one_dialect_continues_in_another(run: Any) -> None:
    own = read(run("--stdio", *OFFLINE, stdin=lines(STATUS, prompt("say One"))))[0]["session_id"]
    over_rpc = results(read(run("--stdio", *OFFLINE, stdin=lines(call("run", 1, prompt="say Two")))))
    argv = ("-p", "--verbose", "--output-format", "stream-json", "--input-format", "stream-json", "--resume", own)
    ours = read(run(*argv, *OFFLINE, stdin=lines(prompt("say Three"))))
    again = read(run("--stdio", *OFFLINE, stdin=lines(STATUS)))

    assert [line["session_id"] for line in (*over_rpc, *results(ours), *again)] == [own] * 3
    # The offline model counts the messages it receives: each turn saw the turns before it.
    sizes = [line["usage"]["input_tokens"] for line in (*over_rpc, *results(ours))]
    assert sizes == sorted(set(sizes))


def test_a_call_that_waits_for_the_client_is_sent_again_before_any_prompt(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "first.toml").write_text('[[turn]]\ntools = [{ name = "Ask", input = {}, id = "t1" }]\n')
    (tmp_path / "second.toml").write_text('[[turn]]\ntext = "Done."\n')
    output = {"type": "tool_result", "tool_use_id": "t1", "content": "sunny"}

    def start(script: str) -> subprocess.Popen[str]:
        tools = '[{"name": "Ask", "description": "Asks", "input_schema": {"type": "object"}}]'
        argv = [PARLEY, "--stdio", "--db", "agent.db", "--model", f"scripted:{script}.toml", "--client-tools", tools]
        own = {**environment, "IS_SANDBOX": "1"}
        pipe = subprocess.PIPE
        return subprocess.Popen(argv, cwd=tmp_path, env=own, stdin=pipe, stdout=pipe, text=True, bufsize=1)

    def say(process: subprocess.Popen[str], line: Json) -> Json:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(lines(line))
        answer: Json = json.loads(process.stdout.readline())
        return answer

    first = start("first")
    told = say(first, prompt("Go"))
    until(lambda: any(b"waits_for" in path.read_bytes() for path in tmp_path.glob("agent.db*") if path.is_file()))
    first.kill()
    first.communicate()
    second = start("second")
    assert say(second, STATUS)["subtype"] == "status"
    assert second.stdout is not None
    again = json.loads(second.stdout.readline())
    rest, _ = second.communicate(lines({"type": "user", "message": {"role": "user", "content": [output]}}), timeout=60)

    assert again == told
    assert [line.get("result") for line in map(json.loads, rest.splitlines())] == [None, None, "Done."]


def test_a_session_that_cannot_be_opened_for_a_client_that_is_back_is_reported(
    run: Any, tmp_path: Path, environment: dict[str, str]
) -> None:
    run("--stdio", *OFFLINE, stdin=lines(prompt("say Hi")))
    argv, pipe = [PARLEY, "--stdio", *OFFLINE, "--client-tools", "[bad"], subprocess.PIPE
    process = subprocess.Popen(argv, cwd=tmp_path, env=environment, stdin=pipe, stdout=pipe, text=True, bufsize=1)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(lines(STATUS))

    told = [json.loads(line)["subtype"] for line in process.stdout]

    process.communicate(timeout=60)
    assert (told, process.returncode) == (["status", "error"], 1)


def until(holds: Callable[[], bool]) -> None:
    """Wait for a condition that another process fulfils."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_turn_with_a_result_and_reports_what_waited(
    tmp_path: Path, environment: dict[str, str], number: int
) -> None:
    process = subprocess.Popen(
        [PARLEY, "--stdio", *OFFLINE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path, env=environment
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(lines(prompt("wait 60\nsay Hi"), prompt("say Never")).encode())
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["subtype"] == "queued"
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)

    assert [json.loads(line)["subtype"] for line in out.splitlines()] == ["error", "cancelled"]
    assert process.returncode == (143 if number == signal.SIGTERM else 0)
