"""`parley trust` through the real executable."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.environment import base_environment
from tests.helpers.forked import run_parley


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".claude").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    return folder


@pytest.fixture
def parley(tmp_path: Path, project: Path) -> Any:
    def run(*argv: str) -> tuple[str, str, int]:
        done = run_parley(argv, cwd=project, env={"HOME": str(tmp_path / "home"), **base_environment()})
        return done.stdout, done.stderr, done.returncode

    return run


@pytest.mark.parametrize("name", [".", "../project", "{project}"])
def test_a_folder_is_trusted_by_its_real_path(parley: Any, project: Path, name: str) -> None:
    assert parley("trust", name.format(project=project)) == (f"{project} is trusted\n", "", 0)
    assert parley("trust", "--list") == (f"{project}\n", "", 0)


def test_trusting_a_folder_reports_what_takes_effect(parley: Any, project: Path) -> None:
    settings = {"apiKeyHelper": "evil", "permissions": {"allow": ["Bash(ls:*)"], "deny": ["Write"]}, "env": {"A": "1"}}
    (project / ".claude" / "settings.json").write_text(json.dumps(settings))

    place = f"({project}/.claude/settings.json)"
    helper = f"  settings: {project}/.claude/settings.json: apiKeyHelper has no effect: a project cannot set this"
    assert parley("trust", ".")[0].splitlines() == [
        f"{project} is trusted",
        f"  in effect: permissions.allow=Bash(ls:*) {place}",
        f"  in effect: env.A=1 {place}",
        helper,
    ]
    assert parley("trust", ".")[0].splitlines() == [f"{project} is trusted", helper]


def test_what_a_run_would_warn_of_is_reported_by_trust_and_doctor(parley: Any, project: Path) -> None:
    hooks = {"PreTooluse": [{"hooks": [{"type": "command", "command": "true"}]}]}
    (project / ".claude" / "settings.json").write_text(json.dumps({"hooks": hooks}))
    warning = f"settings: {project}/.claude/settings.json: hooks.PreTooluse: unknown event, so these hooks never run"

    assert parley("trust", ".")[0].splitlines()[-1] == f"  {warning} (did you mean PreToolUse?)"
    assert f"! {warning} (did you mean PreToolUse?)" in parley("doctor")[0]
    assert turn(parley) == f"{warning} (did you mean PreToolUse?)\n"


def test_a_folder_is_forgotten(parley: Any, project: Path) -> None:
    parley("trust", ".")

    assert parley("trust", "--forget", ".") == (f"{project} is no longer trusted\n", "", 0)
    assert parley("trust", "--list") == ("", "", 0)


@pytest.mark.parametrize("argv", [("--what",), ("a", "b"), ("",), ("--forget",), (".", "--list")])
def test_a_command_line_that_says_something_else_is_refused(parley: Any, argv: tuple[str, ...]) -> None:
    stdout, stderr, code = parley("trust", *argv)

    assert (stdout, code) == ("", 2)
    assert stderr.startswith("Error: ")
    assert stderr.splitlines()[-1] == "Usage: parley trust [DIR] [--forget DIR] [--list] [--json]"


def test_the_result_can_be_json(parley: Any, project: Path) -> None:
    (project / ".claude" / "settings.json").write_text('{"env": {"A": "1"}}')
    effect = {"setting": "env.A=1", "file": f"{project}/.claude/settings.json"}

    assert json.loads(parley("trust", ".", "--json")[0]) == {
        "folder": str(project),
        "is_trusted": True,
        "in_effect": [effect],
        "warnings": [],
    }
    assert json.loads(parley("trust", "--list", "--json")[0]) == {"trusted": [str(project)]}
    assert json.loads(parley("trust", "--forget", ".", "--json")[0]) == {"folder": str(project), "is_trusted": False}


def test_a_folder_that_is_not_there_is_refused(parley: Any, project: Path) -> None:
    assert parley("trust", "none") == (
        "",
        f"Error: cannot open the folder {project}/none: No such file or directory\n",
        1,
    )


def test_the_usage_is_reported(parley: Any) -> None:
    assert parley("trust", "--help")[0].startswith("Usage: parley trust [DIR]")


def test_a_prompt_that_begins_with_the_word_may_be_given_after_the_flags(parley: Any) -> None:
    assert parley("--print", "--model", "offline", "trust nobody")[2] == 0


# Trust covers one folder and the content it had.


def with_hook(project: Path, mark: Path) -> None:
    hooks = {"SessionStart": [{"hooks": [{"type": "command", "command": f"touch {mark}"}]}]}
    (project / ".claude").mkdir(parents=True, exist_ok=True)
    (project / ".claude" / "settings.json").write_text(json.dumps({"hooks": hooks}))


def turn(parley: Any) -> str:
    """The stderr of a turn."""
    _, stderr, code = parley("--print", "--model", "offline", "say Hi")
    assert code == 0
    return str(stderr)


def recorded(tmp_path: Path) -> Path:
    return tmp_path / "home" / ".claude" / "trust.json"


def test_a_folder_that_was_given_the_inode_of_a_trusted_one_is_not_trusted(
    parley: Any, project: Path, tmp_path: Path
) -> None:
    """File systems reuse inodes immediately; this changes the record to the inode of the new folder."""
    with_hook(project, tmp_path / "ran")
    parley("trust", ".")
    project.rename(tmp_path / "away")
    with_hook(project, tmp_path / "ran")
    record = json.loads(recorded(tmp_path).read_text())
    status = project.stat()
    record["folders"][str(project)] |= {"device": status.st_dev, "inode": status.st_ino}
    recorded(tmp_path).write_text(json.dumps(record))

    assert f"{project} is not the folder that was trusted" in turn(parley)
    assert not (tmp_path / "ran").exists()


def test_a_folder_that_was_moved_away_and_back_is_still_trusted_and_a_copy_is_not(
    parley: Any, project: Path, tmp_path: Path
) -> None:
    with_hook(project, tmp_path / "ran")
    parley("trust", ".")
    project.rename(tmp_path / "away")
    shutil.copytree(tmp_path / "away", project)
    turn(parley)
    assert not (tmp_path / "ran").exists()

    shutil.rmtree(project)
    (tmp_path / "away").rename(project)
    assert turn(parley) == ""
    assert (tmp_path / "ran").exists()


def test_what_was_changed_since_is_not_trusted_until_it_is_trusted_again(
    parley: Any, project: Path, tmp_path: Path
) -> None:
    with_hook(project, tmp_path / "first")
    parley("trust", ".")
    assert turn(parley) == ""
    assert (tmp_path / "first").exists()

    with_hook(project, tmp_path / "second")
    path = project / ".claude" / "settings.json"
    assert turn(parley) == (
        f"settings: {path}: hooks has no effect: it is new or has changed since the folder was trusted "
        f"(to trust it, run `parley trust {project}`)\n"
    )
    assert not (tmp_path / "second").exists()

    assert "in effect: hooks=" in parley("trust", ".")[0]
    assert turn(parley) == ""
    assert (tmp_path / "second").exists()


def test_a_server_that_was_changed_since_is_not_started(parley: Any, project: Path, tmp_path: Path) -> None:
    def server(mark: str) -> dict[str, Any]:
        return {"command": "touch", "args": [str(tmp_path / mark)]}

    path = project / ".mcp.json"
    path.write_text(json.dumps({"mcpServers": {"a": server("a"), "b": server("b")}}))
    assert "in effect: .mcp.json.a=" in parley("trust", ".")[0]
    path.write_text(json.dumps({"mcpServers": {"a": server("a"), "b": server("evil"), "c": server("evil")}}))

    assert f"settings: {path}: the MCP servers b, c are not used: it is new or has changed" in turn(parley)
    assert not (tmp_path / "evil").exists()


def test_the_record_of_an_older_version_vouches_for_nothing(parley: Any, project: Path, tmp_path: Path) -> None:
    with_hook(project, tmp_path / "ran")
    status = project.stat()
    old = {"device": status.st_dev, "inode": status.st_ino, "trusted": True, "consents": []}
    recorded(tmp_path).parent.mkdir(mode=0o700)
    recorded(tmp_path).write_text(json.dumps({"folders": {str(project): old}}))
    recorded(tmp_path).chmod(0o600)

    said = turn(parley)
    assert f"{project} was trusted by an older version" in said
    assert f"to trust it, run `parley trust {project}`" in said
    assert parley("trust", "--list") == ("", "", 0)
    assert not (tmp_path / "ran").exists()

    parley("trust", ".")
    assert turn(parley) == ""
    assert (tmp_path / "ran").exists()
