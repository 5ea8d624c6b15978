"""Trees of subagents: limits hold across all of them, and an interrupt ends them all and leaves no process.

    python -m tests.stress.engine.delegation --purses 500 --interrupts 30 --seed 1

`purses`: random trees of agents, up to three levels deep and three wide, in a session with one limit: dollars, tokens,
calls, or turns. The laws: the turn has exactly one result; what was spent is beyond the limit by one call at most;
no one makes more calls than its turns allow; and a turn that fits its limit succeeds.

`interrupts`: on the real executable, while three agents run, each in a command. The laws: the result comes within a
second of the interrupt, and a moment later no process of theirs is left. The report has how long it took.
The exit code is 0 if all laws held.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from tests.helpers.session import Json, SessionHarness
from tests.stress.engine.task_endings import Engine

TOKENS = 150
"""Of every model call."""
USAGE = "usage = { input_tokens = 100, output_tokens = 50 }"
USD = TOKENS / 1_000_000
INTERRUPT_SECONDS = 1.0
GONE_SECONDS = 60.0
LIMITS = ("usd", "tokens", "calls", "turns")
DEEPEST = 3


# Purses.


class Tree:
    """A tree of agents, and the turns of a model that plays all of them: each calls others or works, then reports."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice
        self._turns: list[str] = []
        self.calls: list[int] = []
        """How many model calls each agent makes if nothing limits it, the session's own first."""
        self._grow("go", 0)

    def _grow(self, cue: str, depth: int) -> None:
        number = len(self.calls)
        self.calls.append(2)
        below = self._dice.randint(int(depth == 0), 3) if depth < DEEPEST else 0
        if below:
            asked = [f"ask {number}-{n}." for n in range(below)]
            self._answer(cue, "Agent", [f'description = "d", prompt = "{words}"' for words in asked])
            for words in asked:
                self._grow(words, depth + 1)
            return
        self._answer(cue, "Read", [f'file_path = "/nowhere/work {number}."'])
        if self._dice.random() < 0.5:
            self.calls[number] += 1
            self._answer(f"work {number}.", "Read", ['file_path = "/nowhere/more"'])

    def _answer(self, cue: str, tool: str, inputs: list[str]) -> None:
        calls = ", ".join(f'{{ name = "{tool}", input = {{ {one} }} }}' for one in inputs)
        self._turns.append(f'[[turn]]\nwhen = "{cue}"\n{USAGE}\ntools = [{calls}]\n')

    def script(self) -> str:
        return 'at_end = "repeat"\n' + "".join(self._turns) + f'[[turn]]\n{USAGE}\ntext = "Report."\n'


async def spend(folder: Path, tree: Tree, **limit: Any) -> tuple[Counter[str], list[Json]]:
    """How many model calls each agent made under a limit, and the results of the turn."""
    harness = SessionHarness(folder, tree.script(), skip_permissions=True, forward_subagent_text=True, **limit)
    (folder / "prices.json").write_text(json.dumps({"scripted:": {"input": 1, "output": 1}}))
    harness.environment["PARLEY_PRICES"] = str(folder / "prices.json")
    async with harness:
        harness.prompt("go")
        await harness.receive("result")
    made = {
        (line["message"]["id"], line.get("agent_id", "")): None
        for line in harness.messages("assistant")
        if line["message"]["model"] != "<synthetic>"
    }
    return Counter(agent for _, agent in made), list(harness.messages("result"))


def purse(folder: Path, dice: Random) -> list[str]:
    """What was broken of the laws of one tree with one limit."""
    tree, kind = Tree(dice), dice.choice(LIMITS)
    most = dice.randint(1, sum(tree.calls) + 2) if kind != "turns" else dice.randint(1, 4)
    limits: dict[str, Json] = {
        "usd": {"max_budget_usd": (most - 0.5) * USD},  # sums of dollars are not exact to the last digit
        "tokens": {"max_budget_tokens": most * TOKENS},
        "calls": {"max_budget_calls": most},
        "turns": {"max_turns": most},
    }
    made, results = asyncio.run(spend(folder, tree, **limits[kind]))
    calls, case = sum(made.values()), f"{kind} {most} of {tree.calls}"
    if len(results) != 1:
        return [f"{case}: {len(results)} results"]
    [result] = results
    used = sum(one["inputTokens"] + one["outputTokens"] for one in result["modelUsage"].values())
    broken: list[str] = []
    if used != calls * TOKENS:
        broken.append(f"{case}: {used} tokens on the bill for {calls} calls")
    if kind != "turns" and calls > most + 1:
        broken.append(f"{case}: {calls} calls")
    if kind == "turns" and made and max(made.values()) > most:
        broken.append(f"{case}: {dict(made)}")
    fits = most > sum(tree.calls) if kind != "turns" else most >= max(tree.calls)
    if fits and (result["is_error"] or calls != sum(tree.calls)):
        broken.append(f"{case}: {calls} calls, and {result['subtype']}")
    if kind in ("usd", "tokens", "calls") and most < sum(tree.calls) and not result["is_error"]:
        broken.append(f"{case}: it succeeded with {calls} calls")
    return broken


def purses(count: int, seed: int) -> list[str]:
    broken: list[str] = []
    for number in range(count):
        with tempfile.TemporaryDirectory(prefix="purse-") as folder:
            broken += [f"purse {number}: {problem}" for problem in purse(Path(folder), Random(f"{seed}/{number}"))]
    return broken


# Interrupts.


def interrupted(folder: Path, marker: str, within_seconds: float) -> tuple[float, list[str]]:
    """How many seconds an interrupt of three working agents took, and what was broken."""
    agents = ", ".join(f'{{ name = "Agent", input = {{ description = "d", prompt = "work {n}." }} }}' for n in range(3))
    # The shell of the command and one below it have the marker among their words.
    work = f"bash -c 'sleep 600; true {marker}'; true"
    call = f'tools = [{{ name = "Bash", input = {{ command = "{work}" }} }}]'
    turns = "".join(f'[[turn]]\nwhen = "work {n}."\n{call}\n' for n in range(3))
    (folder / "script.toml").write_text(f'[[turn]]\nwhen = "go"\ntools = [{agents}]\n{turns}')
    engine = Engine(folder, ())
    engine.say("go")
    if not engine.until(3, "task_progress") or not wait_until(lambda: len(marked(marker)) >= 6):
        engine.end(kill=True)
        return 0.0, ["the agents never began to work"]
    started = time.monotonic()
    engine.ask("interrupt")
    came = engine.until(1, "result")
    took = time.monotonic() - started
    broken = [] if came else ["there was no result"]
    results = [heard.line for heard in engine.told("result")]
    if came and results[0].get("terminal_reason") != "aborted_tools":
        broken.append(f"it ended with {results[0].get('terminal_reason')}")
    if not wait_until(lambda: not marked(marker)):
        broken.append(f"left behind: {marked(marker)}")
    engine.end()
    if took > within_seconds:
        broken.append(f"the result took {took:.3f} s")
    return took, broken


def wait_until(is_so: Any) -> bool:
    end = time.monotonic() + GONE_SECONDS
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def marked(marker: str) -> list[int]:
    """The processes with a marker among their words."""
    found: list[int] = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                words = Path(entry.path, "cmdline").read_bytes()
            except OSError:
                continue
            if marker.encode() in words:
                found.append(int(entry.name))
    return found


def interrupts(count: int, seed: int, within_seconds: float = INTERRUPT_SECONDS) -> tuple[list[float], list[str]]:
    times: list[float] = []
    broken: list[str] = []
    for number in range(count):
        with tempfile.TemporaryDirectory(prefix="interrupt-") as folder:
            took, problems = interrupted(Path(folder), f"marker-{os.getpid()}-{seed}-{number}", within_seconds)
        times.append(took)
        broken += [f"interrupt {number}: {problem}" for problem in problems]
    return times, broken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--purses", type=int, default=200)
    parser.add_argument("--interrupts", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    broken = purses(wanted.purses, wanted.seed)
    times, problems = interrupts(wanted.interrupts, wanted.seed)
    longest = f"; the longest interrupt took {max(times) * 1000:.0f} ms" if times else ""
    said = f"{wanted.purses} purses, {wanted.interrupts} interrupts: {len(broken + problems)} laws broken{longest}"
    sys.stdout.write("\n".join([*broken, *problems, said]) + "\n")
    return 1 if broken or problems else 0


if __name__ == "__main__":
    sys.exit(main())
