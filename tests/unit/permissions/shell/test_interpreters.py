"""Programs that run commands in their arguments."""

from __future__ import annotations

import pytest

from parley.permissions.shell.deny_search import explain_over_budget, find_denied, is_unresolved, may_find_denied
from parley.permissions.shell.interpreters import find_command_positions, find_shell_texts


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ssh", "host", "rm x"], ["rm x"]),
        (["ssh", "host", "rm"], []),
        (["ssh", "-o", "ProxyCommand=rm x", "h"], ["rm x", "ProxyCommand=rm x"]),
        (["test", "-v", "a[$(rm x)]"], ["a[$(rm x)]"]),
        (["test", "-f", "a"], []),
        (["printf", "rm x"], []),
        (["python3.11", "-c", "f('rm x', \"y\")"], ["rm x", "y"]),
        (["awk", "{print $1}"], []),
        (["vim", "-c", ":!rm x"], ["rm x"]),
        (["git", "rebase", "--exec", "rm x"], ["rm x"]),
        (["git", "commit", "-m", "rm x"], []),
        (["git", "-c", "alias.y=!rm x", "y"], ["rm x"]),
        (["git", "-c", "core.pager=rm x", "log"], ["rm x"]),
        (["sed", "1e rm x", "f"], ["rm x"]),
        (["sed", "1erm x", "f"], ["rm x"]),
        (["sed", "s/a/rm x/ge", "f"], ["rm x"]),
        (["sed", "s/a/b/", "f"], []),
        (["sed", "s/some text/one tree/", "f"], []),
        (["git", "grep", "-Orm x", "y"], ["rm x"]),
        (["man", "-P", "rm x", "ls"], ["rm x"]),
        (["gdb", "-ex", "!rm x"], ["rm x"]),
        (["gdb", "-ex", "shell rm x"], ["rm x"]),
        (["sqlite3", "f", ".shell rm x"], ["rm x"]),
        (["expect", "-c", "set a b; spawn rm x"], ["rm x"]),
        (["pwsh", "-c", "rm x"], ["rm x"]),
        (["tar", "--checkpoint-action=exec=rm x"], ["rm x"]),
        (["ls", "--color=auto"], []),
    ],
    ids=" ".join,
)
def test_the_words_that_a_shell_may_read_are_reported(words: list[str], expected: list[str]) -> None:
    assert list(find_shell_texts(words[0], words)) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("docker exec c rm x", [2, 3, 4]),
        ("docker rm x", []),
        ("kubectl exec pod -- rm", [2, 3, 4]),
        ("npm exec rm", [2]),
        ("npm run rm", []),
        ("uv run rm x", [2, 3]),
        ("git bisect run rm", [3]),
        ("git rm x", []),
        ("ld-linux-x86-64.so.2 /bin/rm x", [1, 2]),
        ("chrt 1 rm x", [1, 2, 3]),
        ("fd -e py -x rm", [4]),
        ("fd rm", []),
        ("rg --pre rm x", [2, 3]),
        ("cp /bin/rm y", [1]),
        ("ln -s /usr/bin/rm y", [2]),
        ("hash -p /usr/local/bin/rm y", [2]),
        ("cp rm y", []),
        ("exec", []),
        ("go build -toolexec rm", [3]),
    ],
)
def test_the_places_where_a_command_may_begin_are_reported(words: str, expected: list[int]) -> None:
    literal = words.split()

    assert list(find_command_positions(literal[0], literal)) == expected


@pytest.mark.parametrize(
    ("command", "pattern", "expected"),
    [
        ("git $X", "git push:*", True),
        ("git $X", "git push", True),
        ("git $X", "npm:*", False),
        ("git commit $X", "git push:*", False),
        ("git push $X", "git push --force", True),
        ("git -C a $X", "git push:*", True),
        ("/usr/bin/git $X", "git push:*", True),
        ("git pus?", "git push:*", True),
        ("git 'pus?'", "git push:*", False),
        ("git {push,x}", "git push:*", True),
        ("echo $X", "* --force", True),
        ("git status", "git push:*", False),
        ("bash -c 'git $X'", "git push:*", True),
    ],
)
def test_a_word_only_known_at_run_time_may_be_what_a_pattern_speaks_of(
    command: str, pattern: str, expected: bool
) -> None:
    assert may_find_denied(command, [pattern]) is expected


def test_a_container_with_more_words_than_are_looked_at_is_over_budget() -> None:
    assert explain_over_budget("docker run " + "a " * 200)


def test_an_unknown_image_is_not_an_unknown_command() -> None:
    assert not is_unresolved("docker run $IMAGE ls")


@pytest.mark.parametrize(
    "command", ["at now <<< 'rm x'", "batch <<< 'rm x'", "source /dev/stdin <<< 'rm x'", ". - <<< 'rm x'"]
)
def test_what_reads_commands_from_its_input_is_searched(command: str) -> None:
    assert find_denied(command, ["rm:*"]) is not None


def test_a_file_that_is_sourced_is_not_its_input() -> None:
    assert find_denied("source a <<< 'rm x'", ["rm x"]) is None
