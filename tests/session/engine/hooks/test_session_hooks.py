"""The events beside turns and calls: each fires with its declared input, and its declared output has an effect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parley.engine.hooks import tool_hooks
from parley.protocol.messages.requests import Elicitation
from tests.helpers.hooks import asked, contexts, matcher, play, register, reply, results, specific, transcript
from tests.helpers.mcp import ALL, config, own, script, visit
from tests.helpers.mcp import results as mcp_results
from tests.helpers.session import Json, SessionHarness

ONE = "[[turn]]\ntext = 'One.'\n[[turn]]\ntext = 'Two.'\n[[turn]]\ntext = 'Three.'"
GREET = script([("mcp__workshop__greet", {})], "Done.")
SERVER = config(workshop=own("greeter.py"))


def hooks(**events: Any) -> str:
    """Settings with one handler for each event; a string is a command."""
    return json.dumps({"hooks": {event: [entry(handler)] for event, handler in events.items()}})


def entry(handler: str | Json, matcher: str = "") -> Json:
    return {"matcher": matcher, "hooks": [{"command": handler} if isinstance(handler, str) else handler]}


def noting(answer: Json | None = None) -> str:
    """A command that notes its input, and answers."""
    return "cat >> told" + ("" if answer is None else f"; echo '{json.dumps(answer)}'")


def told(folder: Path) -> list[Json]:
    path = folder / "told"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def until_run(harness: SessionHarness, event: str) -> None:
    """A hook in the background has run, and its answer has taken effect."""
    await harness.receive_until(lambda line: line.get("subtype") == "hook_response" and line["hook_event"] == event)
    await harness.request("get_session_cost")


def of_event(folder: Path, event: str) -> list[Json]:
    """The inputs of an event, without the fields that all events have."""
    common = {"session_id", "transcript_path", "cwd", "prompt_id", "hook_event_name", "permission_mode", "effort"}
    found = [input for input in told(folder) if input["hook_event_name"] == event]
    return [{name: value for name, value in input.items() if name not in common} for input in found]


def notices(harness: SessionHarness) -> list[str]:
    return [line["content"] for line in harness.messages("system") if line["subtype"] == "informational"]


# What can never run.


@pytest.mark.parametrize(
    ("event", "why"),
    [("Setup", "there is no --init"), ("TeammateIdle", "no teammates"), ("Nonsense", "unknown event")],
)
async def test_a_hook_that_can_never_run_is_reported_to_the_user_and_the_client(
    tmp_path: Path, event: str, why: str
) -> None:
    async with SessionHarness(tmp_path, ONE, settings=hooks(**{event: "true"})) as harness:
        harness.prompt("go")
        await harness.receive("result")

    assert [f"hooks.{event}" in text and why in text for text in harness.warnings] == [True]
    assert notices(harness) == harness.warnings


async def test_an_output_without_effect_is_reported_once(tmp_path: Path) -> None:
    answer = {"terminalSequence": "\u0007", **specific(classifierContext="The user agreed")}
    bash: list[tuple[str, Json]] = [("Bash", {"command": "true"})]
    async with SessionHarness(
        tmp_path, script(bash, bash, "Done."), settings=hooks(PostToolUse=noting(answer)), skip_permissions=True
    ) as harness:
        harness.prompt("go")
        await harness.receive("result")

    [text] = notices(harness)
    assert "terminalSequence (there is no terminal), classifierContext (the mode auto has no classifier" in text
    assert harness.warnings == [text]


# The start of a session and its prompts.


async def test_session_start_gives_the_first_message_the_title_and_the_skills(tmp_path: Path) -> None:
    skill = tmp_path / "home" / ".claude" / "skills" / "fresh"
    make = f"mkdir -p {skill}; printf -- '---\\nname: fresh\\ndescription: New\\n---\\nDo it.' > {skill}/SKILL.md"
    answer = specific(initialUserMessage="First.", sessionTitle="My title", reloadSkills=True)
    async with SessionHarness(tmp_path, ONE, settings=hooks(SessionStart=f"{make}; {noting(answer)}")) as harness:
        harness.prompt("Second.")
        await harness.receive("result")
        init = next(line for line in harness.messages("system") if line["subtype"] == "init")

    assert of_event(tmp_path, "SessionStart") == [{"source": "startup", "model": init["model"]}]
    assert "fresh" in init["skills"]
    assert harness.session.journal.title == "My title"
    text = transcript(harness).read_text()
    assert text.index("First.") < text.index("Second.")


async def test_session_start_of_a_resumed_session_says_what_its_cache_costs(tmp_path: Path) -> None:
    priced = tmp_path / "prices.json"
    async with SessionHarness(tmp_path, ONE, name="Named") as first:
        priced.write_text(json.dumps({first.options.model: {"input": 1, "output": 1, "cache_write_5m": 1_000_000}}))
        first.prompt("go")
        await first.receive("result")
    harness = SessionHarness(tmp_path, ONE, resume=first.session.id, settings=hooks(SessionStart=noting()))
    harness.environment["PARLEY_PRICES"] = str(priced)
    async with harness:
        harness.prompt("again")
        await harness.receive("result")

    [input] = of_event(tmp_path, "SessionStart")
    assert (input["source"], input["session_title"]) == ("resume", "Named")
    assert input["seconds_since_last_response"] >= 0
    assert input["prompt_cache_likely_expired"] is False
    assert input["estimated_cache_write_usd"] == input["context_tokens"] > 0


async def test_a_prompt_hook_gets_title_and_source_and_sets_the_title(tmp_path: Path) -> None:
    async with SessionHarness(
        tmp_path, ONE, settings=hooks(UserPromptSubmit=noting(specific(sessionTitle="T")))
    ) as harness:
        for text in ("one", "two"):
            harness.prompt(text)
            await harness.receive("result")

    assert of_event(tmp_path, "UserPromptSubmit") == [
        {"prompt": "one", "source": "sdk"},
        {"prompt": "two", "source": "sdk", "session_title": "T"},
    ]


@pytest.mark.parametrize("suppressed", [True, False])
async def test_a_blocked_prompt_is_left_out_of_the_message_if_the_hook_says_so(
    tmp_path: Path, suppressed: bool
) -> None:
    answer = {"decision": "block", "reason": "No.", **specific(suppressOriginalPrompt=suppressed)}
    async with SessionHarness(tmp_path, ONE, settings=hooks(UserPromptSubmit=noting(answer))) as harness:
        harness.prompt("my secret")
        result = await harness.receive("result")

    assert ("my secret" in result["result"]) is not suppressed
    assert ("my secret" in notices(harness)[0]) is not suppressed


def command(harness: SessionHarness, text: str) -> None:
    folder = Path(harness.environment["HOME"], ".claude", "commands")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "review.md").write_text(text)


async def test_an_expansion_is_seen_before_and_gets_context(tmp_path: Path) -> None:
    harness = SessionHarness(
        tmp_path, ONE, settings=hooks(UserPromptExpansion=noting(specific(additionalContext="Be strict.")))
    )
    command(harness, "Review $ARGUMENTS.")
    async with harness:
        harness.prompt("/review a.py")
        result = await harness.receive("result")

    assert (result["subtype"], of_event(tmp_path, "UserPromptExpansion")) == (
        "success",
        [
            {
                "expansion_type": "slash_command",
                "command_name": "review",
                "command_args": "a.py",
                "command_source": "user",
                "prompt": "/review a.py",
            }
        ],
    )
    assert "Be strict." in transcript(harness).read_text()


@pytest.mark.parametrize("suppressed", [True, False])
async def test_a_blocked_expansion_is_not_sent(tmp_path: Path, suppressed: bool) -> None:
    answer = {"decision": "block", "reason": "Not today", **specific(suppressOriginalPrompt=suppressed)}
    harness = SessionHarness(tmp_path, ONE, settings=hooks(UserPromptExpansion=noting(answer)))
    command(harness, "Review $ARGUMENTS.")
    async with harness:
        harness.prompt("/review a.py")
        result = await harness.receive("result")

    assert result["is_error"]
    assert "/review was not sent: blocked by a UserPromptExpansion hook:\nNot today" in result["errors"][0]
    assert ("a.py" in result["errors"][0]) is not suppressed


async def test_the_prompt_of_a_server_is_an_expansion_too(tmp_path: Path) -> None:
    async def talk(harness: SessionHarness) -> None:
        harness.prompt("/mcp__workshop__plan chair")
        await harness.receive("result")

    await visit(tmp_path, script("Done."), talk, mcp_config=SERVER, settings=hooks(UserPromptExpansion=noting()))

    [input] = of_event(tmp_path, "UserPromptExpansion")
    assert (input["expansion_type"], input["command_name"], input["command_args"], input["command_source"]) == (
        "mcp_prompt",
        "mcp__workshop__plan",
        "chair",
        "workshop",
    )


async def test_the_client_sees_the_text_that_a_display_hook_gives_and_the_model_its_own(tmp_path: Path) -> None:
    given = hooks(MessageDisplay=noting(specific(displayContent="[hidden]")), Stop=noting())
    async with SessionHarness(tmp_path, ONE, settings=given) as harness:
        harness.prompt("go")
        result = await harness.receive("result")

    [shown] = [line["message"]["content"] for line in harness.messages("assistant")]
    assert (shown, result["result"]) == ([{"type": "text", "text": "[hidden]"}], "[hidden]")
    [display] = of_event(tmp_path, "MessageDisplay")
    assert (display["delta"], display["final"], display["index"]) == ("One.", True, 0)
    assert of_event(tmp_path, "Stop")[0]["last_assistant_message"] == "One."
    stored = [line for line in transcript(harness).read_text().splitlines() if '"type":"assistant"' in line]
    assert {"One." in line and "[hidden]" not in line for line in stored} == {True}


# Calls.


@pytest.mark.parametrize("retry", [True, False])
async def test_a_denied_call_is_reported_and_may_be_tried_again(tmp_path: Path, retry: bool) -> None:
    given = hooks(PermissionDenied=noting(specific(retry=retry)))
    async with SessionHarness(
        tmp_path,
        script([("Bash", {"command": "touch a"})], "Done."),
        settings=given,
        disallowed_tools=("Bash(touch *)",),
    ) as harness:
        harness.prompt("go")
        result = await harness.receive("result")

    [input] = of_event(tmp_path, "PermissionDenied")
    assert (input["tool_name"], input["tool_input"], input["tool_use_id"]) == ("Bash", {"command": "touch a"}, "t1")
    assert input["reason"]
    assert len(result["permission_denials"]) == 1
    assert [("You may try it again" in text) for text in contexts(harness)] == [True] * retry


async def test_a_denied_call_of_a_server_names_the_server(tmp_path: Path) -> None:
    async def talk(harness: SessionHarness) -> None:
        harness.prompt("go")
        await harness.receive("result")

    await visit(tmp_path, GREET, talk, mcp_config=SERVER, settings=hooks(PermissionDenied=noting()))

    [input] = of_event(tmp_path, "PermissionDenied")
    assert (input["tool_name"], input["mcp_server"]["name"]) == ("mcp__workshop__greet", "workshop")


async def test_what_a_notification_hook_says_reaches_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_hooks, "NOTIFICATION_SECONDS", 0)
    given = hooks(Notification=noting(specific(additionalContext="It took long.")))
    async with SessionHarness(
        tmp_path,
        script([("Bash", {"command": "touch a"})], "Done."),
        settings=given,
        permission_prompt_tool="stdio",
        include_hook_events=True,
    ) as harness:
        harness.prompt("go")
        question = await harness.receive("control_request")
        await until_run(harness, "Notification")
        harness.send(reply(question, {"behavior": "allow"}))
        await harness.receive("result")

    assert ["It took long." in text for text in contexts(harness)] == [True]


async def test_what_the_client_denies_fires_no_permission_denied(tmp_path: Path) -> None:
    async with SessionHarness(
        tmp_path,
        script([("Bash", {"command": "touch a"})], "Done."),
        settings=hooks(PermissionDenied=noting()),
        permission_prompt_tool="stdio",
    ) as harness:
        await play(harness, {}, permission={"behavior": "deny", "message": "No."})

    assert told(tmp_path) == []


async def test_a_change_of_the_working_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    watched = tmp_path / "inner" / "watched.txt"
    async with SessionHarness(
        tmp_path,
        script([("Bash", {"command": "cd inner"})], "Done."),
        settings=hooks(CwdChanged=noting(specific(watchPaths=[str(watched)])), FileChanged=noting()),
        skip_permissions=True,
        include_hook_events=True,
    ) as harness:
        harness.prompt("go")
        await harness.receive("result")
        watched.write_text("new")
        await until_run(harness, "FileChanged")

    assert of_event(tmp_path, "FileChanged") == [{"file_path": str(watched), "event": "add"}]
    assert of_event(tmp_path, "CwdChanged") == [{"old_cwd": str(tmp_path), "new_cwd": str(tmp_path / "inner")}]


async def test_directories_that_the_client_adds_or_moves_to_are_reported(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    async with SessionHarness(
        tmp_path,
        script("Done."),
        settings=hooks(DirectoryAdded=noting(), CwdChanged=noting()),
        include_hook_events=True,
    ) as harness:
        refused = await harness.request("register_repo_root", directory="missing")
        assert refused["response"]["subtype"] == "error"
        await harness.request("register_repo_root", directory="repo")
        await until_run(harness, "DirectoryAdded")
        await harness.request("set_cwd", path="missing")
        await harness.request("set_cwd", path="repo")

        # The answer waits for the hooks of the change.
        assert of_event(tmp_path, "CwdChanged") == [{"old_cwd": str(tmp_path), "new_cwd": str(repo)}]
    assert of_event(tmp_path, "DirectoryAdded") == [{"directory": str(repo), "source": "register_repo_root"}]


TASKS = script(
    [("TaskCreate", {"subject": "Fix it", "description": "All tests pass"})],
    [("TaskUpdate", {"taskId": "1", "status": "completed"})],
    [("TaskList", {})],
    "Done.",
)
TASK_TOOLS = ("TaskCreate", "TaskUpdate", "TaskList")
TASK = {"task_id": "1", "task_subject": "Fix it", "task_description": "All tests pass"}


async def test_tasks_are_seen_before_they_are_added_and_completed(tmp_path: Path) -> None:
    async with SessionHarness(
        tmp_path, TASKS, tools=TASK_TOOLS, settings=hooks(TaskCreated=noting(), TaskCompleted=noting())
    ) as harness:
        harness.prompt("go")
        await harness.receive("result")

    assert (of_event(tmp_path, "TaskCreated"), of_event(tmp_path, "TaskCompleted")) == ([TASK], [TASK])
    assert results(harness)[2] == "#1 [completed] Fix it"


async def test_a_blocked_task_is_not_completed_and_the_model_reads_why(tmp_path: Path) -> None:
    async with SessionHarness(
        tmp_path, TASKS, tools=TASK_TOOLS, settings=hooks(TaskCompleted="echo Tests fail >&2; exit 2")
    ) as harness:
        harness.prompt("go")
        await harness.receive("result")

    assert results(harness)[1:] == ["TaskCompleted hook feedback: Tests fail", "#1 [pending] Fix it"]


async def test_a_blocked_task_is_not_added(tmp_path: Path) -> None:
    async with SessionHarness(
        tmp_path, TASKS, tools=TASK_TOOLS, settings=hooks(TaskCreated="echo Too vague >&2; exit 2")
    ) as harness:
        harness.prompt("go")
        await harness.receive("result")

    assert (results(harness)[0], results(harness)[2]) == (
        "TaskCreated hook feedback: Too vague",
        "There are no tasks.",
    )


# Questions of MCP servers.


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ({"Elicitation": noting(specific(action="accept", content={"name": "Ada"}))}, "Hello, Ada."),
        ({"Elicitation": noting(specific(action="decline"))}, "(decline)"),
        ({"Elicitation": "exit 2"}, "(decline)"),
        (
            {
                "Elicitation": noting(specific(action="accept", content={"name": "Ada"})),
                "ElicitationResult": noting(specific(action="accept", content={"name": "Bob"})),
            },
            "Hello, Bob.",
        ),
    ],
)
async def test_hooks_answer_the_question_of_a_server(tmp_path: Path, events: Json, expected: str) -> None:
    async def talk(harness: SessionHarness) -> None:
        harness.prompt("go")
        await harness.receive("result")

    harness = await visit(tmp_path, GREET, talk, mcp_config=SERVER, allowed_tools=ALL, settings=hooks(**events))

    assert [content[0]["text"] for content in mcp_results(harness)] == [expected]
    for input in of_event(tmp_path, "Elicitation"):
        assert (input["mcp_server_name"], input["message"]) == ("workshop", "What is your name?")
        assert input["requested_schema"]["properties"]["name"]["type"] == "string"


async def test_the_answer_of_the_user_passes_the_hooks(tmp_path: Path) -> None:
    async def talk(harness: SessionHarness) -> None:
        await harness.request("initialize")
        harness.prompt("go")
        question = await harness.receive("control_request")
        harness.send(reply(question, {"action": "accept", "content": {"name": "Eve"}}))
        await harness.receive("result")

    harness = await visit(
        tmp_path,
        GREET,
        talk,
        mcp_config=SERVER,
        allowed_tools=ALL,
        settings=hooks(ElicitationResult=noting(specific(action="decline"))),
    )

    [input] = of_event(tmp_path, "ElicitationResult")
    assert (input["action"], input["content"]) == ("accept", {"name": "Eve"})
    assert [content[0]["text"] for content in mcp_results(harness)] == ["(decline)"]


async def test_a_question_with_a_url_has_all_its_fields(tmp_path: Path) -> None:
    given = hooks(Elicitation=noting(), ElicitationResult=noting())
    question = Elicitation(
        mcp_server_name="shop", message="Log in", mode="url", url="https://a.example/login", elicitation_id="e1"
    )
    async with SessionHarness(tmp_path, ONE, settings=given) as harness:
        events = harness.session.hooks.events
        assert await events.answer_elicitation(question) is None
        answer = await events.check_elicitation(question, {"action": "accept"})

    common = {"mcp_server_name": "shop", "mode": "url", "elicitation_id": "e1"}
    assert of_event(tmp_path, "Elicitation") == [{**common, "message": "Log in", "url": "https://a.example/login"}]
    assert of_event(tmp_path, "ElicitationResult") == [{**common, "action": "accept"}]
    assert answer == {"action": "accept"}


# Models.


async def test_a_switch_of_the_model_is_seen_before_and_after(tmp_path: Path) -> None:
    given = hooks(PreModelSwitch=noting(), PostModelSwitch=noting(specific(additionalContext="You are new.")))
    async with SessionHarness(tmp_path, ONE, settings=given) as harness:
        harness.prompt("one")
        await harness.receive("result")
        await harness.request("set_model", model="offline")
        harness.prompt("say two")
        init = await harness.receive("system", "init")
        await harness.receive("result")

    [before], [after] = of_event(tmp_path, "PreModelSwitch"), of_event(tmp_path, "PostModelSwitch")
    assert before == after
    assert (before["from_model"], before["to_model"]) == (harness.options.model, "offline")
    assert (before["requested_model"], before["source"], before["cache_ttl"]) == ("offline", "sdk", "5m")
    assert (before["prompt_cache_warm"], before["pricing"]) == (True, "catalog")
    assert (before["context_tokens"] > 0, before["estimated_cache_write_usd"]) == (True, 0.0)
    assert init["model"] == "offline"
    assert ["You are new." in text for text in contexts(harness)] == [True]


@pytest.mark.parametrize(
    "answer",
    [
        specific(permissionDecision="deny", permissionDecisionReason="Too dear"),
        specific(permissionDecision="ask", permissionDecisionReason="Too dear"),
        {"decision": "block", "reason": "Too dear"},
    ],
)
async def test_a_denied_switch_keeps_the_model(tmp_path: Path, answer: Json) -> None:
    async with SessionHarness(tmp_path, ONE, settings=hooks(PreModelSwitch=noting(answer))) as harness:
        refused = await harness.request("set_model", model="offline")
        harness.prompt("/model offline")
        said = await harness.receive("result")
        model = harness.session.conversation.model.display_name

    assert (refused["response"]["subtype"], "Too dear" in refused["response"]["error"]) == ("error", True)
    assert ("Too dear" in said["result"], model) == (True, harness.options.model)
    assert [input["source"] for input in told(tmp_path)] == ["sdk", "command"]


async def test_a_hook_that_fails_keeps_the_model(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, ONE, settings=hooks(PreModelSwitch="exit 1")) as harness:
        refused = await harness.request("set_model", model="offline")

    assert "failed: exit code 1" in refused["response"]["error"]


async def test_the_command_model_is_a_switch(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, ONE, settings=hooks(PostModelSwitch=noting())) as harness:
        harness.prompt("/model offline")
        await harness.receive("result")

    assert [(input["source"], input["to_model"]) for input in told(tmp_path)] == [("command", "offline")]


# Files.


async def test_memory_files_are_reported_with_the_reason_why_they_are_loaded(tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").write_text("Be kind. @more.md")
    (tmp_path / "more.md").write_text("Be brief.")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "CLAUDE.md").write_text("Be quick.")
    (tmp_path / "inner" / "a.txt").write_text("a")
    path = str(tmp_path / "inner" / "a.txt")
    async with SessionHarness(
        tmp_path, script([("Read", {"file_path": path})], "Done."), settings=hooks(InstructionsLoaded=noting())
    ) as harness:
        harness.prompt("go")
        await harness.receive("result")

    main, more, inner = (str(tmp_path / name) for name in ("CLAUDE.md", "more.md", "inner/CLAUDE.md"))
    assert of_event(tmp_path, "InstructionsLoaded") == [
        {"file_path": main, "memory_type": "Project", "load_reason": "session_start"},
        {"file_path": more, "memory_type": "Project", "load_reason": "include", "parent_file_path": main},
        {
            "file_path": inner,
            "memory_type": "Project",
            "load_reason": "nested_traversal",
            "trigger_file_path": path,
        },
    ]


async def test_watched_files_are_reported_and_can_name_others(tmp_path: Path) -> None:
    first, second = tmp_path / "first.txt", tmp_path / "second.txt"
    given = hooks(
        SessionStart=f"echo '{json.dumps(specific(watchPaths=[str(first)]))}'",
        FileChanged=noting(specific(watchPaths=[str(second)])),
    )
    async with SessionHarness(tmp_path, ONE, settings=given, include_hook_events=True) as harness:
        harness.prompt("go")
        await harness.receive("result")
        first.write_text("new")
        await until_run(harness, "FileChanged")
        second.write_text("new")
        await until_run(harness, "FileChanged")

    assert of_event(tmp_path, "FileChanged") == [
        {"file_path": str(first), "event": "add"},
        {"file_path": str(second), "event": "add"},
    ]


async def test_a_matcher_names_the_files_to_watch(tmp_path: Path) -> None:
    (tmp_path / ".envrc").write_text("a")
    given = json.dumps({"hooks": {"FileChanged": [entry(noting(), ".envrc|.env")]}})
    async with SessionHarness(tmp_path, ONE, settings=given, include_hook_events=True) as harness:
        (tmp_path / ".envrc").write_text("another")
        await until_run(harness, "FileChanged")
        (tmp_path / ".envrc").unlink()
        await until_run(harness, "FileChanged")

    path = str(tmp_path / ".envrc")
    assert of_event(tmp_path, "FileChanged") == [
        {"file_path": path, "event": "change"},
        {"file_path": path, "event": "unlink"},
    ]


async def test_watch_paths_without_a_file_hook_and_relative_ones_are_reported(tmp_path: Path) -> None:
    given = hooks(SessionStart=noting(specific(watchPaths=["relative"])))
    async with SessionHarness(tmp_path, ONE, settings=given) as harness:
        harness.prompt("go")
        await harness.receive("result")

    assert ["must be absolute" in text or "no FileChanged hook" in text for text in harness.warnings] == [True, True]
    assert notices(harness) == ["watchPaths has no effect: there is no FileChanged hook"]


# Settings.


def user_settings(harness: SessionHarness) -> Path:
    path = Path(harness.environment["HOME"], ".claude", "settings.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    return path


@pytest.mark.parametrize("blocked", [True, False])
async def test_a_change_of_settings_by_the_client_can_be_blocked(tmp_path: Path, blocked: bool) -> None:
    handler = "cat >> told; echo Frozen >&2; exit 2" if blocked else noting()
    harness = SessionHarness(tmp_path, ONE, settings=hooks(ConfigChange=handler))
    path = user_settings(harness)
    async with harness:
        answer = await harness.request("update_settings", source="userSettings", settings={"language": "French"})

    assert of_event(tmp_path, "ConfigChange") == [{"source": "user_settings", "file_path": str(path)}]
    assert ("Frozen" in answer["response"].get("error", ""), "French" in path.read_text()) == (blocked, not blocked)


async def test_a_settings_file_that_somebody_edits_is_reported(tmp_path: Path) -> None:
    harness = SessionHarness(tmp_path, ONE, settings=hooks(ConfigChange=noting()), include_hook_events=True)
    path = user_settings(harness)
    async with harness:
        path.write_text('{"language": "French"}')
        await until_run(harness, "ConfigChange")

    assert of_event(tmp_path, "ConfigChange") == [{"source": "user_settings", "file_path": str(path)}]


# Callbacks of a client get the new events, too.


async def test_a_callback_gets_the_events_of_tasks(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, TASKS, tools=TASK_TOOLS) as harness:
        await play(harness, {"TaskCreated": {}, "TaskCompleted": {"decision": "block", "reason": "Not yet"}})

    assert [input["hook_event_name"] for input in asked(harness)] == ["TaskCreated", "TaskCompleted"]
    assert results(harness)[1] == "TaskCompleted hook feedback: Not yet"


async def test_a_callback_answers_while_the_model_is_switched(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, ONE) as harness:
        await register(harness, {"PreModelSwitch": [matcher("h")]})
        request = {"subtype": "set_model", "model": "offline"}
        harness.send({"type": "control_request", "request_id": "switch", "request": request})
        harness.prompt("say hello")
        question = await harness.receive("control_request")
        harness.send(reply(question, specific(permissionDecision="allow")))
        init = await harness.receive("system", "init")
        await harness.receive("result")

    assert init["model"] == "offline"  # the turn waits for the switch
