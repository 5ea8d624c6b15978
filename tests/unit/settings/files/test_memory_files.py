"""Memory files and their imports."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from parley.settings.files.memory_files import (
    HEADING,
    MOST_BYTES,
    MOST_FILE_BYTES,
    MemoryPaths,
    MemoryText,
    find_imports,
    folders,
    load_memory,
)


@pytest.fixture
def places(tmp_path: Path) -> MemoryPaths:
    (tmp_path / "home" / ".claude").mkdir(parents=True)
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "repo" / "deep" / "er").mkdir(parents=True)
    return MemoryPaths(
        cwd=str(tmp_path / "repo" / "deep" / "er"), config=tmp_path / "home" / ".claude", home=tmp_path / "home"
    )


def write(folder: Path | str, **files: str) -> None:
    for name, text in files.items():
        path = Path(folder, name.replace("__", "/") + ".md")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def names(memory: MemoryText, base: Path) -> list[str]:
    return [os.path.relpath(file, base) for file in memory.files]


def but(places: MemoryPaths, **changes: Any) -> MemoryPaths:
    return MemoryPaths(**{field: getattr(places, field) for field in places.__struct_fields__} | changes)


def test_files_come_in_a_fixed_order_from_the_person_down_to_the_folder(places: MemoryPaths, tmp_path: Path) -> None:
    write(places.config, CLAUDE="person")
    write(tmp_path, CLAUDE="outside the repository")
    write(tmp_path / "repo", CLAUDE="root", AGENTS="agents", **{".claude__CLAUDE": "hidden", "CLAUDE.local": "local"})
    write(places.cwd, CLAUDE="here")

    memory = load_memory(places)

    assert names(memory, tmp_path) == [
        "home/.claude/CLAUDE.md",
        "repo/AGENTS.md",
        "repo/CLAUDE.md",
        "repo/.claude/CLAUDE.md",
        "repo/CLAUDE.local.md",
        "repo/deep/er/CLAUDE.md",
    ]
    assert memory.text.startswith(f"{HEADING}\n\nContents of {places.config}/CLAUDE.md:\n\nperson\n\nContents of ")
    assert load_memory(places) == memory


def test_without_files_there_is_no_text(places: MemoryPaths) -> None:
    write(places.cwd, CLAUDE="  \n")

    assert load_memory(places) == MemoryText()


@pytest.mark.parametrize(
    ("off", "expected"),
    [("user", ["AGENTS.md", "CLAUDE.local.md"]), ("project", ["CLAUDE.md", "CLAUDE.local.md"]), ("local", None)],
)
def test_a_source_that_is_off_is_not_read(places: MemoryPaths, off: str, expected: list[str] | None) -> None:
    write(places.config, CLAUDE="person")
    write(places.cwd, AGENTS="project", **{"CLAUDE.local": "local"})

    found = [Path(file).name for file in load_memory(but(places, **{off: False})).files]

    assert found == (expected or ["CLAUDE.md", "AGENTS.md"])


def test_outside_a_repository_only_the_folder_itself_counts(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)

    assert folders(str(tmp_path / "a" / "b")) == [str(tmp_path / "a" / "b")]


def test_the_same_file_under_two_names_is_reported_once(places: MemoryPaths) -> None:
    write(places.cwd, AGENTS="agents")
    Path(places.cwd, "CLAUDE.md").symlink_to("AGENTS.md")

    assert load_memory(places).text.count("agents") == 1


# Imports.


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("@a.md", ["a.md"]),
        ("see @docs/a.md and @./b.md.", ["docs/a.md", "./b.md"]),
        ("(@a.md)", []),
        ("mail me@example.com", []),
        ("`@a.md` and @b.md", ["b.md"]),
        ("```\n@a.md\n```\n@b.md", ["b.md"]),
        ("~~~\n@a.md\n```\n@b.md\n~~~\n@c.md", ["c.md"]),
        ("@with\\ blank.md", ["with blank.md"]),
        ("@~/x.md @/abs.md", ["~/x.md", "/abs.md"]),
        ("@", []),
    ],
)
def test_a_path_behind_an_at_sign_is_an_import_unless_it_is_code(text: str, paths: list[str]) -> None:
    assert list(find_imports(text)) == paths


def test_an_import_is_relative_to_the_file_that_has_it(places: MemoryPaths, tmp_path: Path) -> None:
    write(places.cwd, CLAUDE="@../notes/a.md")
    write(tmp_path / "repo" / "deep", notes__a="first\n@b.md", notes__b="second")

    assert names(load_memory(places), Path(places.cwd)) == ["CLAUDE.md", "../notes/a.md", "../notes/b.md"]


def test_imports_end_in_the_fifth_generation_and_circles_at_once(places: MemoryPaths) -> None:
    write(places.cwd, CLAUDE="@1.md", **{str(number): f"@{number + 1}.md" for number in range(1, 9)})
    assert [Path(file).stem for file in load_memory(places).files] == ["CLAUDE", "1", "2", "3", "4", "5"]

    write(places.cwd, CLAUDE="@1.md", **{"1": "@CLAUDE.md @1.md"})
    assert [Path(file).stem for file in load_memory(places).files] == ["CLAUDE", "1"]


@pytest.mark.parametrize("spelling", ["@/etc/hostname", "@../../../home/secret.md", "@~/secret.md", "@link.md"])
def test_a_projects_file_brings_in_only_files_of_the_project(
    places: MemoryPaths, tmp_path: Path, spelling: str
) -> None:
    write(tmp_path / "home", secret="hush")
    Path(places.cwd, "link.md").symlink_to(tmp_path / "home" / "secret.md")
    write(places.cwd, CLAUDE=spelling)

    memory = load_memory(places)

    assert [Path(file).name for file in memory.files] == ["CLAUDE.md"]
    assert ["to a file outside its folder" in str(problem) for problem in memory.problems] == [True]


def test_a_memory_file_that_is_a_link_to_a_secret_is_not_read(places: MemoryPaths, tmp_path: Path) -> None:
    write(tmp_path / "home", secret="hush")
    Path(places.cwd, "CLAUDE.md").symlink_to(tmp_path / "home" / "secret.md")

    memory = load_memory(places)

    assert (memory.text, len(memory.problems)) == ("", 1)


def test_the_persons_own_file_may_bring_in_what_is_at_home(places: MemoryPaths, tmp_path: Path) -> None:
    write(tmp_path / "home", notes="mine")
    write(places.config, CLAUDE="@~/notes.md")

    assert names(load_memory(places), tmp_path) == ["home/.claude/CLAUDE.md", "home/notes.md"]


def test_a_further_folder_of_the_session_may_be_imported_from(places: MemoryPaths, tmp_path: Path) -> None:
    write(tmp_path / "more", a="more")
    write(places.cwd, CLAUDE=f"@{tmp_path}/more/a.md")

    assert len(load_memory(but(places, more_roots=(str(tmp_path / "more"),))).files) == 2


def test_what_a_rule_denies_is_not_read_under_any_name(places: MemoryPaths) -> None:
    write(places.cwd, CLAUDE="@secret.md @other.md", secret="hush")
    Path(places.cwd, "other.md").symlink_to("secret.md")

    memory = load_memory(places, lambda path: path.endswith("secret.md"))

    assert "hush" not in memory.text
    assert ["is denied by a rule" in str(problem) for problem in memory.problems] == [True, True]


# Files that are not text.


def test_what_is_not_text_is_reported_and_left_out(places: MemoryPaths) -> None:
    write(places.cwd, CLAUDE="fine\n@pipe.md @folder.md @binary.md @nul.md @huge.md @none.md")
    folder = Path(places.cwd)
    os.mkfifo(folder / "pipe.md")
    (folder / "folder.md").mkdir()
    (folder / "binary.md").write_bytes(b"\xff\xfe")
    (folder / "nul.md").write_bytes(b"a\0b")
    (folder / "huge.md").write_bytes(b"x" * (MOST_FILE_BYTES + 1))

    memory = load_memory(places)

    assert [Path(file).name for file in memory.files] == ["CLAUDE.md"]
    assert [Path(problem.path).stem for problem in memory.problems] == ["pipe", "folder", "binary", "nul", "huge"]


def test_all_files_together_have_an_end(places: MemoryPaths) -> None:
    write(places.cwd, CLAUDE=" ".join(f"@{number}.md" for number in range(8)))
    write(places.cwd, **{str(number): "x" * (MOST_FILE_BYTES - 1000) for number in range(8)})

    memory = load_memory(places)

    assert len(memory.text) < MOST_BYTES + 2000
    assert (len(memory.files), len(memory.problems)) == (5, 4)
