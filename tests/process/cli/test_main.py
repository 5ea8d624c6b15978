"""The real executable, started by a shell and by a client."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.patience import PATIENCE_SECONDS

PARLEY = str(Path(sys.executable).with_name("parley"))
STREAM = ("--output-format", "stream-json", "--verbose", "--input-format", "stream-json")


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_version_starts_with_the_protocol_level_and_says_parley(run: Any) -> None:
    for flag in ("--version", "-v"):
        done = run(flag)
        assert done.stdout.startswith("2.1.")
        assert "Parley" in done.stdout
        assert (done.returncode, done.stderr) == (0, "")


def test_a_client_can_terminate_the_process_that_wrote_the_version() -> None:
    """As Python SDKs up to 0.1 do. If the process is already dead, asyncio of Python 3.11 prints a warning."""
    codes = []
    for _ in range(5):
        with subprocess.Popen([PARLEY, "-v"], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            process.terminate()
        codes.append(process.returncode)
    assert -signal.SIGTERM in codes


def test_a_prompt_is_answered_as_plain_text(run: Any) -> None:
    done = run("--print", "--model", "offline", "say Hello there.")
    assert (done.stdout, done.stderr, done.returncode) == ("Hello there.\n", "", 0)


@pytest.mark.parametrize(
    "argv",
    [
        ("-p", "say Hi.", "--model", "offline", "--setting-sources", ""),
        ("--model", "offline", "--print", "--", "say Hi."),
        ("--model=offline", "say Hi.", "-p"),
        ("--model", "offline", "--allowedTools", "Read", "Bash(git *)", "--print", "say Hi."),
        ("-p", "--model", "offline", "--strict-mcp-config", "", "say Hi."),
    ],
)
def test_the_prompt_may_be_anywhere_on_the_command_line(run: Any, argv: tuple[str, ...]) -> None:
    assert run(*argv).stdout == "Hi.\n"


def test_a_prompt_may_be_piped_and_is_joined_to_the_one_on_the_command_line(run: Any) -> None:
    assert run("-p", "--model", "offline", stdin="say Piped.\n").stdout == "Piped.\n"
    assert run("-p", "--model", "offline", "say One.", stdin="say Two.").stdout == "One.\nTwo.\n"


def test_json_is_one_result_and_with_verbose_everything_as_an_array(run: Any) -> None:
    result = json.loads(run("-p", "--model", "offline", "--output-format", "json", "say Hi.").stdout)
    assert (result["type"], result["result"]) == ("result", "Hi.")
    told = json.loads(run("-p", "--model", "offline", "--output-format", "json", "--verbose", "say Hi.").stdout)
    assert [line["type"] for line in told] == ["system", "assistant", "result"]


TASK_THAT_ENDS_LATER = """\
call Bash {"command": "sleep 0.3", "run_in_background": true, "description": "rest"}
say First.
"""


@pytest.mark.parametrize("more", [(), ("--verbose",)])
def test_json_is_one_document_even_if_a_task_causes_another_turn(run: Any, more: tuple[str, ...]) -> None:
    argv = ("-p", "--model", "offline", "--allowedTools", "Bash", "--output-format", "json", *more)
    told = json.loads(run(*argv, "--", TASK_THAT_ENDS_LATER).stdout)
    assert isinstance(told, list if more else dict)
    if more:
        assert [line["type"] for line in told].count("result") == 2
        assert len({line["uuid"] for line in told}) == len(told)
        told = told[-1]
    assert (told["type"], told["result_index"]) == ("result", 1)


def test_text_is_the_last_answer_only(run: Any) -> None:
    argv = ("-p", "--model", "offline", "--allowedTools", "Bash", "--", TASK_THAT_ENDS_LATER)
    done = run(*argv)
    assert "First." not in done.stdout
    assert (done.stdout != "", done.returncode) == (True, 0)


def test_a_byte_that_is_not_text_is_replaced_on_the_command_line(tmp_path: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [PARLEY.encode(), b"-p", b"--model", b"offline", b"say a\xffb"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=tmp_path,
        env=environment,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.stdout.decode(), done.stderr, done.returncode) == ("a\ufffdb\n", b"", 0)


def test_a_prompt_that_is_too_long_gets_its_result(run: Any) -> None:
    long = b'{"type":"user","message":{"role":"user","content":"' + b"x" * (33 * 1024 * 1024) + b'"}}\n'
    done = run(*STREAM, "--model", "offline", stdin=long)
    assert lines(done.stdout)[-1]["type"] == "result"
    assert "longer than" in lines(done.stdout)[-1]["errors"][0]
    assert done.returncode == 1


def test_message_is_a_stream_of_whole_messages(run: Any) -> None:
    done = run("-p", "--model", "offline", "--output-format", "message", "--include-partial-messages", "say Hi.")
    assert [line["type"] for line in lines(done.stdout)] == ["system", "assistant", "result"]


def test_a_stream_continues_until_stdin_ends(run: Any) -> None:
    prompts = [{"type": "user", "message": {"role": "user", "content": f"say {word}"}} for word in ("One", "Two")]
    done = run(*STREAM, "--model", "offline", stdin="".join(json.dumps(prompt) + "\n" for prompt in prompts))
    assert [line["result"] for line in lines(done.stdout) if line["type"] == "result"] == ["One", "Two"]
    assert done.returncode == 0


def test_stdin_may_be_a_file(run: Any, tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "in.jsonl").write_text('{"type":"user","message":{"role":"user","content":"say Hi"}}')
    with (tmp_path / "in.jsonl").open() as file, (tmp_path / "out.jsonl").open("w") as out:
        subprocess.run(
            [PARLEY, *STREAM, "--model", "offline"],
            stdin=file,
            stdout=out,
            env=environment,
            check=True,
            cwd=tmp_path,
            timeout=PATIENCE_SECONDS,
        )
    assert lines((tmp_path / "out.jsonl").read_text())[-1]["result"] == "Hi"


@pytest.mark.parametrize(
    ("argv", "warning"),
    [
        (("--print",), "Input must be provided"),
        (("--print", "--allowedTools", "Read", "x"), "--allowedTools takes the arguments after it as values"),
        (("--print", "--output-format", "bogus", "x"), "Allowed choices are text, json, stream-json"),
        (("--print", "--output-format", "stream-json", "x"), "requires --verbose"),
        (("--print", "--input-format", "stream-json", "x"), "requires output-format=stream-json"),
        (("--print", "--include-partial-messages", "x"), "requires --print and --output-format=stream-json"),
        (("--print", "--replay-user-messages", "x"), "requires both --input-format=stream-json"),
        (("--print", "--max-turns", "many", "x"), "needs a whole number"),
        (("--print", "--session-id", "not-a-uuid", "x"), "Must be a valid UUID, not 'not-a-uuid'."),
        (("--print", "--model", "scripted:nowhere.toml", "x"), "cannot read script"),
        (("--print", "--settings", "{broken", "x"), "settings"),
        (("--print", "x", "--mcp-config", '{"mcpServers":\n{'), "is not valid JSON: Input data was truncated (line 2)"),
        (("--print", "--json-schema", "no.json", "x"), "give the text of a JSON Schema, not the name of a file"),
        (("--print", "--system-prompt-file", "/no/such/file", "x"), "cannot be read"),
    ],
)
def test_a_wrong_command_line_is_one_clear_sentence_and_exit_1(run: Any, argv: tuple[str, ...], warning: str) -> None:
    done = run(*argv)
    assert warning in done.stderr
    assert "Traceback" not in done.stderr
    assert (done.stdout, done.returncode) == ("", 1)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ((), "no prompt given. Give the prompt as an argument"),
        (("--continue",), "no prompt given, and the session has no deferred tool call to continue with. Give"),
        (("--allowedTools", "Read", "x"), "no prompt given; --allowedTools takes the arguments after it as values"),
        (("--print",), "Input must be provided either through stdin or as a prompt argument when using --print ("),
        (("--print", "--continue"), "Input must be provided either through stdin or as a prompt argument when using"),
        (("--output-format", "json"), "Input must be provided either through stdin or as a prompt argument when using"),
    ],
)
def test_a_missing_prompt_is_explained_to_people_and_in_the_words_that_clients_know(
    run: Any, argv: tuple[str, ...], sentence: str
) -> None:
    run("-p", "--model", "offline", "say Hi.")
    done = run("--model", "offline", *argv)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"Error: {sentence}")


@pytest.mark.parametrize("more", [(), ("--print",), ("--print", "--output-format", "json")])
def test_an_unknown_flag_is_an_error_that_sends_nothing_and_leaves_no_session(
    run: Any, tmp_path: Path, more: tuple[str, ...]
) -> None:
    done = run(*more, "--model", "offline", "--modle", "haiku", "say Hi.")

    assert (done.stdout, done.returncode) == ("", 2)
    assert done.stderr.startswith("Error: unknown option '--modle' (did you mean --model?); see `parley --help`")
    assert not (tmp_path / "home" / ".claude").exists()


@pytest.mark.parametrize(
    "format",
    [("--output-format", "stream-json", "--verbose"), ("--output-format", "message"), ("--dialect", "spec001")],
)
def test_an_unknown_flag_is_a_warning_for_a_client_that_reads_messages(run: Any, format: tuple[str, ...]) -> None:
    done = run("--print", "--model", "offline", *format, "--new-flag", "value", "say Hi.")

    assert "unknown option '--new-flag' 'value' is ignored" in done.stderr
    assert ("Hi." in done.stdout, done.returncode) == (True, 0)


def test_without_a_key_the_result_says_how_to_get_on(run: Any) -> None:
    done = run("-p", "--output-format", "stream-json", "--verbose", "hello")
    result = lines(done.stdout)[-1]
    assert (result["is_error"], result["terminal_reason"], done.returncode) == (True, "api_error", 1)
    assert "ANTHROPIC_API_KEY" in result["result"]
    assert "--model offline" in result["result"]
    plain = run("-p", "hello")
    assert (plain.stdout, plain.stderr, plain.returncode) == (result["result"] + "\n", "", 1)


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        (("--max-turns", "1"), "Error: Reached max turns (1)"),
        (("--max-budget-usd", "0.001"), "Error: Exceeded USD budget (0.001)"),
        (("--max-budget-calls", "1"), "Error: Reached maximum budget (1 model calls)"),
    ],
)
def test_a_turn_that_reaches_a_limit_prints_its_reason_instead_of_an_answer(
    run: Any, tmp_path: Path, limit: tuple[str, str], reason: str
) -> None:
    prices = tmp_path / "prices.json"
    prices.write_text(json.dumps({"": {"input": 1000, "output": 1000}}))
    argv = ("-p", "--model", "offline", *limit, "--allowedTools", "Bash", "--", 'call Bash {"command": "true"}')
    done = run(*argv, PARLEY_PRICES=str(prices))
    assert (done.stdout, done.stderr, done.returncode) == (f"{reason}\n", "", 1)


def test_an_unreachable_server_gives_a_result_in_bounded_time(run: Any) -> None:
    done = run(
        "-p", "--output-format", "json", "hello", ANTHROPIC_BASE_URL="http://127.0.0.1:9", CLAUDE_CODE_MAX_RETRIES="1"
    )
    result = json.loads(done.stdout)
    assert (result["subtype"], result["is_error"], result["terminal_reason"]) == ("success", True, "api_error")
    assert done.returncode == 1
    assert done.stderr.startswith("the model call failed (")
    assert "retrying in " in done.stderr


def test_a_subscription_token_is_never_used(run: Any) -> None:
    done = run("-p", "hello", ANTHROPIC_API_KEY="sk-ant-oat01-secret")
    assert "accepts only API keys" in done.stdout
    assert "secret" not in done.stdout + done.stderr
    assert done.returncode == 1


def test_an_unknown_session_is_an_error_result_never_a_new_session(run: Any) -> None:
    asked = "99999999-2222-4333-8444-555555555555"
    done = run(*STREAM, "--model", "offline", f"--resume={asked}")
    [result] = lines(done.stdout)
    assert (result["subtype"], result["session_id"]) == ("error_during_execution", asked)
    assert result["errors"] == [f"No conversation found with session ID: {asked}"]
    assert done.stderr.strip() == f"No conversation found with session ID: {asked}"
    assert done.returncode == 1


def test_a_prompt_that_resume_took_as_its_value_is_explained(run: Any) -> None:
    done = run("-p", "--model", "offline", "--resume", "say first")

    assert (done.stdout, done.returncode) == ("", 1)
    assert done.stderr.startswith("No conversation found with session ID: say first (")
    assert "--resume takes the argument after it. If it is the prompt: parley -p --continue 'say first'" in done.stderr


def test_a_config_folder_that_cannot_be_written_is_named_with_what_to_do(run: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "config"
    done = run("-p", "--model", "offline", "say Hi.", CLAUDE_CONFIG_DIR=str(folder))

    assert (done.stdout, done.returncode) == ("", 1)
    assert done.stderr == (
        f"cannot write to the folder of sessions {folder}: Not a directory. Make it writable, choose another with "
        "CLAUDE_CONFIG_DIR, or give --no-session-persistence to keep nothing\n"
    )


@pytest.mark.parametrize(
    ("option", "warning"),
    [
        (("--add-dir", "nowhere"), "option '--add-dir': there is no folder 'nowhere'\n"),
        (
            ("--mcp-config", '{"mcpServers": {"x": {"comand": "ls"}}}'),
            "--mcp-config: MCP server 'x': unknown key 'comand' (did you mean command?)\n",
        ),
    ],
)
def test_a_value_without_effect_is_a_warning(run: Any, option: tuple[str, ...], warning: str) -> None:
    done = run("-p", "say Hi.", "--model", "offline", *option)

    assert (done.stdout, done.returncode) == ("Hi.\n", 0)
    assert done.stderr.count(warning) == 1


@pytest.mark.parametrize(
    ("after", "code"), [("", 1), ('{"type":"user","message":{"role":"user","content":"say Hi."}}\n', 0)]
)
def test_input_without_a_readable_line_fails_the_run(
    tmp_path: Path, environment: dict[str, str], after: str, code: int
) -> None:
    done = subprocess.run(
        [PARLEY, *STREAM, "--model", "offline"],
        input=f"not json\n{after}",
        capture_output=True,
        check=False,
        text=True,
        env=environment,
        cwd=tmp_path,
        timeout=PATIENCE_SECONDS,
    )
    assert "a line from the client was refused: the line is not JSON" in done.stderr
    assert (done.returncode, "Hi." in done.stdout) == (code, bool(after))


def test_a_session_id_in_use_is_refused(run: Any) -> None:
    asked = "11111111-2222-4333-8444-555555555555"
    assert run("-p", "--model", "offline", "--session-id", asked, "say Hi.").returncode == 0
    again = run("-p", "--model", "offline", "--session-id", asked, "say Hi.")
    assert again.stderr == f"Error: Session ID {asked} is already in use. Use --resume {asked} to continue it.\n"
    assert again.returncode == 1


def test_no_session_persistence_writes_nothing(run: Any, tmp_path: Path) -> None:
    run("-p", "--model", "offline", "--no-session-persistence", "say Hi.")
    assert list((tmp_path / "home").rglob("*.jsonl")) == []


def test_nothing_is_written_outside_the_given_root(run: Any, tmp_path: Path) -> None:
    root = tmp_path / "config"
    run("-p", "--model", "offline", "say Hi.", CLAUDE_CONFIG_DIR=str(root))
    assert {path.suffix for path in root.rglob("*") if path.is_file()} == {".jsonl"}
    assert list((tmp_path / "home").iterdir()) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_turn_with_its_result(
    tmp_path: Path, environment: dict[str, str], number: signal.Signals, code: int
) -> None:
    prompt = json.dumps({"type": "user", "message": {"role": "user", "content": "wait 60\nsay never"}})
    with subprocess.Popen(
        [PARLEY, *STREAM, "--model", "offline"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env=environment,
        text=True,
    ) as engine:
        assert engine.stdin is not None
        assert engine.stdout is not None
        engine.stdin.write(prompt + "\n")
        engine.stdin.flush()
        assert json.loads(engine.stdout.readline())["subtype"] == "init"
        engine.send_signal(number)
        told = lines(engine.stdout.read())
        assert engine.wait(PATIENCE_SECONDS) == code
    assert (told[-1]["type"], told[-1]["terminal_reason"]) == ("result", "aborted_streaming")


def test_a_signal_does_not_begin_what_waits(tmp_path: Path, environment: dict[str, str]) -> None:
    prompts = [{"type": "user", "message": {"role": "user", "content": text}} for text in ("wait 60", "say next")]
    with subprocess.Popen(
        [PARLEY, *STREAM, "--model", "offline"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env=environment,
        text=True,
    ) as engine:
        assert engine.stdin is not None
        assert engine.stdout is not None
        engine.stdin.write("".join(json.dumps(prompt) + "\n" for prompt in prompts))
        engine.stdin.flush()
        engine.stdout.readline()
        engine.send_signal(signal.SIGTERM)
        told = lines(engine.stdout.read())
        assert engine.wait(PATIENCE_SECONDS) == 143
    assert [line["type"] for line in told if line["type"] == "result"] == ["result"]


def test_a_host_that_hangs_up_does_not_leave_an_engine_behind(tmp_path: Path, environment: dict[str, str]) -> None:
    prompt = json.dumps({"type": "user", "message": {"role": "user", "content": "wait 0.2\nsay done"}})
    engine = subprocess.Popen(
        [PARLEY, *STREAM, "--model", "offline"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=environment,
        text=True,
    )
    assert engine.stdin is not None
    assert engine.stdout is not None
    assert engine.stderr is not None
    engine.stdin.write(prompt + "\n")
    engine.stdin.flush()
    engine.stdout.readline()
    engine.stdout.close()
    engine.stdin.close()
    assert engine.wait(PATIENCE_SECONDS) in (0, 1)
    assert "Traceback" not in engine.stderr.read()
    engine.stderr.close()


def test_help_lists_the_flags(run: Any) -> None:
    done = run("--help")
    assert "--include-partial-messages" in done.stdout
    assert done.returncode == 0


def test_a_reader_slower_than_the_engine_loses_nothing(tmp_path: Path, environment: dict[str, str]) -> None:
    text = "x" * 300_000
    prompt = json.dumps({"type": "user", "message": {"role": "user", "content": f"say {text}"}})
    with subprocess.Popen(
        [PARLEY, *STREAM, "--model", "offline", "--include-partial-messages"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env=environment,
    ) as engine:
        assert engine.stdin is not None
        assert engine.stdout is not None
        engine.stdin.write(prompt.encode() + b"\n")
        engine.stdin.close()
        told = lines(engine.stdout.read().decode())
    grown = "".join(
        line["event"]["delta"]["text"]
        for line in told
        if line.get("event", {}).get("delta", {}).get("type") == "text_delta"
    )
    assert grown == text
    assert told[-1]["result"] == text


def test_a_fork_onto_an_id_in_use_is_refused_and_mixes_nothing(run: Any, tmp_path: Path) -> None:
    first, second = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
    for session_id in (first, second):
        run("-p", "--model", "offline", "--session-id", session_id, "say Hi.")
    [path] = (tmp_path / "home").rglob(f"{second}.jsonl")
    before = path.read_bytes()
    done = run("-p", "--model", "offline", "--resume", first, "--fork-session", "--session-id", second, "say x")
    assert "already in use" in done.stderr
    assert path.read_bytes() == before
    unforked = run("-p", "--model", "offline", "--resume", first, "--session-id", second, "say x")
    assert "--fork-session" in unforked.stderr
    assert unforked.returncode == 1


def test_an_option_that_is_not_heeded_yet_and_restricts_is_refused(run: Any) -> None:
    refused = run("-p", "--model", "offline", "--plugin-url", "https://example.org/kit.zip", "--", "say Hi.")
    assert (refused.stdout, refused.returncode) == ("", 1)
    assert "--plugin-url" in refused.stderr


@pytest.mark.parametrize(
    ("model", "variable"),
    [("openai:gpt", "OPENAI_BASE_URL"), ("sonnet", "ANTHROPIC_BASE_URL"), ("x", "ANTHROPIC_BASE_URL")],
)
def test_an_address_that_is_not_http_is_one_sentence_before_anything_else(run: Any, model: str, variable: str) -> None:
    done = run("-p", "--output-format", "stream-json", "--verbose", "--model", model, "hello", **{variable: "x.test"})

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"Error: {variable} must be a URL that starts with http:// or https://\n"


def test_a_model_without_a_name_is_one_sentence(run: Any) -> None:
    done = run("-p", "--model", "openai:", "hello")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Error: the model 'openai:' needs a name after the colon\n"
