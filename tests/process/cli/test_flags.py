"""Flags of Claude Code through the executable: each has its effect, or stderr says that it has none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from parley.models.script import Script, ScriptedError, ScriptedTurn
from parley.protocol.options import BY_FLAG, WITHOUT_EFFECT
from parley.testing.model_server import ModelServer, running

Go = Callable[..., Any]


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with running(Script(turn=[ScriptedTurn(text="Yes.")], at_end="repeat")) as found:
        yield found


@pytest.fixture
def go(run: Any, server: ModelServer) -> Go:
    """Run one prompt; returns the request that reached the model."""

    def start(*argv: str, **more: str) -> Any:
        access = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "a-key-for-tests", **more}
        done = run("-p", *argv, "--", "Hi", **access)
        assert (done.stdout, done.returncode) == ("Yes.\n", 0), done.stderr
        return server.exchanges[-1].body

    return start


def system(request: Any) -> str:
    found = request["system"]
    return found if isinstance(found, str) else "\n".join(block["text"] for block in found)


@pytest.mark.parametrize("flag", ["--system-prompt", "--append-system-prompt"])
def test_a_system_prompt_is_given_as_text_or_as_a_file(go: Go, tmp_path: Path, flag: str) -> None:
    (tmp_path / "prompt.md").write_text("Answer as a pirate.")
    text, file = go(flag, "Answer as a pirate."), go(f"{flag}-file", str(tmp_path / "prompt.md"))

    assert "Answer as a pirate." in system(text)
    assert system(text) == system(file)
    assert ("# Environment" in system(text) or str(tmp_path) in system(text)) is flag.startswith("--append")


def test_the_facts_of_the_machine_can_be_left_out_of_the_system_prompt(go: Go, tmp_path: Path) -> None:
    assert str(tmp_path) in system(go())
    assert str(tmp_path) not in system(go("--exclude-dynamic-system-prompt-sections"))


def test_effort_and_thinking_are_sent_to_the_model(go: Go) -> None:
    new = ("--model", "claude-opus-5")
    request = go(*new, "--effort", "low", "--thinking", "adaptive", "--thinking-display", "omitted")

    assert request["output_config"]["effort"] == "low"
    assert request["thinking"] == {"type": "adaptive", "display": "omitted"}
    assert go(*new, "--thinking", "disabled")["thinking"] == {"type": "disabled"}
    assert "thinking" not in go("--model", "claude-opus-4-7", "--max-thinking-tokens", "0")
    old = go("--model", "claude-sonnet-4-5", "--max-thinking-tokens", "2000")
    assert old["thinking"] == {"type": "enabled", "budget_tokens": 2000}


def test_only_the_given_tools_are_offered(go: Go) -> None:
    assert {tool["name"] for tool in go("--tools", "Read,Grep")["tools"]} == {"Read", "Grep"}
    assert not go("--tools", "").get("tools")
    assert "Bash" not in {tool["name"] for tool in go("--disallowed-tools", "Bash")["tools"]}


def test_agents_on_the_command_line_are_offered(go: Go) -> None:
    agents = {"reviewer": {"description": "Reviews code carefully", "prompt": "You review."}}
    offered = {tool["name"]: tool for tool in go("--agents", json.dumps(agents))["tools"]}

    assert "Reviews code carefully" in json.dumps(offered["Agent"])


def test_a_project_is_configured_from_another_folder(go: Go, tmp_path: Path) -> None:
    (tmp_path / "trusted" / ".claude" / "output-styles").mkdir(parents=True)
    style = "---\nname: pirate\n---\nAnswer as a pirate.\n"
    (tmp_path / "trusted" / ".claude" / "output-styles" / "pirate.md").write_text(style)
    given = ("--settings", '{"outputStyle": "pirate"}', "--project-config-root", str(tmp_path / "trusted"))

    assert "Answer as a pirate." in system(go(*given))


def test_a_model_that_is_overloaded_is_replaced_by_the_fallback(run: Any) -> None:
    busy = ScriptedTurn(error=ScriptedError(status=529, message="Overloaded"))
    with running(Script(turn=[busy, busy, busy, ScriptedTurn(text="Yes.")], at_end="repeat")) as server:
        access = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "k", "CLAUDE_CODE_MAX_RETRIES": "2"}
        done = run("-p", "--model", "claude-opus-4-6", "--fallback-model", "claude-sonnet-4-5", "Hi", **access)

    assert done.stdout == "Yes.\n"
    assert [exchange.body["model"] for exchange in server.exchanges][-1] == "claude-sonnet-4-5"


def test_a_result_follows_the_schema(run: Any) -> None:
    schema = json.dumps({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]})
    answer = ScriptedTurn(text='{"ok": true}')
    with running(Script(turn=[answer], at_end="repeat")) as server:
        access = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "k"}
        argv = ("-p", "--model", "claude-opus-4-6", "--output-format", "json", "--json-schema", schema, "Hi")
        result = json.loads(run(*argv, **access).stdout)

    assert result["structured_output"] == {"ok": True}


CALL = 'call Bash {"command": "touch made"}\nsay Done.'
STREAM = ("--input-format", "stream-json", "--output-format", "stream-json", "--verbose")


def prompt(text: str) -> str:
    return json.dumps({"type": "user", "message": {"role": "user", "content": text}}) + "\n"


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_nobody_is_asked_if_prompts_are_switched_off(run: Any, tmp_path: Path) -> None:
    given = ("--model", "offline", *STREAM, "--permission-prompt-tool", "stdio", "--permission-prompts", "none")
    told = lines(run(*given, stdin=prompt(CALL)).stdout)

    assert [line for line in told if line["type"] == "control_request"] == []
    assert [denial["tool_name"] for denial in told[-1]["permission_denials"]] == ["Bash"]
    assert not (tmp_path / "made").exists()


def test_managed_settings_deny_what_the_command_line_allows(run: Any, tmp_path: Path) -> None:
    managed = json.dumps({"permissions": {"deny": ["Bash"]}})
    run("-p", "--model", "offline", "--allowed-tools", "Bash", "--managed-settings", managed, "--", CALL)
    assert not (tmp_path / "made").exists()

    run("-p", "--model", "offline", "--allowed-tools", "Bash", "--", CALL)
    assert (tmp_path / "made").exists()


def test_the_client_gets_every_line_of_the_transcript(run: Any) -> None:
    told = lines(run("--model", "offline", *STREAM, "--session-mirror", stdin=prompt("say Hi.")).stdout)
    mirrored = [entry for line in told if line["type"] == "transcript_mirror" for entry in line["entries"]]

    assert {"user", "assistant"} <= {entry["type"] for entry in mirrored}


def test_further_folders_may_be_read(run: Any, tmp_path: Path) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    project.mkdir()
    other.mkdir()
    (other / "a.txt").write_text("from elsewhere")
    read = "call Read " + json.dumps({"file_path": str(other / "a.txt")}) + "\nsay Done."
    given = ("-p", "--model", "offline", "--output-format", "stream-json", "--verbose", "--add-dir", str(other))

    assert "from elsewhere" in run(*given, "--", read).stdout


def test_short_flags_are_the_long_ones() -> None:
    pairs = {"-c": "--continue", "-d": "--debug", "-h": "--help", "-n": "--name", "-p": "--print", "-r": "--resume"}

    for short, long in {**pairs, "-v": "--version", "-w": "--worktree"}.items():
        assert BY_FLAG[short] is BY_FLAG[long]


WARNED = sorted(flag for flag, row in BY_FLAG.items() if row.field in WITHOUT_EFFECT)


@pytest.mark.parametrize("flag", WARNED)
def test_a_flag_without_effect_says_so(flag: str) -> None:
    from parley.protocol.options import parse

    value = ["x"] if BY_FLAG[flag].kind.words in ("one", "many") else []
    assert parse([flag, *value]).warnings == (f"option '{flag}' has no effect in this run",)


def test_flags_without_effect_are_reported_to_the_client(run: Any) -> None:
    argv = ("--output-format", "stream-json", "--verbose", "--ide", "--safe-mode", "--plugin-dir=/x")
    done = run("-p", "--model", "offline", *argv, "--", "say Hi")

    texts = ["option '--ide' has no effect in this run", "option '--plugin-dir' has no effect with --safe-mode"]
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["content"] for line in told if line.get("subtype") == "informational"] == texts
    assert all(text in done.stderr for text in texts)


def test_names_that_no_tool_has_are_reported(run: Any) -> None:
    stream = ("--output-format", "stream-json", "--verbose")
    done = run("-p", "--model", "offline", *stream, "--tools", "Bash,Task,Nope", "--", "say Hi.")
    notices = [line["content"] for line in map(json.loads, done.stdout.splitlines()) if "content" in line]
    assert notices == done.stderr.splitlines() == ["option '--tools': there is no tool 'Nope'"]


def test_exporters_that_are_not_there_are_reported(run: Any) -> None:
    wanted = {"OTEL_METRICS_EXPORTER": "otlp", "OTEL_LOGS_EXPORTER": "none"}
    silent = run("-p", "--model", "offline", "say Hi.", **wanted)
    told = run("-p", "--model", "offline", "say Hi.", **wanted, CLAUDE_CODE_ENABLE_TELEMETRY="1")
    assert silent.stderr == ""
    assert told.stderr == "OTEL_METRICS_EXPORTER has no effect: only traces are exported (OTEL_TRACES_EXPORTER)\n"
    assert told.stdout == "Hi.\n"


def test_fields_of_agents_without_effect_are_reported(run: Any) -> None:
    agents = {"helper": {"description": "d", "prompt": "p", "observer": "watcher", "colour": "red"}}
    stream = ("--output-format", "stream-json", "--verbose")
    done = run("-p", "--model", "offline", *stream, "--agents", json.dumps(agents), "--", "say Hi.")
    notices = [line["content"] for line in map(json.loads, done.stdout.splitlines()) if "content" in line]
    assert notices == [
        "option '--agents': helper.observer has no effect: observers are not supported",
        "option '--agents': helper.colour is unknown and has no effect",
    ]
    assert done.stderr.splitlines() == notices


def test_a_client_is_told_which_flags_have_no_effect(run: Any) -> None:
    stream = ("--output-format", "stream-json", "--verbose")
    done = run("-p", "--model", "offline", *stream, "--chrome", "--new-thing=1", "--", "say Hi.")
    told = [json.loads(line) for line in done.stdout.splitlines()]
    notices = [line["content"] for line in told if line.get("subtype") == "informational"]
    assert notices == [
        "unknown option '--new-thing' '1' is ignored",
        "option '--chrome' has no effect in this run",
    ]
    assert done.stderr.splitlines() == notices
