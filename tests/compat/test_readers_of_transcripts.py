"""Programs that read transcripts find in ours what the engine says of itself: the same tokens, and every call."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from parley.models.script import Script, ScriptedCall, ScriptedTurn
from parley.testing.model_server import running
from tests.compat.harness import ENGINE, finish, installed
from tests.compat.install import CCUSAGE, LIBRARIES
from tests.helpers.environment import base_environment

MODEL = "claude-sonnet-4-5"
USAGE = {
    "input_tokens": 100,
    "output_tokens": 50,
    "cache_read_input_tokens": 7,
    "cache_creation_input_tokens": 3,
}
COMMANDS = ["echo one", "echo two"]
ERRAND = ScriptedCall(name="Agent", input={"description": "look around", "prompt": "Look for plums."})
TURNS = [
    ScriptedTurn(
        thinking="Hm.",
        text="I look.",
        tools=[ScriptedCall(name="Bash", input={"command": command}) for command in COMMANDS],
        usage=USAGE,
    ),
    ScriptedTurn(tools=[ERRAND], usage=USAGE),
    ScriptedTurn(text="Two plums.", usage=USAGE),
    ScriptedTurn(text="Done.", usage=USAGE),
]
"""Two calls at once, then a subagent."""


class Place:
    """A folder with sessions in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.directory = folder / "project"
        self.directory.mkdir()

    def environment(self, url: str = "") -> dict[str, str]:
        return {
            **base_environment(),
            "HOME": str(self.folder),
            "CLAUDE_CONFIG_DIR": str(self.folder / "config"),
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "IS_SANDBOX": "1",
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "a-key-for-tests",
        }

    def ask(self, turns: list[ScriptedTurn], *flags: str) -> Any:
        """The result of a turn."""
        with running(Script(turn=turns, at_end="repeat")) as server:
            command = [str(ENGINE), "-p", "Hi", "--output-format", "json", "--model", MODEL, *flags]
            command += ["--permission-mode", "bypassPermissions"]
            stdout, _ = finish(command, self.environment(server.url), self.directory)
        return json.loads(stdout)

    def transcript(self, session_id: str) -> Path:
        (found,) = (self.folder / "config" / "projects").glob(f"*/{session_id}.jsonl")
        return found

    def read_by(self, command: list[str]) -> str:
        done = subprocess.run(
            command, env=self.environment(), cwd=self.folder, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_ccusage_counts_the_tokens_that_the_engine_counted(place: Place) -> None:
    program = installed(CCUSAGE).place / "node_modules" / "ccusage" / "dist" / "index.js"
    session_id = place.ask(TURNS)["session_id"]
    # A fork repeats what was said, and costs nothing more by that.
    forked = place.ask(TURNS[-1:], "--resume", session_id, "--fork-session")
    (spent,) = forked["modelUsage"].values()

    totals = json.loads(place.read_by(["node", str(program), "session", "--json", "--offline"]))["totals"]
    assert (
        (totals["inputTokens"], totals["outputTokens"]) == (spent["inputTokens"], spent["outputTokens"]) == (500, 250)
    )
    assert (totals["cacheReadTokens"], totals["cacheCreationTokens"]) == (35, 15)
    assert totals["totalCost"] == pytest.approx(forked["total_cost_usd"])


def test_ccusage_counts_an_answer_once_if_its_server_has_no_request_ids(place: Place) -> None:
    program = installed(CCUSAGE).place / "node_modules" / "ccusage" / "dist" / "index.js"
    call = '{ name = "Bash", input = { command = "true" } }'
    script = place.directory / "script.toml"
    script.write_text(
        f'[[turn]]\nthinking = "Hm."\ntext = "I look."\ntools = [{call}, {call}]\n[[turn]]\ntext = "Done."\n'
    )
    result = place.ask([], "--model", f"scripted:{script}")

    totals = json.loads(place.read_by(["node", str(program), "session", "--json", "--offline"]))["totals"]
    counted = (totals["inputTokens"], totals["outputTokens"])
    assert counted == (result["usage"]["input_tokens"], result["usage"]["output_tokens"])


def test_claude_code_log_shows_every_call_and_the_tokens_of_the_session(place: Place) -> None:
    program = installed(LIBRARIES).place / "bin" / "claude-code-log"
    result = place.ask(TURNS)
    shown = place.folder / "shown.json"
    place.read_by([str(program), str(place.transcript(result["session_id"])), "-o", str(shown)])

    read = json.loads(shown.read_text())
    usage = result["usage"]
    tokens = f"Input: {usage['input_tokens']} | Output: {usage['output_tokens']}"
    assert [tokens in session["token_summary"] for session in read["sessions"]] == [True]
    text = shown.read_text()
    assert [text.count(json.dumps(command)) > 0 for command in COMMANDS] == [True, True]
    assert usage["output_tokens"] == 150
