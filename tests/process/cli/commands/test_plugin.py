"""`parley plugin` through the real executable: install from every kind of source, use it in a session, remove it."""

from __future__ import annotations

import io
import json
import stat
import subprocess
import tarfile
import zipfile
from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha512
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from parley.compose.launch_context import LaunchContext
from parley.compose.setup.extensions import PluginStore
from parley.errors import UsageError
from parley.protocol.options import CliOptions
from tests.helpers.environment import base_environment


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    folder = tmp_path / "kit"
    put(folder, ".claude-plugin/plugin.json", '{"name": "kit", "version": "1.2"}')
    put(folder, "commands/greet.md", "---\ndescription: greets\n---\nHello $ARGUMENTS")
    put(folder, "agents/judge.md", "---\nname: judge\ndescription: judges\n---\nJudge.")
    put(folder, "bin/run.sh", "#!/bin/sh\n")
    (folder / "bin" / "run.sh").chmod(0o755)
    return folder


def put(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def zipped(folder: Path, target: Path, prefix: str = "") -> Path:
    with zipfile.ZipFile(target, "w") as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, f"{prefix}{path.relative_to(folder)}")
    return target


def git(folder: Path, *argv: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *argv],
        cwd=folder,
        check=True,
        capture_output=True,
        env={**base_environment(), "HOME": str(folder)},
    )


def config(tmp_path: Path) -> Path:
    return tmp_path / "home" / ".claude"


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def init(run: Any, *options: str) -> tuple[dict[str, Any], str]:
    done = run("-p", "hi", "--model", "offline", "--output-format", "stream-json", "--verbose", *options)
    return next(json.loads(line) for line in done.stdout.splitlines() if '"init"' in line), done.stderr


def names(run: Any, *options: str) -> list[str]:
    return [plugin["name"] for plugin in init(run, *options)[0]["plugins"]]


def test_an_installed_plugin_is_enabled_and_loads_in_a_session(run: Any, tmp_path: Path, kit: Path) -> None:
    done = run("plugin", "install", "kit")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "✔ Successfully installed plugin: kit@parley (scope: user)",
        "  It contains: 1 command, 1 agent",
    ]

    folder = config(tmp_path) / "plugins" / "cache" / "parley" / "kit" / "1.2"
    assert read(config(tmp_path) / "settings.json") == {"enabledPlugins": {"kit@parley": True}}
    registry = read(config(tmp_path) / "plugins" / "installed_plugins.json")
    [entry] = registry["plugins"]["kit@parley"]
    assert (registry["version"], entry["scope"], entry["version"]) == (2, "user", "1.2")
    assert entry["installPath"] == str(folder)
    assert (folder / "bin" / "run.sh").stat().st_mode & stat.S_IXUSR

    line, stderr = init(run)
    assert line["plugins"] == [{"name": "kit", "path": str(folder), "version": "1.2"}]
    assert "kit:greet" in line["slash_commands"]
    assert stderr == ""
    assert names(run, "--safe-mode") == []
    assert names(run, "--bare") == []
    assert names(run, "--setting-sources", "") == []

    # A copy was installed, and one of the command line takes its place.
    put(kit, ".claude-plugin/plugin.json", '{"name": "kit", "version": "2.0"}')
    assert init(run, "--plugin-dir", "kit")[0]["plugins"] == [{"name": "kit", "path": str(kit), "version": "2.0"}]


def test_plugins_are_switched_and_uninstalled(run: Any, tmp_path: Path, kit: Path) -> None:
    assert run("plugin", "list").stdout.startswith("No plugins installed.")
    run("plugin", "install", str(kit), "--json")
    assert "Status: ✔ enabled" in run("plugin", "list").stdout

    assert run("plugin", "disable", "kit").stdout == "✔ Successfully disabled plugin: kit@parley (scope: user)\n"
    again = run("plugin", "disable", "kit@parley")
    assert (again.returncode, again.stderr) == (1, 'Error: Plugin "kit@parley" is already disabled\n')
    assert names(run) == []
    [row] = json.loads(run("plugin", "list", "--json").stdout)
    assert (row["id"], row["enabled"], row["scope"]) == ("kit@parley", False, "user")

    assert json.loads(run("plugin", "enable", "kit", "--json").stdout)["pluginId"] == "kit@parley"
    assert names(run) == ["kit"]

    assert run("plugin", "uninstall", "kit").returncode == 0
    assert names(run) == []
    assert json.loads(run("plugins", "list", "--json").stdout) == []
    assert not (config(tmp_path) / "plugins" / "cache" / "parley" / "kit" / "1.2").exists()
    gone = run("plugin", "remove", "kit")
    assert (gone.returncode, "is not installed (installed: none)" in gone.stderr) == (1, True)


@pytest.mark.parametrize(
    ("policy", "is_limited"),
    [
        ({"strictKnownMarketplaces": []}, True),
        ({"allowedMarketplaces": [{"source": "github", "repo": "acme/plugins"}]}, True),
        ({"blockedMarketplaces": [{"source": "github", "repo": "acme/plugins"}]}, True),
        ({"blockedMarketplaces": []}, False),
    ],
)
def test_plugins_follow_the_marketplaces_that_an_administrator_permits(
    run: Any, tmp_path: Path, kit: Path, policy: dict[str, Any], is_limited: bool
) -> None:
    run("plugin", "install", "kit")
    line, stderr = init(run, "--managed-settings", json.dumps(policy))
    assert [plugin["name"] for plugin in line["plugins"]] == ([] if is_limited else ["kit"])
    assert (f"plugin kit@parley: managed settings restrict plugin marketplaces ({next(iter(policy))})" in stderr) is (
        is_limited
    )

    own = json.dumps({**policy, "enabledPlugins": {"kit@parley": True}})
    assert names(run, "--managed-settings", own) == ["kit"]

    options = CliOptions(managed_settings=json.dumps(policy))
    store = PluginStore(LaunchContext(options, {"HOME": str(tmp_path / "home")}, str(tmp_path)))
    if is_limited:
        with pytest.raises(UsageError, match=next(iter(policy))):
            store.install(str(kit), "", "user")
    else:
        store.install(str(kit), "", "user")


def test_hooks_of_an_installed_plugin_do_not_run_if_only_managed_ones_may(run: Any, tmp_path: Path, kit: Path) -> None:
    mark = tmp_path / "hook-ran"
    hook = {"UserPromptSubmit": [{"hooks": [{"type": "command", "command": f"touch {mark}"}]}]}
    put(kit, "hooks/hooks.json", json.dumps({"hooks": hook}))
    run("plugin", "install", "kit")

    assert names(run, "--managed-settings", '{"allowManagedHooksOnly": true}') == ["kit"]
    assert not mark.exists()

    assert names(run) == ["kit"]
    assert mark.exists()


def test_only_plugins_of_an_administrator_run_hooks_in_a_bare_session(run: Any, tmp_path: Path, kit: Path) -> None:
    mark = tmp_path / "hook-ran"
    hook = {"UserPromptSubmit": [{"hooks": [{"type": "command", "command": f"touch {mark}"}]}]}
    put(kit, "hooks/hooks.json", json.dumps({"hooks": hook}))
    run("plugin", "install", "kit")

    assert names(run, "--bare") == []
    assert not mark.exists()

    assert names(run, "--bare", "--managed-settings", '{"enabledPlugins": {"kit@parley": true}}') == ["kit"]
    assert mark.exists()


def test_a_zip_file_and_a_git_repository_can_be_installed(run: Any, tmp_path: Path, kit: Path) -> None:
    zipped(kit, tmp_path / "kit.zip")
    assert run("plugin", "i", "kit.zip").returncode == 0
    assert names(run) == ["kit"]
    run("plugin", "uninstall", "kit")

    zipped(kit, tmp_path / "nested.zip", prefix="kit-main/")
    assert run("plugin", "install", "nested.zip").returncode == 0
    run("plugin", "uninstall", "kit")

    git(kit, "init", "--quiet")
    git(kit, "add", "--all")
    git(kit, "commit", "--quiet", "--message", "first")
    for source in (f"file://{kit}", str(kit)):
        assert run("plugin", "install", source).returncode == 0
        assert names(run) == ["kit"]
        assert not (config(tmp_path) / "plugins" / "cache" / "parley" / "kit" / "1.2" / ".git").exists()
        run("plugin", "uninstall", "kit")
    git(tmp_path, "clone", "--quiet", "--bare", str(kit), "bare.git")
    assert run("plugin", "install", "bare.git").returncode == 0


def test_a_plugin_for_one_project_counts_there_only(run: Any, tmp_path: Path, kit: Path) -> None:
    done = run("plugin", "install", "kit", "--scope", "project")
    assert done.returncode == 0
    assert read(tmp_path / ".claude" / "settings.json") == {"enabledPlugins": {"kit@parley": True}}
    assert names(run) == ["kit"]

    # Another checkout with the same settings is not trusted, and the plugin is not installed for it.
    other = tmp_path / "other"
    put(other, ".claude/settings.json", '{"enabledPlugins": {"kit@parley": true}}')
    line, stderr = init(run, "--project-config-root", "other")
    assert line["plugins"] == []
    assert "enabledPlugins.kit@parley has no effect: the folder is not trusted" in stderr


def test_plugins_that_claude_code_installed_load_and_those_that_are_missing_are_named(
    run: Any, tmp_path: Path, kit: Path
) -> None:
    cache = config(tmp_path) / "plugins" / "cache" / "market" / "kit" / "1.2"
    cache.parent.mkdir(parents=True)
    kit.rename(cache)
    registry = {
        "version": 2,
        "plugins": {
            "kit@market": [{"scope": "user", "installPath": str(cache), "version": "1.2", "gitCommitSha": "abc"}],
            "out@market": [{"scope": "user", "installPath": "/etc", "version": "1"}],
            "elsewhere@market": [{"scope": "project", "installPath": str(cache), "projectPath": "/other"}],
        },
        "foreign": [1],
    }
    put(config(tmp_path), "plugins/installed_plugins.json", json.dumps(registry))
    enabled = dict.fromkeys(("kit@market", "none@market", "out@market", "elsewhere@market"), True)
    put(config(tmp_path), "settings.json", json.dumps({"enabledPlugins": enabled}))

    line, stderr = init(run)

    assert [plugin["name"] for plugin in line["plugins"]] == ["kit"]
    assert sorted(error["plugin"] for error in line["plugin_errors"]) == [
        "elsewhere@market",
        "none@market",
        "out@market",
    ]
    assert "none@market is enabled but not installed" in stderr
    assert "'/etc' is not in" in stderr

    run("plugin", "uninstall", "out@market")
    left = read(config(tmp_path) / "plugins" / "installed_plugins.json")
    assert left["foreign"] == [1]
    assert left["plugins"]["kit@market"] == registry["plugins"]["kit@market"]  # type: ignore[index]
    assert "out@market" not in left["plugins"]
    assert Path("/etc").is_dir()


def test_a_broken_list_of_plugins_is_reported_and_not_overwritten(run: Any, tmp_path: Path, kit: Path) -> None:
    run("plugin", "install", "kit")
    place = config(tmp_path) / "plugins" / "installed_plugins.json"
    place.write_text("{")

    line, stderr = init(run)
    assert line["plugins"] == []
    assert "installed plugins are not used" in stderr
    for argv in (("list",), ("install", "kit"), ("uninstall", "kit")):
        done = run("plugin", *argv)
        assert done.returncode == 1
        assert "installed_plugins.json" in done.stderr
    assert place.read_text() == "{"


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (("install", "kit@official"), 'Plugin "kit@official" not found'),
        (("install", "./none"), "./none is not a folder, an archive (.zip, .tar.gz) or the URL of a git repository"),
        (("install", "bare"), "bare is not a plugin: it has no .claude-plugin/plugin.json"),
        (("install", "text.zip"), "is not a zip file"),
        (("install", "linked"), "notes is a link that leads out of the plugin"),
        (("install", "many"), "many has several plugins; choose one with --path: a, b"),
        (("install", "many", "--path", "../kit"), "--path must name a folder inside many"),
        (("install", "badname"), "`name` must consist of letters"),
        (("install", "file:///nonexistent/repo"), "git fetch failed"),
        (("install", "kit", "-s", "galaxy"), "invalid scope 'galaxy'"),
        (("install",), "missing argument SOURCE"),
        (("enable", "kit"), 'Plugin "kit" is not installed'),
        (("install", "-x", "kit"), "unknown option '-x'"),
    ],
)
def test_bad_sources_are_refused_and_leave_nothing(
    run: Any, tmp_path: Path, kit: Path, argv: tuple[str, ...], reason: str
) -> None:
    (tmp_path / "bare").mkdir()
    (tmp_path / "text.zip").write_text("no archive")
    put(tmp_path, "linked/.claude-plugin/plugin.json", '{"name": "linked"}')
    (tmp_path / "linked" / "notes").symlink_to("/etc/passwd")
    put(tmp_path, "badname/.claude-plugin/plugin.json", '{"name": "../up"}')
    for name in ("a", "b"):
        put(tmp_path, f"many/{name}/.claude-plugin/plugin.json", json.dumps({"name": name}))

    done = run("plugin", *argv)

    assert (done.returncode, done.stdout) == (1, "")
    assert reason in done.stderr
    plugins = config(tmp_path) / "plugins"
    assert list(plugins.iterdir() if plugins.exists() else ()) == []
    assert not (config(tmp_path) / "settings.json").exists()


def hostile(path: Path, name: str, mode: int = stat.S_IFREG | 0o644) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(".claude-plugin/plugin.json", '{"name": "evil"}')
        entry = zipfile.ZipInfo(name)
        entry.external_attr = mode << 16
        archive.writestr(entry, "/etc/passwd")
    return path


@pytest.mark.parametrize(
    ("name", "mode", "reason"),
    [
        ("../escaped", stat.S_IFREG | 0o644, "points outside it"),
        ("a/../../escaped", stat.S_IFREG | 0o644, "points outside it"),
        ("/tmp/escaped-by-parley-test", stat.S_IFREG | 0o644, "points outside it"),
        ("..\\escaped", stat.S_IFREG | 0o644, "points outside it"),
        ("C:/escaped", stat.S_IFREG | 0o644, "points outside it"),
        ("link", stat.S_IFLNK | 0o777, "is not a regular file"),
        ("pipe", stat.S_IFIFO | 0o644, "is not a regular file"),
        (".claude-plugin/plugin.json", stat.S_IFREG | 0o644, "cannot be unpacked"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_archive_that_would_escape_is_refused_everywhere(
    run: Any, tmp_path: Path, name: str, mode: int, reason: str
) -> None:
    hostile(tmp_path / "evil.zip", name, mode)

    done = run("plugin", "install", "evil.zip")
    assert done.returncode == 1
    assert reason in done.stderr

    line, stderr = init(run, "--plugin-dir", "evil.zip")
    assert line["plugins"] == []
    [error] = line["plugin_errors"]
    assert (error["type"], reason in error["message"], reason in stderr) == ("source-invalid", True, True)
    assert not any(path.name.startswith("escaped") for path in tmp_path.rglob("*"))
    assert not Path("/tmp/escaped-by-parley-test").exists()


def test_plugin_dir_takes_a_zip_file_and_a_folder_of_plugins(run: Any, tmp_path: Path, kit: Path) -> None:
    zipped(kit, tmp_path / "kit.zip")
    put(tmp_path, "many/other/.claude-plugin/plugin.json", '{"name": "other"}')
    kit.rename(tmp_path / "many" / "kit")

    line, stderr = init(run, "--plugin-dir", "kit.zip")
    assert [plugin["name"] for plugin in line["plugins"]] == ["kit"]
    assert "kit:greet" in line["slash_commands"]
    assert stderr == ""
    assert init(run, "--plugin-dir", "kit.zip")[0]["plugins"] == line["plugins"]
    assert names(run, "--plugin-dir", "many") == ["kit", "other"]
    assert names(run, "--plugin-dir-no-mcp", "kit.zip") == ["kit"]


def test_validate_says_what_a_plugin_contains_and_what_is_wrong(run: Any, tmp_path: Path, kit: Path) -> None:
    done = run("plugin", "validate", "kit")
    assert done.returncode == 0
    assert done.stdout.splitlines()[1:] == ["  It contains: 1 command, 1 agent", "✔ Validation passed"]
    assert run("plugin", "validate", "kit/.claude-plugin/plugin.json").returncode == 0

    put(kit, ".mcp.json", '{"mcpServers": {"s": {"type": "ws", "url": "x"}}}')
    put(kit, "hooks/hooks.json", '{"hooks": {"PreToolUs": []}}')
    done = run("plugin", "validate", "kit", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["success"], report["manifest"]["type"]) == (1, False, "plugin")
    errors = [error["message"] for error in report["manifest"]["errors"]]
    assert any("hooks.PreToolUs" in error for error in errors)
    assert any("unknown type 'ws'" in error for error in errors)
    assert (report["provides"]["commands"], report["provides"]["agents"]) == (["kit:greet"], ["kit:judge"])
    assert run("plugin", "validate", "none").stdout.splitlines()[-1] == "✘ Validation failed"
    assert not (config(tmp_path) / "settings.json").exists()


SCHEMA = "https://agent-plugins.org/schemas/1.0.0"
SERVER = """\
import json, os, sys
open(os.path.join(os.environ["PLUGIN_DATA"], "ran"), "w").write(os.getcwd())
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    known = {"initialize": {"protocolVersion": asked.get("params", {}).get("protocolVersion"), "capabilities": {},
             "serverInfo": {"name": "s", "version": "1"}}}
    refusal = {"error": {"code": -32601, "message": "?"}}
    reply = {"result": known[asked["method"]]} if asked["method"] in known else refusal
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **reply}), flush=True)
"""


def commit(folder: Path) -> None:
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "state")


@pytest.fixture
def portable(tmp_path: Path) -> Path:
    """A git repository with a plugin in the format Agent Plugins 1.0.0: a skill and a server."""
    folder = tmp_path / "portable"
    about = {"$schema": f"{SCHEMA}/plugin.schema.json", "name": "acme.tools", "version": "1.0.0"}
    put(folder, "plugin.json", json.dumps(about))
    put(folder, "skills/greet/SKILL.md", "---\nname: greet\ndescription: greets\n---\nsay Hello from the skill.")
    put(folder, "skills/nameless/SKILL.md", "Not a skill of that format.")
    put(folder, "server.py", SERVER)
    server = {"type": "stdio", "command": "python3", "args": ["${PLUGIN_ROOT}/server.py"]}
    put(folder, "mcp.json", json.dumps({"$schema": f"{SCHEMA}/mcp.schema.json", "mcpServers": {"s": server}}))
    commit(folder)
    return folder


@pytest.fixture
def market(tmp_path: Path, kit: Path) -> Path:
    """A git repository with a marketplace that has a plugin with all five kinds of parts."""
    folder = tmp_path / "market"
    entries: list[Any] = [{"name": "kit", "source": "./plugins/kit"}, {"name": "up", "source": "../kit"}]
    entries += [{"name": "root", "source": "/etc"}, {"name": "lying", "source": "./plugins/lying"}]
    entries.append({"name": "option", "source": {"source": "url", "url": "ssh://-oProxyCommand=touch%20escaped/x"}})
    entries.append({"name": "ref", "source": {"source": "url", "url": f"file://{folder}", "ref": "--upload-pack=x"}})
    entries.append({"name": "pip", "source": {"source": "pip", "package": "x"}})
    put(folder, ".claude-plugin/marketplace.json", json.dumps({"name": "acme", "plugins": entries}))
    put(folder, "plugins/lying/.claude-plugin/plugin.json", '{"name": "kit"}')
    put(kit, "skills/lint/SKILL.md", "---\ndescription: lints\n---\nLint.")
    hook = {"UserPromptSubmit": [{"hooks": [{"type": "command", "command": f"touch {tmp_path}/hook-ran"}]}]}
    put(kit, "hooks/hooks.json", json.dumps({"hooks": hook}))
    put(kit, ".mcp.json", '{"mcpServers": {"s": {"command": "true"}}}')
    kit.rename(folder / "plugins" / "kit")
    commit(folder)
    return folder


def test_a_portable_plugin_is_installed_from_a_repository_updated_and_pinned(
    run: Any, tmp_path: Path, portable: Path
) -> None:
    done = run("plugin", "install", f"file://{portable}", "--json")
    assert (done.returncode, json.loads(done.stdout)["pluginId"]) == (0, "acme.tools@parley")

    line, stderr = init(run)
    assert line["plugins"][0]["version"] == "1.0.0"
    assert "acme.tools:greet" in line["slash_commands"]
    assert "acme.tools:nameless" not in line["slash_commands"]
    assert "skills/nameless/SKILL.md" in stderr
    assert [(server["name"], server["status"]) for server in line["mcp_servers"]] == [
        ("plugin:acme.tools:s", "connected")
    ]
    ran = config(tmp_path) / "plugins" / "data" / "parley" / "acme.tools" / "ran"
    assert ran.read_text() == line["plugins"][0]["path"]
    assert "Hello from the skill." in run("-p", "/acme.tools:greet", "--model", "offline").stdout

    put(portable, "skills/more/SKILL.md", "---\nname: more\ndescription: more\n---\nMore.")
    (portable / "skills/nameless/SKILL.md").unlink()
    put(portable, "plugin.json", (portable / "plugin.json").read_text().replace('1.0.0"}', '1.1.0"}'))
    commit(portable)
    update = json.loads(run("plugin", "update", "acme.tools", "--json").stdout)
    assert (update["updateOutcome"], update["oldVersion"], update["newVersion"]) == ("updated", "1.0.0", "1.1.0")
    assert update["changes"] == ["~ plugin.json", "+ skills/more/SKILL.md", "- skills/nameless/SKILL.md"]
    assert 'updateOutcome":"up_to_date' in run("plugin", "update", "acme.tools", "--json").stdout
    assert "acme.tools:more" in init(run)[0]["slash_commands"]

    [row] = json.loads(run("plugin", "list", "--json").stdout)
    for change in ("server.py", "new.md"):
        with Path(row["installPath"], change).open("a") as file:
            file.write("#")
        line, stderr = init(run)
        assert line["plugins"] == line["mcp_servers"] == []
        assert "acme.tools@parley: its files are not those that were installed, so it is not loaded" in stderr
        assert run("plugin", "update", "acme.tools").returncode == 0
        assert names(run) == ["acme.tools"]


@pytest.mark.parametrize("form", ["folder", "git", "zip", "tar.gz", "url"])
def test_a_marketplace_is_added_its_plugin_installed_and_updated(
    run: Any, tmp_path: Path, market: Path, form: str, serve_folder: Callable[[Path], str]
) -> None:
    def pack() -> str:
        if form in ("folder", "git"):
            return str(market) if form == "folder" else f"file://{market}"
        if form == "zip":
            return str(zipped(market, tmp_path / "market.zip"))
        with tarfile.open(tmp_path / "market.tar.gz", "w:gz") as archive:
            archive.add(market, ".")
        return str(tmp_path / "market.tar.gz") if form == "tar.gz" else f"{serve_folder(tmp_path)}/market.tar.gz"

    assert json.loads(run("plugin", "marketplace", "list", "--json").stdout) == []
    added = run("plugin", "marketplace", "add", pack(), "--json")
    assert json.loads(added.stdout)["marketplace"] == "acme", added.stderr
    [row] = json.loads(run("plugin", "marketplace", "list", "--json").stdout)
    assert (row["name"], row["contentHash"][:7]) == ("acme", "sha256:")

    done = run("plugin", "install", "kit@acme")
    assert "It contains: 1 command, 1 skill, 1 agent, 1 hook event, 1 MCP server" in done.stdout
    line, _ = init(run)
    assert {"kit:greet", "kit:lint"} <= set(line["slash_commands"])
    assert "kit:judge" in line["agents"]
    assert [server["name"] for server in line["mcp_servers"]] == ["plugin:kit:s"]
    assert (tmp_path / "hook-ran").exists()

    put(market, "plugins/kit/commands/greet.md", "Changed.")
    commit(market)
    pack()
    assert "~ kit@acme" in run("plugin", "marketplace", "update").stdout
    assert run("plugin", "update", "kit").stdout.splitlines()[1:] == ["  ~ commands/greet.md"]

    catalog = Path(row["installLocation"], ".claude-plugin", "marketplace.json")
    catalog.write_text(catalog.read_text().replace("./plugins/kit", "./plugins/lying"))
    refused = run("plugin", "install", "kit@acme")
    assert "the files of the marketplace acme are not those that were added" in refused.stderr
    assert run("plugin", "marketplace", "rm", "acme").returncode == 0
    gone = run("plugin", "marketplace", "remove", "acme", "--json")
    assert (gone.returncode, json.loads(gone.stdout)["failureCode"]) == (1, "not_configured")


def serve_package(folder: Path, url: str, plugin: Path, **about: Any) -> None:
    """The newest version of the npm package @acme/kit, as files of a server."""
    with tarfile.open(folder / "kit.tgz", "w:gz") as archive:
        archive.add(plugin, "package")
    digest = b64encode(sha512((folder / "kit.tgz").read_bytes()).digest()).decode()
    dist = {"tarball": f"{url}/kit.tgz", "integrity": f"sha512-{digest}", **about}
    put(folder, "@acme/kit/latest", json.dumps({"dist": dist}))


def test_a_marketplace_behind_the_url_of_its_catalog_has_packages(
    run: Any, tmp_path: Path, kit: Path, serve_folder: Callable[[Path], str]
) -> None:
    served = tmp_path / "served"
    served.mkdir()
    url = serve_folder(served)
    package = {"source": "npm", "package": "@acme/kit", "registry": url}
    entries: list[Any] = [{"name": "kit", "source": package}, {"name": "folder", "source": "./kit"}]
    entries.append({"name": "range", "source": {**package, "version": "^1.0.0"}})
    put(served, "marketplace.json", json.dumps({"name": "acme", "plugins": entries}))
    serve_package(served, url, kit)

    added = run("plugin", "marketplace", "add", f"{url}/marketplace.json", "--json")
    assert json.loads(added.stdout)["marketplace"] == "acme", added.stderr
    [row] = json.loads(run("plugin", "marketplace", "list", "--json").stdout)
    assert (row["source"], row["contentHash"][:7]) == ("url", "sha256:")
    refused = run("plugin", "install", "kit@acme")
    assert "is not an https address" in refused.stderr  # the marketplace is not a folder of this machine

    # From a folder of this machine, a registry on it may be used.
    run("plugin", "marketplace", "remove", "acme")
    put(tmp_path / "local", ".claude-plugin/marketplace.json", (served / "marketplace.json").read_text())
    run("plugin", "marketplace", "add", str(tmp_path / "local"))
    assert "It contains: 1 command" in run("plugin", "install", "kit@acme").stdout
    assert names(run) == ["kit"]
    put(kit, "commands/greet.md", "Changed.")
    serve_package(served, url, kit)
    assert run("plugin", "update", "kit").stdout.splitlines()[1:] == ["  ~ commands/greet.md"]

    assert "there are no folders" in run("plugin", "install", "folder@acme").stderr
    assert "'^1.0.0' of @acme/kit is not an exact version or a tag" in run("plugin", "install", "range@acme").stderr
    serve_package(served, url, kit, integrity="sha512-AAAA")
    assert "does not have the sha512 digest" in run("plugin", "update", "kit").stderr
    put(served, "@acme/kit/latest", "{}")
    assert "is not a version of an npm package" in run("plugin", "update", "kit").stderr
    put(served, "large.json", " " * 5_000_001)
    assert "larger than 5,000,000 bytes" in run("plugin", "marketplace", "add", f"{url}/large.json").stderr
    assert "is not an https address" in run("plugin", "marketplace", "add", "http://example.com/m.json").stderr


@pytest.fixture
def serve_folder() -> Iterator[Callable[[Path], str]]:
    servers: list[ThreadingHTTPServer] = []

    def serve(folder: Path) -> str:
        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(folder))))
        Thread(target=servers[-1].serve_forever).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("policy", "is_permitted"),
    [
        ({"strictKnownMarketplaces": []}, False),
        ({"strictKnownMarketplaces": [{"source": "git", "url": "URL"}]}, True),
        ({"strictKnownMarketplaces": [{"source": "git", "url": "URL", "ref": "v1"}]}, False),
        ({"strictKnownMarketplaces": [{"source": "pathPattern", "pathPattern": ".*"}]}, False),
        ({"blockedMarketplaces": [{"source": "github", "repo": "acme/plugins"}]}, True),
        ({"blockedMarketplaces": [{"source": "git", "url": "URL"}]}, False),
        ({"enabledPlugins": {"kit@acme": False}}, False),
    ],
    ids=str,
)
def test_managed_settings_decide_about_marketplaces(
    run: Any, tmp_path: Path, market: Path, policy: dict[str, Any], is_permitted: bool
) -> None:
    url = f"file://{market}"
    run("plugin", "marketplace", "add", url)
    run("plugin", "install", "kit@acme")
    managed = json.dumps(policy).replace("URL", url)

    assert names(run, "--managed-settings", managed) == (["kit"] if is_permitted else [])
    assert (tmp_path / "hook-ran").exists() is is_permitted

    options = CliOptions(managed_settings=managed)
    store = PluginStore(LaunchContext(options, {"HOME": str(tmp_path / "home")}, str(tmp_path)))
    if is_permitted:
        store.install("kit@acme", "", "user")
        return
    with pytest.raises(UsageError, match="managed settings"):
        store.install("kit@acme", "", "user")
    with pytest.raises(UsageError, match="managed settings"):
        store.update("kit", "")
    if "enabledPlugins" not in policy:
        with pytest.raises(UsageError, match="managed settings"):
            store.add_marketplace(url)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("up", "the source of up leads out of its marketplace"),
        ("root", "the source of root leads out of its marketplace"),
        ("lying", "its manifest has the name 'kit'"),
        ("option", "is not a folder, an archive"),
        ("ref", "is not the name of a branch, a tag or a commit"),
        ("pip", "sources of the kind 'pip' are not supported (choose from archive, directory, git,"),
        ("none", 'Plugin "none" not found in marketplace "acme"'),
    ],
)
def test_a_hostile_entry_of_a_marketplace_is_refused(
    run: Any, tmp_path: Path, market: Path, name: str, reason: str
) -> None:
    run("plugin", "marketplace", "add", str(market))
    done = run("plugin", "install", f"{name}@acme")
    assert (done.returncode, done.stdout) == (1, "")
    assert reason in done.stderr
    assert json.loads(run("plugin", "list", "--json").stdout) == []
    assert not list(tmp_path.rglob("escaped*"))


def test_a_marketplace_is_validated_and_flags_without_effect_are_refused(run: Any, market: Path) -> None:
    report = json.loads(run("plugin", "validate", str(market), "--json").stdout)
    assert (report["success"], report["manifest"]["type"]) == (False, "marketplace")
    assert [error["message"].partition(":")[0].partition(" (")[0] for error in report["manifest"]["errors"]] == [
        "the source of up leads out of its marketplace",
        "the source of root leads out of its marketplace",
        "sources of the kind 'pip' are not supported",
    ]
    assert "--scope must be user" in run("plugin", "marketplace", "add", str(market), "--scope", "project").stderr


@pytest.mark.parametrize(
    ("catalog", "reason"),
    [
        ({"name": "../up", "plugins": []}, "invalid name '../up'"),
        ({"name": "a\u202eb", "plugins": []}, "invalid name"),
        ({"name": "ok", "plugins": [{"name": "a/b", "source": "./x"}]}, "invalid name 'a/b'"),
        ({"name": "parley", "plugins": []}, "the name 'parley' is reserved"),
        ({"name": "claude-plugins-official", "plugins": []}, "is reserved"),
        ({"plugins": []}, "not a marketplace"),
    ],
    ids=str,
)
def test_a_marketplace_with_a_wrong_name_is_refused(run: Any, tmp_path: Path, catalog: Any, reason: str) -> None:
    put(tmp_path, "bad/.claude-plugin/marketplace.json", json.dumps(catalog))
    done = run("plugin", "marketplace", "add", "bad")
    assert (done.returncode, done.stdout, reason in done.stderr) == (1, "", True), done.stderr
    assert run("plugin", "marketplace", "list").stdout.startswith("No marketplaces configured.")


@pytest.mark.parametrize(
    ("member", "reason"),
    [
        ({"name": "../escaped"}, "points outside it"),
        ({"name": "/tmp/escaped-by-parley-test"}, "points outside it"),
        ({"name": "link", "type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}, "is not a regular file"),
        ({"name": "hard", "type": tarfile.LNKTYPE, "linkname": "/etc/passwd"}, "is not a regular file"),
        ({"name": "null", "type": tarfile.CHRTYPE}, "is not a regular file"),
        ({"name": "pipe", "type": tarfile.FIFOTYPE}, "is not a regular file"),
        ({"name": "SKILL\u202e.md"}, "invisible characters"),
        ({"name": "bomb", "size": 300_000_000}, "more than 10,000 files or 200,000,000 bytes"),
        ({"name": "pax", "type": tarfile.XHDTYPE, "size": 300_000_000}, "more than 200,000,000 bytes, unpacked"),
    ],
    ids=str,
)
def test_a_hostile_tar_file_is_refused(run: Any, tmp_path: Path, member: dict[str, Any], reason: str) -> None:
    entry = tarfile.TarInfo()
    for field, value in member.items():
        setattr(entry, field, value)
    with tarfile.open(tmp_path / "evil.tar.gz", "w:gz", compresslevel=1) as archive:
        about = b'{"name": "evil"}'
        manifest = tarfile.TarInfo(".claude-plugin/plugin.json")
        manifest.size = len(about)
        archive.addfile(manifest, io.BytesIO(about))
        archive.addfile(entry, ZeroFile() if entry.size else None)

    done = run("plugin", "install", "evil.tar.gz")
    assert (done.returncode, done.stdout, reason in done.stderr) == (1, "", True), done.stderr
    assert not list(tmp_path.rglob("escaped*"))
    assert not Path("/tmp/escaped-by-parley-test").exists()


class ZeroFile(io.RawIOBase):
    """As many zeros as asked for."""

    def read(self, size: int = -1) -> bytes:
        return bytes(size)


@pytest.mark.parametrize(
    "url",
    [
        "ssh://-oProxyCommand=touch%20escaped/x",
        "git@-oProxyCommand=touch:x",
        "git@host:-oProxyCommand=touch",
        "-u@host:x/y",
        "ext::sh -c 'touch escaped'",
        "ssh://user@-oProxyCommand=touch%20escaped/x",
        "https://user:secret@example.invalid/x.git",
        "https://user:secret@example.invalid/x.zip",
    ],
)
def test_options_and_passwords_in_a_url_are_refused(run: Any, tmp_path: Path, url: str) -> None:
    for argv in (("install", "--", url), ("marketplace", "add", "--", url)):
        done = run("plugin", *argv)
        assert (done.returncode, done.stdout) == (1, "")
        assert "is not a folder" in done.stderr or "contains a password" in done.stderr
        assert "secret" not in done.stderr
    assert not list(tmp_path.rglob("escaped*"))


def test_links_inside_of_a_plugin_become_copies_and_those_that_leave_it_are_refused(
    run: Any, tmp_path: Path, kit: Path
) -> None:
    (kit / "AGENTS.md").symlink_to("commands/greet.md")
    assert run("plugin", "install", "kit").returncode == 0
    copy = config(tmp_path) / "plugins" / "cache" / "parley" / "kit" / "1.2" / "AGENTS.md"
    assert (copy.is_symlink(), copy.read_text()) == (False, (kit / "commands/greet.md").read_text())

    put(tmp_path, "secret.md", "secret")
    (kit / "commands" / "out.md").symlink_to("../../secret.md")
    assert "leads out of the plugin" in run("plugin", "install", "kit").stderr
    # A plugin of the command line is read where it is; the link is not followed.
    line, stderr = init(run, "--plugin-dir", "kit")
    assert "kit:out" not in line["slash_commands"]
    assert "is a symbolic link to a file outside its folder" in stderr


def test_a_name_of_two_marketplaces_is_ambiguous_and_a_branch_can_be_chosen(
    run: Any, tmp_path: Path, market: Path
) -> None:
    git(market, "checkout", "--quiet", "-b", "next")
    put(
        market,
        ".claude-plugin/marketplace.json",
        '{"name": "other", "plugins": [{"name": "kit", "source": "./plugins/kit"}]}',
    )
    put(market, "plugins/kit/.claude-plugin/plugin.json", '{"name": "kit", "version": "9"}')
    commit(market)
    git(market, "checkout", "--quiet", "-")
    run("plugin", "marketplace", "add", f"file://{market}")
    run("plugin", "marketplace", "add", f"file://{market}#next")
    # A folder of the working directory does not take the place of a plugin of a marketplace.
    put(tmp_path, "kit/.claude-plugin/plugin.json", '{"name": "kit", "version": "evil"}')
    done = run("plugin", "install", "kit")
    assert (done.returncode, "choose from kit@acme, kit@other" in done.stderr) == (1, True)
    assert run("plugin", "install", "kit@other").returncode == 0
    assert init(run)[0]["plugins"][0]["version"] == "9"

    assert run("plugin", "install", f"file://{market}#next", "--path", "plugins/kit").returncode == 0
    assert run("plugin", "update", "kit@parley").returncode == 0


def test_a_project_that_is_not_trusted_can_enable_nothing(run: Any, tmp_path: Path, market: Path) -> None:
    run("plugin", "marketplace", "add", str(market))
    run("plugin", "install", "kit@acme")
    run("plugin", "disable", "kit")
    put(tmp_path, ".claude/settings.json", '{"enabledPlugins": {"kit@acme": true}}')
    line, stderr = init(run)
    assert (line["plugins"], line["mcp_servers"]) == ([], [])
    assert "enabledPlugins.kit@acme has no effect: the folder is not trusted" in stderr
    assert not (tmp_path / "hook-ran").exists()


def test_an_unknown_command_fails_with_the_nearest_one_of_a_plugin(run: Any, tmp_path: Path, kit: Path) -> None:
    done = run("-p", "/kit:gret bob", "--model", "offline", "--plugin-dir", "kit")
    assert done.returncode == 1
    assert done.stdout.startswith("Error: unknown command /kit:gret (did you mean /kit:greet?)")
    assert run("-p", "/usr/bin/x is broken", "--model", "offline").returncode == 0


def test_a_shared_skill_of_a_project_runs_nothing_before_it_is_trusted(run: Any, tmp_path: Path) -> None:
    put(tmp_path, ".agents/skills/act/SKILL.md", "---\ndescription: acts\n---\n!`touch ran`")
    options = ("-p", "/act", "--model", "offline", "--allowedTools", "Bash")
    assert "you have not trusted this command of its project" in run(*options).stdout
    assert not (tmp_path / "ran").exists()

    assert run("trust", ".").returncode == 0
    assert run(*options).returncode == 0
    assert (tmp_path / "ran").exists()

    # What was trusted is the content of the file.
    put(tmp_path, ".agents/skills/act/SKILL.md", "---\ndescription: acts\n---\n!`touch more`")
    assert run(*options).returncode == 1
    assert not (tmp_path / "more").exists()
