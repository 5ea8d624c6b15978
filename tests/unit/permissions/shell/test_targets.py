"""The files that a line reads and writes."""

from __future__ import annotations

import pytest

from parley.permissions.shell.strict_parser import CommandLine, parse_strict
from parley.permissions.shell.targets import MAX_FOLDERS, Targets, find_targets, track_files
from tests.helpers.file_tree import Tree


def found(text: str) -> Targets:
    line = parse_strict(text)
    assert isinstance(line, CommandLine), line
    return find_targets(line, "/w")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("touch x.txt", Targets(writes=("/w/x.txt",))),
        ("touch -r a b", Targets(reads=("/w/a",), writes=("/w/b",))),
        ("mkdir -p a/b /c", Targets(writes=("/w/a/b", "/c"))),
        ("rm -rf a ../b", Targets(writes=("/w/a", "/b"))),
        ("rmdir a", Targets(writes=("/w/a",))),
        ("mv a b", Targets(reads=("/w/a",), writes=("/w/a", "/w/b", "/w/b/a"))),
        ("mv -t d a", Targets(reads=("/w/a",), writes=("/w/a", "/w/d", "/w/d/a"))),
        ("cp -r x/a/ b", Targets(reads=("/w/x/a",), writes=("/w/b", "/w/b/a"))),
        ("sed -i s/a/b/g x", Targets(writes=("/w/x",))),
        ("sed -i.bak -e '1,3d' -e '/x/s|a|b|' x", Targets(writes=("/w/x", "/w/x.bak"))),
        ("sed -i -E 's/(a)\\/b/\\1/' x", Targets(writes=("/w/x",))),
        ("echo x > a", Targets(writes=("/w/a",))),
        ("cat < a > /dev/null", Targets(reads=("/w/a",))),
        ("cat a - b", Targets(reads=("/w/a", "/w/b"))),
        ("grep x a", Targets(reads=("/w/a",))),
        ("grep -f p -e x a", Targets(reads=("/w/p", "/w/a"))),
        ("grep -r x", Targets(reads=("/w",))),
        ("ls | grep x", Targets()),
        ("rg x", Targets(reads=("/w",))),
        ("find src -name x", Targets(reads=("/w/src",))),
        ("cat ../../../etc/passwd", Targets(reads=("/etc/passwd",))),
        ("cat //etc/x", Targets(reads=("/etc/x",))),
        ("timeout 5 cat a", Targets(reads=("/w/a",))),
        ("cat src/*.py", Targets(reads=("/w/src",), unknown=True)),
        ("cat *.py b", Targets(reads=("/w", "/w/b"), unknown=True)),
        ("rm *.py", Targets(writes=("/w/*.py",), unknown=True)),
        ("npm test", Targets(unknown=True)),
        ("A=1", Targets(unknown=True)),
        ("PATH=/x cat a", Targets(unknown=True)),
    ],
)
def test_files_are_those_the_words_name(text: str, expected: Targets) -> None:
    assert found(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "rm", "rm -x a", "mkdir --odd a", "touch -x a", "cp a", "cp --odd a b", "sed -i 's/a/b/w x' y",
        "sed -i '1e id' y", "sed -i 's/a/b/e' y", "sed -i d", "sed -i", "sed -i/x d y", "sed 's/a/b/w z' y",
        "sed -i -f x y", "sed -i w x", "sed -i'*.b' d y", "rmdir -p a/b",
    ],
)  # fmt: skip
def test_an_edit_that_its_words_do_not_tell_is_unknown(text: str) -> None:
    assert found(text).unknown
    assert found(text).writes == ()


@pytest.mark.parametrize(
    ("text", "writes", "unknown"),
    [
        ("cd sub && touch a", ("/w/sub/a",), False),
        ("cd sub && cd ../x && touch a", ("/w/x/a",), False),
        ("cd /x && touch a && touch b", ("/x/a", "/x/b"), False),
        ("cd sub; touch a", ("/w/a", "/w/sub/a"), False),
        ("cd sub || touch a", ("/w/a", "/w/sub/a"), False),
        ("cd sub && touch a; touch b", ("/w/sub/a", "/w/sub/b", "/w/b"), False),
        ("cd sub | touch a", ("/w/a", "/w/sub/a"), False),
        ("ls | cd sub && touch a", ("/w/a", "/w/sub/a"), False),
        ("cd .claude && echo x > settings.json", ("/w/.claude/settings.json",), False),
        ("cd && touch a", (), True),
        ("cd - && touch a /b", ("/b",), True),
        ("pushd x && touch a", (), True),
    ],
)
def test_a_change_of_folder_is_followed(text: str, writes: tuple[str, ...], unknown: bool) -> None:
    assert (found(text).writes, found(text).unknown) == (writes, unknown)


def seen(text: str, tree: Tree) -> Targets:
    line = parse_strict(text)
    assert isinstance(line, CommandLine), line
    return find_targets(line, "/w", tree)


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("cd && cat a", ("/home/me", "/home/me/a")),
        ("cd -P --; cat a", ("/home/me", "/w/a", "/home/me/a")),
        ("true || cd sub && cat a", ("/w/sub", "/w/a", "/w/sub/a")),
        ("timeout 5 cd sub && cat a", ("/w/sub", "/w/a", "/w/sub/a")),
        ("builtin cd sub && cat a", ("/w/sub", "/w/sub/a")),
        ("cd link && cd .. && cat a", ("/w/link", "/w/link/..", "/w/a", "/elsewhere/a")),
        ("cat link/../a", ("/w/link/../a",)),
        ("cat *.py", ("/w", "/w/a.py", "/w/b.py")),
        ("cd sub; cat *.py", ("/w/sub", "/w", "/w/a.py", "/w/b.py", "/w/sub/c.py")),
        ("grep x sub/?.py", ("/w/sub", "/w/sub/c.py")),
        ("cat no*", ("/w", "/w/no*")),
        ("echo sub/*", ("/w/sub",)),
        ("echo $?", ()),
    ],
)
def test_files_are_those_that_are_there(text: str, reads: tuple[str, ...]) -> None:
    tree = Tree({"/w/link": "/elsewhere/deep"}, ["/w/a.py", "/w/b.py", "/w/sub/c.py"])

    assert seen(text, tree) == Targets(reads=reads, non_links=seen(text, tree).non_links)


@pytest.mark.parametrize("text", ["cd -", "cd -- -", "cd +1", "pushd a", "popd", "CDPATH=/x; cd a", "HOME=/x; cd"])
def test_a_folder_that_is_not_known_is_a_doubt(text: str) -> None:
    assert "It is not known which folder" in seen(f"{text} && cat a", Tree()).unknown_reason


@pytest.mark.parametrize(
    "text",
    [
        ";".join(f"cd a{number}" for number in range(20)),
        "cat " + " ".join(f"a{number}" for number in range(1_500)),
        "cat " + "a/../" * 1_900 + "a",
        "cat *" + "a" * 2_000,
        "cat f$?",
    ],
)
def test_what_is_too_much_to_look_at_is_a_doubt(text: str) -> None:
    found = seen(text, Tree())

    assert found.unknown_reason
    assert found.unknown


def test_the_folders_of_a_line_are_bounded() -> None:
    line = parse_strict(";".join(f"cd a{number}" for number in range(45)))
    assert isinstance(line, CommandLine)

    assert max(len(step.folders) for step in track_files(line, "/w", Tree())[1]) <= MAX_FOLDERS
