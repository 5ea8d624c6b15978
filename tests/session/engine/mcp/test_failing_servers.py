"""MCP servers that hang, die, flood, never start or are not trusted: the session continues and says what happened."""

from __future__ import annotations

import asyncio
import http.server
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from parley.compose.composer import Composer
from parley.compose.mcp import find_server_proxy
from parley.errors import UsageError
from parley.mcp.content import qualify
from parley.protocol.options import CliOptions
from tests.helpers.environment import base_environment
from tests.helpers.mcp import ALL, alive, config, news, one_turn, own, results, script, seen, states, visit
from tests.helpers.patience import wait_until
from tests.helpers.session import Json, SessionHarness

QUICK = {"MCP_TIMEOUT": "700"}


async def test_servers_that_never_answer_fail_within_their_limit_with_reason_and_last_words(tmp_path: Path) -> None:
    servers = config(
        mute=own("plain.py", "mute", required=False),
        deaf=own("plain.py", "deaf", required=False),
        absent={"command": "no-such-program-anywhere"},
        odd={"type": "pigeon"},
        plain=own("plain.py", "noisy", required=False),
    )

    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        await harness.receive("result")
        answer = (await harness.request("mcp_status"))["response"]["response"]["mcpServers"]
        told = {server["name"]: server for server in answer}
        assert told["mute"]["error"] == "the server did not answer within 3 s"
        assert told["mute"]["stderr"] == "plain in the manner mute\n"
        assert told["absent"]["error"] == "the server cannot be started: no program 'no-such-program-anywhere' in PATH"
        assert told["odd"]["error"].startswith("unknown type 'pigeon'")

    limits = {"MCP_TIMEOUT": "3000"}
    harness = await visit(tmp_path, script([("mcp__mute__x", {})], "Done."), scenario, limits, mcp_config=servers)
    failed = dict.fromkeys(("mute", "deaf", "absent", "odd"), "failed")
    assert states(harness) == {**failed, "plain": "connected"}
    assert {change["name"]: change["status"] for change in news(harness)} == failed
    assert (
        "The MCP server 'mute' is not connected (failed): the server did not answer within 3 s" in results(harness)[0]
    )
    assert any("MCP server mute: failed: the server did not answer" in warning for warning in harness.warnings)


async def test_a_server_that_dies_takes_its_tools_along_and_comes_back(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        await harness.receive("result")
        lost = await seen(harness, lambda line: line.get("mcp_server", {}).get("status") == "pending")
        assert lost["mcp_server"] == {
            "name": "plain",
            "status": "pending",
            "source": "dynamic",
            "error": "the server ended with exit code 1; reconnecting",
            "stderr": "plain in the manner once\none call is enough\n",
            "tools_removed": ["mcp__plain__echo", "mcp__plain__which"],
        }
        back = await seen(harness, lambda line: line.get("mcp_server", {}).get("status") == "connected")
        assert back["mcp_server"]["tools_added"] == ["mcp__plain__echo", "mcp__plain__which"]
        harness.prompt("again")
        await harness.receive("result")

    turns = script([("mcp__plain__which", {})], "Done.", [("mcp__plain__which", {})], "Done.")
    servers = config(plain=own("plain.py", "once"))
    harness = await visit(tmp_path, turns, scenario, mcp_config=servers, allowed_tools=ALL)
    first, second = (int(content[0]["text"]) for content in results(harness))
    assert first != second


async def test_the_model_is_notified_of_a_server_that_is_not_there_and_of_its_return(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        for prompt in ("first", "second"):
            harness.prompt(prompt)
            await harness.receive("result")
        (tmp_path / "late").symlink_to(sys.executable)
        await harness.request("mcp_reconnect", serverName="plain")
        harness.prompt("third")
        await harness.receive("result")

    server = {**own("plain.py", "well", required=False), "command": str(tmp_path / "late")}
    harness = await visit(tmp_path, script("One.", "Two.", "Three."), scenario, mcp_config=config(plain=server))
    prompts = [json.dumps(turn) for turn in harness.session.journal.history.render() if turn["role"] == "user"]
    assert ["is not connected (failed)" in prompt for prompt in prompts] == [True, False, False]
    assert ["is connected again" in prompt for prompt in prompts] == [False, False, True]


async def test_a_server_that_dies_in_a_call_is_an_error_of_that_call(tmp_path: Path) -> None:
    servers = config(workshop=own("workshop.py", "stdio"))
    turns = script([("mcp__workshop__collapse", {})], "Done.")
    harness = await visit(tmp_path, turns, one_turn, mcp_config=servers, allowed_tools=ALL)
    assert results(harness) == ["MCP server 'workshop': the server ended with exit code 3"]
    assert news(harness)[0]["stderr"] == "the roof came down\n"


async def test_a_flood_is_in_a_file_and_a_line_without_end_ends_the_connection(tmp_path: Path) -> None:
    servers = config(workshop=own("workshop.py", "stdio"))
    turns = script([("mcp__workshop__flood", {"megabytes": 3})], [("mcp__workshop__flood", {"megabytes": 33})], "Done.")
    harness = await visit(tmp_path, turns, one_turn, mcp_config=servers, allowed_tools=ALL)
    [short], lost = results(harness)
    assert "Output too large (3145728 characters). Full output saved to: " in short["text"]
    assert len(short["text"]) < 5_000
    saved = Path(short["text"].partition("saved to: ")[2].partition("\n")[0])
    assert saved.read_text() == "x" * 3145728
    assert lost == "MCP server 'workshop': the server sent a line of more than 32 MB"
    assert max(len(line) for line in harness.raw.splitlines()) < 1_000_000


async def test_a_small_limit_of_output_is_heeded(tmp_path: Path) -> None:
    servers = config(plain=own("plain.py", "well"))
    turns = script([("mcp__plain__echo", {"text": "y" * 5000})], "Done.")
    limit = {"MAX_MCP_OUTPUT_TOKENS": "100"}
    harness = await visit(tmp_path, turns, one_turn, limit, mcp_config=servers, allowed_tools=ALL)
    assert "Output too large" in results(harness)[0][0]["text"]


async def test_no_model_is_called_while_a_required_server_is_missing(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        result = await harness.receive("result")
        assert result["subtype"] == "error_during_execution"
        assert result["errors"] == [
            "the required MCP server 'plain' is not connected (failed): the server did not answer within 0.7 s"
        ]
        assert (result["num_turns"], result["fault_type"]) == (0, "tool_error")
        await harness.request("mcp_toggle", serverName="plain", enabled=False)
        harness.prompt("go on without it")
        assert (await harness.receive("result"))["result"] == "Done."

    servers = config(plain=own("plain.py", "mute", required=True))
    await visit(tmp_path, script("Done."), scenario, QUICK, mcp_config=servers)


async def test_a_server_that_cannot_be_reached_says_so(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        [reason] = (await harness.receive("result"))["errors"]
        assert "'nowhere' is not connected (failed): cannot reach the server: " in reason

    servers = config(nowhere={"type": "http", "url": "http://127.0.0.1:9/mcp", "required": True})
    await visit(tmp_path, script("Done."), scenario, mcp_config=servers)


class Closed(http.server.BaseHTTPRequestHandler):
    """A server that wants to know who asks."""

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(401)
        self.send_header("content-length", "0")
        self.end_headers()

    do_POST = do_GET

    def log_message(self, *words: object) -> None:
        pass


async def test_a_server_that_wants_authorization_is_in_a_state_of_its_own(tmp_path: Path) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Closed) as closed:
        threading.Thread(target=closed.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{closed.server_port}/"
        servers = config(
            new={"type": "http", "url": url, "required": True}, old={"type": "sse", "url": url, "required": True}
        )
        harness = await visit(tmp_path, script("Done."), one_turn, mcp_config=servers)
        closed.shutdown()
    assert states(harness) == {"new": "needs-auth", "old": "needs-auth"}
    assert {change["error"] for change in news(harness)} == {"the server requires authorization (HTTP 401)"}


async def test_a_slow_server_holds_up_a_turn_no_longer_than_an_interrupt(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        await asyncio.sleep(0)
        await harness.request("interrupt")
        assert (await harness.receive("result"))["terminal_reason"] == "aborted_streaming"

    servers = config(plain=own("plain.py", "mute", required=True))
    await visit(tmp_path, script("Done."), scenario, mcp_config=servers)


async def test_a_permission_rule_decides_on_a_servers_tool_and_without_one_the_host_is_asked(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        asked = (await harness.receive("control_request"))["request"]
        assert asked == {
            **asked,
            "subtype": "can_use_tool",
            "tool_name": "mcp__plain__which",
            "display_name": "Which",
            "mcp_server": {"name": "plain", "source": "dynamic"},
            "server_policy_ask_only": True,
        }
        harness.send({"type": "control_cancel_request", "request_id": "x"})
        await harness.request("interrupt")
        await harness.receive("result")

    servers = config(plain=own("plain.py", "well"))
    turns = script([("mcp__plain__echo", {"a": 1})], [("mcp__plain__which", {})], "Done.")
    harness = await visit(
        tmp_path,
        turns,
        scenario,
        mcp_config=servers,
        allowed_tools=("mcp__plain__echo",),
        permission_prompt_tool="stdio",
    )
    assert results(harness)[0] == [{"type": "text", "text": '{"a": 1}'}]


async def test_a_turn_that_waits_for_a_servers_prompt_is_interrupted(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        await harness.receive("result")
        harness.prompt("/mcp__plain__plan", uuid="00000000-0000-4000-8000-00000000cafe")
        await harness.receive_until(lambda line: line.get("state") == "started")
        await harness.request("interrupt")
        assert (await harness.receive("result"))["terminal_reason"] == "aborted_streaming"
        harness.prompt("again")
        assert (await harness.receive("result"))["result"] == "Two."

    servers = config(plain=own("plain.py", "silent"))
    await visit(tmp_path, script("One.", "Two."), scenario, mcp_config=servers)


def added(line: Json) -> list[str]:
    """The tools that a line tells as new ones of a server."""
    return line.get("mcp_server", {}).get("tools_added") or []


async def test_every_announced_change_is_looked_at_also_those_that_come_during_a_look(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        await harness.receive("result")
        # A quick server has said it all before the turn begins: then `init` has the tools, and there is no news.
        await seen(harness, lambda line: "mcp__plain__tool4" in (line.get("tools") or added(line)))

    harness = await visit(tmp_path, script("Done."), scenario, mcp_config=config(plain=own("plain.py", "restless")))
    assert {f"mcp__plain__tool{number}" for number in (2, 3, 4)} < set(harness.session.config.tools)


async def test_a_server_that_cannot_be_configured_gates_the_model_if_it_is_required(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        [reason] = (await harness.receive("result"))["errors"]
        assert "'plain' is not connected (failed): the variable NOWHERE is not set" in reason

    servers = config(plain=own("plain.py", "well", env={"TOKEN": "${NOWHERE}"}))
    await visit(tmp_path, script("Done."), scenario, mcp_config=servers)


async def test_what_a_server_prints_in_the_wrong_place_reports_why_it_failed(tmp_path: Path) -> None:
    servers = config(plain={"command": "/bin/sh", "args": ["-c", "echo no licence; exit 3"]})
    harness = await visit(tmp_path, script("Done."), one_turn, mcp_config=servers)
    [change] = news(harness)
    assert (change["error"], change["stderr"]) == ("the server ended with exit code 3", "no licence\n")
    assert "MCP server plain: failed: the server ended with exit code 3 (no licence)" in harness.warnings


def answers_to(request_id: str) -> Callable[[Json], bool]:
    return lambda line: bool(line.get("response", {}).get("request_id") == request_id)


async def test_sets_of_servers_that_come_at_once_replace_each_other_in_their_order(tmp_path: Path) -> None:
    well = own("plain.py", "well", required=False)
    sets = [{"a": well, "b": well, "c": well}, {}, {"a": well, "d": well}, {"d": well}]

    async def scenario(harness: SessionHarness) -> None:
        await harness.request("initialize")
        first = await harness.request("mcp_set_servers", servers=sets[0])
        assert first["response"]["response"]["added"] == ["a", "b", "c"]
        for number, servers in enumerate(sets[1:]):
            request = {"subtype": "mcp_set_servers", "servers": servers}
            harness.send({"type": "control_request", "request_id": f"set-{number}", "request": request})
        for number in range(3):
            await seen(harness, answers_to(f"set-{number}"))
        answers = [line for line in harness.lines if line.get("response", {}).get("request_id", "").startswith("set-")]
        answers.sort(key=lambda line: str(line["response"]["request_id"]))
        found = [answer["response"]["response"] for answer in answers]
        assert [(each["added"], each["removed"], each["errors"]) for each in found] == [
            ([], ["a", "b", "c"], {}),
            (["a", "d"], [], {"a": "removed"}),
            ([], ["a"], {}),
        ]
        told = (await harness.request("mcp_status"))["response"]["response"]["mcpServers"]
        assert [(server["name"], server["status"]) for server in told] == [("d", "connected")]

    await visit(tmp_path, script("Done."), scenario)


async def test_a_server_that_closes_its_output_and_lives_is_lost_at_once_and_ended(tmp_path: Path) -> None:
    mark = tmp_path / "started"
    turns = script([("mcp__plain__echo", {"text": "one"})], "Done.")

    async def scenario(harness: SessionHarness) -> None:
        await one_turn(harness)
        lost = await seen(harness, lambda line: line.get("mcp_server", {}).get("status") == "pending")
        assert lost["mcp_server"]["error"] == "the server closed its output; reconnecting"
        await seen(harness, lambda line: line.get("mcp_server", {}).get("status") == "connected")
        first, _ = map(int, mark.read_text().split())
        await asyncio.to_thread(wait_until, lambda: not alive(first), "the end of the first server")

    # Nothing here may be the work of a limit.
    limits = {"MCP_TIMEOUT": "600000", "MCP_TOOL_TIMEOUT": "0"}
    servers = config(plain=own("plain.py", "shut", str(mark)))
    harness = await visit(tmp_path, turns, scenario, limits, mcp_config=servers, allowed_tools=ALL)

    assert results(harness) == ["MCP server 'plain': the server closed its output"]


async def test_a_server_that_closes_its_output_before_it_says_anything_fails_at_once(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        await one_turn(harness)
        assert (await status(harness))[0]["error"] == "the server closed its output"

    servers = config(plain=own("plain.py", "closed", required=False))
    harness = await visit(tmp_path, script("Done."), scenario, {"MCP_TIMEOUT": "600000"}, mcp_config=servers)

    assert states(harness) == {"plain": "failed"}


CLASHES = [("a.b", "a b"), ("a", "a__b"), ("a__b", "a"), ("a", "a.")]


@pytest.mark.parametrize(("first", "second"), CLASHES)
async def test_the_second_of_two_servers_with_indistinguishable_tools_is_refused(
    tmp_path: Path, first: str, second: str
) -> None:
    optional = own("plain.py", "well", required=False)
    servers = config(**{first: own("plain.py", "well"), second: optional, "c": own("plain.py", "well")})

    async def scenario(harness: SessionHarness) -> None:
        await one_turn(harness)
        [failed] = [one for one in (await status(harness)) if one["name"] == second]
        assert (failed["status"], f"those of the server '{first}'" in failed["error"]) == ("failed", True)

    harness = await visit(tmp_path, script("Done."), scenario, mcp_config=servers)

    assert states(harness) == {first: "connected", second: "failed", "c": "connected"}
    assert [(f"MCP server {second}: failed" in text, repr(first) in text) for text in harness.warnings] == [
        (True, True)
    ]


async def status(harness: SessionHarness) -> list[Json]:
    listed: list[Json] = (await harness.request("mcp_status"))["response"]["response"]["mcpServers"]
    return listed


@pytest.mark.parametrize(("first", "second"), CLASHES)
async def test_servers_that_the_host_adds_are_refused_as_well(tmp_path: Path, first: str, second: str) -> None:
    async def scenario(harness: SessionHarness) -> None:
        one = own("plain.py", "well", required=False)
        answer = (await harness.request("mcp_set_servers", servers={second: one}))["response"]["response"]
        assert (answer["added"], list(answer["errors"])) == ([], [second])
        answer = (await harness.request("mcp_set_servers", servers={"x_y": one, "x.y": one}))["response"]["response"]
        assert (answer["added"], list(answer["errors"])) == (["x_y"], ["x.y"])
        assert "those of the server 'x_y'" in answer["errors"]["x.y"]

    await visit(tmp_path, script("Done."), scenario, mcp_config=config(**{first: own("plain.py", "well")}))


async def test_a_server_that_the_host_runs_is_refused_as_well(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        await harness.request("initialize", sdkMcpServers=["a_b"])
        await one_turn(harness)

    harness = await visit(tmp_path, script("Done."), scenario, mcp_config=config(**{"a.b": own("plain.py", "well")}))

    assert states(harness) == {"a.b": "connected", "a_b": "failed"}


@pytest.mark.parametrize(
    ("server", "rule", "runs"),
    [
        ("trusted", "mcp__trusted", True),
        ("trusted", "mcp__trusted__*", True),
        ("trusted", "mcp__trusted__ec*", True),
        ("trusted", "mcp__trusted__echo", True),
        ("trusted__evil", "mcp__trusted", False),
        ("trusted__evil", "mcp__trusted__*", False),
        ("trusted__evil", "mcp__trusted__evil", False),
        ("trusted__evil", "mcp__trusted__evil__echo", True),
        ("trusted.", "mcp__trusted", False),
        ("trusted.", "mcp__trusted__*", False),
        ("trusted.", "mcp__trusted___*", False),
        ("trusted.", "mcp__trusted_", True),
    ],
)
async def test_a_rule_allows_the_tools_of_the_server_that_it_names_and_of_no_other(
    tmp_path: Path, server: str, rule: str, runs: bool
) -> None:
    name = qualify(server, "echo")
    turns = script([(name, {"text": "x"})], "Done.")

    harness = await visit(
        tmp_path, turns, one_turn, mcp_config=config(**{server: own("plain.py", "well")}), allowed_tools=(rule,)
    )

    assert states(harness) == {server: "connected"}
    assert [denial["tool_name"] for denial in next(harness.messages("result"))["permission_denials"]] == [name] * (
        not runs
    )


# Where servers come from.


def write(folder: Path, name: str, **servers: object) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": servers}))


async def test_a_projects_servers_start_only_in_a_trusted_folder(tmp_path: Path) -> None:
    touch = {"command": "/usr/bin/touch", "args": [str(tmp_path / "ran")]}
    write(tmp_path, ".mcp.json", evil=touch)
    write(tmp_path, ".claude/settings.json", worse=touch)

    harness = await visit(tmp_path, script("Done."), one_turn)

    assert states(harness) == {}
    assert not (tmp_path / "ran").exists()
    warning = ".mcp.json: the MCP servers evil are not used: the folder is not trusted"
    assert any(warning in one for one in harness.warnings)


async def test_sources_are_merged_by_name_strict_leaves_the_command_line_and_keys_are_not_a_projects(
    tmp_path: Path,
) -> None:
    write(tmp_path, ".mcp.json", tree=own("plain.py", "well"), both={"command": "x"}, off={"command": "x"})
    write(tmp_path, ".claude/settings.json", taking=own("plain.py", "well", env={"STOLEN": "${ANTHROPIC_API_KEY}"}))
    write(tmp_path, "home/.claude/settings.json", mine=own("plain.py", "well", env={"A": "${ANTHROPIC_API_KEY}"}))
    user = tmp_path / "home/.claude/settings.json"
    user.write_text(json.dumps({**json.loads(user.read_text()), "disabledMcpjsonServers": ["off"]}))
    given = config(both=own("plain.py", "well"))
    options = {"mcp_config": given, "setting_sources": ("user", "project")}
    keys = {"ANTHROPIC_API_KEY": "sk-secret"}

    harness = await visit(tmp_path, script("Done."), one_turn, keys, **options)
    init = next(line for line in harness.messages("system") if line["subtype"] == "init")
    assert {server["name"]: (server["status"], server["source"]) for server in init["mcp_servers"]} == {
        "both": ("connected", "dynamic"),
        "taking": ("failed", "project"),
        "mine": ("connected", "user"),
        "tree": ("connected", "project"),
    }
    assert any("the variable ANTHROPIC_API_KEY is not set" in warning for warning in harness.warnings)

    harness = await visit(tmp_path, script("Done."), one_turn, keys, strict_mcp_config=True, **options)
    assert states(harness) == {"both": "connected"}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("missing.json", "cannot read the MCP configuration missing.json: No such file or directory"),
        ("{", "the MCP configuration --mcp-config is not valid JSON"),
        ("{}", "the MCP configuration --mcp-config must contain an object `mcpServers`"),
    ],
)
def test_a_configuration_on_the_command_line_must_be_readable(tmp_path: Path, given: str, reason: str) -> None:
    composer = Composer(CliOptions(mcp_config=(given,), model="offline"), {"HOME": str(tmp_path)}, str(tmp_path))

    with pytest.raises(UsageError, match=reason):
        composer.make_config()


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("https://far.example/mcp", "http://gate:3128"),
        ("http://far.example/mcp", "http://plain:80"),
        ("https://near.example/mcp", None),
        ("http://localhost:1/mcp", None),
        ("http://[::1]:1/mcp", None),
        ("http://[broken/", None),
    ],
)
def test_a_proxy_is_for_other_machines(url: str, proxy: str | None) -> None:
    environment = {"HTTPS_PROXY": "gate:3128", "HTTP_PROXY": "http://plain:80", "NO_PROXY": "near.example"}

    assert find_server_proxy(url, environment) == proxy


# The end.


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_servers_end_with_the_engine_however_it_ends(tmp_path: Path, number: int) -> None:
    pids = tmp_path / "pids"
    program = f"echo $$ >> {pids}; sleep 1000 & echo $! >> {pids}; exec cat > /dev/null"
    servers = {"sh": {"command": "/bin/sh", "args": ["-c", program], "required": True}}
    engine = subprocess.Popen(
        [
            Path(sys.executable).with_name("parley"),
            *("--output-format", "stream-json", "--input-format", "stream-json", "--verbose", "--model", "offline"),
            *("--mcp-config", json.dumps({"mcpServers": servers})),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={"HOME": str(tmp_path), **base_environment()},
        cwd=tmp_path,
    )
    assert engine.stdin is not None
    engine.stdin.write(b'{"type":"user","message":{"role":"user","content":"go"}}\n')
    engine.stdin.flush()
    wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2, "both servers")

    engine.send_signal(number)
    engine.wait(timeout=60)

    wait_until(lambda: not any(alive(int(pid)) for pid in pids.read_text().split()), "the end of both servers")
    engine.stdin.close()
