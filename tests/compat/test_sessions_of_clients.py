"""The official SDKs' functions for sessions on ours, our engine after them, and stores of the client's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parley.models.script import ScriptedCall, ScriptedTurn
from tests.compat.harness import HELLO, Report, Stage, blocks, conversation, installed, said
from tests.compat.install import CURRENT_PYTHON, TYPESCRIPT

YES = ScriptedTurn(text="Yes.")
ERRAND = ScriptedCall(name="Agent", input={"description": "look around", "prompt": "Look for plums."})
DELEGATING = [ScriptedTurn(tools=[ERRAND]), ScriptedTurn(text="Two plums."), YES]
"""The session's model sends an agent, the agent answers, and so does the session's model."""
ONE = [("user", [said("one")]), ("assistant", [said("Yes.")])]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(installed(CURRENT_PYTHON), tmp_path)


@pytest.fixture
def node_stage(tmp_path: Path) -> Stage:
    return Stage(installed(TYPESCRIPT), tmp_path)


def ask(stage: Stage, prompt: str, **options: Any) -> Report:
    return stage.run("resume", [YES], prompt=prompt, options=options)


def change(stage: Stage, *changes: list[Any]) -> Report:
    return stage.run("changes", [], changes=changes, directory=str(stage.directory))


def id_of(report: Report) -> str:
    return str(report.messages[-1]["session_id"])


def test_a_session_that_the_sdk_renamed_and_tagged_continues(stage: Stage) -> None:
    session_id = id_of(ask(stage, "one"))
    changed = change(stage, ["rename_session", [session_id, "Our talk"]], ["tag_session", [session_id, "blue"]])
    assert [(info["custom_title"], info["tag"]) for info in changed.of("info")] == [("Our talk", "blue")]

    resumed = ask(stage, "two", resume=session_id)
    assert (id_of(resumed), resumed.warnings()) == (session_id, [])
    assert conversation(resumed.requests[-1]) == [*ONE, ("user", [said("two")])]
    (info,) = change(stage).of("info")
    assert (info["custom_title"], info["tag"]) == ("Our talk", "blue")


def test_a_session_that_the_sdk_forked_continues_with_its_history(stage: Stage) -> None:
    session_id = id_of(ask(stage, "one"))
    ask(stage, "two", resume=session_id)
    (fork,) = change(stage, ["fork_session", [session_id]]).of("changed")

    resumed = ask(stage, "three", resume=fork["session_id"])
    assert (id_of(resumed), resumed.warnings()) == (fork["session_id"], [])
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
    assert any(f"No conversation found with session ID: {session_id}" in str(line) for line in refused.warnings())
    assert refused.requests == []


def test_the_sdk_continues_at_an_earlier_line(stage: Stage) -> None:
    first = ask(stage, "one")
    session_id = id_of(first)
    (answer,) = [message for message in first.messages if message["class"] == "AssistantMessage"]
    ask(stage, "two", resume=session_id)

    forked = ask(stage, "other", resume=session_id, fork_session=True, resume_session_at=answer["uuid"])
    assert conversation(forked.requests[-1]) == [*ONE, ("user", [said("other")])]
    wrong = ask(
        stage, "x", resume=session_id, resume_session_at=answer["uuid"], resume_drops_turn="not the prompt of it"
    )
    assert any("Resume rejected by --resume-drops-turn:" in str(line) for line in wrong.warnings())


def stored(stage: Stage, *steps: dict[str, Any]) -> Report:
    return stage.run("store", [YES], steps=list(steps), directory=str(stage.directory))


def test_a_session_is_mirrored_into_a_store_of_the_client_and_resumed_from_it(stage: Stage) -> None:
    report = stored(stage, {"prompt": "one", "options": {}}, {"prompt": "two", "options": {}})

    assert report.warnings() == []
    assert conversation(report.requests[-1]) == [*ONE, ("user", [said("two")])]
    (session,) = report.of("session")
    assert session["first_prompt"] == "one"
    assert [entry["type"] for entry in report.of("entry")] == ["user", "assistant", "user", "assistant"]


def test_a_fork_of_a_stored_session_is_stored_whole(stage: Stage) -> None:
    fork = {"prompt": "two", "options": {"fork_session": True}}
    report = stored(stage, {"prompt": "one", "options": {}}, fork, {"prompt": "three", "options": {}})

    assert report.warnings() == []
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


def heard(report: Report) -> list[tuple[str, list[Any]]]:
    """What subagents and those who sent them said."""
    return [(entry["type"], blocks(entry["message"])) for entry in report.of("said")]


PLUMS = [("user", [said("Look for plums.")]), ("assistant", [said("Two plums.")])]


def test_the_sdk_finds_the_subagents_of_a_session_and_what_they_said(stage: Stage) -> None:
    asked = stage.run("resume", DELEGATING, prompt="one", options={})
    found = stage.run("subagents", [], session_id=id_of(asked), directory=str(stage.directory))

    assert len(found.of("agent")) == 1
    assert heard(found) == PLUMS


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Of a session that was mirrored, put to the SDK's suite with its store, and resumed when its files were gone."""
    stage = Stage(installed(CURRENT_PYTHON), tmp_path_factory.mktemp("stored"))
    return stage.run("conformance", DELEGATING, **places(stage), folder=str(stage.folder))


def places(stage: Stage) -> dict[str, Any]:
    return {"directory": str(stage.directory), "config": str(stage.folder / "config")}


def test_the_sdks_own_suite_for_stores_holds_for_one_with_sessions_of_ours(report: Report) -> None:
    """The suite asks for one store to look at, and for one for each of its contracts."""
    assert report.warnings() == []
    (contracts,) = report.of("contracts")
    assert contracts > 10
    assert report.of("untouched") == [[True] * contracts]
    ((session,), (info,)) = (report.of("session"), report.of("info"))
    assert (session["first_prompt"], info["session_id"]) == ("one", session["session_id"])
    assert len(report.of("agent")) == 1
    assert heard(report) == PLUMS


def test_a_session_with_subagents_is_resumed_from_a_store_when_its_files_are_gone(report: Report) -> None:
    first, *between, last = conversation(report.requests[-1])
    assert (first, last) == (("user", [said("one")]), ("user", [said("two")]))
    assert [block["type"] for _, blocks in between for block in blocks] == ["tool_use", "tool_result", "text"]


@pytest.mark.parametrize("store", ["as it is", "sorted"])
def test_a_session_that_the_sdk_put_into_a_store_is_resumed_from_it(stage: Stage, store: str) -> None:
    session_id = id_of(stage.run("resume", [ScriptedTurn(text="Grüße.")], prompt="über", options={}))
    report = stage.run("imported", [YES], prompt="two", session_id=session_id, store=store, **places(stage))

    assert report.warnings() == []
    assert conversation(report.requests[-1]) == [
        ("user", [said("über")]),
        ("assistant", [said("Grüße.")]),
        ("user", [said("two")]),
    ]


def test_the_typescript_sdk_mirrors_reads_and_resumes_a_session_with_a_subagent(node_stage: Stage) -> None:
    report = node_stage.run("store", DELEGATING, **places(node_stage))

    assert report.warnings() == []
    ((session,), (info,)) = (report.of("session"), report.of("info"))
    assert (session["firstPrompt"], info["sessionId"]) == ("one", session["sessionId"])
    assert len(report.of("agent")) == 1
    assert heard(report) == PLUMS
    assert conversation(report.requests[-1])[-1] == ("user", [said("two")])
    assert conversation(report.requests[-1])[0] == ("user", [said("one")])


def test_the_typescript_sdk_renames_tags_forks_and_deletes_sessions_of_ours(node_stage: Stage) -> None:
    asked = node_stage.run("query", DELEGATING, prompt="one")
    session_id = str(asked.messages[-1]["session_id"])
    changes = [["renameSession", session_id, "Our talk"], ["tagSession", session_id, "blue"]]
    changed = node_stage.run("changes", [], changes=changes, directory=str(node_stage.directory))
    assert [(info["customTitle"], info["tag"]) for info in changed.of("info")] == [("Our talk", "blue")]
    assert heard(changed) == PLUMS

    forked = node_stage.run("changes", [], changes=[["forkSession", session_id]], directory=str(node_stage.directory))
    ids = {session["sessionId"] for session in forked.of("session")}
    assert ids == {session_id, forked.of("changed")[0]["sessionId"]}
    gone = node_stage.run("changes", [], changes=[["deleteSession", session_id]], directory=str(node_stage.directory))
    assert {session["sessionId"] for session in gone.of("session")} == ids - {session_id}


def test_the_entry_core_runs_a_session_and_reads_it(node_stage: Stage) -> None:
    turns = [ScriptedTurn(tools=[ScriptedCall(name="mcp__host__secret", id="t1", input={})]), HELLO]
    options = {"allowedTools": ["mcp__host__secret"]}
    report = node_stage.run("core", turns, prompt="one", options=options, directory=str(node_stage.directory))

    assert report.warnings() == []
    assert "getSessionInfo" in report.of("exports")[0]
    assert report.messages[-1]["result"] == "Hello there."
    assert "forty-two" in str(report.requests[-1]["messages"][-1])
    info, deleted = report.of("info")
    assert (info["firstPrompt"], info["customTitle"], info["tag"]) == ("one", "Our talk", "blue")
    assert deleted is None
    assert [info["archived"] for info in report.of("archived") + report.of("unarchived")] == [True, False]
