"""Callbacks by the thousand, many at a time, answered in any order: none is lost, none comes twice.

    python -m tests.stress.engine.callbacks --calls 1000 --at-once 32 --seed 1

Raw lines to the real executable: every turn calls tools side by side, and a callback is asked about each of them
(`hook`: PreToolUse, `permission`: can_use_tool). All questions of a turn are open before the first is answered,
in random order. The exit code is 0 if every call was asked about exactly once and ran exactly once.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from tests.helpers.environment import base_environment

Json = dict[str, Any]
KINDS = ("hook", "permission")
FORMS = ("text", "blocks")
STREAM = ("--print", "--output-format", "stream-json", "--verbose", "--input-format", "stream-json")
ALLOWED = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}


class Host:
    """The other end of an engine."""

    def __init__(self, engine: subprocess.Popen[bytes]) -> None:
        self._engine = engine

    def say(self, line: Json) -> None:
        assert self._engine.stdin is not None
        self._engine.stdin.write(json.dumps(line).encode() + b"\n")
        self._engine.stdin.flush()

    def lines(self) -> Iterator[Json]:
        assert self._engine.stdout is not None
        return (json.loads(line) for line in self._engine.stdout)

    def answer(self, question: Json, answer: Json) -> None:
        told = {"subtype": "success", "request_id": question["request_id"], "response": answer}
        self.say({"type": "control_response", "response": told})


@contextmanager
def hosting(folder: Path, turns: list[list[str]], at_once: int) -> Iterator[Host]:
    """An engine whose model calls Read with these ids, turn by turn."""
    inside, outside = folder / "project", folder / "elsewhere"
    inside.mkdir()
    outside.mkdir()
    (outside / "a.txt").write_text("text")
    (folder / "script.toml").write_text("".join(scripted(ids, outside / "a.txt") for ids in turns))
    argv = [str(Path(sys.executable).with_name("parley")), *STREAM, "--permission-prompt-tool", "stdio"]
    environment = {
        **base_environment(),
        "HOME": str(folder),
        "CLAUDE_CODE_MAX_TOOL_USE_CONCURRENCY": str(at_once),
    }
    with subprocess.Popen(
        [*argv, "--model", f"scripted:{folder / 'script.toml'}"],
        cwd=inside,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as engine:
        try:
            yield Host(engine)
        finally:
            assert engine.stdin is not None
            engine.stdin.close()
            engine.wait()


def scripted(ids: list[str], file: Path) -> str:
    calls = ", ".join(f'{{ name = "Read", input = {{ file_path = "{file}" }}, id = "{id}" }}' for id in ids)
    return f"[[turn]]\ntools = [{calls}]\n[[turn]]\ntext = 'Done.'\n"


def scenario(folder: Path, *, kind: str, form: str, calls: int, at_once: int, seed: int) -> list[str]:
    """What is wrong with how the calls went; nothing, if all is well."""
    ids = [f"toolu_{number}" for number in range(calls)]
    turns = [ids[start : start + at_once] for start in range(0, calls, at_once)]
    dice, asked, ran = Random(seed), Counter[str](), Counter[str]()
    with hosting(folder, turns, at_once) as host:
        lines = host.lines()
        hooks = {"PreToolUse": [{"matcher": "Read", "hookCallbackIds": ["h"]}]} if kind == "hook" else None
        host.say({"type": "control_request", "request_id": "i", "request": {"subtype": "initialize", "hooks": hooks}})
        for turn in turns:
            content = "go" if form == "text" else [{"type": "text", "text": "go"}, {"type": "text", "text": "on"}]
            host.say({"type": "user", "message": {"role": "user", "content": content}})
            play(host, lines, len(turn), dice, asked, ran)
    once = Counter(ids)
    problems = [f"asked {count} times about {id}" for id, count in (asked - once).items()]
    problems += [f"never asked about {id}" for id in once - asked]
    problems += [f"{id} did not run exactly once" for id in once if ran[id] != 1]
    return problems


def play(
    host: Host, lines: Iterator[Json], expected: int, dice: Random, asked: Counter[str], ran: Counter[str]
) -> None:
    """One turn: collect all questions, then answer them in any order."""
    questions: list[Json] = []
    for line in lines:
        match line["type"]:
            case "control_request":
                questions.append(line)
                asked[line["request"]["tool_use_id"]] += 1
                if len(questions) == expected:
                    dice.shuffle(questions)
                    for question in questions:
                        is_hook = question["request"]["subtype"] == "hook_callback"
                        host.answer(question, ALLOWED if is_hook else {"behavior": "allow"})
            case "user":
                (block,) = line["message"]["content"]
                ran[block["tool_use_id"]] += not block.get("is_error", False)
            case "result":
                return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    wrong = 0
    for kind in KINDS:
        for form in FORMS:
            with tempfile.TemporaryDirectory() as folder:
                problems = scenario(
                    Path(folder), kind=kind, form=form, calls=given.calls, at_once=given.at_once, seed=given.seed
                )
            sys.stdout.write(
                f"{kind:10} {form:6} {given.calls} calls, {given.at_once} at once: {len(problems)} problems\n"
            )
            sys.stdout.writelines(f"  {problem}\n" for problem in problems[:10])
            wrong += len(problems)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
