"""`parley auth`, `config` and `update` through the real executable."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from parley.version import __version__

KEY = "sk-ant-very-secret"


def settings(tmp_path: Path) -> Path:
    return tmp_path / "home" / ".claude" / "settings.json"


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def status(run: Any, **variables: str) -> tuple[dict[str, Any], int]:
    done = run("auth", "status", "--json", **variables)
    assert KEY not in done.stdout + done.stderr
    return json.loads(done.stdout), done.returncode


def test_auth_status_has_the_fields_that_clients_read(run: Any, tmp_path: Path) -> None:
    found, code = status(run)
    assert (found["loggedIn"], found["authMethod"], found["apiProvider"], code) == (False, "none", "firstParty", 1)
    assert found["configDirectory"] == str(tmp_path / "home" / ".claude")
    assert "apiKeySource" not in found

    found, code = status(run, ANTHROPIC_API_KEY=KEY)
    assert (found["loggedIn"], found["authMethod"], code) == (True, "api_key", 0)
    assert found["apiKeySource"] == "ANTHROPIC_API_KEY"
    assert run("auth", "status", ANTHROPIC_API_KEY=KEY).stdout == json.dumps(found, indent=2) + "\n"
    text = run("auth", "status", "--text", ANTHROPIC_API_KEY=KEY)
    assert (text.returncode, "key: ANTHROPIC_API_KEY" in text.stdout, KEY in text.stdout) == (0, True, False)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"ANTHROPIC_AUTH_TOKEN": KEY}, (True, "oauth_token", "firstParty")),
        ({"ANTHROPIC_API_KEY": "sk-ant-oat-subscription"}, (False, "none", "firstParty")),
        ({"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}, (True, "none", "firstParty")),
        ({"ANTHROPIC_MODEL": "openai:gpt", "OPENAI_API_KEY": KEY}, (True, "api_key", "openai")),
        ({"ANTHROPIC_MODEL": "openai:gpt", "ANTHROPIC_API_KEY": KEY}, (False, "none", "openai")),
        ({"ANTHROPIC_MODEL": "offline"}, (True, "none", "offline")),
    ],
)
def test_auth_status_is_about_the_model_that_a_session_would_use(
    run: Any, variables: dict[str, str], expected: tuple[bool, str, str]
) -> None:
    found, code = status(run, **variables)

    assert (found["loggedIn"], found["authMethod"], found["apiProvider"]) == expected
    assert code == (0 if expected[0] else 1)


def test_a_helper_is_named_and_not_run(run: Any, tmp_path: Path) -> None:
    put(settings(tmp_path), json.dumps({"apiKeyHelper": f"touch {tmp_path}/ran"}))

    found, code = status(run)

    assert (found["loggedIn"], found["authMethod"], found["apiKeySource"]) == (True, "api_key_helper", "apiKeyHelper")
    assert code == 0
    assert not (tmp_path / "ran").exists()


def test_settings_are_set_read_and_removed(run: Any, tmp_path: Path) -> None:
    put(settings(tmp_path), '{\n    "foreign": 1.50,\n    "env": {"A": "1"}\n}\n')

    assert run("config", "set", "model", "opus").stdout == f"Set model in {settings(tmp_path)}\n"
    assert json.loads(run("config", "set", "model", "opus", "--json").stdout)["file"] == str(settings(tmp_path))
    run("config", "set", "permissions.defaultMode", "plan")
    run("config", "set", "cleanupPeriodDays", "30")
    run("config", "set", "env.PORT", "80")

    assert '"foreign": 1.50' in settings(tmp_path).read_text()
    assert json.loads(settings(tmp_path).read_text()) == {
        "foreign": 1.5,
        "env": {"A": "1", "PORT": "80"},
        "model": "opus",
        "permissions": {"defaultMode": "plan"},
        "cleanupPeriodDays": 30,
    }
    assert run("config", "get", "model").stdout == "opus\n"
    assert run("config", "get", "model", "--json").stdout == '"opus"\n'
    assert run("config", "get", "permissions.defaultMode").stdout == "plan\n"
    assert run("config", "get", "cleanupPeriodDays").stdout == "30\n"
    listed = run("config", "list").stdout.splitlines()
    assert 'model = "opus"  (user: home/.claude/settings.json)' in listed
    assert json.loads(run("config", "list", "--json").stdout)["permissions"] == {"defaultMode": "plan"}

    run("config", "unset", "env.A")
    run("config", "unset", "model")
    gone = run("config", "get", "model")
    assert (gone.returncode, gone.stdout, "model is not set" in gone.stderr) == (1, "", True)
    assert json.loads(settings(tmp_path).read_text())["env"] == {"PORT": "80"}


def test_what_the_user_sets_for_the_project_takes_effect_there(run: Any, tmp_path: Path) -> None:
    put(tmp_path / ".claude" / "settings.json", '{"effortLevel": "low"}')

    assert run("config", "set", "-s", "project", "model", "haiku").returncode == 0
    assert run("config", "set", "--scope=local", "env.GREETING", "hello").returncode == 0

    listed = json.loads(run("config", "list", "--json").stdout)
    assert listed == {"model": "haiku", "env": {"GREETING": "hello"}}  # not the effort, which nobody agreed to


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (("set", "modell", "x"), "unknown setting 'modell' (did you mean model?)"),
        (("set", "model", "3"), "model must be a string"),
        (("set", "permissions.defaultMode", "lax"), "permissions.defaultMode must be one of"),
        (("set", "permissions.allow", '"x"'), "permissions.allow must be a list"),
        (("set", "model.inner", "x"), "model is not a JSON object"),
        (("set", "a..b", "x"), "invalid key 'a..b'"),
        (("set", "model", "null"), "use `parley config unset model`"),
        (("set", "-s", "galaxy", "model", "x"), "invalid scope 'galaxy'"),
        (("set", "model"), "missing argument VALUE"),
        (("get", "nothing"), "nothing is not set"),
    ],
)
def test_bad_settings_are_refused_and_not_written(run: Any, tmp_path: Path, argv: tuple[str, ...], reason: str) -> None:
    put(settings(tmp_path), '{"model": "opus"}')

    done = run("config", *argv)

    assert (done.returncode, done.stdout) == (1, "")
    assert reason in done.stderr
    assert settings(tmp_path).read_text() == '{"model": "opus"}'


def test_a_broken_settings_file_is_not_written(run: Any, tmp_path: Path) -> None:
    put(settings(tmp_path), "{")
    done = run("config", "set", "model", "opus")
    assert done.returncode == 1
    assert "left unchanged" in done.stderr
    assert settings(tmp_path).read_text() == "{"


def test_secrets_in_settings_are_not_shown(run: Any, tmp_path: Path) -> None:
    server = {"command": "x", "env": {"TOKEN": KEY}}
    put(settings(tmp_path), json.dumps({"env": {"ANTHROPIC_API_KEY": KEY, "A": "1"}, "mcpServers": {"s": server}}))

    for argv in (("list",), ("list", "--json"), ("get", "env"), ("get", "mcpServers.s.env.TOKEN")):
        done = run("config", *argv)
        assert done.returncode == 0
        assert KEY not in done.stdout + done.stderr
        assert "***" in done.stdout
    assert run("config", "get", "env.A").stdout == "1\n"


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "{pip} --upgrade parley-agent"),
        (
            {"url": "file:///src/my%20parley", "dir_info": {}},
            "git -C '/src/my parley' pull && {pip} --upgrade '/src/my parley'",
        ),
        ({"url": "file:///src/parley", "dir_info": {"editable": True}}, "git -C /src/parley pull"),
        ({"url": "file:///tmp/parley_agent-0.1.0.whl", "archive_info": {}}, "{pip} --upgrade NEW_WHEEL"),
        (
            {"url": "https://example.com/parley", "vcs_info": {"vcs": "git"}},
            "{pip} --upgrade git+https://example.com/parley",
        ),
    ],
    ids=["index", "checkout", "editable", "wheel", "repository"],
)
def test_update_upgrades_from_where_it_was_installed(
    run: Any, tmp_path: Path, origin: dict[str, Any] | None, command: str
) -> None:
    # What pip leaves of an installation.
    record = tmp_path / "site" / f"parley_agent-{__version__}.dist-info"
    put(record / "METADATA", f"Metadata-Version: 2.1\nName: parley-agent\nVersion: {__version__}\n")
    put(record / "INSTALLER", "pip\n")
    if origin is not None:
        put(record / "direct_url.json", json.dumps(origin))

    found = json.loads(run("update", "--json", PYTHONPATH=str(tmp_path / "site")).stdout)

    interpreter = re.escape(str(Path(sys.executable).parent)) + r"/python[\d.]*"
    assert re.sub(interpreter, "python", found["command"]) == command.format(pip="python -m pip install")


@pytest.mark.parametrize("argv", [("update",), ("upgrade",), ("install",), ("install", "latest", "--force")])
def test_update_names_the_command_and_changes_nothing(run: Any, tmp_path: Path, argv: tuple[str, ...]) -> None:
    done = run(*argv)

    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert lines[0].startswith(f"Parley {__version__} ")
    assert lines[1].startswith("Installed with ")
    assert lines[2].startswith("To upgrade it, run: ")
    assert lines[3] == "Nothing was changed."
    assert json.loads(run(*argv, "--json").stdout)["changed"] is False
    assert not (tmp_path / "home" / ".claude").exists()
