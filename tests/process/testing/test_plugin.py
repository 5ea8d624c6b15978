"""The pytest fixtures for users. `tests/process/docs` runs the example in the docs."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from parley import Client, Options, SyncClient, UserMessage, run_sync
from parley.errors import UsageError
from parley.models.script import Script, ScriptedTurn
from parley.testing import call, read_scenario, scenario_wire
from tests.helpers import paths

if TYPE_CHECKING:
    from parley.testing.plugin import MakeOptions

pytest_plugins = ["parley.testing.plugin"]

DOCS = paths.DOCS


def said(url: str, prompt: str = "Hi") -> Any:
    body = {"model": "m", "messages": [{"role": "user", "content": prompt}]}
    with urllib.request.urlopen(f"{url}/v1/messages", json.dumps(body).encode(), timeout=60) as response:
        return json.load(response)["content"][0]["text"]


def test_a_server_plays_a_text_a_script_or_a_recording(model_server: Any, tmp_path: Path) -> None:
    recording = tmp_path / "tape.jsonl"
    recording.write_text(
        '{"parley_records":"model","version":1}\n'
        '{"n":1,"at_ms":0,"type":"request","call":1,"messages":[{"role":"user","content":"Hi"}]}\n'
        '{"n":2,"at_ms":0,"type":"end","call":1,"error":{"message":"no","status":400}}\n'
    )
    assert said(model_server('[[turn]]\ntext = "one"').url) == "one"
    assert said(model_server(Script(turn=[ScriptedTurn(text="two")])).url) == "two"
    with pytest.raises(urllib.request.HTTPError, match="400"):
        said(model_server(replay=recording).url)


def test_what_cannot_be_played_is_reported_at_once(model_server: Any) -> None:
    with pytest.raises(UsageError, match="invalid script in the test"):
        model_server("[[turn]]\nsong = 1")
    with pytest.raises(UsageError, match="unknown fault 'earthquake'"):
        model_server("", faults=["earthquake"])
    with pytest.raises(TypeError, match="either a script or replay="):
        model_server()


def test_options_can_be_scripted_in_plain_python(scripted: MakeOptions, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("buy milk")
    options = scripted(
        ["I will look.", call("Bash", command="cat notes.txt")], "It says: buy milk.", allowed_tools=["Bash(cat *)"]
    )

    async def calls() -> list[Any]:
        async with Client(options) as client:
            return [m.content async for m in await client.ask("Notes?") if isinstance(m, UserMessage)]

    assert "buy milk" in str(asyncio.run(calls()))
    assert run_sync("Notes?", options).text == "It says: buy milk."  # every client plays it from the start


@pytest.fixture
def users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home and the store of the person who runs the tests."""
    home = tmp_path / "user"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.setenv("PARLEY_STORE", f"folder:{home / 'store'}")
    return home


@pytest.mark.parametrize("engine", ["local", "process"])
def test_the_sessions_of_a_test_are_kept_out_of_the_users_store(
    users_home: Path, scripted: MakeOptions, tmp_path: Path, engine: str
) -> None:
    run_sync("Hi", scripted("Hello.", engine=engine))

    assert not users_home.exists()
    assert len(list((tmp_path / "home" / ".claude" / "projects").glob("*/*.jsonl"))) == 1


@pytest.mark.parametrize("engine", ["local", "process"])
def test_options_of_the_users_own_use_the_configuration_of_the_test(
    users_home: Path, parley_config: Path, tmp_path: Path, engine: Literal["local", "process"]
) -> None:
    options = Options(model=Script(["Hello."]), cwd=tmp_path, engine=engine)
    first = run_sync("Hi", options)
    again = run_sync("Hi again", replace(options, resume=first.session_id))

    assert again.session_id == first.session_id
    assert not users_home.exists()
    assert len(list((parley_config / "projects").glob("*/*.jsonl"))) == 1


def test_a_script_may_repeat_its_last_turn_and_run_in_a_process(scripted: MakeOptions) -> None:
    with SyncClient(scripted("Once.", "Again.", at_end="repeat", engine="process")) as client:
        assert [client.run("Hi").text for _ in range(3)] == ["Once.", "Again.", "Again."]


def test_the_executable_is_found_and_its_home_is_empty(
    parley_executable: str, parley: str, parley_home: dict[str, str]
) -> None:
    assert Path(parley_executable).exists()
    assert parley == parley_executable
    assert list(Path(parley_home["HOME"]).iterdir()) == []
    assert not [name for name in parley_home if "KEY" in name]


def test_a_client_of_any_language_can_start_a_scenario_or_a_recording(
    fake_claude: Any, replayed_claude: Any, tmp_path: Path
) -> None:
    scenario = fake_claude('[[turn]]\nsteps = [{ say = "Hello." }]\n')
    assert run_sync("Hi", Options(cli_path=scenario)).text == "Hello."
    with pytest.raises(UsageError, match=r"scenario.toml:2: turn\[0\].steps\[0\].sya: unknown key"):
        fake_claude('[[turn]]\nsteps = [{ sya = "Hello." }]\n')

    async def record() -> None:
        wire = scenario_wire(read_scenario('[[turn]]\nsteps = [{ say = "Again." }]\n'), record=tmp_path / "talk.jsonl")
        async with Client(transport=wire) as client:
            await client.run("Hi")

    asyncio.run(record())
    assert run_sync("Hi", Options(cli_path=replayed_claude(tmp_path / "talk.jsonl"))).text == "Again."
