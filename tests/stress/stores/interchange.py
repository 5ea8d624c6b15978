"""One session, two engines: every sequence of turns of Claude Code (O) and of Parley (P).

    python -m tests.stress.stores.interchange --original PATH       # or PARLEY_ORIGINAL; needs IS_SANDBOX=1 for root
    python -m tests.stress.stores.interchange                       # uses recorded lines of Claude Code
    python -m tests.stress.stores.interchange --only OPO --kinds fork,kill --jobs 2

Each kind of play goes through all sequences of up to four turns:

    plain      prompts and answers
    tools      each turn thinks and makes two calls at once
    fork       each turn forks the session of the one before (--fork-session)
    compact    a turn is preceded by `/compact`, by the same engine; each turn but the first in its own play
    kill       a turn is killed during a call that has started to work; each turn but the last in its own play
    at         the last turn continues after the first one (--resume-session-at), and one more of each engine follows
    mixed      each turn does one of these, by the dice (--seed)

In every turn, every earlier prompt, answer and tool result must be in the requests that reach the model: where a
summary took the place of some, the summary. A killed call must have a result that does not claim it did not run.

The stand-in is in `tests/helpers/recorded_sessions.py`. The model is our own, on loopback.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, Protocol

from parley.models.script import Script, ScriptedCall, ScriptedTurn
from parley.stores.files.store import project_key
from parley.testing.model_server import running
from tests.helpers.recorded_sessions import StandIn, Told  # a package beside this folder

KINDS = ("plain", "tools", "fork", "compact", "kill", "at", "mixed")
MARKS = re.compile(r"(?:prompt|answer|tool|summary)-\d+[a-z]?")
MODEL = "claude-sonnet-4-5"
TURN_SECONDS = 120
FALSE = "It did not run"
PARLEY = Path(sys.executable).with_name("parley")


class Lost(Exception):
    """Something of the history did not reach the model."""


@dataclass(frozen=True)
class Turn:
    """What one engine does with the session."""

    number: int
    tools: bool = False
    fork: bool = False
    kill: bool = False
    compact: bool = False
    at: str | None = None

    @property
    def prompt(self) -> str:
        return "/compact" if self.compact else f"prompt-{self.number}"

    def script(self) -> list[ScriptedTurn]:
        n = self.number
        if self.compact:
            return [ScriptedTurn(text=f"<summary>summary-{n}</summary>")]
        last = ScriptedTurn(text=f"answer-{n}")
        # The marks of results stand in no command: what is found was said by the tool.
        if self.kill:
            command = f"echo begun > begun-{n}; sleep {TURN_SECONDS}"
            return [ScriptedTurn(text=f"answer-{n}a", tools=[ScriptedCall(name="Bash", input={"command": command})])]
        if self.tools:
            calls = [ScriptedCall(name="Bash", input={"command": f"echo too''l-{n}{letter}"}) for letter in "ab"]
            return [ScriptedTurn(thinking="Hm.", text=f"answer-{n}a", tools=calls), last]
        return [last]

    def marks(self) -> set[str]:
        """What must be there from now on."""
        n = self.number
        if self.compact:
            return {f"summary-{n}"}
        if self.kill:
            return {f"prompt-{n}", f"answer-{n}a"}
        more = {f"answer-{n}a", f"tool-{n}a", f"tool-{n}b"} if self.tools else set()
        return {f"prompt-{n}", f"answer-{n}"} | more


class Engine(Protocol):
    def play(self, world: World, turn: Turn, session_id: str | None) -> Told: ...


@dataclass
class World:
    """The folders of one play."""

    root: Path
    known: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for folder in (self.cwd, self.config, self.root / "tmp"):
            folder.mkdir(parents=True)

    @property
    def cwd(self) -> Path:
        return self.root / "project"

    @property
    def config(self) -> Path:
        return self.root / "config"

    def transcript(self, session_id: str) -> Path:
        return self.config / "projects" / project_key(str(self.cwd)) / f"{session_id}.jsonl"

    def uuid_of(self, session_id: str, mark: str) -> str:
        """The line of the conversation that says something."""
        for line in self.transcript(session_id).read_text().splitlines():
            json_line = json.loads(line)
            if json_line.get("type") == "assistant" and mark in json.dumps(json_line["message"]):
                return str(json_line["uuid"])
        raise Lost(f"no line of {session_id} says {mark}")


@dataclass(frozen=True)
class Executable:
    """An engine as a process, started for one turn."""

    path: str

    def play(self, world: World, turn: Turn, session_id: str | None) -> Told:
        flags = ["--resume", session_id] if session_id else []
        if turn.fork and session_id:
            flags.append("--fork-session")
        if turn.at is not None:
            flags += ["--resume-session-at", turn.at]
        command = [self.path, "-p", turn.prompt, "--output-format", "stream-json", "--verbose", "--model", MODEL]
        command += ["--permission-mode", "bypassPermissions", *flags]
        with running(Script(turn=turn.script(), at_end="repeat")) as server:
            process = subprocess.Popen(
                command,
                cwd=world.cwd,
                env=self._environment(world, server.url),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            try:
                if turn.kill:
                    self._wait_for_call(world, turn, process)
                    end(process)
                stdout, stderr = process.communicate(timeout=TURN_SECONDS)
            finally:
                end(process)
        lines = [json.loads(line) for line in stdout.splitlines() if line.startswith("{")]
        ids = [str(line["session_id"]) for line in lines if line.get("session_id")]
        if not ids:
            raise Lost(f"the engine did not begin: {stdout[-300:]}{stderr[-300:]}")
        asked = [exchange for exchange in server.exchanges if exchange.path == "/v1/messages"]
        return Told(ids[-1], [json.dumps(exchange.body["messages"]) for exchange in asked])

    def _wait_for_call(self, world: World, turn: Turn, process: subprocess.Popen[str]) -> None:
        """Until the call works, and the original has written what it keeps back for a moment."""
        deadline = time.monotonic() + TURN_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            files = list(world.config.glob("projects/*/*.jsonl"))
            said = any(f"begun-{turn.number}" in json_line(path, "assistant") for path in files)
            if (world.cwd / f"begun-{turn.number}").exists() and said:
                return
            time.sleep(0.02)
        raise Lost(f"the call of turn {turn.number} did not begin")

    def _environment(self, world: World, url: str) -> dict[str, str]:
        quiet = ("DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING", "DISABLE_AUTOUPDATER")
        return {
            **dict.fromkeys((*quiet, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "IS_SANDBOX"), "1"),
            "HOME": str(world.root),
            "PATH": os.defpath,
            "SHELL": "/bin/bash",
            "TERM": "dumb",
            "LANG": "C.UTF-8",
            "TMPDIR": str(world.root / "tmp"),
            "CLAUDE_CONFIG_DIR": str(world.config),
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "a-key-for-tests",
        }


def json_line(path: Path, kind: str) -> str:
    """The whole lines of a kind, as they are."""
    lines = path.read_text(errors="replace").split("\n")[:-1]
    return "\n".join(line for line in lines if f'"type":"{kind}"' in line and '"type":"parley"' not in line)


def end(process: subprocess.Popen[str]) -> None:
    """End the engine and what it started; it may have ended by itself."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def check(turn: Turn, told: Told, known: set[str]) -> None:
    """Raises Lost."""
    if not told.requests:
        raise Lost(f"turn {turn.number} asked the model nothing")
    asked = told.requests if turn.compact else told.requests[-1:]
    found = {mark for request in asked for mark in MARKS.findall(request)}
    # What a compaction does not send stays as it is: the next turn must have it.
    missing = set() if turn.compact else known - found
    if missing:
        raise Lost(f"turn {turn.number} lost {' '.join(sorted(missing))}")
    if any(FALSE in request for request in told.requests):
        raise Lost(f"turn {turn.number} claims that a call did not run")


def play(world: World, engines: dict[str, Engine], turns: Sequence[tuple[str, Turn]]) -> None:
    """Raises Lost."""
    session_id: str | None = None
    known: set[str] = set()
    for letter, wanted in turns:
        turn = wanted
        if turn.at is not None and session_id is not None:
            turn = replace(turn, at=world.uuid_of(session_id, turn.at))
            known = {mark for mark in known if mark.startswith(("prompt-1", "answer-1"))}
        told = engines[letter].play(world, turn, session_id)
        if turn.compact:
            summarised = {mark for request in told.requests for mark in MARKS.findall(request)}
            known -= summarised
        check(turn, told, known)
        known |= turn.marks()
        session_id = told.session_id


def plays(kind: str, sequence: str, dice: Random) -> Iterator[list[tuple[str, Turn]]]:
    """What is played with a sequence of engines."""
    plain = [(letter, Turn(number)) for number, letter in enumerate(sequence, 1)]
    busy = [(letter, replace(turn, tools=True)) for letter, turn in plain]
    match kind:
        case "plain":
            yield plain
        case "tools":
            yield busy
        case "fork":
            yield [(letter, replace(turn, fork=turn.number > 1)) for letter, turn in busy]
            yield [(letter, replace(turn, fork=turn.number > 1)) for letter, turn in plain]
        case "compact":
            for place in range(1, len(sequence)):
                compaction = (sequence[place], Turn(place + 11, compact=True))
                yield [*busy[:place], compaction, *busy[place:]]
        case "kill":
            for place in range(len(sequence) - 1):
                letter, turn = plain[place]
                yield [*plain[:place], (letter, replace(turn, kill=True)), *plain[place + 1 :]]
        case "at" if len(sequence) > 1:
            letter, last = plain[-1]
            more = [(letter, Turn(len(sequence) + number)) for number, letter in enumerate("OP", 1)]
            yield [*plain[:-1], (letter, replace(last, at="answer-1")), *more]
        case "mixed":
            mixed: list[tuple[str, Turn]] = []
            for letter, turn in plain:
                how = dice.choice(("tools", "fork", "kill", "compact"))
                if how == "compact" and mixed and not mixed[-1][1].kill:
                    mixed.append((letter, Turn(turn.number + 10, compact=True)))
                mixed.append((letter, replace(turn, tools=how == "tools", fork=how == "fork", kill=how == "kill")))
            letter, turn = mixed[-1]
            yield [*mixed[:-1], (letter, replace(turn, kill=False))]


def sequences(longest: int) -> list[str]:
    return ["".join(letters) for length in range(1, longest + 1) for letters in product("OP", repeat=length)]


def run_one(folder: Path, engines: dict[str, Engine], kind: str, sequence: str, seed: int) -> list[str]:
    """What was lost; nothing if all is well."""
    lost: list[str] = []
    for number, turns in enumerate(plays(kind, sequence, Random(f"{seed} {sequence}"))):
        world = World(folder / f"{kind}-{sequence}-{number}")
        try:
            play(world, engines, turns)
            shutil.rmtree(world.root, ignore_errors=True)
        except (Lost, subprocess.TimeoutExpired) as exc:
            shown = " ".join(letter + label(turn) for letter, turn in turns)
            lost.append(f"{kind} {shown}: {exc}")
    return lost


def label(turn: Turn) -> str:
    names = (name for name in ("tools", "fork", "kill", "compact", "at") if getattr(turn, name))
    return "".join(f"+{name}" for name in names)


def run(
    folder: Path,
    original: str | None,
    kinds: Sequence[str] = KINDS,
    only: Sequence[str] = (),
    jobs: int = 1,
    seed: int = 1,
) -> dict[str, Any]:
    """The table: of each kind, how many sequences were played and what was lost."""
    engines: dict[str, Engine] = {"P": Executable(str(PARLEY)), "O": Executable(original) if original else StandIn()}
    table: dict[str, Any] = {}
    with ThreadPoolExecutor(jobs) as pool:
        for kind in kinds:
            wanted = list(only or sequences(4))
            lost = list(pool.map(lambda sequence, kind=kind: run_one(folder, engines, kind, sequence, seed), wanted))
            table[kind] = {
                "sequences": len(wanted),
                "whole": sum(not each for each in lost),
                "lost": [line for each in lost for line in each],
            }
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--original", default=os.environ.get("PARLEY_ORIGINAL"), help="the executable of the original")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--only", default="", help="sequences, e.g. OPO,POP [all of up to four turns]")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="where the folders of plays that lost something stay")
    given = parser.parse_args()
    only = [sequence for sequence in given.only.split(",") if sequence]
    with tempfile.TemporaryDirectory() as folder:
        place = given.keep.resolve() if given.keep else Path(folder)
        table = run(place, given.original, given.kinds.split(","), only, given.jobs, given.seed)
    out = [f"O is {'the original' if given.original else 'recorded lines of the original'}"]
    out += [f"{kind:8} {row['whole']:3} of {row['sequences']:3} sequences whole" for kind, row in table.items()]
    out += [line for row in table.values() for line in row["lost"]]
    sys.stdout.write("\n".join(out) + "\n")
    return 1 if any(row["lost"] for row in table.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
