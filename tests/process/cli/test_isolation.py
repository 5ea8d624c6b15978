"""Isolation: which files an engine writes, and which it reads when it must not use the machine's settings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.helpers.environment import base_environment

WATCHED = """
import os, sys
report = open(sys.argv[1], "a")
def note(what, path):
    if isinstance(path, (str, bytes)):
        report.write(what + " " + os.path.abspath(os.fsdecode(path)) + "\\n")
        report.flush()
def watch(event, args):
    if event == "open":
        writes = (args[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        note("write" if writes else "read", args[0])
    elif event in ("os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.chmod", "os.utime"):
        note("write", args[0])
    elif event in ("os.rename", "os.link", "os.symlink"):
        note("write", args[0]), note("write", args[1])
sys.addaudithook(watch)
from parley.cli.main import main
sys.exit(main(sys.argv[2:]))
"""
OFFLINE = ("-p", "--output-format", "json", "--model", "offline")


class Machine:
    """The separate folders of a user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home, self.config, self.project, self.temporary = (
            folder / name for name in ("home", "config", "project", "tmp")
        )
        for place in (self.home, self.project, self.temporary):
            place.mkdir()

    def run(self, *argv: str) -> list[tuple[str, str]]:
        """The paths that were opened or changed, and how."""
        report = self.folder / "report"
        done = subprocess.run(
            [sys.executable, "-B", "-c", WATCHED, str(report), *OFFLINE, *argv],
            cwd=self.project,
            env={
                **base_environment(),
                "HOME": str(self.home),
                "CLAUDE_CONFIG_DIR": str(self.config),
                "TMPDIR": str(self.temporary),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        assert not json.loads(done.stdout)["is_error"], done
        how = [line.split(" ", 1) for line in report.read_text().splitlines()]
        return [(what, path) for what, path in how]


def test_an_engine_writes_only_below_the_folders_it_was_given(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    prompt = (
        'call Write {"file_path": "notes", "content": "x"}\ncall Bash {"command": "yes | head -c 200000"}\nsay Done.'
    )
    written = {
        path
        for what, path in machine.run("--allowedTools", "Write,Bash(yes *),Bash(head *)", "--", prompt)
        if what == "write" and path != "/dev/null"
    }

    roots = (machine.config, machine.project, machine.temporary)
    assert [path for path in written if not any(Path(path).is_relative_to(root) for root in roots)] == []
    assert any(path.endswith(".jsonl") for path in written)
    assert (machine.project / "notes").read_text() == "x"


def test_one_variable_relocates_everything(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.run("--name", "A talk", "--", "say Hi.")

    assert list(machine.home.iterdir()) == []
    assert list(machine.project.iterdir()) == []
    assert [path.suffix for path in machine.config.glob("projects/*/*")] == [".jsonl"]


def test_a_bare_engine_loads_nothing_of_the_machine(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    planted = [
        machine.home / ".claude.json",
        machine.home / ".claude" / "settings.json",
        machine.config / "settings.json",
        machine.config / "CLAUDE.md",
        machine.config / "commands" / "evil.md",
        machine.project / "CLAUDE.md",
        machine.project / ".mcp.json",
        machine.project / ".claude" / "settings.json",
        machine.project / ".claude" / "settings.local.json",
        machine.project / ".claude" / "commands" / "evil.md",
    ]
    for path in planted:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"model": "evil"}')

    def read(*argv: str) -> set[str]:
        (tmp_path / "report").unlink(missing_ok=True)
        return {path for what, path in machine.run(*argv, "--", "say Hi.") if what == "read"}

    assert read("--bare") & set(map(str, planted)) == set()
    assert str(machine.config / "settings.json") in read()  # proves that the watch sees reads
