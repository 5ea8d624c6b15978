"""Agents that work apart: in a git worktree, under the same rules, which is gone if they changed nothing."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from parley.engine.agents.run import AgentTask
from tests.helpers.mcp import visit
from tests.helpers.session import Json, SessionHarness

AGENT = (
    '[[turn]]\nwhen = "%s"\ntools = [{ name = "Agent", id = "%s", input = { description = "d", prompt = "%s"%s } }]\n'
)
TOOL = '[[turn]]\nwhen = "%s"\ntools = [{ name = "%s", id = "%s", input = { %s } }]\n'
TEXT = '[[turn]]\nwhen = "%s"\ntext = "%s"\n'
APART = ', isolation = "worktree"'
BEGIN = AGENT % ("go", "t1", "SUBTASK", APART)
END = TEXT % ("insub", "Sub answer.") + TEXT % ("Sub answer.", "Done.")
LOOKS = BEGIN + TOOL % ("SUBTASK", "Bash", "s1", 'command = "pwd; echo insub"') + END
WRITES = (
    BEGIN
    + TOOL % ("SUBTASK", "Bash", "s1", 'command = "echo new > new.txt; echo insub"')
    + END
)  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / ".gitignore").write_text("home/\nscript.toml\n*.jsonl\nclaude-*\n")
    (tmp_path / "a.txt").write_text("a\n")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key.txt").write_text("key\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=me", "-c", "user.email=me@example.com", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def there(project: Path) -> list[str]:
    folder = project / ".claude" / "worktrees"
    return sorted(path.name for path in folder.iterdir() if path.name != ".gitignore") if folder.exists() else []


async def played(
    project: Path, script: str, scenario: Callable[[SessionHarness], Awaitable[None]], **options: Any
) -> SessionHarness:
    return await visit(project, script, scenario, **{"skip_permissions": True, **options})


async def go(harness: SessionHarness) -> None:
    harness.prompt("go")
    await harness.receive("result")


def result_of(harness: SessionHarness, call: str) -> Json:
    """The line with the result of a call."""
    for line in harness.messages("user"):
        block = line["message"]["content"][0]
        if block.get("tool_use_id") == call:
            return line
    raise AssertionError(f"no result of {call}")


def said(line: Json) -> str:
    content = line["message"]["content"][0]["content"]
    return content if isinstance(content, str) else content[0]["text"]


async def test_an_agent_that_changes_nothing_leaves_no_worktree(project: Path) -> None:
    harness = await played(project, LOOKS, go)

    [agent_id] = {line["task_id"] for line in harness.lines if line.get("subtype") == "task_started"}
    assert said(result_of(harness, "s1")).splitlines()[0] == f"{project}/.claude/worktrees/agent-{agent_id}"
    given = result_of(harness, "t1")
    assert "changed nothing in its git worktree" in said(given)
    assert "worktreePath" not in given["tool_use_result"]
    assert (there(project), git(project, "branch", "--list", "worktree-*")) == ([], "")
    assert git(project, "status", "--porcelain") == ""


async def test_the_changes_of_an_agent_are_kept_and_its_caller_is_informed_where(project: Path) -> None:
    harness = await played(project, WRITES, go)

    given = result_of(harness, "t1")
    path, branch = given["tool_use_result"]["worktreePath"], given["tool_use_result"]["worktreeBranch"]
    assert f"Its changes are in the git worktree {path}, on the branch {branch}." in said(given)
    assert (Path(path) / "new.txt").read_text() == "new\n"
    assert there(project) == [Path(path).name]
    assert git(Path(path), "rev-parse", "--abbrev-ref", "HEAD") == branch
    assert not (project / "new.txt").exists()
    assert git(project, "status", "--porcelain") == ""


async def test_a_kind_may_say_that_its_agents_work_apart(project: Path) -> None:
    kind = {"description": "d", "prompt": "p", "isolation": "worktree"}
    begin = AGENT % ("go", "t1", "SUBTASK", ', subagent_type = "apart"')
    harness = await played(project, begin + WRITES.removeprefix(BEGIN), go, agents=json.dumps({"apart": kind}))

    assert "worktreePath" in result_of(harness, "t1")["tool_use_result"]


async def test_a_notification_names_the_worktree_with_the_changes(project: Path) -> None:
    begin = AGENT % ("go", "t1", "SUBTASK", f"{APART}, run_in_background = true") + TEXT % ("launched", "Started.")

    async def scenario(harness: SessionHarness) -> None:
        await go(harness)
        await harness.receive("result")

    harness = await played(project, begin + WRITES.removeprefix(BEGIN), scenario)
    heard = json.dumps(harness.session.journal.history.render())
    assert f"Its changes are in the git worktree {project}/.claude/worktrees/{there(project)[0]}" in heard


@pytest.mark.parametrize(
    ("isolation", "repository", "words"),
    [("worktree", False, "is not in a git repository"), ("remote", True, "Invalid enum value 'remote'")],
)
async def test_where_an_agent_cannot_work_apart_it_does_not_work_at_all(
    tmp_path: Path, isolation: str, repository: bool, words: str
) -> None:
    if repository:
        git(tmp_path, "init", "-q")
    script = AGENT % ("go", "t1", "SUBTASK", f', isolation = "{isolation}"') + TEXT % ("*", "Done.")
    harness = await played(tmp_path, script, go)

    given = result_of(harness, "t1")
    assert given["message"]["content"][0]["is_error"] is True
    assert words in said(given)
    assert [line for line in harness.lines if line.get("subtype") == "task_started"] == []


async def test_a_restricted_session_has_no_worktrees(project: Path) -> None:
    harness = await played(project, BEGIN + TEXT % ("*", "Done."), go, restricted=True, skip_permissions=False)
    assert "not allowed in a restricted session" in said(result_of(harness, "t1"))


@pytest.mark.parametrize(("first", "kept"), [("true", 0), ("touch mine", 1)])
async def test_an_agent_that_is_interrupted_leaves_no_worktree_unless_it_has_changes(
    project: Path, first: str, kept: int
) -> None:
    script = BEGIN + TOOL % ("SUBTASK", "Bash", "s1", f'command = "{first}; echo insub"')
    script += TOOL % ("insub", "Bash", "s2", 'command = "sleep 600"')

    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        await harness.receive("system", "task_progress")
        await harness.receive("system", "task_progress")
        await harness.request("interrupt")
        await harness.receive("result")

    harness = await played(project, script, scenario)
    assert len(there(project)) == kept
    assert sum("was stopped; its changes are in" in text for text in harness.warnings) == kept


async def test_rules_and_modes_follow_the_worktree(project: Path) -> None:
    """Edits are accepted there as in the person's checkout, which is only read; what is denied there is denied here."""
    calls = [
        ("SUBTASK", "Write", 'file_path = "mine.txt", content = "x"'),
        ("s0", "Write", f'file_path = "{project}/theirs.txt", content = "x"'),
        ("s1", "Read", f'file_path = "{project}/a.txt"'),
        ("s2", "Read", 'file_path = "secret/key.txt"'),
        ("s3", "Bash", 'command = "cat secret/key.txt"'),
        ("s4", "Glob", 'pattern = "**/*.txt"'),
    ]
    tools = ", ".join(
        f'{{ name = "{name}", id = "s{n}", input = {{ {input} }} }}' for n, (_, name, input) in enumerate(calls)
    )
    script = BEGIN + f'[[turn]]\nwhen = "SUBTASK"\ntools = [{tools}]\n' + TEXT % ("a.txt", "Sub answer.")
    script += TEXT % ("Sub answer.", "Done.")
    harness = await played(
        project,
        script,
        go,
        skip_permissions=False,
        permission_mode="acceptEdits",
        disallowed_tools=(f"Read(/{project}/secret/**)",),
    )

    verdicts = [result_of(harness, f"s{n}")["message"]["content"][0].get("is_error") for n in range(6)]
    assert verdicts == [None, True, None, True, True, None]
    [name] = there(project)
    assert (project / ".claude" / "worktrees" / name / "mine.txt").exists()
    assert "key.txt" not in said(result_of(harness, "s5"))


async def test_hooks_receive_the_directory_in_which_the_agent_works(project: Path) -> None:
    hook = {"hooks": [{"type": "command", "command": f"cat >> {project}/heard.jsonl; echo >> {project}/heard.jsonl"}]}
    await played(project, LOOKS, go, settings=json.dumps({"hooks": {"PreToolUse": [{"matcher": "Bash", **hook}]}}))

    [heard] = [json.loads(line) for line in (project / "heard.jsonl").read_text().splitlines() if line]
    assert heard["cwd"].startswith(f"{project}/.claude/worktrees/agent-")


async def test_an_agent_of_an_agent_works_where_its_caller_does(project: Path) -> None:
    inner = AGENT % ("SUBTASK", "t2", "INNER", "")
    script = BEGIN + inner + TOOL % ("INNER", "Bash", "s1", 'command = "pwd; echo insub"')
    script += (
        TEXT % ("insub", "Inner answer.") + TEXT % ("Inner answer.", "Sub answer.") + TEXT % ("Sub answer.", "Done.")
    )
    harness = await played(project, script, go)

    assert "/.claude/worktrees/agent-" in said(result_of(harness, "s1"))
    assert there(project) == []


async def test_an_agent_that_continues_finds_its_changes(project: Path) -> None:
    first = await played(project, WRITES.replace(APART, f'{APART}, name = "ann"'), go)
    path = result_of(first, "t1")["tool_use_result"]["worktreePath"]
    send = TOOL % ("more", "SendMessage", "t2", 'to = "ann", message = "TWO"') + TEXT % ("goes on", "Sent.")
    script = send + TOOL % ("TWO", "Bash", "s2", 'command = "pwd; cat new.txt"') + TEXT % ("new", "Seen.")

    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("more")
        await harness.receive("result")
        await harness.receive("result")

    harness = await played(project, script, scenario, resume=first.session.id)
    assert said(result_of(harness, "s2")).splitlines() == [path, "new"]


async def test_an_agent_that_is_about_to_leave_continues_with_a_message_and_loses_none(project: Path) -> None:
    """Its worktree is gone before it continues, and is made anew."""
    begin = AGENT % ("go", "t1", "ONE", f'{APART}, name = "ann", run_in_background = true')
    script = begin + TEXT % ("launched", "Started.") + TEXT % ("ONE", "First.") + TEXT % ("First.", "Noted.")
    script += TEXT % ("TWO", "Second.") + TEXT % ("Second.", "All noted.")

    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        tasks = harness.session.tasks
        await harness.receive_until(lambda line: line.get("subtype") == "task_started")
        [id] = tasks.ids()
        task = tasks.find(id)
        assert isinstance(task, AgentTask)
        async with asyncio.timeout(60):
            while not task.is_done:  # noqa: ASYNC110  # it is in this state for a moment only
                await asyncio.sleep(0)
            assert task.is_ending
            assert harness.session.subagents is not None
            told = await harness.session.subagents.calls_of(None).send("ann", "TWO", "t9")
        assert "resumes in the background" in str(told.content)
        await harness.receive_until(lambda line: line.get("summary") == "Second.")

    await played(project, script, scenario)
    assert there(project) == []


async def test_what_a_killed_engine_left_is_taken_away_when_the_session_continues(project: Path) -> None:
    first = await played(project, TEXT % ("go", "Hello."), go)
    folder = project / ".claude" / "worktrees"
    folder.mkdir(parents=True)
    git(project, "worktree", "add", "-q", "-b", "worktree-agent-x", str(folder / "agent-x"))
    (folder / "agent-x.lock").write_text(git(project, "rev-parse", "HEAD"))

    await played(project, TEXT % ("go", "Hello."), go, resume=first.session.id)
    assert there(project) == []


async def test_an_agent_is_told_its_working_directory(project: Path) -> None:
    told = await played(project, LOOKS, go)
    [log] = told.folder.rglob("subagents/*.jsonl")
    prompt = log.read_text().replace("\\n", "\n")
    assert f"Working directory: {project}/.claude/worktrees/agent-" in prompt
    assert f"Working directory: {project}\n" not in prompt


# Hooks.


def worktree_hooks(create: str | None, remove: str | None) -> str:
    handlers = {"WorktreeCreate": create, "WorktreeRemove": remove}
    events = {name: [{"hooks": [{"command": command}]}] for name, command in handlers.items() if command is not None}
    return json.dumps({"hooks": events})


async def test_hooks_make_and_remove_worktrees_in_place_of_git(tmp_path: Path) -> None:
    folder = tmp_path / "made by hook"
    create = f'cat > created; mkdir "{folder}"; echo "{folder}"'
    remove = f'cat > removed; rmdir "{folder}"'
    harness = await played(tmp_path, LOOKS, go, settings=worktree_hooks(create, remove))  # no repository is needed

    assert ("Sub answer." in said(result_of(harness, "t1")), folder.exists()) == (True, False)
    created, removed = (json.loads((tmp_path / name).read_text()) for name in ("created", "removed"))
    assert (created["hook_event_name"], created["name"].startswith("agent-")) == ("WorktreeCreate", True)
    assert (removed["hook_event_name"], removed["worktree_path"]) == ("WorktreeRemove", str(folder))


@pytest.mark.parametrize(
    ("create", "words"),
    [
        ("echo No room >&2; exit 2", "a WorktreeCreate hook blocked this: No room"),
        ("exit 1", "must give the absolute path of a folder that exists, not None."),
        ("echo relative", "must give the absolute path of a folder that exists, not 'relative'."),
    ],
)
async def test_a_worktree_hook_that_gives_no_folder_fails_the_call(project: Path, create: str, words: str) -> None:
    script = BEGIN + TEXT % ("not created", "Failed.")
    harness = await played(project, script, go, settings=worktree_hooks(create, None))

    assert (words in said(result_of(harness, "t1")), there(project)) == (True, [])


async def test_the_removal_of_a_git_worktree_is_reported(project: Path) -> None:
    await played(project, LOOKS, go, settings=worktree_hooks(None, "cat > home/removed"))

    path = json.loads((project / "home" / "removed").read_text())["worktree_path"]
    assert (there(project), Path(path).parent) == ([], project / ".claude" / "worktrees")
