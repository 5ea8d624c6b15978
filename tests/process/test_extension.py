"""Tools, a model backend, a store, a dialect and a hook from another package (tests/extension), in the executable."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.environment import base_environment
from tests.helpers.paths import TESTS
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.store_conformance import Place, every_claim

PARLEY = str(Path(sys.executable).with_name("parley"))
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the package is installed into. It is on the path of these tests alone."""
    target = tmp_path_factory.mktemp("extension")
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", "--quiet", *offline, "--target", str(target)]
    subprocess.run([*command, str(TESTS / "extension")], check=True)
    return target


@pytest.fixture
def run(tmp_path: Path, installed: Path) -> Run:
    (tmp_path / "home").mkdir()

    def start(*argv: str, stdin: str = "", path: str = str(installed)) -> subprocess.CompletedProcess[str]:
        environment = {"HOME": str(tmp_path / "home"), **base_environment(), "PYTHONPATH": path}
        return subprocess.run(
            [PARLEY, *argv],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    return start


def call(run: Run, tool: str, input: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    """One turn in which the model calls a tool and repeats what it gave."""
    directives = f"call {tool} {json.dumps(input)}\nshow"
    return run("--print", "--model", "offline", *options, stdin=directives)


def check(run: Run, tool: str, input: Any, *options: str) -> dict[str, Any]:
    """The permission decision on a call."""
    done = run("permissions", "check", tool, json.dumps(input), "--json", *options)
    decision: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == ["allow", "ask", "deny"].index(decision["decision"]), done.stderr
    return decision


# Tools.


def test_a_tool_of_a_package_runs(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("three short words")

    done = call(run, "WordCount", {"source": str(tmp_path / "notes.txt")})

    assert (done.returncode, done.stdout, done.stderr) == (0, "3 words\n", "")


def test_the_tools_of_a_package_are_listed_unless_safe_mode_or_a_list_leaves_them_out(run: Run) -> None:
    def listed(*options: str) -> set[str]:
        done = run("--print", "--model", "offline", "--output-format", "stream-json", "--verbose", *options, "say hi")
        [init] = [line for line in map(json.loads, done.stdout.splitlines()) if line.get("subtype") == "init"]
        return {"WordCount", "Notify"} & set(init["tools"])

    assert listed() == {"WordCount", "Notify"}
    assert listed("--tools=Read,WordCount") == {"WordCount"}
    assert listed("--disallowedTools=WordCount") == {"Notify"}
    assert listed("--restricted") == {"WordCount"}
    assert listed("--safe-mode") == set()


@pytest.mark.parametrize("rule", ["Read(secret/**)", "WordCount(secret/**)", "WordCount"])
def test_rules_on_paths_bind_the_tool_of_a_package(run: Run, tmp_path: Path, rule: str) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "plan.txt").write_text("hush")
    input = {"source": str(tmp_path / "secret" / "plan.txt")}

    denied = check(run, "WordCount", input, f"--disallowedTools={rule}")
    asked = check(run, "WordCount", input, "--settings", json.dumps({"permissions": {"ask": [rule]}}))
    done = call(run, "WordCount", input, f"--disallowedTools={rule}", "--dangerously-skip-permissions")

    assert (denied["decision"], denied["rule"]["text"]) == ("deny", rule)
    assert (asked["decision"], asked["rule"]["text"]) == ("ask", rule)
    assert "words" not in done.stdout


def test_a_path_outside_of_the_workspace_is_asked_about(run: Run, tmp_path: Path) -> None:
    inside = check(run, "WordCount", {"source": str(tmp_path / "notes.txt")})
    outside = check(run, "WordCount", {"source": "/etc/hostname"})
    allowed = check(run, "WordCount", {"source": "/etc/hostname"}, "--allowedTools", "Read(//etc/**)")

    assert (inside["decision"], outside["decision"], allowed["decision"]) == ("allow", "ask", "allow")
    assert outside["reason_type"] == "workingDir"


def test_a_tool_that_declares_no_effect_is_asked_about(run: Run) -> None:
    asked = check(run, "Notify", {"text": "hello"})
    allowed = check(run, "Notify", {"text": "hello"}, "--allowedTools", "Notify")
    denied = check(run, "Notify", {"text": "hello"}, "--mode", "dontAsk")

    assert (asked["decision"], allowed["decision"], denied["decision"]) == ("ask", "allow", "deny")


def test_the_approval_request_has_the_title_of_the_tool(tmp_path: Path, installed: Path) -> None:
    (tmp_path / "home").mkdir()
    options = ["--print", "--model", "offline", "--verbose", "--permission-prompt-tool", "stdio"]
    streams = ["--input-format", "stream-json", "--output-format", "stream-json"]
    prompt = {"type": "user", "message": {"role": "user", "content": 'call WordCount {"source": "/etc/hostname"}'}}
    with subprocess.Popen(
        [PARLEY, *options, *streams],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env={"HOME": str(tmp_path / "home"), **base_environment(), "PYTHONPATH": str(installed)},
    ) as engine:
        assert engine.stdin is not None
        assert engine.stdout is not None
        engine.stdin.write(json.dumps(prompt).encode() + b"\n")
        engine.stdin.flush()
        requests = (line["request"] for line in map(json.loads, engine.stdout) if line["type"] == "control_request")
        request = next(requests)
        engine.stdin.close()
        engine.stdout.read()

    assert (request["subtype"], request["title"]) == ("can_use_tool", "Count the words of /etc/hostname?")


# A model backend.


def test_a_model_backend_of_a_package_answers(run: Run) -> None:
    done = run("--print", "--model", "echo:parrot", "good morning")

    assert (done.returncode, done.stdout, done.stderr) == (0, "parrot: good morning\n", "")


def test_a_model_backend_of_a_package_is_listed_and_checked(run: Run) -> None:
    assert "echo:NAME repeats the prompt" in run("models").stdout
    assert run("models", "--check", "echo:parrot").stdout.startswith("echo:parrot  answers")


# A store.


@every_claim
def test_the_store_of_a_package_keeps_the_promises_of_a_store(
    claim: Callable[[Place], None], installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(installed))
    from importlib import import_module

    cls = import_module("parley_extension.jsonl").JsonlStore

    claim(Place(lambda: cls(tmp_path, "/nowhere/project")))


def test_a_session_in_the_store_of_a_package_is_resumed_by_another_process(run: Run, tmp_path: Path) -> None:
    first = run("--print", "--store", "jsonl:kept", "--model", "offline", "--output-format", "json", "say one")
    session_id = json.loads(first.stdout)["session_id"]
    second = run("--print", "--store", "jsonl:kept", "--model", "echo:x", "--resume", session_id, "two")

    assert (second.returncode, second.stdout) == (0, "x: two\n")
    assert (tmp_path / "kept" / session_id / "entries.jsonl").read_text().count('"kind":"user"') == 2
    assert session_id in run("sessions", "list", "--store", "jsonl:kept").stdout


def test_a_store_that_needs_a_place_says_so(run: Run) -> None:
    done = run("--print", "--store", "jsonl", "--model", "offline", "say one")

    assert (done.returncode, done.stderr) == (1, "Error: the store 'jsonl' needs a location: write jsonl:FOLDER\n")


# A dialect.


def test_the_dialect_of_a_package_is_spoken(run: Run) -> None:
    done = run("--dialect", "plain", "--model", "echo:x", stdin="hello\nagain\n")

    assert (done.returncode, done.stdout) == (0, "x: hello\n-- success\nx: again\n-- success\n")


# A hook.


def test_the_hook_of_a_package_denies_a_call(run: Run, tmp_path: Path) -> None:
    options = ("--allowedTools=Bash(touch *)",)
    denied = call(run, "Bash", {"command": "touch forbidden"}, *options)
    allowed = call(run, "Bash", {"command": "touch made"}, *options)

    assert ("this word is forbidden" in denied.stdout, (tmp_path / "forbidden").exists()) == (True, False)
    assert (allowed.returncode, (tmp_path / "made").exists()) == (0, True)


def test_the_hook_of_a_package_that_fails_denies_the_call(run: Run, tmp_path: Path) -> None:
    done = call(run, "Bash", {"command": "touch made # raise"}, "--allowedTools=Bash(touch *)")

    assert "hook 'guard' of package parley-extension) failed: RuntimeError: the guard is confused" in done.stdout
    assert not (tmp_path / "made").exists()


def test_safe_mode_and_disable_all_hooks_leave_out_the_hooks_of_packages(run: Run, tmp_path: Path) -> None:
    allow = "--allowedTools=Bash(touch *)"
    call(run, "Bash", {"command": "touch forbidden1"}, allow, "--safe-mode")
    call(run, "Bash", {"command": "touch forbidden2"}, allow, "--settings", '{"disableAllHooks": true}')

    assert ((tmp_path / "forbidden1").exists(), (tmp_path / "forbidden2").exists()) == (True, True)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise RuntimeError('not today')", "cannot be loaded: RuntimeError: not today"),
        ("HOOK = 1", "is not a parley.hooks.extension.PackageHook"),
        (
            "from parley.hooks.extension import PackageHook\nHOOK = PackageHook(event='Nope', run=print)",
            "unknown event",
        ),
        ("from parley.hooks.extension import PackageHook\nHOOK = PackageHook(event='Setup', run=print)", "never run"),
    ],
)
def test_no_session_starts_without_a_hook_that_cannot_be_loaded(
    run: Run, tmp_path: Path, code: str, words: str
) -> None:
    info = tmp_path / "broken" / "broken_guard-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-guard\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[parley.hooks]\nguard = broken_guard:HOOK\n")
    (tmp_path / "broken" / "broken_guard.py").write_text(code)

    done = run("--print", "--model", "offline", "say hi", path=str(tmp_path / "broken"))
    safe = run("--print", "--model", "offline", "--safe-mode", "say hi", path=str(tmp_path / "broken"))

    assert (done.returncode, done.stdout) == (1, "")
    assert "Error: extension 'guard' (parley.hooks, from broken-guard)" in done.stderr
    assert (words in done.stderr, "--safe-mode" in done.stderr) == (True, True)
    assert (safe.returncode, safe.stdout) == (0, "hi\n")


# What is wrong is reported by name and skipped.


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """A package whose entry points cannot be used, installed by hand."""
    folder = tmp_path / "bad"
    info = folder / "bad_extension-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad-extension\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[parley.tools]\nMissing = bad_extension:Missing\nBash = bad_extension:Bash\nRaises = bad_raises:Tool\n"
        "Bare = bad_extension:Bare\nMade = bad_extension:Made\nClosed = bad_extension:Closed\n\n"
        "[parley.models]\nanthropic = bad_extension:X\nbroken = bad_extension:Bare\n\n"
        "[parley.stores]\nsqlite = bad_extension:X\nbroken = bad_raises:X\n\n"
        "[parley.dialects]\njsonrpc = bad_extension:X\nbroken = bad_extension:Bare\n"
    )
    (folder / "bad_extension.py").write_text(
        "class Bash: name = 'Bash'\nclass Bare: name = 'Bare'\ndef Made(): return Bare()\n"
        "class Closed:\n    name, description, reads_only, input = 'Closed', '', True, None\n    def run(self): pass\n"
        "    def __init_subclass__(cls): raise TypeError('it is final')\n"
    )
    (folder / "bad_raises.py").write_text("raise RuntimeError('not today')\n")
    return folder


def test_bad_entry_points_are_reported_by_name_and_skipped(run: Run, bad: Path) -> None:
    done = run("--print", "--model", "offline", "say still here", path=str(bad))

    assert (done.returncode, done.stdout) == (0, "still here\n")
    assert sorted(done.stderr.splitlines()) == [
        (
            "extension 'Bare' (parley.tools, from bad-extension) is ignored: "
            "the class has no description, reads_only, input, run"
        ),
        "extension 'Bash' (parley.tools, from bad-extension) is ignored: a built-in tool has this name",
        "extension 'Closed' (parley.tools, from bad-extension) cannot be used: TypeError: it is final",
        "extension 'Made' (parley.tools, from bad-extension) is ignored: it is not a class",
        (
            "extension 'Missing' (parley.tools, from bad-extension) cannot be loaded: AttributeError: "
            "module 'bad_extension' has no attribute 'Missing'"
        ),
        "extension 'Raises' (parley.tools, from bad-extension) cannot be loaded: RuntimeError: not today",
        "extension 'anthropic' (parley.models, from bad-extension) is ignored: a built-in has the same name",
        "extension 'jsonrpc' (parley.dialects, from bad-extension) is ignored: a built-in has the same name",
        "extension 'sqlite' (parley.stores, from bad-extension) is ignored: a built-in has the same name",
    ]


@pytest.mark.parametrize(
    ("option", "text"),
    [
        (
            "--model=broken:x",
            (
                "extension 'broken' (parley.models, from bad-extension) "
                "must be a parley.models.catalog.Backend whose `open` is set"
            ),
        ),
        (
            "--store=broken:x",
            "extension 'broken' (parley.stores, from bad-extension) cannot be loaded: RuntimeError: not today",
        ),
        (
            "--dialect=broken",
            (
                "extension 'broken' (parley.dialects, from bad-extension) cannot be used: "
                "the class has no can_request, profile, decode, encode"
            ),
        ),
    ],
)
def test_a_bad_entry_point_that_is_asked_for_is_an_error(run: Run, bad: Path, option: str, text: str) -> None:
    done = run("--print", option, "say hi", path=str(bad))

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"Error: {text}"


# Where extensions are looked for.


def test_a_repository_adds_no_extension_where_python_puts_it_on_the_path(tmp_path: Path) -> None:
    metadata = tmp_path / "planted-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[parley.tools]\nPlanted = planted:TOOL\n")
    (tmp_path / "planted.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\nTOOL = None\n")

    done = subprocess.run(
        [sys.executable, "-m", "parley", "--print", "--model", "offline", "say Hi"],
        cwd=tmp_path,
        env={"HOME": str(tmp_path), **base_environment()},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )

    assert (done.stdout, done.stderr) == ("Hi\n", "")
    assert not (tmp_path / "ran").exists()
