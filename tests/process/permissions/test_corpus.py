"""The whole corpus through the executable, in one session: every decision is the expected one.

The host changes rules and mode between turns, so one process decides every case. A wrong allow can do no harm: the
engine has no network, no root rights, a PATH without programs, and its own folders.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import other_user, paths
from tests.helpers.environment import TEMPORARY
from tests.helpers.patience import PATIENCE_SECONDS
from tests.stress.permissions import canary

Json = dict[str, Any]
STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}
CASES: list[Json] = [
    json.loads(line) for line in (paths.DATA / "permissions" / "decisions.jsonl").read_text().splitlines()
]
FILLED: dict[str, Json] = {
    "Write": {"content": "x"},
    "Edit": {"old_string": "a", "new_string": "b"},
    "NotebookEdit": {"new_source": "x"},
    "WebFetch": {"prompt": "x"},
    "WebSearch": {"query": "x"},
    "Grep": {"pattern": "x"},
    "Glob": {"pattern": "x"},
    "TodoWrite": {"todos": []},
    **{name: {"description": "x", "prompt": "x"} for name in ("Task", "Agent")},
    **{name: {} for name in ("Bash", "Read", "TaskStop", "KillShell", "TaskOutput", "BashOutput")},
}
"""The tools of a session without servers, skills and user, and the input they need besides that of a case."""

pytestmark = pytest.mark.skipif(not shutil.which("bash") or not canary.isolation(), reason="no way to cage a shell")


def setting(case: Json) -> str:
    return json.dumps(
        [case.get(key) for key in ("mode", "allow", "deny", "ask", "folders", "links", "files")], sort_keys=True
    )


def is_reachable(case: Json) -> bool:
    """Whether a session can run this case: it has the tool, a script can produce the input, files can be created."""
    values = case["input"].values()
    sayable = all(value is not None and ("\n" in str(value) or str(value).isprintable()) for value in values)
    # An agent that is allowed to run would use up turns of the script.
    runs_agent = case["tool"] in ("Task", "Agent") and case["expect"] == "allow"
    makeable = all(file.startswith(("/w/", "/home/me/")) for file in (*case.get("links", {}), *case.get("files", ())))
    return case["tool"] in FILLED and not runs_agent and sayable and makeable


class Place:
    """The real folders for `/w` and `/home/me` of the corpus."""

    def __init__(self, root: Path) -> None:
        root.chmod(0o755)
        self.root, self.cwd, self.home = root, root / "w", root / "home"
        self.empty = root / "empty"
        for folder in (self.cwd, self.cwd / "src", self.home, self.empty):
            folder.mkdir()
            folder.chmod(0o777)

    def placed(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.placed(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.placed(each) for each in value]
        if not isinstance(value, str):
            return value
        return re.sub(r"(?<![\w.-])/w(?![\w.-])", str(self.cwd), value).replace("/home/me", str(self.home))

    def make(self, links: Json, files: list[str]) -> None:
        for name in (*links, *files):
            path = Path(self.placed(name))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)  # a call that was allowed may have made a file of that name
            if name in links:
                path.symlink_to(self.placed(links[name]))
            else:
                path.touch()

    def remove(self, links: Json, files: list[str]) -> None:
        for name in (*links, *files):
            Path(self.placed(name)).unlink()


def script(groups: list[list[Json]], place: Place) -> str:
    """One turn with all calls of a group, and one that ends it."""
    turns = []
    for number, cases in enumerate(groups):
        calls = [call(f"call_{number}_{at}", case, place) for at, case in enumerate(cases)]
        turns.append(f"[[turn]]\nchunk_chars = 100000\ntools = [{', '.join(calls)}]\n[[turn]]\ntext = 'Done.'\n")
    return "\n".join(turns)


def call(id: str, case: Json, place: Place) -> str:
    input = {**FILLED[case["tool"]], **place.placed(case["input"])}
    fields = ", ".join(f"{json.dumps(key)} = {json.dumps(value, ensure_ascii=False)}" for key, value in input.items())
    return f'{{ name = "{case["tool"]}", id = "{id}", input = {{ {fields} }} }}'


class Host:
    """The host of the session: it changes the rules, denies every request, and records both."""

    def __init__(self, engine: asyncio.subprocess.Process) -> None:
        self._engine = engine
        self.found: dict[str, str] = {}

    def say(self, line: Json) -> None:
        assert self._engine.stdin is not None
        self._engine.stdin.write(json.dumps(line).encode() + b"\n")

    async def lines(self) -> Any:
        assert self._engine.stdout is not None
        async for raw in self._engine.stdout:
            yield json.loads(raw)

    async def request(self, **request: Any) -> None:
        self.say({"type": "control_request", "request_id": "r", "request": request})
        async for line in self.lines():
            if line["type"] == "control_response":
                assert line["response"]["subtype"] == "success", line
                return

    async def turn(self) -> None:
        self.say({"type": "user", "message": {"role": "user", "content": "go"}})
        async for line in self.lines():
            if line["type"] == "control_request":
                self.found[line["request"]["tool_use_id"]] = "ask"
                answer = {"behavior": "deny", "message": "no"}
                response = {"subtype": "success", "request_id": line["request_id"], "response": answer}
                self.say({"type": "control_response", "response": response})
            elif line["type"] == "user":
                for id, verdict in verdicts(line):
                    self.found.setdefault(id, verdict)
            elif line["type"] == "result":
                return


def verdicts(line: Json) -> Iterator[tuple[str, str]]:
    for meta in line.get("tool_result_meta", ()):
        yield meta["id"], {"accept": "allow", "reject": "deny"}[meta["permission_decision"]["decision"]]
    for block in line["message"]["content"]:
        # A bare deny rule removes the tool from the list.
        if block.get("is_error") and "No such tool available" in str(block["content"]):
            yield block["tool_use_id"], "deny"


async def played(groups: list[list[Json]], place: Place) -> dict[str, str]:
    file = place.root / "script.toml"
    file.write_text(script(groups, place))
    pipe = asyncio.subprocess.PIPE
    program = other_user.find_interpreter()
    if program is None:
        pytest.skip("no interpreter that another user can run")
    engine = await asyncio.create_subprocess_exec(
        *canary.isolation(),
        *(program, "-m", "parley", "--print", "--verbose", "--model", f"scripted:{file}"),
        *("--output-format", "stream-json", "--input-format", "stream-json", "--permission-prompt-tool", "stdio"),
        "--allow-dangerously-skip-permissions",
        cwd=place.cwd,
        env={
            "HOME": str(place.home),
            "PATH": str(place.empty),
            "IS_SANDBOX": "1",
            **dict.fromkeys(TEMPORARY, str(place.home)),
            "CLAUDE_BASH_MAINTAIN_PROJECT_WORKING_DIR": "1",  # what is allowed runs, and must not move the others
            "PYTHONPATH": other_user.import_path(),
        },
        stdin=pipe,
        stdout=pipe,
        limit=1 << 24,
    )
    host = Host(engine)
    for cases in groups:
        first = cases[0]
        rules = {kind: place.placed(first[kind]) for kind in ("allow", "deny", "ask")}
        rules["additionalDirectories"] = place.placed(first.get("folders", []))
        await host.request(subtype="apply_flag_settings", settings={"permissions": rules})
        await host.request(subtype="set_permission_mode", mode=first["mode"])
        made = (first.get("links", {}), first.get("files", []))
        place.make(*made)
        await host.turn()
        place.remove(*made)
    assert engine.stdin is not None
    engine.stdin.close()
    assert await engine.wait() == 0
    return host.found


async def test_the_executable_decides_as_the_corpus_says() -> None:
    reachable = sorted(filter(is_reachable, CASES), key=setting)
    groups = [list(cases) for _, cases in groupby(reachable, key=setting)]

    async def bounded() -> dict[str, str]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await played(groups, place)

    # Not in pytest's folder, which the engine without root rights cannot enter.
    with tempfile.TemporaryDirectory(prefix="corpus-") as root:
        place = Place(Path(root))
        found = await bounded()

    cases = {f"call_{number}_{at}": case for number, group in enumerate(groups) for at, case in enumerate(group)}
    others = [(found.get(id), case) for id, case in cases.items() if found.get(id) != case["expect"]]
    laxer = [each for each in others if STRICTNESS[each[0] or "allow"] < STRICTNESS[each[1]["expect"]]]
    assert laxer == []
    assert len(others) <= len(cases) / 20, others
    assert len(cases) >= 0.9 * len(CASES)


def test_sixty_everyday_calls_and_more_must_not_ask() -> None:
    assert sum(case["expect"] == "allow" for case in CASES) >= 60
