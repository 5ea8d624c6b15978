"""Rules on files hold for commands whose files are only known when they run, in a session that bypasses permissions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.policies import Json, Machine, calls

FREE = "--dangerously-skip-permissions"
READS = (
    "cat $(echo .e)nv",
    'f=.e; cat "${f}nv"',
    "ls -A | xargs cat",
    "find . -type f -exec cat {} +",
    'for f in $(ls -A); do cat "$f"; done',
    "python3 -c \"print(open('.e' + 'nv').read())\"",
    "cp -r . ../copy; cat ../copy/.e*",
    "tar c . | cat",
    "cat {a.txt,.{env,x}}",
    "shopt -s dotglob; cat *",
)
WRITES = (
    "f=gen/x; echo changed > $f",
    "for f in gen/x; do echo changed | tee $f; done",
    'set -- gen/x; cp a.txt "$1"',
    "echo gen/x | xargs cp a.txt",
    "truncate -s 0 gen/x",
    "ln -sf ../a.txt gen/x",
    "sort -o gen/x a.txt",
    "cp a.txt g{en,}/x",
    "rm -rf ../*/gen",
    "find . -name x -delete",
)
FREE_COMMANDS = ("cat a.txt", "for f in a.txt; do echo $f; done", "grep -r open src", "echo new > other.txt")


def bash(command: str) -> tuple[str, Json]:
    return "Bash", {"command": command, "description": "d"}


@pytest.mark.parametrize("given", [(FREE,), ("--allowedTools", "Bash")], ids=["bypass", "bare rule"])
def test_no_command_reads_or_writes_a_denied_file(tmp_path: Path, given: tuple[str, ...]) -> None:
    machine = Machine(tmp_path)
    machine.write(".env", "a secret")
    machine.write("gen/x", "kept")
    machine.write("a.txt", "an open word")
    machine.write("src/b.txt", "an open word")
    rules = {"permissions": {"deny": ["Read(.env)", "Edit(gen/**)"]}}
    # Searches ask under a rule for all commands, whatever is in the folder.
    free = [command for command in FREE_COMMANDS if given == (FREE,) or "grep" not in command]

    done = machine.run(*given, script=calls(*map(bash, (*READS, *WRITES, *free))), user=rules)

    refused = len(READS) + len(WRITES)
    assert [is_error for is_error, _ in done.outputs] == [True] * refused + [False] * len(free)
    assert not any("a secret" in text for _, text in done.outputs)
    assert (machine.work / "gen" / "x").read_text() == "kept"
