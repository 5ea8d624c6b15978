"""Bash as the model has it: what it reads, where commands run, what is refused."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from parley.errors import ToolError
from parley.tools.base import AgentState, Context, ToolOutput, read_input, tool_schema
from parley.tools.bash import (
    LONGEST_TIMEOUT_MS,
    MOST_KEPT_BYTES,
    Bash,
    foreground_timeout_ms,
    format_result,
    script,
    whole_characters,
)
from parley.workspace.base import Scope
from parley.workspace.process.processes import Finished
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.remote_workspace import make_commands

DONE = Finished(exit_code=0, output=b"", total_bytes=0, spilled_to=None, last_words="", timed_out=False)


class Shell:
    """A session's Bash, with nothing else of the session."""

    def __init__(self, folder: Path) -> None:
        self.context = Context(
            state=AgentState(cwd=str(folder)),
            environment={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
            files=None,  # type: ignore[arg-type]  # a command needs none
            **make_commands(folder),
            new_id=lambda: "1234",
        )

    async def call(self, command: str, **input: Any) -> ToolOutput:
        bash = Bash()
        return await bash.run(read_input(bash, {"command": command, **input}), self.context, Scope(anywhere=True))

    async def text(self, command: str, **input: Any) -> str:
        return str((await self.call(command, **input)).content)

    async def failure(self, command: str, **input: Any) -> str:
        with pytest.raises(ToolError) as failed:
            await self.call(command, **input)
        return str(failed.value)


async def at(folder: Path, scenario: Callable[[Shell], Awaitable[None]]) -> None:
    shell = Shell(folder)
    async with asyncio.timeout(PATIENCE_SECONDS):
        try:
            await scenario(shell)
        finally:
            await shell.context.processes.close()


# What the model reads.


async def test_both_streams_come_back_as_one_text_and_as_detail(tmp_path: Path) -> None:
    async def scenario(shell: Shell) -> None:
        assert await shell.call("echo out; echo err >&2") == ToolOutput(
            content="out\nerr",
            detail={
                "stdout": "out\nerr",
                "stderr": "",
                "interrupted": False,
                "isImage": False,
                "noOutputExpected": False,
            },
            is_error=False,
        )

    await at(tmp_path, scenario)


async def test_silence_is_said(tmp_path: Path) -> None:
    async def scenario(shell: Shell) -> None:
        result = await shell.call("true")
        assert result.content == "(Bash completed with no output)"
        assert result.detail["noOutputExpected"] is True

    await at(tmp_path, scenario)


async def test_a_failure_reports_its_code_and_its_output(tmp_path: Path) -> None:
    async def scenario(shell: Shell) -> None:
        assert await shell.failure("echo oops >&2; exit 7") == "Exit code 7\noops"
        assert await shell.failure("exit 127") == "Exit code 127"
        assert await shell.failure("kill -KILL $$") == "Exit code 137"
        assert "syntax error" in await shell.failure("if")

    await at(tmp_path, scenario)


async def test_a_command_whose_time_is_up_reports_what_it_wrote(tmp_path: Path) -> None:
    async def scenario(shell: Shell) -> None:
        await shell.text("true")  # the supervisor is up, and the time is the command's own
        text = await shell.failure("echo before; sleep 600", timeout=1500)
        assert text == "Exit code 143\nCommand timed out after 1.5s\nbefore"

    await at(tmp_path, scenario)


async def test_bytes_that_are_not_characters_and_nul_are_replaced(tmp_path: Path) -> None:
    async def scenario(shell: Shell) -> None:
        text = await shell.text(r"printf 'a\377b\000c\355\240\200d\303\251'")
        assert text == "a\ufffdb\ufffdc\ufffd\ufffd\ufffddé"
        assert "\ufffd" in await shell.failure(r"printf '\000\200'; false")

    await at(tmp_path, scenario)


async def test_much_output_is_shown_in_part_with_the_place_of_the_whole(tmp_path: Path) -> None:
    async def scenario(shell: Shell) -> None:
        result = await shell.call("seq 1 20000")
        place = str(shell.context.results_folder / "1234.txt")
        whole_text = Path(place).read_text()
        assert result.content == (
            f"<persisted-output>\nOutput too large (106.3KB). Full output saved to: {place}\n\n"
            f"Preview (first 2KB):\n{whole_text[:2000]}\n...\n</persisted-output>"
        )
        assert result.detail["stdout"] == whole_text[:30_000].rstrip("\n")
        assert (result.detail["persistedOutputPath"], result.detail["persistedOutputSize"]) == (place, 108_894)
        assert whole_text.splitlines() == [str(number) for number in range(1, 20_001)]

    await at(tmp_path, scenario)


async def test_the_person_may_set_how_much_is_shown(tmp_path: Path) -> None:
    async def scenario(shell: Shell) -> None:
        shell.context.environment["BASH_MAX_OUTPUT_LENGTH"] = "10"
        result = await shell.call("echo 123456789012345")
        assert result.detail["stdout"] == "1234567890"
        shell.context.environment["BASH_MAX_OUTPUT_LENGTH"] = "999999999"
        shell.context = replace(shell.context, results_folder=tmp_path / "more")
        result = await shell.call("head -c 200000 /dev/zero | tr '\\0' x")
        assert len(result.detail["stdout"]) == MOST_KEPT_BYTES

    await at(tmp_path, scenario)


def test_output_that_could_not_be_saved_whole_says_so() -> None:
    cut = replace(DONE, output=b"abc", total_bytes=3 << 20, problem="it could not be saved: Read-only file system")
    assert "Output too large (3.0MB). it could not be saved" in str(format_result(cut, 1).content)
    cut = replace(cut, spilled_to="/x", problem="the output after 256 MB was dropped")
    assert "Its beginning was saved to: /x; the output after 256 MB was dropped" in str(format_result(cut, 1).content)


@pytest.mark.parametrize("text", ["é", "→", "😀"])
def test_a_cut_never_leaves_half_a_character(text: str) -> None:
    data = f"a{text}".encode()
    assert [whole_characters(data[:length]) for length in range(1, len(data))] == [b"a"] * (len(data) - 1)
    assert whole_characters(data) == data
    assert whole_characters(b"\x80" * 9) == b"\x80" * 9


# Where commands run, and with what.


async def test_the_directory_is_kept_from_call_to_call(tmp_path: Path) -> None:
    (tmp_path / "sub dir\n").mkdir()

    async def scenario(shell: Shell) -> None:
        await shell.call("cd sub*")
        assert await shell.text("pwd") == f"{tmp_path}/sub dir"
        assert shell.context.state.cwd == f"{tmp_path}/sub dir\n"
        await shell.failure("cd /usr; exit 3")
        assert await shell.text("pwd") == "/usr"

    await at(tmp_path, scenario)


async def test_the_directory_is_not_kept_if_a_variable_says_so(tmp_path: Path) -> None:
    async def scenario(shell: Shell) -> None:
        shell.context.environment["CLAUDE_BASH_MAINTAIN_PROJECT_WORKING_DIR"] = "1"
        await shell.call("cd /usr")
        assert await shell.text("pwd") == str(tmp_path)

    await at(tmp_path, scenario)


async def test_variables_are_not_kept(tmp_path: Path) -> None:
    async def scenario(shell: Shell) -> None:
        await shell.call("export A=1")
        assert await shell.text('echo "A is ${A-unset}"') == "A is unset"

    await at(tmp_path, scenario)


async def test_a_directory_that_is_gone_is_left_for_the_first_one_and_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()

    async def scenario(shell: Shell) -> None:
        await shell.call("cd sub")
        (tmp_path / "sub").rmdir()
        note = f"(The directory {tmp_path}/sub no longer exists; this ran in {tmp_path}.)\n"
        assert await shell.text("pwd") == f"{note}{tmp_path}"
        assert await shell.text("pwd") == str(tmp_path)
        (tmp_path / "sub").mkdir()
        await shell.call("cd sub")
        (tmp_path / "sub").rmdir()
        assert await shell.failure("exit 2") == f"{note}Exit code 2"

    await at(tmp_path, scenario)


async def test_if_the_first_directory_is_gone_too_the_model_is_informed(tmp_path: Path) -> None:
    start = tmp_path / "start"
    start.mkdir()

    async def scenario(shell: Shell) -> None:
        shell.context.state.cwd = str(start)
        await shell.call("true")
        start.rmdir()
        assert str(start) in await shell.failure("pwd")

    await at(tmp_path, scenario)


async def test_a_command_runs_as_if_it_were_typed(tmp_path: Path) -> None:
    async def scenario(shell: Shell) -> None:
        assert await shell.text('echo "$#" \'$x\' "it\'s"') == "0 $x it's"
        assert await shell.text("cat <<'EOF'\none\ntwo\nEOF") == "one\ntwo"
        assert await shell.text("set -x; :") == "++ :"
        assert await shell.text("# nothing but a remark") == "(Bash completed with no output)"
        assert await shell.text("exec echo gone") == "gone"

    await at(tmp_path, scenario)


async def test_nothing_is_sourced_before_a_command(tmp_path: Path) -> None:
    (tmp_path / "rc").write_text("echo sourced\n")

    async def scenario(shell: Shell) -> None:
        shell.context.environment.update({"BASH_ENV": str(tmp_path / "rc"), "ENV": str(tmp_path / "rc")})
        assert await shell.text('echo "${BASH_ENV-unset} ${ENV-unset}"') == "unset unset"

    await at(tmp_path, scenario)


@pytest.mark.parametrize(
    ("variables", "command", "output"),
    [
        ({"SHELLOPTS": "xtrace", "PS4": "$(echo traced >&2)"}, "echo plain", "plain"),
        ({"SHELLOPTS": "noglob"}, "echo a*", "a1 a2"),
        ({"BASHOPTS": "extglob:dotglob:nullglob"}, "shopt extglob dotglob nullglob | grep -c off", "3"),
        ({"BASH_COMPAT": "3.1"}, "echo ${BASH_COMPAT-unset}", "unset"),
        ({"POSIXLY_CORRECT": "1"}, "echo ${POSIXLY_CORRECT-unset}; set -o | grep -c 'posix.*off'", "unset\n1"),
        ({"CDPATH": "elsewhere"}, "cd sub && cat name", "here"),
        ({"GLOBIGNORE": "a1", "EXECIGNORE": "*/cat"}, "echo ${GLOBIGNORE-unset} ${EXECIGNORE-unset}", "unset unset"),
        ({"BASH_FUNC_ls%%": "() { echo hijacked; }"}, "ls sub", "name"),
        ({"BASH_XTRACEFD": "1"}, "set -x; set +x; echo ${BASH_XTRACEFD-unset} 2>/dev/null", "++ set +x\nunset"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
async def test_no_variable_changes_how_a_command_is_read(
    tmp_path: Path, variables: dict[str, str], command: str, output: str
) -> None:
    for folder, words in (("sub", "here"), ("elsewhere/sub", "there")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "name").write_text(f"{words}\n")
    for name in ("a1", "a2"):
        (tmp_path / name).touch()

    async def scenario(shell: Shell) -> None:
        shell.context.environment.update(variables)
        assert await shell.text(command) == output

    await at(tmp_path, scenario)


# Limits.


async def test_a_command_too_long_for_a_command_line_is_refused_with_advice(tmp_path: Path) -> None:
    async def scenario(shell: Shell) -> None:
        longest = "echo " + "x" * (128 * 1024 - 1 - len(script("echo ")))
        assert len(await shell.text(longest, timeout=60_000)) > 1000
        text = await shell.failure(f"{longest}x")
        assert "131072 bytes, and the limit is 131071" in text
        assert "Write it to a file" in text

    await at(tmp_path, scenario)


@pytest.mark.parametrize(
    ("asked", "environment", "expected"),
    [
        (None, {}, 120_000),
        (5_000, {}, 5_000),
        (0, {}, 1),
        (9_999_999, {}, LONGEST_TIMEOUT_MS),
        (None, {"BASH_DEFAULT_TIMEOUT_MS": "7000"}, 7_000),
        (9_999_999, {"BASH_MAX_TIMEOUT_MS": "900000"}, 900_000),
        (None, {"BASH_DEFAULT_TIMEOUT_MS": "900000"}, 900_000),
        (None, {"BASH_DEFAULT_TIMEOUT_MS": "soon", "BASH_MAX_TIMEOUT_MS": "-1"}, 120_000),
        (None, {"BASH_DEFAULT_TIMEOUT_MS": "0"}, 120_000),
    ],
)
def test_the_time_of_a_command(asked: int | None, environment: dict[str, str], expected: int) -> None:
    assert foreground_timeout_ms(asked, environment) == expected


async def test_without_a_session_nothing_runs_in_the_background(tmp_path: Path) -> None:
    async def scenario(shell: Shell) -> None:
        assert "without run_in_background" in await shell.failure("sleep 600", run_in_background=True)

    await at(tmp_path, scenario)


def test_the_model_is_shown_four_fields() -> None:
    shown = tool_schema(Bash())["input_schema"]
    assert list(shown["properties"]) == ["command", "timeout", "description", "run_in_background"]
    assert shown["required"] == ["command"]


async def test_keys_of_ours_do_not_reach_a_command(tmp_path: Path) -> None:
    from parley.settings.env_vars import child_environment

    async def scenario(shell: Shell) -> None:
        given = {"PATH": os.defpath, "ANTHROPIC_API_KEY": "sk-1", "CLAUDE_CODE_OAUTH_TOKEN": "sk-2", "MINE": "3"}
        shell.context = replace(shell.context, environment=child_environment(given))
        text = await shell.text("env; cat /proc/$PPID/environ | tr '\\0' '\\n'")
        assert "MINE=3" in text
        assert "sk-" not in text

    await at(tmp_path, scenario)
