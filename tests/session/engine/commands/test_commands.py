"""Slash commands and mentions, from the prompt to what the model reads. A real host end talks to a real engine."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.mcp import script, visit
from tests.helpers.session import Json, SessionHarness


def put(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def user_command(folder: Path, name: str, text: str) -> None:
    put(folder, f"home/.claude/commands/{name}.md", text)


def saying(*prompts: str, **fields: Any) -> Callable[[SessionHarness], Awaitable[None]]:
    async def scenario(harness: SessionHarness) -> None:
        for prompt in prompts:
            harness.prompt(prompt, **fields)
            await harness.receive("result")

    return scenario


def heard(harness: SessionHarness) -> list[str]:
    """What the model reads of the person."""
    spoken = harness.session.journal.history.render()
    return [block["text"] for one in spoken if one["role"] == "user" for block in one["content"] if "text" in block]


def warnings(harness: SessionHarness) -> list[str]:
    return [line["content"] for line in harness.messages("system") if line.get("level") == "warning"]


def results(harness: SessionHarness) -> list[Json]:
    return list(harness.messages("result"))


@pytest.mark.parametrize(
    ("text", "typed", "expected"),
    [
        ("Say hello to $ARGUMENTS!", "/greet bob  and ann", "Say hello to bob  and ann!"),
        ("$2 before $1, not $3.", "/greet 'a b' c", "c before a b, not ."),
        ("$ARGUMENTS[1] alone", "/greet a b", "b alone"),
        ("Greet.", "/greet bob", "Greet.\n\nARGUMENTS: bob"),
        ("Greet.", "/greet", "Greet."),
        ("$1", "/greet '$2 !`id`' x", "$2 !`id`"),
        ("$1 it's", "/greet it's", "it's it's"),
    ],
)
async def test_a_command_goes_into_the_conversation_with_its_arguments(
    tmp_path: Path, text: str, typed: str, expected: str
) -> None:
    user_command(tmp_path, "greet", text)
    harness = await visit(tmp_path, script("Hello."), saying(typed), replay_user_messages=True)
    assert heard(harness) == [expected]
    assert [line["message"]["content"] for line in harness.messages("user")] == [typed]


async def test_commands_are_listed_where_clients_look(tmp_path: Path) -> None:
    put(tmp_path, ".claude/commands/web/build.md", "---\ndescription: Build it\nargument-hint: [target]\n---\nBuild")
    put(
        tmp_path, ".claude/skills/release/SKILL.md", "---\ndescription: Release it\nuser-invocable: false\n---\nRelease"
    )

    async def scenario(harness: SessionHarness) -> None:
        answer = (await harness.request("initialize"))["response"]["response"]
        assert answer["commands"][0] == {"name": "web:build", "description": "Build it", "argumentHint": "[target]"}
        harness.prompt("hi")
        await harness.receive("result")

    harness = await visit(tmp_path, script("Hello."), scenario)
    [init] = [line for line in harness.messages("system") if line["subtype"] == "init"]
    assert init["slash_commands"] == [
        "web:build",
        "init",
        "review",
        "clear",
        "compact",
        "context",
        "goal",
        "help",
        "model",
        "usage",
    ]
    assert init["skills"] == ["release"]


@pytest.mark.parametrize(
    ("typed", "nearest"),
    [
        ("/greeet bob", "did you mean /greet?"),
        ("/COTS", "did you mean /cost?"),
        ("/statuss", "did you mean /status?"),
        ("/mcp__nowhere__plan", "/help lists the commands"),
        ("/x9:y", "/help lists the commands"),
        ("/hidden", "for the model only"),
    ],
)
async def test_an_unknown_command_is_an_error_that_names_the_nearest(tmp_path: Path, typed: str, nearest: str) -> None:
    user_command(tmp_path, "greet", "Hello.")
    put(tmp_path, "home/.claude/skills/hidden/SKILL.md", "---\nuser-invocable: false\n---\nSecret.")
    harness = await visit(tmp_path, script("Fine."), saying(typed, "hi"))
    failed, fine = results(harness)
    assert (failed["subtype"], failed["is_error"], failed["num_turns"]) == ("error_during_execution", True, 0)
    assert nearest in failed["errors"][0]
    assert (fine["is_error"], heard(harness)) == (False, ["hi"])


@pytest.mark.parametrize("typed", ["/etc/hosts is a file", "/usr/bin/x", "/", "/ x", "//", "/* c */", " /greet"])
async def test_a_path_is_a_prompt_like_any_other(tmp_path: Path, typed: str) -> None:
    user_command(tmp_path, "greet", "Hello.")
    harness = await visit(tmp_path, script("x"), saying(typed))
    assert heard(harness) == [typed]


async def test_an_unknown_command_does_not_take_a_waiting_prompt_with_it(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        for prompt in ("first", "/nosuch", "second"):
            harness.prompt(prompt)
        for _ in range(3):
            await harness.receive("result")

    harness = await visit(tmp_path, script("One.", "Two."), scenario)
    assert [one["is_error"] for one in results(harness)] == [False, True, False]
    assert heard(harness) == ["first", "second"]


async def test_what_a_client_composed_itself_is_taken_literally(tmp_path: Path) -> None:
    user_command(tmp_path, "greet", "Hello.")
    put(tmp_path, "notes.txt", "secret")
    prompts = ("/greet bob", "/cost", "see @notes.txt")
    harness = await visit(tmp_path, script("x", "y", "z"), saying(*prompts, client_composed=True))
    assert heard(harness) == list(prompts)


async def test_commands_can_be_switched_off(tmp_path: Path) -> None:
    user_command(tmp_path, "greet", "Hello.")
    harness = await visit(tmp_path, script("x", "y"), saying("/greet bob", "/cost"), disable_slash_commands=True)
    assert heard(harness) == ["/greet bob", "/cost"]
    assert [line["slash_commands"] for line in harness.messages("system") if line["subtype"] == "init"] == [[], []]


async def test_a_local_command_is_answered_without_a_model(tmp_path: Path) -> None:
    prompts = ("hi", "/cost", "/context", "/help", "/vim", "/model")
    harness = await visit(tmp_path, script("Hello."), saying(*prompts), input_format="stream-json")
    _, cost, context, help, vim, model = results(harness)
    assert [one.get("local_command") for one in results(harness)] == [None, "cost", "context", "help", None, "model"]
    assert {(one["subtype"], one["is_error"], one["num_turns"]) for one in results(harness)[1:]} == {
        ("success", False, 0)
    }
    assert cost["result"].startswith("Total cost:            ")
    assert "| Free space |" in context["result"]
    assert "- /review [pull request]: Review the changes" in help["result"]
    assert "\n- /clear: " in help["result"]
    assert vim["result"] == "/vim isn't available in this environment."
    assert model["result"].startswith("The model is `scripted:")
    lines = [line for line in harness.messages("assistant") if line["message"]["model"] == "<synthetic>"]
    assert [line.get("local_command_run", {}).get("command") for line in lines] == [
        *("usage", "context", "help", None, "model")
    ]
    assert lines[3]["local_command_outcome"] == {"kind": "unavailable_headless"}
    assert lines[1]["context_usage"]["categories"][-1]["name"] == "Free space"
    prompt, *answers = heard(harness)
    assert prompt == "hi"
    assert [answer.split("]")[0].split(",")[0] for answer in answers] == [
        f"[The user ran /{name}" for name in ("cost", "context", "help", "model")
    ]
    assert f"<local-command-stdout>{context['result']}</local-command-stdout>" in answers[1]


async def test_the_model_of_the_session_is_set_by_a_command(tmp_path: Path) -> None:
    harness = await visit(tmp_path, script("Hello."), saying("/model offline", "/model scripted:nowhere.toml", "hi"))
    assert results(harness)[0]["result"] == "Set model to `offline` for this session only"
    assert "nowhere.toml" in results(harness)[1]["result"]
    assert [line["model"] for line in harness.messages("system") if line["subtype"] == "init"][-1] == "offline"


async def test_a_local_command_among_waiting_prompts_is_a_turn_by_itself(tmp_path: Path) -> None:
    turns = script([("Bash", {"command": "echo one"})], "First.", "Second.")

    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        harness.prompt("/cost", uuid="00000000-0000-4000-9000-000000000001")
        harness.prompt("and more")
        for _ in range(3):
            await harness.receive("result")

    harness = await visit(tmp_path, turns, scenario)
    assert [one.get("local_command") for one in results(harness)] == [None, "cost", None]
    assert [one["result"] for one in results(harness)][::2] == ["First.", "Second."]


async def test_the_output_of_a_command_is_put_in_where_it_is_allowed(tmp_path: Path) -> None:
    user_command(
        tmp_path, "state", "---\nallowed-tools: Bash(touch:*)\n---\nMade: !`touch made-$1 && echo @no.txt` Go on."
    )
    harness = await visit(
        tmp_path, script("Fine.", [("Bash", {"command": "touch later"})], "Done."), saying("/state x", "go")
    )
    assert heard(harness)[0] == "Made: @no.txt Go on."
    assert (tmp_path / "made-x").exists()
    # The command's rule went with its turn.
    assert [denial["tool_name"] for denial in results(harness)[1]["permission_denials"]] == ["Bash"]
    assert not (tmp_path / "later").exists()


async def test_a_command_that_may_not_run_ends_the_turn_with_the_reason(tmp_path: Path) -> None:
    user_command(tmp_path, "state", "Made: !`touch made`")
    harness = await visit(tmp_path, script("Never."), saying("/state"))
    [result] = results(harness)
    assert (result["subtype"], result["num_turns"]) == ("error_during_execution", 0)
    assert result["errors"][0].startswith("/state was not sent: `touch made` did not run: ")
    assert not (tmp_path / "made").exists()
    assert heard(harness) == []


async def test_the_host_is_asked_about_a_command_and_an_interrupt_ends_the_asking(tmp_path: Path) -> None:
    user_command(tmp_path, "state", "Made: !`touch made`")

    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("/state")
        asked = await harness.receive("control_request")
        assert asked["request"]["input"]["command"] == "touch made"
        await harness.request("interrupt")
        assert (await harness.receive("result"))["terminal_reason"] == "aborted_streaming"
        harness.prompt("/state")
        asked = await harness.receive("control_request")
        answer = {"behavior": "allow", "updatedInput": asked["request"]["input"]}
        response = {"subtype": "success", "request_id": asked["request_id"], "response": answer}
        harness.send({"type": "control_response", "response": response})
        assert (await harness.receive("result"))["result"] == "Fine."

    await visit(tmp_path, script("Fine."), scenario, permission_prompt_tool="stdio")
    assert (tmp_path / "made").exists()


async def test_nothing_of_an_untrusted_tree_runs_or_widens_permission(tmp_path: Path) -> None:
    head = "---\nallowed-tools: Bash\nmodel: offline\n---\n"
    put(tmp_path, ".claude/commands/evil.md", f"{head}!`touch made`")
    put(tmp_path, ".claude/commands/sly.md", f"{head}Do it")
    turns = script([("Bash", {"command": "touch made"})], "Done.")
    harness = await visit(tmp_path, turns, saying("/evil", "/sly"), skip_permissions=False)
    assert "have not trusted this command" in results(harness)[0]["errors"][0]
    assert [denial["tool_name"] for denial in results(harness)[1]["permission_denials"]] == ["Bash"]
    assert not (tmp_path / "made").exists()


async def test_a_trusted_tree_may_act_and_its_model_goes_with_the_turn(tmp_path: Path) -> None:
    put(
        tmp_path,
        ".claude/commands/act.md",
        "---\nmodel: offline\nallowed-tools: Bash(touch:*)\n---\n!`touch made` say Hi",
    )
    harness = await visit(
        tmp_path, script("Second."), saying("/act", "go"), setting_sources=("user", "project", "local")
    )
    assert (tmp_path / "made").exists()
    assert next(line["model"] for line in harness.messages("system") if line["subtype"] == "init") == "offline"
    assert results(harness)[1]["result"] == "Second."


async def test_files_that_are_mentioned_stand_before_the_prompt(tmp_path: Path) -> None:
    put(tmp_path, "notes.txt", "one\ntwo\nthree")
    put(tmp_path, "with space.txt", "spaced")
    put(tmp_path, "src/main.py", "pass")
    harness = await visit(
        tmp_path, script("x"), saying('Look at @notes.txt#L2, (@src/) and @"with space.txt". Ask a@b.c or @nobody.')
    )
    notes, folder, spaced, typed = heard(harness)
    assert typed.startswith("Look at @notes.txt#L2")
    assert "two" in notes
    assert "three" not in notes
    assert "main.py" in folder
    assert "spaced" in spaced
    assert warnings(harness) == []


async def test_a_mention_obeys_the_rules_and_is_reported_where_it_fails(tmp_path: Path) -> None:
    put(tmp_path, ".env", "KEY=1")
    user_command(tmp_path, "greet", "Read @missing.md and @.env")
    denied = ("Read(./.env)",)
    harness = await visit(tmp_path, script("x", "y"), saying("see @.env", "/greet"), disallowed_tools=denied)
    assert heard(harness) == ["see @.env", "Read @missing.md and @.env"]
    assert [text.partition(":")[0] for text in warnings(harness)] == [
        "@.env was not included",
        "@missing.md was not included",
        "@.env was not included",
    ]
    assert "KEY=1" not in json.dumps(harness.lines)


async def test_a_broken_file_is_reported_and_the_rest_continues(tmp_path: Path) -> None:
    user_command(tmp_path, "broken", "---\nno end")
    user_command(tmp_path, "greet", "Hello.")
    harness = await visit(tmp_path, script("x"), saying("/greet"))
    assert heard(harness) == ["Hello."]
    assert [text for text in harness.warnings if "broken.md" in text and "not used as a command" in text]


async def test_a_command_that_joins_a_running_turn_is_expanded_too(tmp_path: Path) -> None:
    user_command(tmp_path, "greet", "Hello $1.")
    turns = script([("Bash", {"command": "touch made"})], "Done.")

    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        asked = await harness.receive("control_request")
        harness.prompt("/greet bob")
        answer = {"behavior": "allow", "updatedInput": asked["request"]["input"]}
        await harness.request("get_binary_version")  # the prompt has been taken before this answer
        response = {"subtype": "success", "request_id": asked["request_id"], "response": answer}
        harness.send({"type": "control_response", "response": response})
        await harness.receive("result")

    harness = await visit(tmp_path, turns, scenario, permission_prompt_tool="stdio")
    assert heard(harness) == ["go", "Hello bob."]


async def test_a_local_command_is_not_run_again_after_a_resume(tmp_path: Path) -> None:
    uuid = "00000000-0000-4000-9000-000000000001"
    first = await visit(tmp_path, script("x"), saying("/cost", uuid=uuid))

    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("/cost", uuid=uuid)
        harness.prompt("go")
        await harness.receive("result")

    again = await visit(tmp_path, script("Hello."), scenario, resume=first.session.id)
    assert [one["result"] for one in results(again)] == ["Hello."]


# Skills.

SKILL = "---\ndescription: Release it\n---\nSteps for $ARGUMENTS in ${CLAUDE_SKILL_DIR}."


def called(harness: SessionHarness) -> list[Json]:
    """The results of calls, as the model reads them."""
    lines = [line["message"]["content"][0] for line in harness.messages("user")]
    return [{"content": block["content"], "is_error": block.get("is_error")} for block in lines if "content" in block]


async def test_a_model_follows_a_skill(tmp_path: Path) -> None:
    put(tmp_path, "home/.claude/skills/release/SKILL.md", SKILL)
    turns = script([("Skill", {"skill": "release", "args": "1.0"})], "Done.")
    harness = await visit(tmp_path, turns, saying("go"), allowed_tools=("Skill(release)",))
    folder = tmp_path / "home/.claude/skills/release"
    text = f"Base directory for this skill: {folder}\n\nSteps for 1.0 in {folder}."
    assert called(harness) == [{"content": text, "is_error": None}]
    init = next(harness.messages("system"))
    assert "Skill" in init["tools"]
    assert init["skills"] == ["release"]
    assert "- release: Release it" in harness.session.config.tools["Skill"].description


async def test_a_skill_needs_permission(tmp_path: Path) -> None:
    put(tmp_path, "home/.claude/skills/release/SKILL.md", SKILL)
    harness = await visit(tmp_path, script([("Skill", {"skill": "release"})], "Done."), saying("go"))
    assert [denial["tool_name"] for denial in results(harness)[0]["permission_denials"]] == ["Skill"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("../release", "'../release' is not a valid skill name."),
        ("a..b", "'a..b' is not a valid skill name."),
        ("nothing", "There is no skill 'nothing'. The skills are: release."),
        ("quiet", "There is no skill 'quiet'. The skills are: release."),
    ],
)
async def test_a_skill_that_is_not_there_is_reported_to_the_model(tmp_path: Path, name: str, words: str) -> None:
    put(tmp_path, "home/.claude/skills/release/SKILL.md", SKILL)
    put(tmp_path, "home/.claude/skills/quiet/SKILL.md", "---\ndisable-model-invocation: true\n---\nx")
    harness = await visit(
        tmp_path, script([("Skill", {"skill": name})], "Done."), saying("go"), allowed_tools=("Skill",)
    )
    assert called(harness) == [{"content": words, "is_error": True}]


async def test_a_host_says_which_skills_its_model_may_use(tmp_path: Path) -> None:
    for name in ("release", "test"):
        put(tmp_path, f"home/.claude/skills/{name}/SKILL.md", SKILL)

    async def scenario(harness: SessionHarness) -> None:
        await harness.request("initialize", skills=["test", "../gone"])
        harness.prompt("go")
        await harness.receive("result")

    turns = script([("Skill", {"skill": "release"})], "Done.")
    harness = await visit(tmp_path, turns, scenario, allowed_tools=("Skill",))
    assert called(harness) == [{"content": "There is no skill 'release'. The skills are: test.", "is_error": True}]
    assert next(harness.messages("system"))["skills"] == ["test"]
    assert "initialize: there is no skill '../gone'" in harness.warnings
    told = [line["content"] for line in harness.messages("system") if line["subtype"] == "informational"]
    assert told == ["initialize: there is no skill '../gone'"]


@pytest.mark.parametrize("options", [{}, {"tools": ("Read",)}, {"disallowed_tools": ("Skill",)}, {"bare": True}])
async def test_where_there_is_nothing_to_follow_there_is_no_tool_for_it(tmp_path: Path, options: Json) -> None:
    if options:
        put(tmp_path, "home/.claude/skills/release/SKILL.md", SKILL)
    harness = await visit(tmp_path, script("Hello."), saying("hi"), **options)
    assert "Skill" not in next(harness.messages("system"))["tools"]


async def test_skills_of_the_shared_folder_are_read_after_those_of_the_same_place(tmp_path: Path) -> None:
    skills = {
        "home/.claude": ("one",),
        "home/.agents": ("one", "two"),
        ".claude": ("two", "three"),
        ".agents": ("three", "four"),
    }
    for folder, names in skills.items():
        for name in names:
            put(tmp_path, f"{folder}/skills/{name}/SKILL.md", f"---\ndescription: d\n---\n{folder}")
    put(tmp_path, ".agents/commands/never.md", "Only skills are shared.")
    prompts = ("/one", "/two", "/three", "/four", "/never")
    sources = ("user", "project", "local")
    harness = await visit(tmp_path, script("a", "b", "c", "d"), saying(*prompts), setting_sources=sources)
    assert [text.rpartition("\n")[2] for text in heard(harness)] == list(skills)
    assert "unknown command /never" in results(harness)[-1]["errors"][0]
