"""Memory files of folders below the working directory: heard when a file there is looked at, once."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.mcp import script, visit
from tests.session.engine.commands.test_commands import heard, put, saying

READ = "Instructions from files near what you looked at."


def looks(folder: Path, *names: str) -> str:
    return script(*[[("Read", {"file_path": str(folder / name)})] for name in names], "Done.", "Again.")


def house(folder: Path) -> None:
    put(folder, "CLAUDE.md", "At the door.")
    put(folder, "web/CLAUDE.md", "In the hall. @more.md")
    put(folder, "web/more.md", "And more.")
    put(folder, "web/deep/AGENTS.md", "In the cellar.")
    put(folder, "web/deep/a.txt", "a")
    put(folder, "web/b.txt", "b")
    put(folder, "c.txt", "c")


def nested(texts: list[str]) -> list[str]:
    return [text for text in texts if text.startswith(READ)]


async def test_memory_files_between_the_working_directory_and_a_file_are_added_once(tmp_path: Path) -> None:
    house(tmp_path)
    room = await visit(tmp_path, looks(tmp_path, "c.txt", "web/b.txt", "web/deep/a.txt", "web/b.txt"), saying("go"))
    hall, cellar = nested(heard(room))
    assert hall.endswith(
        f"Contents of {tmp_path}/web/CLAUDE.md:\n\nIn the hall. @more.md\n\n"
        f"Contents of {tmp_path}/web/more.md:\n\nAnd more."
    )
    assert cellar.endswith(f"Contents of {tmp_path}/web/deep/AGENTS.md:\n\nIn the cellar.")
    assert "hall" not in str(room.session.journal.system_text)
    again = await visit(tmp_path, looks(tmp_path, "web/deep/a.txt"), saying("go"), resume=room.session.id)
    assert len(nested(heard(again))) == 2


async def test_nothing_is_reported_files_elsewhere_of_calls_that_failed_or_where_a_rule_denies(tmp_path: Path) -> None:
    house(tmp_path)
    other = tmp_path / "elsewhere"
    put(other, "room/CLAUDE.md", "Not mine.")
    put(other, "room/d.txt", "d")
    inside = tmp_path / "web"
    failed = looks(tmp_path, "web/nothing.txt")
    room = await visit(inside, failed, saying("go"), skip_permissions=True)
    assert nested(heard(room)) == []
    away = await visit(inside, looks(other, "room/d.txt"), saying("go"), skip_permissions=True)
    assert nested(heard(away)) == []
    denied = await visit(
        tmp_path, looks(tmp_path, "web/deep/a.txt"), saying("go"), disallowed_tools=("Read(web/CLAUDE.md)",)
    )
    [cellar] = nested(heard(denied))
    assert "hall" not in cellar


async def test_a_prompt_of_ones_own_goes_without(tmp_path: Path) -> None:
    house(tmp_path)
    room = await visit(tmp_path, looks(tmp_path, "web/b.txt"), saying("go"), system_prompt="Mine.")
    assert nested(heard(room)) == []
