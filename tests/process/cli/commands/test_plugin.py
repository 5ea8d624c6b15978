"""`parley plugin` through the real executable: install from every kind of source, use it in a session, remove it."""

from __future__ import annotations

import json
import stat
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from parley.compose.launch_context import LaunchContext
from parley.compose.setup.plugins import PluginStore
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

    assert json.loads(run("plugin", "enable", "kit", "--json").stdout)["enabled"] is True
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
        (("install", "kit@official"), "Parley uses no plugin marketplaces"),
        (("install", "./none"), "./none is not a folder, a zip file or the URL of a git repository"),
        (("install", "bare"), "bare is not a plugin: it has no .claude-plugin/plugin.json"),
        (("install", "text.zip"), "is not a zip file"),
        (("install", "linked"), "notes is a symlink; plugins with symlinks are refused"),
        (("install", "many"), "many has several plugins; choose one with --path: a, b"),
        (("install", "many", "--path", "../kit"), "--path must name a folder inside many"),
        (("install", "badname"), "`name` must consist of letters"),
        (("install", "file:///nonexistent/repo"), "git clone failed"),
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
    assert (done.returncode, report["valid"]) == (1, False)
    assert any("hooks.PreToolUs" in error for error in report["errors"])
    assert any("unknown type 'ws'" in error for error in report["errors"])
    assert run("plugin", "validate", "none").stdout.splitlines()[-1] == "✘ Validation failed"
    assert not (config(tmp_path) / "settings.json").exists()
