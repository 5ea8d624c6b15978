"""The search for denied commands. The corpora contain many more cases (hostile.jsonl)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from parley.permissions.shell.deny_search import (
    MAX_CHARACTERS,
    DenyMatch,
    explain_over_budget,
    find_denied,
    is_unresolved,
    survey_command,
)


def test_the_pattern_and_the_part_that_it_speaks_of_are_reported() -> None:
    assert find_denied("ls && sudo /bin/rm -rf x", ["git push:*", "rm:*"]) == DenyMatch("rm:*", "rm -rf x")


def test_without_patterns_nothing_is_found() -> None:
    assert find_denied("rm x", []) is None


@pytest.mark.parametrize(
    "command",
    [
        "echo rm", "git commit -m 'fix; rm old'", "timeout 5 echo rm", "xargs grep rm", "command -v rm", "rmdir x",
        "ls rm", "echo $(ls) rm", "if true; then echo rm; fi", "grep -r 'rm x' .", "for f in rm; do echo $f; done",
        "git -C rm log", "A=1; echo $B", "A=1",
        "cat > a.sh <<'E'\nrm x\nE", "cat <<E\nrm x\nE", "cat <<\"E\" > a\n$(rm x)\nE", "cat <<\\E\n$(rm x)\nE",
    ],
)  # fmt: skip
def test_a_word_that_is_not_a_command_is_not_found(command: str) -> None:
    assert find_denied(command, ["rm", "rm x:*"]) is None


@pytest.mark.parametrize(
    "command",
    [
        "ls", "echo $x", "for i in a b; do echo $i; done", "timeout 5 echo $x", "bash -c 'ls'", "bash script.sh",
        "env A=1 ls", "git log | head", "cat <<E\nx\nE", "[ -f a ] && ls", "export A=1", "bash -c ls $x", "A=$x",
        "docker run \\\n -it x", "[[ -f x ]]", "eval ls", "source x", "unset x",
    ],
)  # fmt: skip
def test_a_command_whose_words_are_known_is_resolved(command: str) -> None:
    assert is_unresolved(command) == (command == "bash -c ls $x")


@pytest.mark.parametrize(
    "command", ["ls " + "a" * 10_000, "ls\x00", "echo 'x", "if true", "sudo $x", "bash -s", "bash $x"]
)
def test_what_cannot_be_read_is_unresolved(command: str) -> None:
    assert is_unresolved(command)


@pytest.mark.parametrize(
    "command",
    [
        "ls " + "a" * MAX_CHARACTERS,
        "env " * 50 + "rm x",
        "git " + "-a " * 200 + "push",
        "find . " + "-exec a " * 200,
        "eval " * 20 + "ls",
        ";".join(f"a{number}" for number in range(24_000))[:MAX_CHARACTERS],
    ],
    ids=["length", "wrappers", "options", "runs", "depth", "commands"],
)
def test_what_costs_too_much_is_over_budget_and_unresolved(command: str) -> None:
    assert explain_over_budget(command, ["never"])
    assert find_denied(command, ["never"]) is None
    assert is_unresolved(command)


def test_a_denied_command_is_found_at_both_ends_of_what_is_over_budget() -> None:
    filling = "ls " + "a" * MAX_CHARACTERS

    assert find_denied(f"rm x; {filling}", ["rm:*"]) == DenyMatch("rm:*", "rm x")
    assert find_denied(f"{filling}; rm x", ["rm:*"]) == DenyMatch("rm:*", "rm x")


def test_more_parts_than_can_be_compared_with_the_rules_exceed_the_budget() -> None:
    command, patterns = "; ".join(f"a{number}" for number in range(90)), [f"b{number}:*" for number in range(1_000)]

    assert explain_over_budget(command, patterns[:10]) == ""
    assert "too many parts to compare with 1,000 rules" in explain_over_budget(command, patterns)


@pytest.mark.parametrize(
    ("command", "part"),
    [
        ("$'\\x72\\u006d\\t' x", "rm\t x"),
        ("$'\\U0000006cs\\q' x", "lsq x"),
        ("$'\\U00110000' x", "\U0010ffff x"),
        ('"ls" "a\\"b"', 'ls a"b'),
        ('$"ls" x', "ls x"),
        ("l\\s $x", "ls $x"),
        ("export A=1 $x", "export A=1 $x"),
        ("env -S 'ls x' $y", "ls x"),
        ("su me -c 'ls x' $y", "ls x"),
        ("A[0]=1 ls $y", "ls $y"),
        ("bash <<< ls", "ls"),
        ("bash <<< $x", "$x"),
        ("env -i bash <<< ls", "ls"),
        ("echo $x 'ls y' | sudo bash", "ls y"),
        ("cat <<E | bash\nls y\nE", "ls y"),
        ("cat <<E\n$(ls y)\nE", "ls y"),
        ("cat <<E > a; ls y\nx\nE\nls z", "ls z"),
    ],
)
def test_words_are_resolved_as_far_as_they_can_be(command: str, part: str) -> None:
    assert part in survey_command(command).parts


THREADS = """
from concurrent.futures import ThreadPoolExecutor
from parley.permissions.shell.treesitter import parse

def names(number):
    text = f"if true; then program{number} a; fi; while x; do (y | z); done"
    return {command.words[0] for command in parse(text).commands} == {"true", f"program{number}", "x", "y", "z"}

with ThreadPoolExecutor(8) as pool:
    print(all(pool.map(names, range(4000))))
"""


def test_a_command_is_parsed_in_any_number_of_threads() -> None:
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
