"""What the model hears of calls that were under way when an engine ended, and what is not run again."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.engine.session import recover
from parley.stores.base import Entry
from parley.workspace.base import Scope
from tests.helpers.session import Json, SessionHarness

BYPASS = {"permission_mode": "bypassPermissions"}


@pytest.mark.parametrize(
    ("tool", "allowed", "reads_only", "changes", "text"),
    [
        ("Bash", False, False, None, recover.NOT_RUN),
        ("Write", False, False, ["/f"], recover.NOT_RUN),
        ("Read", True, True, None, recover.READ_ONLY),
        ("Bash", True, False, [], recover.UNKNOWN),
        ("mcp__s__t", True, False, [], recover.UNKNOWN),
        ("Write", True, False, None, recover.UNKNOWN),
        ("Write", True, False, [], recover.NOT_DONE),
        ("Edit", True, False, ["/f"], recover.DONE.format(paths="/f")),
    ],
)
def test_only_what_is_certain_is_reported(
    tool: str, allowed: bool, reads_only: bool, changes: list[str] | None, text: str
) -> None:
    assert (
        recover.outcome_text(tool, recorded=True, allowed=allowed, reads_only=reads_only, changes=lambda: changes)
        == text
    )


@pytest.mark.parametrize(
    ("tool", "reads_only", "text"),
    [
        ("Bash", False, recover.UNKNOWN),
        ("Write", False, recover.UNKNOWN),
        ("Read", True, recover.READ_ONLY),
    ],
)
def test_of_a_call_of_another_engine_only_its_kind_is_certain(tool: str, reads_only: bool, text: str) -> None:
    told = recover.outcome_text(tool, recorded=False, allowed=False, reads_only=reads_only, changes=list)
    assert told == text


def call(name: str, **input: str) -> str:
    pairs = ", ".join(f"{key} = {value!r}" for key, value in input.items())
    return f"[[turn]]\ntools = [{{ name = {name!r}, id = 't1', input = {{ {pairs} }} }}]\n[[turn]]\ntext = 'Done.'\n"


async def left_behind(folder: Path, script: str, at: str) -> str:
    """A session whose engine ended when a call had come to a certain point; returns its id."""

    async with SessionHarness(folder, script, **BYPASS) as harness:
        log = harness.session.config.storage.log
        kept, append = [], log.append

        def dying(*entries: Entry) -> None:
            """Nothing gets to the disk any more from a certain entry on."""
            for entry in entries:
                if at in kept:
                    return
                append(entry)
                kept.append(entry.kind)

        log.append = dying  # type: ignore[method-assign]
        harness.prompt("go")
        await harness.receive("result")
    return harness.session.id


async def result_after_resume(folder: Path, session_id: str) -> Json:
    async with SessionHarness(folder, "[[turn]]\ntext = 'On.'\n", resume=session_id, **BYPASS) as harness:
        harness.prompt("go on")
        assert (await harness.receive("result"))["result"] == "On."
        [*_, message, _] = harness.session.journal.history.render()
    block, prompt = message["content"]
    assert prompt["text"] == "go on"
    return dict(block)


async def test_a_call_that_was_never_allowed_did_not_run(tmp_path: Path) -> None:
    session_id = await left_behind(tmp_path, call("Bash", command="touch made"), at="assistant")

    assert (await result_after_resume(tmp_path, session_id))["content"] == recover.NOT_RUN


async def test_the_outcome_of_an_interrupted_command_is_unknown(tmp_path: Path) -> None:
    session_id = await left_behind(tmp_path, call("Bash", command="touch made"), at="permission")

    assert (await result_after_resume(tmp_path, session_id))["content"] == recover.UNKNOWN


async def test_a_file_that_was_written_is_known_to_be_written(tmp_path: Path) -> None:
    made = tmp_path / "made"
    session_id = await left_behind(tmp_path, call("Write", file_path=str(made), content="x"), at="permission")

    assert made.read_text() == "x"
    assert (await result_after_resume(tmp_path, session_id))["content"] == recover.DONE.format(paths=made)


async def test_a_file_that_was_not_written_is_known_not_to_be(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    script = call("Write", file_path=str(tmp_path / "folder"), content="x")
    session_id = await left_behind(tmp_path, script, at="permission")

    assert (await result_after_resume(tmp_path, session_id))["content"] == recover.NOT_DONE


async def test_changes_are_noted_under_the_call_that_made_them(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, "") as harness:
        files = harness.session.config.workspace.files
        files.begin_message("m")
        files.write(str(tmp_path / "a"), b"1", Scope(anywhere=True, call="t1"), replacing=None)
        files.write(str(tmp_path / "b"), b"2", Scope(anywhere=True, call="t2"), replacing=None)

        assert files.changed_by("t2") == [str(tmp_path / "b")]
        assert files.changed_by("t3") == []
