"""`parley memory` and a memory that lives on from process to process, through the real executable."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from parley.memory.base import CURATOR, EntrySource
from parley.memory.knowledge_tree import EntryDraft, KnowledgeTree, MemoryDatabase
from tests.helpers.patience import PATIENCE_SECONDS
from tests.process.cli.conftest import PARLEY

ID = "11111111-1111-4111-8111-111111111111"
HERE = ("--db", "agent.db")
LONG = "say " + "My sister Ada keeps bees on a roof in Turin. " * 50


@pytest.fixture
def tree(tmp_path: Path) -> KnowledgeTree:
    """One with some history."""
    made = KnowledgeTree(MemoryDatabase(tmp_path / "agent.db"), lambda: "2026-11-16T03:00:00.000Z", CURATOR)
    made.create(EntryDraft(slug="people", title="People", body="Those we know."))
    source = EntrySource(session="s", seq=3, uuid="u3")
    made.create(EntryDraft(slug="ada", title="Ada", body="Keeps bees.\nIn Turin.", parent="people", sources=(source,)))
    made.update("ada", 1, body="Keeps bees.\nIn Rome.", links=("people",))
    return made


def scripted(folder: Path, *turns: str) -> tuple[str, str]:
    (folder / "curator.toml").write_text("".join(turns))
    return "--settings", json.dumps({"memory": {"model": f"scripted:{folder / 'curator.toml'}"}})


def create(slug: str, body: str, source: int = 0) -> str:
    given = f'slug = "{slug}", title = "{slug}", body = "{body}", sources = [{source}]'
    return f'[[turn]]\ntools = [{{name = "memory_create", input = {{ {given} }} }}]\n'


DONE = "[[turn]]\ntext = 'Noted.'\n"


def rows(done: Any) -> list[dict[str, Any]]:
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def lines(done: Any) -> list[str]:
    assert (done.returncode, done.stderr) == (0, "")
    return list(done.stdout.splitlines())


def test_a_person_sees_what_is_known_and_how_it_came_about(run: Any, tree: KnowledgeTree) -> None:
    assert lines(run("memory", "list", *HERE)) == ["people: People", "  ada: Ada"]
    assert lines(run("memory", "show", "ada", *HERE)) == [
        "# Ada",
        "slug     ada",
        "version  2, 2026-11-16T03:00:00, curator",
        "parent   people",
        "links    people",
        "from     s #3 (u3)",
        "",
        "Keeps bees.",
        "In Rome.",
    ]
    assert lines(run("memory", "show", "ada", "1", *HERE))[-1] == "In Turin."
    assert lines(run("memory", "history", "ada", *HERE)) == [
        "   1  2026-11-16T03:00:00  curator  Ada  from #3",
        "   2  2026-11-16T03:00:00  curator  Ada  from #3",
    ]
    assert lines(run("memory", "diff", "ada", *HERE)) == [
        "--- ada version 1",
        "+++ ada version 2",
        "@@ -2,4 +2,4 @@",
        " parent: people",
        "-links: ",
        "+links: people",
        " Keeps bees.",
        "-In Turin.",
        "+In Rome.",
    ]
    assert lines(run("memory", "search", "rome", *HERE)) == ["entry    ada: Ada"]
    assert [row["slug"] for row in rows(run("memory", "list", "--json", *HERE))] == ["ada", "people"]
    assert [row["version"] for row in rows(run("memory", "history", "ada", "--json", *HERE))] == [1, 2]


def test_a_person_takes_a_change_back_and_sees_first_what_that_would_be(run: Any, tree: KnowledgeTree) -> None:
    would = lines(run("memory", "undo", "ada", "--dry-run", *HERE))
    assert would[0] == "ada would be at version 3:"
    assert {"-In Rome.", "+In Turin."} <= set(would)
    assert len(tree.history("ada")) == 2

    assert lines(run("memory", "undo", "ada", *HERE)) == ["ada is at version 3:", *would[1:]]
    entry = tree.get("ada")
    assert entry is not None
    assert (entry.version, entry.body, entry.author) == (3, "Keeps bees.\nIn Turin.", "person")
    lines(run("memory", "undo", "ada", "2", *HERE))
    assert [each.body.split()[-1] for each in tree.history("ada")] == ["Turin.", "Rome.", "Turin.", "Rome."]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("show", "nobody"), "there is no entry 'nobody'"),
        (("show", "ada", "9"), "'ada' has no version 9 (versions: 1 to 2)"),
        (("undo", "ada", "9"), "'ada' has no earlier version 9 to restore (earlier versions: 1)"),
        (("undo", "ada", "x"), "VERSION must be a whole number, not 'x'"),
        (("undo", "people"), "'people' has entries below it: move or archive ada first"),
        (("show",), "missing argument SLUG"),
        (("consolidate", ID, "--model", "offline"), f"No conversation found with session ID: {ID}"),
        (("list", "--memory", "off"), "the memory is turned off"),
    ],
)
def test_what_cannot_be_is_an_error_that_says_why(
    run: Any, tree: KnowledgeTree, argv: tuple[str, ...], says: str
) -> None:
    done = run("memory", *argv, *HERE)

    is_usage = "\nUsage: parley memory " in done.stderr
    assert (done.returncode, done.stdout) == (2 if is_usage else 1, "")
    assert is_usage == (argv in (("show",), ("undo", "ada", "x")))
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_memory_that_is_not_there_is_no_empty_memory(run: Any, tmp_path: Path) -> None:
    done = run("memory", "list", "--db", "typo.db")

    assert (done.returncode, done.stderr) == (1, f"Error: there is no memory file {tmp_path / 'typo.db'}\n")
    assert not (tmp_path / "typo.db").exists()


def test_a_memory_without_entries_says_so_and_is_no_error(run: Any, tmp_path: Path) -> None:
    never = run("memory", "list")
    assert (never.returncode, never.stdout) == (0, "")
    assert never.stderr.startswith("The memory ")
    assert not list((tmp_path / "home").rglob("memory.db"))

    run("-p", "--model", "offline", "--memory", "on", "--", "say Hi.")
    after = run("memory", "list")
    assert (after.returncode, after.stdout, after.stderr) == (0, "", never.stderr)
    assert (run("memory", "list", "--json").stdout, run("memory", "search", "hi", "--json").returncode) == ("", 0)


def test_what_one_process_learns_the_next_one_knows(run: Any, tmp_path: Path) -> None:
    curator = scripted(tmp_path, create("ada", "Keeps bees in Turin."), DONE)
    argv = ("-p", "--output-format", "stream-json", "--verbose", "--model", "offline", *HERE)
    told = rows(run(*argv, "--session-id", ID, *curator, LONG))
    assert {**told[-1], "session_id": ID} == {
        "type": "system",
        "subtype": "consolidation",
        "session_id": ID,
        "entries_created": 1,
        "entries_updated": 0,
        "entries_archived": 0,
        "summary": "Noted.",
    }

    ask = 'call memory_search {"query": "turin bees"}'
    told = rows(run(*argv, ask))
    [found] = [line["tool_use_result"] for line in told if line.get("tool_use_result")]
    assert found["entries"] == ["ada"]
    assert not [line for line in told if line.get("subtype") == "permission_denied"]
    [read] = [
        line["message"]["content"][0]["content"]
        for line in rows(run(*argv, "--resume", ID, 'call memory_read {"messages": "0"}'))
        if line.get("tool_use_result")
    ]
    assert read.startswith("[#0 user]\nsay My sister Ada")


def test_a_one_shot_run_prints_its_answer_before_it_is_looked_through(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    curator = scripted(tmp_path, "[[turn]]\ndelay_ms = 600000\ntext = 'Much too late.'\n")
    argv = [PARLEY, "-p", "--model", "offline", *HERE, *curator, LONG]
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=tmp_path, env=environment
    ) as engine:
        assert engine.stdout is not None
        assert engine.stdout.readline().startswith(b"My sister Ada")
        engine.terminate()
        assert engine.wait(PATIENCE_SECONDS) == 143
        assert engine.stdout.read() == b""


def test_a_dry_run_of_a_consolidation_shows_what_would_change(run: Any, tmp_path: Path) -> None:
    run("-p", "--model", "offline", *HERE, "--session-id", ID, LONG)
    curator = scripted(tmp_path, create("ada", "Keeps bees."), DONE)

    would = lines(run("memory", "consolidate", ID, "--dry-run", *HERE, *curator))
    assert would[:2] == ["1 entries would be created, 0 updated, 0 archived", "Noted."]
    assert "+Keeps bees." in would
    assert run("memory", "list", *HERE).stdout == ""

    assert lines(run("memory", "consolidate", ID, *HERE, *curator))[0].startswith("1 entries created")
    assert lines(run("memory", "list", *HERE)) == ["ada: ada"]
    assert lines(run("memory", "consolidate", ID, *HERE, *curator)) == ["0 entries created, 0 updated, 0 archived"]


def test_a_fake_model_cannot_consolidate(run: Any) -> None:
    run("-p", "--model", "offline", *HERE, "--session-id", ID, "say Hi")
    done = run("memory", "consolidate", ID, "--model", "offline", *HERE)

    assert (done.returncode, done.stderr) == (
        1,
        "Error: offline is not a real model: choose one with --model, or memory.model in settings\n",
    )


def test_without_a_memory_nothing_of_it_is_loaded_or_written(run: Any, tmp_path: Path) -> None:
    run("-p", "--model", "offline", "--memory=off", *HERE, LONG)
    run("-p", "--model", "offline", LONG)

    assert MemoryDatabase(tmp_path / "agent.db").is_empty
    assert not list((tmp_path / "home").rglob("memory.db"))


def test_a_host_that_speaks_miriad_is_notified_of_it_between_turns_and_the_next_process_continues(
    run: Any, tmp_path: Path
) -> None:
    def say(*texts: str) -> str:
        return "".join(
            json.dumps({"type": "user", "message": {"role": "user", "content": text}}) + "\n" for text in texts
        )

    curator = scripted(tmp_path, create("ada", "Keeps bees in Turin."), DONE)
    argv = ("--stdio", "--model", "offline", *HERE)
    first = rows(run(*argv, *curator, stdin=say(LONG), IS_SANDBOX="1"))
    assert first[-1] == {
        "type": "system",
        "subtype": "consolidation",
        "entries_created": 1,
        "entries_updated": 0,
        "entries_archived": 0,
        "summary": "Noted.",
    }
    second = rows(run(*argv, stdin=say('call memory_search {"query": "sister turin"}'), IS_SANDBOX="1"))
    [call] = [
        block
        for line in second
        if line["type"] == "assistant"
        for block in line["message"]["content"]
        if block["type"] == "tool_use"
    ]
    [told] = [line["tool_result"]["content"] for line in second if line.get("subtype") == "tool_result"]
    assert (call["name"], call["input"]) == ("memory_search", {"query": "sister turin"})
    assert "ada (ada): Keeps bees in Turin." in told
    assert "#0 user" in told  # one conversation per database: the process before was in the same
