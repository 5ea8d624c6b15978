"""`parley permissions` through the real executable: its explanation matches what a session does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from parley.compose.setup.permission_check import PermissionChecker
from parley.protocol.options import CliOptions
from tests.helpers import paths

Json = dict[str, Any]
CORPUS = paths.DATA / "permissions" / "decisions.jsonl"
CASES = [case for case in map(json.loads, CORPUS.read_text().splitlines()) if case.get("run")]
SCRIPT = """
[[turn]]
tools = [
  { name = "Bash", id = "t1", input = { command = "echo one" } },
  { name = "Write", id = "t2", input = { file_path = "made.txt", content = "x" } },
  { name = "Bash", id = "t3", input = { command = "touch x" } },
]
[[turn]]
text = "Done."
"""
SESSION = "00000000-0000-4000-8000-00000000000a"
OURS = ("seq", "sum", "check", "parley")
"""Entries that a transcript of Claude Code does not have, and that we write."""


def rules(folder: Path, **permissions: Any) -> str:
    file = folder / "rules.json"
    file.write_text(json.dumps({"permissions": permissions}, indent=1))
    return str(file)


def checked(run: Any, *argv: str) -> Json:
    done = run("permissions", "check", *argv, "--json")
    found: Json = json.loads(done.stdout)
    assert done.returncode == {"allow": 0, "ask": 1, "deny": 2}[found["decision"]], done.stderr
    return found


# check


def test_a_denial_is_explained_with_the_rule_its_file_and_its_line(run: Any, tmp_path: Path) -> None:
    file = rules(tmp_path, deny=["Read(.env)", "Bash(git push:*)"])
    done = run("permissions", "check", "Bash", "git push origin", "--settings", file)

    assert done.stdout.splitlines() == [
        "deny: denied",
        "  tool       Bash",
        '  input      {"command":"git push origin"}',
        "  mode       default (default)",
        "  source     rule",
        "  reason     Bash(git push:*)",
        f"  rule       deny Bash(git push:*) (flag, {file}:5)",
        "  message    Bash was denied: the rule Bash(git push:*) (flag) forbids it.",
    ]


def test_a_question_is_explained_with_what_would_come_of_it_and_what_would_help(run: Any) -> None:
    found = checked(run, "Bash", "npm test", "--permission-prompt-tool", "stdio")

    assert (found["decision"], found["outcome"]) == ("ask", "the host is asked")
    assert found["suggestions"][0]["rules"] == [{"toolName": "Bash", "ruleContent": "npm test *"}]
    assert checked(run, "Bash", "npm test", "-p")["outcome"] == "denied, because there is no one to ask"
    assert checked(run, "Bash", "npm test")["outcome"].startswith("at a terminal you are asked, and an SDK asks")
    tool = checked(run, "Bash", "npm test", "--permission-prompt-tool", "mcp__gate__decide")
    assert tool["outcome"] == "mcp__gate__decide is asked"


def test_what_would_allow_a_call_can_be_pasted(run: Any, tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    shown = [run("permissions", "check", *call).stdout for call in (("Bash", "npm test"), ("Write", "made/x"))]

    assert "\n  allow with --allowedTools 'Bash(npm test *)'\n" in shown[0]
    assert "\n  allow with --permission-mode acceptEdits\n" in shown[1]
    assert not any("{" in line for text in shown for line in text.splitlines() if "allow with" in line)
    assert checked(run, "Bash", "npm test", "--allowedTools", "Bash(npm test *)")["decision"] == "allow"


def test_what_a_folder_says_that_is_not_trusted_does_not_count(run: Any, tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/settings.json").write_text('{"permissions": {"allow": ["Bash(npm:*)"], "deny": ["WebFetch"]}}')

    assert checked(run, "Bash", "npm test")["decision"] == "ask"
    assert checked(run, "Bash", "npm test", "--setting-sources", "project")["decision"] == "allow"
    fetch = checked(run, "WebFetch", '{"url": "https://example.com/", "prompt": "p"}')
    assert (fetch["decision"], fetch["rule"]["source"], fetch["offered"]) == ("deny", "project", False)


def test_the_mode_is_named_with_the_place_it_comes_from(run: Any, tmp_path: Path) -> None:
    file = rules(tmp_path, defaultMode="acceptEdits")
    of_file, of_flag = checked(run, "Write", "x", "--settings", file), checked(run, "Write", "x", "--mode", "dontAsk")

    assert (of_file["mode"], of_file["mode_source"], of_file["decision"]) == ("acceptEdits", file, "allow")
    assert (of_flag["mode"], of_flag["mode_source"], of_flag["decision"]) == ("dontAsk", "command line", "deny")


def test_the_guard_and_questions_to_a_person_are_asked_about(run: Any) -> None:
    assert checked(run, "Read", "x", "--guard")["decision"] == "ask"
    plan = checked(run, "ExitPlanMode", '{"plan": "p"}', "--mode", "plan")
    assert (plan["decision"], plan["offered"]) == ("ask", False)


def test_a_tool_of_an_mcp_server_and_an_input_from_stdin(run: Any) -> None:
    assert checked(run, "mcp__git__push", "--allowedTools", "mcp__git")["decision"] == "allow"
    done = run("permissions", "check", "Bash", "-", "--json", stdin="ls -l")
    assert json.loads(done.stdout)["input"] == {"command": "ls -l"}


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["check"], "missing argument TOOL"),
        (["explain", "Bash"], "unknown command `parley permissions explain`"),
        (["check", "Nope", "x"], "unknown tool 'Nope' (choose from AskUserQuestion, Bash"),
        (["check", "Bsh", "ls"], "unknown tool 'Bsh' (did you mean Bash?) (choose from AskUserQuestion, Bash"),
        (["check", "Bash", "ls", "--jsn"], "unknown option '--jsn'"),
        (["check", "Bash", '{"command": '], "INPUT is not valid JSON"),
        (["check", "Bash", '{"command": 3}'], "the input is invalid, so there is no decision"),
        (["check", "Bash", "git", "push"], "unexpected argument 'push'; quote an argument that contains spaces"),
        (["check", "TodoWrite", "x"], "INPUT for TodoWrite must be a JSON object"),
        (["check", "Bash", "ls", "--mode", "lax"], "invalid mode 'lax' (choose from default"),
        (["check", "Bash", "ls", "--settings", "/nowhere.json"], "/nowhere.json"),
        (["replay", SESSION, "--settings", "{}"], f"No conversation found with session ID: {SESSION}"),
        (["replay", "../../etc/passwd", "--settings", "{}"], "No conversation found"),
        (["replay", SESSION], "replay requires rules to compare with"),
    ],
)
def test_what_makes_no_sense_is_said_in_a_sentence(run: Any, argv: list[str], words: str) -> None:
    done = run("permissions", *argv)

    assert (done.returncode, done.stdout) == ({"check": 4, "replay": 1}.get(argv[0], 2), "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_rule_with_a_typo_is_named(run: Any, tmp_path: Path) -> None:
    done = run("permissions", "check", "Bash", "ls", "--settings", rules(tmp_path, deny=["Bash(ls"]))

    assert done.stdout.startswith("allow: runs")
    assert "'Bash(ls'" in done.stderr
    assert "rules.json:4" in done.stderr


def test_nothing_is_written_by_a_check(run: Any, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    run("permissions", "check", "Write", "x", "--mode", "acceptEdits")

    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["why"])
def test_the_corpus_is_judged_as_a_session_judges_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Json
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    cwd = tmp_path / "w"
    (cwd / "src").mkdir(parents=True)
    settings = json.dumps({"permissions": {kind: case[kind] for kind in ("allow", "deny", "ask")}})
    input = {key: placed(value, cwd) for key, value in case["input"].items()}
    options = CliOptions(settings=settings, permission_mode=case["mode"])

    assert PermissionChecker(options, str(cwd), print).check(case["tool"], input).decision == case["expect"]


def placed(value: Any, cwd: Path) -> Any:
    """`/w` is the engine's working directory."""
    return str(cwd) + value[2:] if isinstance(value, str) and (value + "/").startswith("/w/") else value


# replay


@pytest.fixture
def session(run: Any, tmp_path: Path) -> str:
    """A past session: echo ran, Write was denied because there was no one to ask, touch was allowed by a rule."""
    (tmp_path / "script.toml").write_text(SCRIPT)
    done = run(
        "-p", "go", "--model", "scripted:script.toml", "--session-id", SESSION, "--allowedTools", "Bash(touch:*)"
    )
    assert done.returncode == 0, done.stderr
    return SESSION


def test_a_replay_reports_call_by_call_what_would_change(run: Any, tmp_path: Path, session: str) -> None:
    file = rules(tmp_path, allow=["Edit(/**)"], deny=["Bash(touch:*)"])
    done = run("permissions", "replay", session, "--settings", file)

    assert done.stdout.splitlines() == [
        '= Bash         allow                -> allow  {"command":"echo one"}  [default]',
        '- Write        ask (nobody: deny)   -> allow  {"file_path":"made.txt","content":"x"}  [Edit(/**)]',
        '+ Bash         allow                -> deny   {"command":"touch x"}  [Bash(touch:*)]',
        "3 calls: 1 same, 1 stricter, 1 laxer",
    ]


def test_a_replay_as_json_has_both_decisions_whole(run: Any, tmp_path: Path, session: str) -> None:
    file = rules(tmp_path, deny=["Bash(touch:*)"])
    report = json.loads(run("permissions", "replay", session, "--settings", file, "--json").stdout)
    last = report["calls"][-1]

    assert report["summary"] == {"same": 2, "stricter": 1, "laxer": 0, "unknown": 0}
    assert (last["then"]["verdict"], last["then"]["rule"]) == ("allow", "Bash(touch:*)")
    assert last["now"]["rule"] == {
        "text": "Bash(touch:*)",
        "behavior": "deny",
        "source": "flag",
        "file": file,
        "line": 4,
    }
    assert last["then"]["input_sha256"] == last["now"]["input_sha256"]


def test_a_replay_may_be_in_another_mode(run: Any, session: str) -> None:
    done = run("permissions", "replay", session, "--mode", "acceptEdits")

    assert done.stdout.splitlines()[-1] == "3 calls: 2 same, 0 stricter, 1 laxer"


def test_a_replay_from_elsewhere_sees_paths_from_where_the_session_worked(
    run: Any, tmp_path: Path, session: str
) -> None:
    file = rules(tmp_path, deny=["Edit(./made.txt)"])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    program = "import os, sys; os.chdir(sys.argv.pop(1)); from parley.cli.main import run; run()"
    home = {"HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"}
    argv = [sys.executable, "-c", program, str(elsewhere), "permissions", "replay", session, "--settings", file]
    done = subprocess.run(argv, capture_output=True, text=True, env=home, timeout=60, check=True)

    assert "-> deny   " in done.stdout.splitlines()[1]


def test_a_replay_changes_nothing(run: Any, tmp_path: Path, session: str) -> None:
    [log] = (tmp_path / "home").rglob(f"{session}.jsonl")
    before = log.read_bytes(), sorted(tmp_path.rglob("*"))
    run("permissions", "replay", session, "--mode", "plan")

    assert (log.read_bytes(), sorted(tmp_path.rglob("*"))) == before


def test_a_call_without_a_decision_on_record_is_not_compared(run: Any, tmp_path: Path, session: str) -> None:
    [log] = (tmp_path / "home").rglob(f"{session}.jsonl")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    theirs = [{key: line[key] for key in line if key not in OURS} for line in lines if line["type"] != "parley"]
    log.write_text("".join(json.dumps(line) + "\n" for line in theirs))
    done = run("permissions", "replay", session, "--mode", "plan")

    assert "? Bash         not recorded         -> allow" in done.stdout
    assert done.stdout.splitlines()[-1] == "3 calls: 0 same, 0 stricter, 0 laxer, 3 unknown"


# A denial because there is no one to ask.


@pytest.mark.parametrize(("flags", "code"), [((), 0), (("--fail-on-denial",), 3)])
def test_a_denied_call_fails_the_run_where_that_is_wanted(
    run: Any, tmp_path: Path, flags: tuple[str, ...], code: int
) -> None:
    (tmp_path / "script.toml").write_text(SCRIPT)
    done = run("-p", "go", "--model", "scripted:script.toml", "--output-format", "json", *flags)
    result = json.loads(done.stdout)

    assert (done.returncode, result["is_error"]) == (code, bool(code))
    assert [denial["tool_name"] for denial in result["permission_denials"]] == ["Write", "Bash"]
    assert not (tmp_path / "made.txt").exists()
