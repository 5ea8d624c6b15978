"""The official Python SDK's functions for sessions on ours, our engine after them, and stores of the client's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from harness import Report, Stage, conversation, installed, said
from install import CURRENT_PYTHON

from parley.models.script import ScriptedTurn

YES = ScriptedTurn(text="Yes.")
ONE = [("user", [said("one")]), ("assistant", [said("Yes.")])]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(installed(CURRENT_PYTHON), tmp_path)


def ask(stage: Stage, prompt: str, **options: Any) -> Report:
    return stage.run("resume", [YES], prompt=prompt, options=options)


def change(stage: Stage, *changes: list[Any]) -> Report:
    return stage.run("changes", [], changes=changes, directory=str(stage.directory))


def id_of(report: Report) -> str:
    return str(report.messages[-1]["session_id"])


def test_a_session_that_the_sdk_renamed_and_tagged_goes_on(stage: Stage) -> None:
    session_id = id_of(ask(stage, "one"))
    changed = change(stage, ["rename_session", [session_id, "Our talk"]], ["tag_session", [session_id, "blue"]])
    assert [(info["custom_title"], info["tag"]) for info in changed.of("info")] == [("Our talk", "blue")]

    resumed = ask(stage, "two", resume=session_id)
    assert (id_of(resumed), resumed.complaints()) == (session_id, [])
    assert conversation(resumed.requests[-1]) == [*ONE, ("user", [said("two")])]
    (info,) = change(stage).of("info")
    assert (info["custom_title"], info["tag"]) == ("Our talk", "blue")


def test_a_session_that_the_sdk_forked_goes_on_with_its_history(stage: Stage) -> None:
    session_id = id_of(ask(stage, "one"))
    ask(stage, "two", resume=session_id)
    (fork,) = change(stage, ["fork_session", [session_id]]).of("changed")

    resumed = ask(stage, "three", resume=fork["session_id"])
    assert (id_of(resumed), resumed.complaints()) == (fork["session_id"], [])
    assert conversation(resumed.requests[-1]) == [
        *ONE,
        ("user", [said("two")]),
        ("assistant", [said("Yes.")]),
        ("user", [said("three")]),
    ]


def test_a_session_that_the_sdk_deleted_is_unknown(stage: Stage) -> None:
    session_id = id_of(ask(stage, "one"))
    assert change(stage, ["delete_session", [session_id]]).of("session") == []

    refused = ask(stage, "two", resume=session_id)
    assert any(f"No conversation found with session ID: {session_id}" in str(line) for line in refused.complaints())
    assert refused.requests == []


def test_the_sdk_goes_on_at_an_earlier_line(stage: Stage) -> None:
    first = ask(stage, "one")
    session_id = id_of(first)
    (answer,) = [message for message in first.messages if message["class"] == "AssistantMessage"]
    ask(stage, "two", resume=session_id)

    forked = ask(stage, "other", resume=session_id, fork_session=True, resume_session_at=answer["uuid"])
    assert conversation(forked.requests[-1]) == [*ONE, ("user", [said("other")])]
    wrong = ask(
        stage, "x", resume=session_id, resume_session_at=answer["uuid"], resume_drops_turn="not the prompt of it"
    )
    assert any("Resume rejected by --resume-drops-turn:" in str(line) for line in wrong.complaints())


def stored(stage: Stage, *steps: dict[str, Any]) -> Report:
    return stage.run("store", [YES], steps=list(steps), directory=str(stage.directory))


def test_a_session_is_mirrored_into_a_store_of_the_client_and_resumed_from_it(stage: Stage) -> None:
    report = stored(stage, {"prompt": "one", "options": {}}, {"prompt": "two", "options": {}})

    assert report.complaints() == []
    assert conversation(report.requests[-1]) == [*ONE, ("user", [said("two")])]
    (session,) = report.of("session")
    assert session["first_prompt"] == "one"
    assert [entry["type"] for entry in report.of("entry")] == ["user", "assistant", "user", "assistant"]


def test_a_fork_of_a_stored_session_is_stored_whole(stage: Stage) -> None:
    fork = {"prompt": "two", "options": {"fork_session": True}}
    report = stored(stage, {"prompt": "one", "options": {}}, fork, {"prompt": "three", "options": {}})

    assert report.complaints() == []
    assert conversation(report.requests[-1]) == [
        *ONE,
        ("user", [said("two")]),
        ("assistant", [said("Yes.")]),
        ("user", [said("three")]),
    ]
    assert len(report.of("session")) == 2


def test_nothing_is_mirrored_for_a_client_that_does_not_ask(stage: Stage) -> None:
    ask(stage, "one")
    (path,) = (stage.folder / "config" / "projects").rglob("*.jsonl")

    assert not any("mirrored" in json.loads(line) for line in path.read_text().splitlines())
