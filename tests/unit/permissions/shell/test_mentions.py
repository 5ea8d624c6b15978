"""Files that a text names, proven or not. The corpus (decisions.jsonl) covers the decisions."""

from __future__ import annotations

import pytest

from parley.permissions.shell.mentions import (
    MAX_FOLDERS,
    MAX_NAMES,
    Mentions,
    find_mentions,
    has_nested_commands,
    is_critical_delete,
)
from parley.permissions.shell.strict_parser import CommandLine, parse_strict


def seen(text: str) -> Mentions:
    line = parse_strict(text)
    return find_mentions(text, "/w", "/home/me", line if isinstance(line, CommandLine) else None)


@pytest.mark.parametrize(
    ("text", "reads", "writes"),
    [
        ("sudo cat a", ("/w/a",), ()),
        ("bash -c 'cat a > b'", ("/w/a",), ("/w/b",)),
        ('cat "$HOME/a" ~/b "${HOME}/c" $PWD/d', ("/home/me/a", "/home/me/b", "/home/me/c", "/w/d"), ()),
        ("echo $(cp a b)", ("/w/a",), ("/w/b", "/w/b/a")),
        ("while x; do echo $i >> out < in; done", ("/w/in",), ("/w/out",)),
        ("echo $x 2>&1 >&- </dev/null >/dev/null", (), ()),
        ("(cd sub && cat a)", ("/w/a", "/w/sub/a"), ()),
        ("cat a", (), ()),
        ("echo x > a", (), ()),
        ("X=1 cat a", ("/w/a",), ()),
        ("cat $x", (), ()),
    ],
)
def test_files_are_seen_wherever_they_are_read_or_written(
    text: str, reads: tuple[str, ...], writes: tuple[str, ...]
) -> None:
    found = seen(text)

    assert (set(reads) <= set(found.reads), tuple(found.writes)) == (True, writes)
    if not reads:
        assert not found.reads


@pytest.mark.parametrize(
    "text", ["prog a", "prog --in=a", "prog -ia", "prog if=a", "prog x:a", "prog @a", "prog 'f(\"a\")'", "prog x,a"]
)
def test_every_word_of_an_unknown_program_may_be_a_file(text: str) -> None:
    assert "/w/a" in seen(text).words


def test_words_of_a_known_program_are_files_only_where_it_reads_them() -> None:
    assert not seen("grep a b").words
    assert "/w/a" in seen("find . -name a | xargs cat").words
    assert "/w/a" in seen("while f=a; do cat $f; done").words


def test_patterns_are_found_where_nothing_was_proven_about_them() -> None:
    assert list(seen("bash -c 'cat a*'").patterns) == ["a*"]
    assert set(seen("cat a* b{c,d} $x").patterns) == {"a*", "b{c,d}"}
    assert not seen("cat a*").patterns


def test_a_search_counts_wherever_it_is_run() -> None:
    assert seen("sudo grep -r x .").reads_whole_folders
    assert not seen("sudo grep x a").reads_whole_folders


def test_too_many_names_are_reported_as_too_many() -> None:
    few = seen("prog " + " ".join(f"a{number}" for number in range(10)))
    many = seen("prog " + " ".join(f"a{number}" for number in range(MAX_NAMES + 1)) + "; prog b")

    assert (few.too_many, many.too_many) == (False, True)
    assert len(many.words) == MAX_NAMES


def test_folders_are_followed_up_to_a_number() -> None:
    text = "; ".join(f"cd {number}" for number in range(2 * MAX_FOLDERS)) + "; sudo cat a"

    assert len(seen(text).reads) == MAX_FOLDERS


@pytest.mark.parametrize(("text", "expected"), [("npm test", False), ("sudo npm test", True), ("bash -c ls", True)])
def test_a_command_in_the_words_of_another_is_reported(text: str, expected: bool) -> None:
    line = parse_strict(text)

    assert isinstance(line, CommandLine)
    assert has_nested_commands(line) is expected


def test_a_git_subcommand_from_a_pipe_may_write_any_file() -> None:
    found = seen("find . | xargs git <<E\nconfig\nE")

    assert (found.unknown_read, found.unknown_write, found.unknown_target) == ("xargs", "xargs", "xargs")


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /", "rm -rf /*", "rm -rf //", "rm -rf /.", "rm -rf /etc", "rm -r /etc/", "rmdir /usr", "rm -rf ~",
        "rm -rf ~/", "rm -rf ~/*", "rm -rf ~root", "rm -rf $HOME", 'rm -rf "$HOME"/', "rm -rf ${HOME}",
        "rm -rf /home/me", "rm -rf /home", "rm -rf .", "rm -rf ./", "rm -rf ..", "rm -rf ../..", "rm -rf $PWD",
        "rm -rf `pwd`", "rm -rf /home/me/p", "rm -rf *", "rm -rf ./*", "rm -rf $X/", 'rm -rf "$X"/*',
        "rm -rf ${X}/etc", "sudo rm -rf /", "bash -c 'rm -rf ~'", "ls; rm -rf /", "echo $(rm -rf /)", "/bin/rm -rf /",
        "find / -delete", "find . -exec rm {} +", "rm -fr '/'", "rm --recursive /var",
        "find / -name x -delete", "find . -exec /bin/rm {} +", "cd / && rm -rf usr", "rm -rf {/,x}",
        "rm -rf /proc/self/root", "pushd / && rm -r etc", "rm -rf $(git rev-parse --show-toplevel)",
        "rm -rf " + "x" * 5_000, "cd /x && rm -rf ..", "rm -rf x /",
    ],
)  # fmt: skip
def test_a_critical_delete_is_seen(command: str) -> None:
    assert is_critical_delete(command, "/home/me/p", "/home/me")


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf build", "rm a.txt", "rm *", "rm -rf ./build/*", "rm -rf /tmp/x", "rm -rf ~/x", "rm -rf $X",
        "rm -rf $X/build", "rm -rf a$X/", "echo rm -rf /", "ls /", "find . -name x", "find / -name x",
        "find build -delete", "rm -rf ../q", "git rm x", "true", "rm -rf /home/me/p/x", "rm", "rm -rf ${X}*",
        "rm -rf ''",
    ],
)  # fmt: skip
def test_other_deletes_are_not_critical(command: str) -> None:
    assert not is_critical_delete(command, "/home/me/p", "/home/me")
