"""Denied calls in text output: a line on stderr for each, with the flags that would have allowed it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

NOBODY = "was not given: there is no one to ask."


def directives(*lines: str) -> str:
    return "\n".join(lines)


def call(tool: str, **input: Any) -> str:
    return f"call {tool} {json.dumps(input)}"


def ask(run: Any, prompt: str, *flags: str) -> Any:
    return run("-p", "--model", "offline", *flags, "--", prompt)


def denied(done: Any) -> list[str]:
    return [line for line in done.stderr.splitlines() if line.startswith("denied: ")]


def test_each_denied_call_is_reported_once(run: Any) -> None:
    done = ask(run, directives(call("Bash", command="make a"), call("Write", file_path="b", content="c"), "say Done."))

    assert (done.returncode, done.stdout) == (0, "Done.\n")
    unapproved = f"Permission to use Bash {NOBODY} No rule allows the command, and it is not known to be read-only."
    assert done.stderr.splitlines() == [
        f"denied: Bash (make a): {unapproved} To allow it: --allowedTools 'Bash(make a *)'",
        f"denied: Write (b): Permission to use Write {NOBODY} To allow it: --permission-mode acceptEdits",
    ]


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        (call("Bash", command="echo 'a b' > made"), "made"),
        (call("Bash", command="touch made"), "made"),
        (call("Bash", command="python3 -c \"open('made', 'w')\""), "made"),
        (call("Write", file_path="made", content="x"), "made"),
        (call("Write", file_path="../made-outside", content="x"), "../made-outside"),
    ],
)
def test_the_flags_that_are_shown_allow_the_call(run: Any, tmp_path: Path, asked: str, shown: str) -> None:
    [line] = denied(ask(run, directives(asked, "say Done.")))
    made = tmp_path / shown
    alternatives = line.partition("To allow it: ")[2].split(" or ")

    for flags in alternatives:
        assert not made.exists()
        assert denied(ask(run, directives(asked, "say Done."), *shlex.split(flags))) == []
        made.unlink()


def test_the_flags_for_a_write_in_the_working_directory_are_alternatives(run: Any) -> None:
    [line] = denied(ask(run, directives(call("Bash", command="touch zz"), "say Done.")))

    assert line.endswith(" To allow it: --allowedTools 'Bash(touch zz *)' or --permission-mode acceptEdits")


def test_a_rule_or_mode_that_denies_is_named(run: Any) -> None:
    by_rule = ask(run, directives(call("Bash", command="rm x"), "say Done."), "--disallowedTools", "Bash(rm *)")
    by_mode = ask(run, directives(call("Bash", command="make x"), "say Done."), "--permission-mode", "dontAsk")

    assert denied(by_rule) == ["denied: Bash (rm x): Bash was denied: the rule Bash(rm *) (flag) forbids it."]
    [line] = denied(by_mode)
    assert "the mode dontAsk denies such calls" in line
    assert line.endswith("To allow it: --allowedTools 'Bash(make x *)'")


def test_a_hook_that_denies_is_reported(run: Any, tmp_path: Path) -> None:
    hooks = {"PreToolUse": [{"hooks": [{"type": "command", "command": "echo not today >&2; exit 2"}]}]}
    done = ask(run, directives(call("Bash", command="ls"), "say Done."), "--settings", json.dumps({"hooks": hooks}))

    [line] = denied(done)
    assert line.startswith("denied: Bash (ls): ")
    assert "not today" in line


def test_a_denied_call_of_a_subagent_is_reported(run: Any) -> None:
    inner = directives(call("Bash", command="make x"), "say Inner.")
    outer = directives(call("Agent", description="d", prompt=inner, subagent_type="general-purpose"), "say Outer.")
    done = ask(run, outer, "--allowedTools", "Agent")

    assert [line.partition(":")[2][:14] for line in denied(done)] == [" Bash (make x)"]


def test_secrets_and_control_characters_are_not_shown(run: Any) -> None:
    key = "sk-ant-" + "x" * 40
    done = ask(run, directives(call("Bash", command=f"make a\n\x1b[31m\u202e KEY={key}"), "say Done."))

    [line] = denied(done)
    assert line.startswith(r"denied: Bash (make a\n\x1b[31m\u202e KEY=[redacted]): ")
    assert "To allow it" not in line  # the rule would contain them


@pytest.mark.parametrize("output_format", ["json", "stream-json"])
def test_output_for_programs_has_the_denials_in_its_messages_only(run: Any, output_format: str) -> None:
    flags = ("--output-format", output_format, "--verbose")
    done = ask(run, directives(call("Bash", command="make a"), "say Done."), *flags)

    assert denied(done) == []
    assert "call_denied" not in done.stdout
    assert '"permission_denials":[{"tool_name":"Bash"' in done.stdout


def test_a_denial_can_fail_the_run_with_an_exit_code_of_its_own(run: Any) -> None:
    prompt = directives(call("Bash", command="make a"), "say Done.")
    failed, other = ask(run, prompt, "--fail-on-denial"), ask(run, "fail 400 no", "--fail-on-denial")

    assert (failed.returncode, failed.stdout) == (3, "Error: Permission was denied: Bash\n")
    assert len(denied(failed)) == 1
    assert other.returncode == 1


def test_a_denial_fails_a_run_with_structured_output_too(run: Any) -> None:
    answer = call("StructuredOutput", a=1)
    schema = '{"type": "object", "properties": {"a": {"type": "integer"}}}'
    done = ask(
        run, directives(call("Bash", command="make a"), "show", answer), "--json-schema", schema, "--fail-on-denial"
    )

    assert done.returncode == 3
