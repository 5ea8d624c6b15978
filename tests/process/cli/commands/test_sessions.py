"""`parley sessions` through the real executable, on every store that needs no server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ID = "11111111-1111-4111-8111-111111111111"
NEW = "22222222-2222-4222-8222-222222222222"
STORES = (("--store", "claude"), ("--store", "folder:kept"), ("--db", "kept.db"))


def begin(run: Any, *where: str, prompt: str = "say The quick brown fox.") -> None:
    done = run("-p", "--model", "offline", "--session-id", ID, *where, prompt)
    assert (done.returncode, done.stderr) == (0, "")


def rows(done: Any) -> list[dict[str, Any]]:
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("where", STORES, ids=lambda where: where[1])
def test_a_session_can_be_listed_renamed_tagged_found_and_deleted(run: Any, where: tuple[str, str]) -> None:
    begin(run, *where)
    run("sessions", "rename", ID, "About a fox", *where)
    run("sessions", "tag", ID, "animals", *where)

    (listed,) = rows(run("sessions", "list", "--json", *where))
    assert (listed["id"], listed["title"], listed["tag"]) == (ID, "About a fox", "animals")
    assert listed["first_prompt"] == "say The quick brown fox."
    assert rows(run("sessions", "show", ID, "--json", *where)) == [listed]
    shown = run("sessions", "show", ID, *where).stdout
    assert "user: say The quick brown fox." in shown
    assert "assistant: The quick brown fox." in shown
    assert [hit["id"] for hit in rows(run("sessions", "search", "FOX quick", "--json", *where))] == [ID, ID]
    header, line = run("sessions", "list", *where).stdout.splitlines()
    assert header.split() == ["ID", "MODIFIED", "SIZE", "TAG", "TITLE"]
    assert line.startswith(f"{ID}  just now  ")
    assert line.endswith("  animals  About a fox")

    assert run("sessions", "delete", ID, *where).stdout == f"Deleted session {ID}\n"
    assert run("sessions", "list", "--all", *where).stdout == ""
    gone = run("sessions", "show", ID, *where)
    assert (gone.returncode, gone.stderr) == (1, f"Error: No conversation found with session ID: {ID}\n")


@pytest.mark.parametrize("goal", STORES, ids=lambda where: where[1])
def test_a_session_moves_to_another_store_without_loss_and_continues_there(
    run: Any, tmp_path: Path, goal: tuple[str, str]
) -> None:
    first = ("--store", "folder:first")
    begin(run, *first)
    run("sessions", "tag", ID, "kept", *first)
    run("sessions", "export", ID, "out.ndjson", *first)
    there = run("sessions", "import", "out.ndjson", *goal)
    assert (there.returncode, there.stdout, there.stderr) == (0, f"{ID}\n", "")

    exported = run("sessions", "export", ID, *goal).stdout.splitlines()
    before = (tmp_path / "out.ndjson").read_text().splitlines()
    assert exported[1:] == before[1:]
    assert json.loads(exported[0])["info"]["tag"] == "kept"
    assert (tmp_path / "out.ndjson").stat().st_mode & 0o777 == 0o600
    resumed = run("-p", "--model", "offline", "--resume", ID, *goal, "say And on.")
    assert (resumed.returncode, resumed.stdout.strip()) == (0, "And on.")
    again = run("sessions", "import", "out.ndjson", *goal)
    assert (again.returncode, "already in use" in again.stderr) == (1, True)


def test_what_was_said_is_shown_to_its_end(run: Any) -> None:
    said = "fox " * 100 + "and hound"
    begin(run, prompt=f"say {said}")
    assert f"assistant: {said}\n" in run("sessions", "show", ID).stdout


def test_a_session_is_found_by_its_id_in_any_layout(run: Any, tmp_path: Path) -> None:
    begin(run, "--store", "folder")
    done = run("-p", "--model", "offline", "--output-format", "json", "--resume", ID, "say Found.")

    assert json.loads(done.stdout)["session_id"] == ID
    messages = tmp_path / "home" / ".claude" / "sessions" / ID / "messages.jsonl"
    assert b"say Found." in messages.read_bytes()
    assert not (tmp_path / "home" / ".claude" / "projects").exists()


def test_a_fork_is_a_session_of_its_own(run: Any) -> None:
    begin(run)
    run("sessions", "rename", ID, "Fox")
    assert rows(run("sessions", "fork", ID, "--session-id", NEW, "--json")) == [{"id": NEW}]

    titles = {row["id"]: row["title"] for row in rows(run("sessions", "list", "--json"))}
    assert titles == {ID: "Fox", NEW: "Fox (fork)"}
    lines = run("sessions", "export", NEW).stdout.splitlines()[1:-1]
    told = [json.loads(line) for line in lines]
    assert {entry["message"]["session_id"] for entry in told if entry["kind"] in ("user", "assistant")} == {NEW}


def test_a_damaged_session_is_refused_and_repaired(run: Any, tmp_path: Path) -> None:
    begin(run)
    run("-p", "--model", "offline", "--resume", ID, "say More.")
    (path,) = (tmp_path / "home" / ".claude" / "projects").glob(f"*/{ID}.jsonl")
    whole = path.read_bytes()
    assert "is not damaged" in run("sessions", "repair", ID).stdout
    path.write_bytes(whole.replace(b'"text":"The quick', b'"text":"The thick', 1))
    refused = run("-p", "--model", "offline", "--resume", ID, "say More.")
    assert (refused.returncode, f"`parley sessions repair {ID}`" in refused.stderr + refused.stdout) == (1, True)

    (mended,) = rows(run("sessions", "repair", ID, "--json"))
    aside = Path(mended["mended"]["aside"])
    assert path.read_bytes() + aside.read_bytes() == whole.replace(b'"text":"The quick', b'"text":"The thick', 1)
    assert whole.startswith(path.read_bytes())
    assert b"say The quick" in path.read_bytes()
    assert run("-p", "--model", "offline", "--resume", ID, "say Well again.").stdout.strip() == "Well again."


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("", "not an exported session"),
        ('{"x":1}\n{"y":2}\n', "not an exported session: line 1"),
        ('{"parley":"session","version":9}\n{}\n', "has version 9"),
        ('{"parley":"session","version":1,"info":{}}\n{}\n', "line 1 of the exported session"),
        ("not json\nat all\n", "line 1 of the exported session"),
    ],
)
def test_what_is_not_an_exported_session_is_refused(run: Any, written: str, told: str) -> None:
    done = run("sessions", "import", "-", stdin=written)

    assert (done.returncode, told in done.stderr, "Traceback" in done.stderr) == (1, True, False)
    assert run("sessions", "list", "--all").stdout == ""


@pytest.mark.parametrize("where", [(), ("--store", "folder"), ("--db", "sessions.db")])
def test_an_entry_that_is_invalid_is_refused_and_leaves_nothing_behind(run: Any, where: tuple[str, ...]) -> None:
    begin(run)
    exported = run("sessions", "export", ID).stdout
    run("sessions", "delete", ID)
    done = run("sessions", "import", "-", *where, stdin=exported.replace('"content":"say ', '"contents":"say '))

    assert done.stderr == "Error: line 2 of the exported session: `content` is missing or has the wrong type\n"
    assert (done.returncode, run("sessions", "list", "--all", *where).stdout) == (1, "")


def test_an_export_that_was_cut_off_is_refused(run: Any) -> None:
    begin(run)
    exported = run("sessions", "export", ID).stdout.splitlines(keepends=True)
    run("sessions", "delete", ID)
    done = run("sessions", "import", "-", stdin="".join(exported[:-1]))

    assert (done.returncode, "is incomplete" in done.stderr) == (1, True)
    assert run("sessions", "list").stdout == ""


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("rename", ID), "missing argument TITLE"),
        (("rename", ID, " "), "the title must not be empty"),
        (("rename", ID, "x" * 1001), "the title must not be longer than 1000 characters"),
        (("tag", ID, "x" * 1001), "the tag must not be longer than 1000 characters"),
        (("list", "--limit", "x"), "--limit must be a whole number"),
        (("list", "--limit", "9" * 23), "--limit must not have more than 15 digits"),
        (("list", "--store", "cloud"), "unknown store 'cloud'"),
        (("list", "--store", "folder", "--db", "x"), "cannot be combined"),
        (("import", "nowhere"), "cannot read nowhere"),
        (("delete", ID), "No conversation found"),
        (("fork", ID, "--session-id", "x"), "No conversation found"),
        (("list", "--store", "postgres://127.0.0.1:1/x"), "cannot connect to the database"),
    ],
)
def test_what_cannot_be_done_is_reported(run: Any, argv: tuple[str, ...], told: str) -> None:
    done = run("sessions", *argv)

    code = 2 if "\nUsage: parley sessions " in done.stderr else 1
    assert (done.returncode, told in done.stderr, "Traceback" in done.stderr) == (code, True, False), done.stderr
    assert (code == 2) == (argv in (("rename", ID), *(("list", "--limit", digits) for digits in ("x", "9" * 23))))


def test_an_export_that_fails_leaves_the_file_as_it_was(run: Any, tmp_path: Path) -> None:
    begin(run)
    (tmp_path / "exported").write_text("before")
    (path,) = (tmp_path / "home" / ".claude" / "projects").glob(f"*/{ID}.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"text":"The quick', b'"text":"The thick', 1))

    assert "is damaged" in run("sessions", "export", ID, "exported").stderr
    assert (tmp_path / "exported").read_text() == "before"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["exported", "home"]


def test_help_names_every_command(run: Any) -> None:
    done = run("sessions", "--help")

    assert done.returncode == 0
    names = ("list", "show", "agents", "search", "export", "import", "fork", "rename", "tag", "delete", "repair")
    assert all(f"\n  {name} " in done.stdout for name in names)


def test_a_password_on_the_command_line_is_warned_of(run: Any) -> None:
    done = run("-p", "--model", "offline", "--store", "postgres://me:secret@127.0.0.1:1/x", "say Hi.")

    assert done.returncode == 1
    assert "use PARLEY_STORE instead" in done.stderr
    assert "secret" not in done.stderr


@pytest.mark.parametrize("where", STORES, ids=lambda where: where[1])
def test_what_subagents_said_is_shown_and_moves_with_their_session(run: Any, where: tuple[str, str]) -> None:
    errand = json.dumps({"description": "count plums", "prompt": "say Two plums."})
    begin(run, *where, prompt=f"call Agent {errand}\nsay Counted.")
    (agent,) = rows(run("sessions", "agents", ID, "--json", *where))
    assert agent["meta"]["agentType"] == "general-purpose"
    said = run("sessions", "agents", ID, agent["id"], *where).stdout
    assert ("user: say Two plums." in said, "assistant: Two plums." in said) == (True, True)

    exported = run("sessions", "export", ID, *where).stdout
    run("sessions", "export", ID, "out.ndjson", *where)
    run("sessions", "delete", ID, *where)
    assert run("sessions", "import", "out.ndjson", "--db", "other.db").returncode == 0
    assert run("sessions", "agents", ID, agent["id"], "--db", "other.db").stdout == said
    assert run("sessions", "export", ID, "--db", "other.db").stdout.splitlines()[1:] == exported.splitlines()[1:]
    nobody = run("sessions", "agents", ID, "a9", "--db", "other.db")
    assert (nobody.returncode, nobody.stderr) == (1, f"Error: session {ID} has no subagent 'a9'\n")


# How a session is named.

OTHER = "11112222-1111-4111-8111-111111111111"


@pytest.fixture
def two(run: Any) -> None:
    """Two sessions whose ids begin alike; one has a title."""
    begin(run)
    run("-p", "--model", "offline", "--session-id", OTHER, "--name", "The other", "say More.")


@pytest.mark.parametrize("name", ["11112222", "1111222", "The other", "  The   other "])
def test_a_session_is_named_by_the_start_of_its_id_or_its_title_everywhere(run: Any, two: None, name: str) -> None:
    (shown,) = rows(run("sessions", "show", name, "--json"))
    assert shown["id"] == OTHER
    assert "say More." in run("attach", name, "--no-follow").stdout
    replayed = rows(run("permissions", "replay", name, "--settings", "{}", "--json"))
    assert replayed[0]["session_id"] == OTHER
    resumed = run("-p", "--model", "offline", "--output-format", "json", "--resume", name, "say On.")
    assert json.loads(resumed.stdout)["session_id"] == OTHER


@pytest.mark.parametrize("argv", [("sessions", "show"), ("attach",), ("-p", "--model", "offline", "x", "--resume")])
def test_a_name_that_fits_several_sessions_is_refused_with_a_list_of_them(
    run: Any, two: None, argv: tuple[str, ...]
) -> None:
    done = run(*argv, "1111")

    assert (done.returncode, done.stdout) == (1, "")
    assert "2 sessions have an id that starts with '1111'" in done.stderr
    assert f"{ID} (say The quick brown fox., " in done.stderr
    assert f"{OTHER} (The other, " in done.stderr


def test_changes_are_reported_and_can_be_read_as_json(run: Any, two: None) -> None:
    assert run("sessions", "rename", "11112222", "New").stdout == f"Session {OTHER} has the title 'New'\n"
    assert run("sessions", "tag", "New", "kept").stdout == f"Session {OTHER} has the tag 'kept'\n"
    assert rows(run("sessions", "tag", "New", "--json")) == [{"id": OTHER, "tag": None}]
    assert rows(run("sessions", "rename", "New", "Newer", "--json")) == [{"id": OTHER, "title": "Newer"}]
    assert rows(run("sessions", "delete", ID, "--json")) == [{"id": ID, "deleted": True}]


def test_without_a_terminal_only_a_whole_id_or_yes_deletes(run: Any, two: None) -> None:
    refused = run("sessions", "delete", "The other")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"`delete` needs --yes or the complete id of session {OTHER}" in refused.stderr

    assert run("sessions", "delete", "The other", "--yes").stdout == f"Deleted session {OTHER}\n"
    assert run("sessions", "delete", ID).stdout == f"Deleted session {ID}\n"


def test_an_empty_list_says_so_on_stderr(run: Any, tmp_path: Path) -> None:
    done = run("sessions", "list")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"No sessions of {tmp_path} (--all lists those of all directories).\n"
    assert run("sessions", "list", "--all").stderr == "No sessions.\n"
    assert run("sessions", "list", "--json").stderr == ""
    assert run("sessions", "search", "fox").stderr == "No message contains 'fox'.\n"


def test_the_requests_of_a_session_are_listed_with_what_they_read_from_the_cache(run: Any) -> None:
    begin(run)
    [request] = json.loads(run("context", ID, "--json").stdout)["requests"]
    header, line = run("context", ID).stdout.splitlines()

    assert (request["read"], request["missed"], request["reason"]) == (0, 0, "the first request")
    assert header.split() == ["REQUEST", "TIME", "MODEL", "READ", "WRITTEN", "FRESH", "MISSED", "WHY"]
    assert line.endswith("the first request")
