"""The requests of clients with pages of their own: titles, side questions, dialogs, directories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parley.models.script import Script, ScriptedCall, ScriptedError, ScriptedTurn
from parley.testing.model_server import ModelServer, running
from tests.helpers.session import Json, SessionHarness

HELLO = "[[turn]]\ntext = 'Hello.'\n"


def answer(line: Json) -> Json:
    assert line["response"]["subtype"] == "success", line
    found: Json = line["response"].get("response", {})
    return found


def error(line: Json) -> str:
    assert line["response"]["subtype"] == "error", line
    return str(line["response"]["error"])


class ApiHarness(SessionHarness):
    """A session whose model is on a loopback server of the Messages API."""

    def __init__(self, folder: Path, server: ModelServer, **options: Any) -> None:
        super().__init__(folder, HELLO, **{"model": "claude-opus-4-5", **options})
        self.environment |= {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "sk-test"}


# Titles.


async def test_a_title_is_generated_by_the_small_model_and_stored_if_the_request_says_so(tmp_path: Path) -> None:
    with running(Script(turn=[ScriptedTurn(text='"Repair the login."\n')], at_end="repeat")) as server:
        async with ApiHarness(tmp_path, server) as harness:
            given = await harness.request("generate_session_title", description="Please repair the login button")
            assert answer(given) == {"title": "Repair the login"}
            assert harness.session.journal.title is None

            await harness.request("generate_session_title", description="the same", persist=True)
            assert harness.session.journal.title == "Repair the login"
    bodies = [exchange.body for exchange in server.exchanges]
    assert all("haiku" in body["model"] for body in bodies)
    assert "Please repair the login button" in str(bodies[0]["messages"])
    assert list(harness.messages("result")) == []


async def test_a_title_without_a_model_is_the_start_of_the_description(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, HELLO) as harness:
        given = await harness.request("generate_session_title", description="Fix   the\nlogin. " + "word " * 40)
        title = answer(given)["title"]
        assert title.startswith("Fix the login. word word")
        assert len(title) <= 80

        assert answer(await harness.request("generate_session_title", description=" ")) == {"title": None}
        harness.prompt("Hi")
        assert (await harness.receive("result"))["result"] == "Hello."  # no turn of the script was used up


async def test_a_model_that_fails_gives_no_title(tmp_path: Path) -> None:
    failing = ScriptedTurn(error=ScriptedError(status=400, type="invalid_request_error", message="no"))
    with running(Script(turn=[failing], at_end="repeat")) as server:
        async with ApiHarness(tmp_path, server) as harness:
            assert answer(await harness.request("generate_session_title", description="x")) == {"title": None}
    assert any("no title can be generated" in warning for warning in harness.warnings)


# Side questions.


async def test_a_side_question_is_answered_from_the_conversation_and_stays_outside(tmp_path: Path) -> None:
    turns = [ScriptedTurn(text="Hello."), ScriptedTurn(text="You greeted me."), ScriptedTurn(text="Bye.")]
    with running(Script(turn=turns)) as server:
        async with ApiHarness(tmp_path, server) as harness:
            harness.prompt("Good morning")
            await harness.receive("result")
            before = list(harness.session.journal.history.render())

            told = await harness.request("side_question", question="What did I say?")
            assert answer(told) == {"response": "You greeted me.", "synthetic": False}
            assert harness.session.journal.history.render() == before
            [progress] = [line for line in harness.lines if line.get("subtype") == "control_request_progress"]
            assert (progress["status"], progress["request_id"]) == ("started", told["response"]["request_id"])

            harness.prompt("Good night")
            assert (await harness.receive("result"))["result"] == "Bye."
    asked, last = (exchange.body["messages"] for exchange in server.exchanges[1:])
    assert "What did I say?" in str(asked[-1])
    assert "Good morning" in str(asked[0])
    assert "What did I say?" not in str(last)


async def test_a_side_question_during_a_turn_is_asked_with_a_result_for_the_running_call(tmp_path: Path) -> None:
    wait = ScriptedCall(name="Bash", id="t1", input={"command": "sleep 30"})
    turns = [ScriptedTurn(tools=[wait]), ScriptedTurn(text="A command runs.")]
    with running(Script(turn=turns, at_end="repeat")) as server:
        options = {"permission_mode": "bypassPermissions", "skip_permissions": True}
        async with ApiHarness(tmp_path, server, **options) as harness:
            harness.prompt("Wait")
            await harness.receive_until(lambda line: line["type"] == "assistant")
            assert answer(await harness.request("side_question", question="What happens?"))["response"] == (
                "A command runs."
            )
            await harness.request("interrupt")
            await harness.receive("result")
    [result, question] = server.exchanges[1].body["messages"][-1]["content"]
    assert (result["type"], result["tool_use_id"]) == ("tool_result", "t1")
    assert "What happens?" in question["text"]


async def test_a_side_question_before_the_first_prompt_journals_nothing(tmp_path: Path) -> None:
    with running(Script(turn=[ScriptedTurn(text="Nothing yet.")])) as server:
        async with ApiHarness(tmp_path, server) as harness:
            assert answer(await harness.request("side_question", question="What?"))["response"] == "Nothing yet."
            assert harness.session.journal.system_text is None
            assert error(await harness.request("side_question", question=" ")) == (
                "side_question: the question is empty"
            )


async def test_a_side_question_that_fails_is_answered_with_the_reason_and_retries_are_reported(
    tmp_path: Path,
) -> None:
    failing = ScriptedTurn(error=ScriptedError(status=529, type="overloaded_error", message="too busy"))
    with running(Script(turn=[failing], at_end="repeat")) as server:
        async with ApiHarness(tmp_path, server) as harness:
            told = answer(await harness.request("side_question", question="What?"))
    assert told["synthetic"] is True
    assert "too busy" in told["response"]
    retries = [line for line in harness.lines if line.get("status") == "api_retry"]
    assert [line["attempt"] for line in retries] == [1, 2]
    assert retries[0]["error_status"] == 529


# Suggestions.


async def test_suggestions_can_be_paused(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, HELLO * 3, prompt_suggestions=True) as harness:
        assert answer(await harness.request("set_prompt_suggestions_paused", paused=True)) == {}
        harness.prompt("Hi")
        await harness.receive("result")
        assert answer(await harness.request("set_prompt_suggestions_paused", paused=False)) == {}
        harness.prompt("Hi")
        await harness.receive("prompt_suggestion")
    assert len(list(harness.messages("prompt_suggestion"))) == 1


# Pages.


async def test_the_status_page_shows_the_session_and_its_environment(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, HELLO) as harness:
        sections = answer(await harness.request("get_status"))["sections"]
    assert [section["title"] for section in sections] == ["Session", "Environment"]
    rows = {row["label"]: row["value"] for section in sections for row in section["rows"]}
    assert rows["Session ID"] == harness.session.id
    assert rows["cwd"] == str(tmp_path)
    assert rows["Permission mode"] == "default"


async def test_the_plan_is_that_of_the_file_or_the_last_one_presented(tmp_path: Path) -> None:
    script = """\
[[turn]]
tools = [{ name = 'ExitPlanMode', id = 't1', input = { plan = '# First' } }]
[[turn]]
text = 'Done.'
"""
    async with SessionHarness(tmp_path, script, permission_mode="plan") as harness:
        assert answer(await harness.request("get_plan")) == {"exists": False}
        harness.prompt("Plan it")
        await harness.receive("result")
        assert answer(await harness.request("get_plan")) == {"exists": True, "plan": "# First"}

        path = Path(harness.session.conversation.tool_context.plan_file or "")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("# Second")
        assert answer(await harness.request("get_plan")) == {"exists": True, "plan": "# Second", "path": str(path)}


async def test_the_conversation_is_exported_as_text(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("one\n")
    script = f"""\
[[turn]]
text = 'I look.'
tools = [{{ name = 'Read', id = 't1', input = {{ file_path = '{tmp_path}/note.txt' }} }}]
[[turn]]
text = 'It says one.'
"""
    async with SessionHarness(tmp_path, script) as harness:
        assert answer(await harness.request("export_conversation"))["text"] == ""
        harness.prompt("What is in note.txt?")
        await harness.receive("result")
        found = answer(await harness.request("export_conversation"))
    lines = found["text"].splitlines()
    assert lines[:5] == ["", "❯ What is in note.txt?", "", "● I look.", ""]
    assert lines[5] == f'● Read({{"file_path": "{tmp_path}/note.txt"}})'
    assert lines[6].startswith("  ⎿ ")
    assert lines[-1] == "● It says one."
    assert found["default_filename"].endswith("-what-is-in-note-txt.txt")


async def test_the_memory_page_lists_files_that_exist_and_those_that_may(tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").write_text("Be brief.\n")
    async with SessionHarness(tmp_path, HELLO) as harness:
        found = answer(await harness.request("get_memory_dialog"))
    assert [(file["kind"], file["path"], file["exists"]) for file in found["files"]] == [
        ("project", str(tmp_path / "CLAUDE.md"), True),
        ("user", str(tmp_path / "home" / ".claude" / "CLAUDE.md"), False),
    ]
    assert found["auto_memory"]["enabled"] is False


async def test_the_skills_page_lists_skills_and_commands_of_files(tmp_path: Path) -> None:
    skill = tmp_path / "home" / ".claude" / "skills" / "demo" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: demo\ndescription: A demo\n---\nDo it.\n")
    async with SessionHarness(tmp_path, HELLO) as harness:
        [row] = answer(await harness.request("get_skills_dialog"))["skills"]
    assert (row["name"], row["description"], row["source"], row["advertised"]) == ("demo", "A demo", "user", True)


async def test_the_sandbox_page_says_what_the_machine_offers(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, HELLO) as harness:
        found = answer(await harness.request("get_sandbox_dialog"))
    assert (found["enabled"], found["mode"]) == (False, "disabled")
    assert found["supported"] is not bool(found["dependencies"]["errors"])


# Directories.


async def test_a_repository_below_the_working_directory_becomes_a_root(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "CLAUDE.md").write_text("Use tabs.\n")
    async with SessionHarness(tmp_path, HELLO) as harness:
        given = await harness.request("register_repo_root", directory="repo", reload_claude_md=True, reload_skills=True)
        assert answer(given) == {"directory": str(repo)}
        state = answer(await harness.request("list_permission_rules"))["state"]
        assert state["workspaceDirectories"] == [{"path": str(repo)}]
        assert "Use tabs." in str(harness.session.journal.history.render())


@pytest.mark.parametrize("field", ["reload_skills", "reload_plugins"])
async def test_a_new_root_can_bring_skills(tmp_path: Path, field: str) -> None:
    (tmp_path / "repo").mkdir()
    async with SessionHarness(tmp_path, HELLO) as harness:
        await harness.request("initialize")
        skill = tmp_path / "home" / ".claude" / "skills" / "demo" / "SKILL.md"
        skill.parent.mkdir(parents=True)
        skill.write_text("---\nname: demo\ndescription: A demo\n---\nDo it.\n")
        answer(await harness.request("register_repo_root", directory="repo", **{field: True}))
    [changed] = [line for line in harness.messages("system") if line["subtype"] == "commands_changed"]
    assert "demo" in [command["name"] for command in changed["commands"]]


@pytest.mark.parametrize(
    ("directory", "reason"),
    [
        (".", "is the working directory of the session"),
        ("missing", "there is no directory 'missing'"),
        ("..", "is not below the working directory of the session or a directory of --add-dir"),
        ("repo", "is already a working directory"),
    ],
)
async def test_other_directories_are_refused_as_roots(tmp_path: Path, directory: str, reason: str) -> None:
    (tmp_path / "repo").mkdir()
    async with SessionHarness(tmp_path, HELLO) as harness:
        await harness.request("register_repo_root", directory="repo")
        assert reason in error(await harness.request("register_repo_root", directory=directory))
        assert "directory" in error(await harness.request("register_repo_root", directory=5))


async def test_the_working_directory_changes_between_turns(tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    script = "[[turn]]\ntools = [{ name = 'Bash', id = 't1', input = { command = 'pwd' } }]\n" + HELLO
    async with SessionHarness(tmp_path, script, permission_mode="bypassPermissions", skip_permissions=True) as harness:
        assert answer(await harness.request("set_cwd", path="missing")) == {
            "status": "rejected",
            "reason": "not_found",
            "message": f"There is no directory {tmp_path}/missing.",
        }
        assert answer(await harness.request("set_cwd", path=str(tmp_path)))["changed"] is False
        assert answer(await harness.request("set_cwd", path=str(other))) == {
            "status": "ok",
            "cwd": str(other),
            "changed": True,
            "transcript_relocated": False,
        }
        assert "path" in error(await harness.request("set_cwd"))
        harness.prompt("Where?")
        assert (await harness.receive("system", "init"))["cwd"] == str(other)
        await harness.receive("result")
    assert str(other) in str(next(harness.messages("user"))["message"])
    assert f"Working directory: {other}" in (harness.session.journal.system_text or "")


async def test_the_model_learns_of_a_directory_that_changes_after_its_first_turn(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    async with SessionHarness(tmp_path, HELLO) as harness:
        harness.prompt("Hi")
        await harness.receive("result")
        await harness.request("set_cwd", path="elsewhere")
        assert f"[Working directory: {tmp_path}/elsewhere]" in str(harness.session.journal.history.render())


# Bad input.


@pytest.mark.parametrize(
    ("subtype", "fields", "named"),
    [
        ("generate_session_title", {}, "description"),
        ("generate_session_title", {"description": 5}, "description"),
        ("generate_session_title", {"description": "x", "persist": "yes"}, "persist"),
        ("side_question", {"question": ["x"]}, "question"),
        ("set_prompt_suggestions_paused", {"paused": "yes"}, "paused"),
        ("set_cwd", {"path": 5}, "path"),
        ("set_cwd", {"path": "a\0b"}, "path"),
        ("register_repo_root", {"directory": "repo", "reload_skills": 1}, "reload_skills"),
        ("register_repo_root", {"directory": "a\0b"}, "there is no directory"),
        ("claim_session", {"cwd": []}, "cwd"),
        ("claim_session", {"cwd": "/", "env": {"A": 5}}, "env"),
        ("mcp_authenticate", {"serverName": 5}, "serverName"),
        ("mcp_authenticate", {"serverName": "nobody"}, "Server not found: nobody"),
        ("mcp_authenticate", {"serverName": "x", "redirectUri": 5}, "redirectUri"),
        ("mcp_oauth_callback_url", {"serverName": "nobody", "callbackUrl": "app://x"}, "Server not found: nobody"),
        ("mcp_oauth_callback_url", {"serverName": "x"}, "callbackUrl"),
        ("mcp_clear_auth", {"serverName": "nobody"}, "Server not found: nobody"),
    ],
)
async def test_wrong_fields_are_named_and_the_session_continues(
    tmp_path: Path, subtype: str, fields: Json, named: str
) -> None:
    async with SessionHarness(tmp_path, HELLO) as harness:
        assert named in error(await harness.request(subtype, **fields))
        harness.prompt("Hi")
        assert (await harness.receive("result"))["result"] == "Hello."


# Refusals.


@pytest.mark.parametrize(
    ("subtype", "reason"),
    [
        ("remote_control", "servers of the vendor"),
        ("claude_authenticate", "ANTHROPIC_API_KEY"),
        ("submit_feedback", "feedback goes to a service of the vendor"),
        ("get_chrome_dialog", "MCP server"),
        ("ultrareview_launch", "servers of the vendor"),
        ("nonsense", "Unsupported control request subtype: nonsense"),
    ],
)
async def test_requests_for_services_of_the_vendor_are_refused_with_the_reason(
    tmp_path: Path, subtype: str, reason: str
) -> None:
    async with SessionHarness(tmp_path, HELLO) as harness:
        told = await harness.request(subtype)
        assert subtype in error(told)
        assert reason in error(told)
        assert told["response"]["error_code"] == "unsupported_request"
        assert "not_a_spare" in error(await harness.request("claim_session", cwd="/"))
        harness.prompt("Hi")
        assert (await harness.receive("result"))["result"] == "Hello."


# Permissions.


async def test_a_call_is_decided_without_running_it_and_a_changed_rule_changes_the_decision(tmp_path: Path) -> None:
    rule = {"rules": [{"toolName": "Bash", "ruleContent": "git push *"}], "behavior": "deny"}
    update = {"type": "addRules", "destination": "localSettings", **rule}
    call = {"tool_name": "Bash", "input": {"command": "git push origin"}}
    async with SessionHarness(tmp_path, HELLO) as harness:
        before = answer(await harness.request("check_permission", **call))
        state = answer(await harness.request("update_permissions", updates=[update]))["state"]
        after = answer(await harness.request("check_permission", **call))
        refused = error(await harness.request("update_permissions", updates=[{"type": "fly"}]))
        unknown = error(await harness.request("check_permission", tool_name="Nothing", input={}))
    assert (before["decision"], before["outcome"]) == ("ask", "the client is asked")
    assert [(row["rule"], row["source"]) for row in state["rules"]] == [("Bash(git push *)", "localSettings")]
    assert (after["decision"], after["rule"]["text"]) == ("deny", "Bash(git push *)")
    assert "fly" in refused
    assert "the session has no tool 'Nothing'" in unknown
