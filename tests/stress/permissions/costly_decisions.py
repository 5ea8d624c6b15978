"""Inputs that are made to be expensive: no decision may take more than 50 ms of processor time, or 50 MB.

    python -m tests.stress.permissions.costly_decisions --count 10000 --real 10000 --seed 1

A grammar nests, repeats and lengthens the input of decisions: commands with `cd` chains, substitutions, loops, quotes,
here-documents, globs, wrappers, redirections; paths with symlinks, `..` and depth; patterns of Glob and Grep; URLs;
names of tools, agents and skills. Each is decided under a rule set and a mode, in a tree with symlinks.

`count`: decisions in this process, with the processor time of the thread and the growth of the peak of resident memory.
`real`: such calls by a scripted model in the real executable; an interrupt follows each call while it is decided. The
report says how long the replies took, with and without the processor time of other processes, and how many interrupts
were sent before the decision was visible. The conversation is cleared between two calls, so one process decides
hundreds of them; ten thousand take about ten minutes, and stderr shows the progress. The exit code is 0 if no decision
exceeded a limit and each interrupt was answered within 100 ms.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import select
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from parley.models.script import read_script
from parley.permissions.base import Allow, Decision, Deny, ToolRequest
from parley.permissions.decision import MODES, decide
from parley.permissions.filesystem import RealFilesystem
from parley.permissions.rule import Behavior, Rule, parse_rule
from parley.permissions.rules import RuleSet
from parley.permissions.shell.deny_search import _survey_cached as surveyed
from parley.permissions.shell.strict_parser import _parse_cached as read
from parley.testing.model_server import running
from tests.stress.engine.interrupts import Engine, is_answer, percentiles

Json = dict[str, Any]
Call = tuple[str, Json]

MOST_SECONDS = 0.050
MOST_BYTES = 50 * 1024 * 1024
ANSWER_SECONDS = 0.100
SIZES = (3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000)
LONGEST_COMMAND = 200_000
WORDS = (
    "ls", "cat a.py", "rm x", "echo hi", "git log", "git status", "cat .env", "mv a b", "cp -r a b", "cat sub/../up/x",
    "sed -n 1p a.py", "grep x a.py", "find . -name x", "printf %s x", "xargs rm", "sudo ls", "bash -c 'ls x'", "x=1",
    "cat *.py", "cat links/*/x", "test -f a", "head -5 a.py", "python3 -c 'f(\"x\")'", "echo x > out", "cat < a.py",
    "true", "tar xf a", "cd sub", "cd ..", "cd links/b", "timeout 5 ls", "env A=1 ls", "rm -rf sub", "touch sub/x",
)  # fmt: skip
NESTS = (
    ("$(", ")"), ("`", "`"), ("(", ")"), ("((", "))"), ("{ ", "; }"), ('"$(', ')"'), ("<(", ")"), ("${a:-", "}"),
    ("if true; then ", "; fi"), ("while x; do ", "; done"), ("for a in b; do ", "; done"), ("case x in x) ", ";; esac"),
    ("f() { ", "; }"), ("[[ -n ", " ]]"), ("$((", "))"), ("bash -c '", "'"), ("eval ", ""), ("! ", ""), ("{a,", "}"),
    ("@(", ")"), ('"', '"'), ("'", "'"), ("$[", "]"), ("a[", "]=1"), ("cat <<E\n", "\nE\n"), ("$'", "'"), ("a=(", ")"),
    ("coproc ", ""), ("time ", ""), ("function f { ", "; }"), ("[", "]"), ("${", "}"), ("\\", ""), ("<<<", ""),
)  # fmt: skip
REPEATED = (
    "cd sub; ", "cd sub && ", "cd sub || ", "cd ..; ", "cd a{}; ", "cd links/b; ", "pushd sub; ", "cd - ; ",
    "mv a b; ", "mv x{} x{}; ", "cp -r a b; ", "mv a{} a; ", "cat a/../b; ", "cat a{}; ", "cat a{} ", "cat ../a ",
    "> out{} ", "< in{} ", "2>&1 ", "A{}=1 ", "A=$(x) ", "a ", "-a ", "-{} x ", "sudo ", "env ", "xargs ",
    "timeout 5 ", "nice -n 5 ", "time ", "command ", "nohup ", "git -c a.b=c{} ", "-exec ls {} ; ", "-exec rm x ; ",
    "( ", ") ", "; ", "| ls ", "&& ls ", "|| ls ", "& ", "\n", "*/", "*", "**/", "?", "[a-z]", "[!a", "[[:alpha:]]",
    "{a,b}", "{1..9}", "!(a)", "../", "./", "sub/", "links/b/", "up/", "loop/", "a/", "//", "'a' ", '"a" ', '"$a" ',
    "$a ", "$a", "${a} ", "${a[b]} ", "\\a", "\\\n", "\\\\", "'", '"', "`", "$", "$(", "${", "$((", "((", "<<E\n",
    "<<'E'\n", "<<-E ", "E\n", "<<<a ", "<(a) ", ">(a) ", "%s", "%d%%", "%-5.3s", "%G", "%", "s/a/b/;", "1p;", "1,2p;",
    "/a/d;", "s/\\a/", "e rm;", "\\/", "a=b:", "a:b@c,", "=", "~", "~/", "$HOME ", "$HOME/", "$PWD", "#", "!", "!! ",
    "^", "é", "\u200b", "\u0301", "\x00", "\x01", "\r\n", "\t", "if ", "then ", "do ", "done; ", "fi; ",
    "case a in a) ", "a) b ;; ", "esac; ", "for a in b; do ", "function f ", "f() { ", "}; ", "alias a=b; ",
    "trap a b; ", "eval a; ", "bash -c a; ", "bash -c 'a b' ", "ssh h 'a b'; ", "source a; ", "-name a -o ", "-not ",
    "\\( ", "\\) ", "a,", "{", "{a,", "}", "{a,{b,", "x=$(ls); ", "python -c 'f(\"a b\")'; ", "rm -rf {}; ", "rm a{} ",
    "echo a | bash; ", "printf 'rm x' | sh; ", "docker run a ", "ld.so ", "busybox ", "watch ", "GIT_SSH=a{} ",
    "--rsh=a ", "--pager=a{} ", "sed 's/a/b/e' ", "awk 'system(\"a b\")' ", "vim -c '!a b' ", "git push; ",
)  # fmt: skip
PIECES = (
    "a/", "../", "./", "/", "sub/", "links/a/", "links/b/", "up/", "loop/", "*/", "**/", "{a,b}/", "{a,", "}", "[a-z]",
    "[", "\\", "é/", "e\u0301/", "\u200b", ".git/", "*", "?", "*a", "a*b", ".", "\x00", "chain/", "a", "{", "{a,b}",
    "~/", "[!a]", "**", "!(a)/", "b{}/", "links/a/../", "a/../", "folded/", "İ/", "ﬀ",
)  # fmt: skip
RULE_SETS: tuple[dict[Behavior, tuple[str, ...]], ...] = (
    {},
    {"deny": ("Read(.env)",)},
    {"deny": ("Bash(rm:*)", "Read(~/.ssh/**)", "Read(//etc/**)", "Edit(secrets/**)"), "ask": ("Bash(git push:*)",)},
    {"deny": ("Bash(* a * b * c * d *)", "Bash(*a*a*a*a*a*a*b)", "Read(*a*a*a*a*a*a*b)", "Read(**/a/**/a/**/a/**/b)")},
    {"allow": ("Bash(cat:*)", "Bash(ls *)", "Bash(git *)", "Read(/**)", "Edit(/sub/**)", "mcp__s__*", "Bash(cd:*)")},
    {"allow": ("Bash",), "deny": ("Read({a,b}{c,d}{e,f}/**)", "Edit([a-z]*[a-z]*[a-z]*x)", "mcp__*a*a*b", "Skill(a)")},
    {
        "deny": (*(f"Read(//no/{n}/**)" for n in range(40)), *(f"Bash(no{n}:*)" for n in range(40))),
        "allow": (*(f"Bash(run{n}:*)" for n in range(40)), *(f"Read(//may/{n}/*.py)" for n in range(40))),
        "ask": ("WebFetch(domain:*a*a*a*a*a*b.org)", "Agent(x)", "*a*a*a*a*a*a*b*"),
    },
)  # fmt: skip


class World:
    """A working directory with symlinks: to the outside, upwards, to itself, in a chain, and to each folder."""

    def __init__(self, root: Path) -> None:
        self.cwd = root / "work"
        self.home = root / "home"
        for folder in (self.cwd / "sub" / "deep", self.cwd / "links", self.cwd / "a" / "a", self.home / ".ssh"):
            folder.mkdir(parents=True)
        for name in ("a.py", ".env", "b", "x", "sub/x", "sub/.env"):
            (self.cwd / name).write_text("x\n")
        links = {"up": "..", "loop": "loop", "links/a": "../a", "links/b": "../sub", "out": "/etc", "folded": "."}
        links |= {f"chain{n}": f"chain{n + 1}" for n in range(45)}
        links |= {"chain": "chain10", "a/a/back": "../..", "key": "~/.ssh", "a/b": "../links/a/../../sub"}
        for name, target in links.items():
            (self.cwd / name).symlink_to(target)
        self.view = RealFilesystem(str(self.home))

    def decide(self, call: Call, rules: RuleSet, mode: str) -> Decision:
        tool, input = call
        return decide(ToolRequest(tool=tool, input=input, cwd=str(self.cwd)), rules, mode, self.view)

    def rules(self, number: int) -> RuleSet:
        rows = RULE_SETS[number % len(RULE_SETS)]
        read = [parse_rule(text, kind, "flag", str(self.cwd)) for kind, texts in rows.items() for text in texts]
        return RuleSet(cwd=str(self.cwd), rules=tuple(rule for rule in read if isinstance(rule, Rule)))


# The grammar.


def repeated(piece: str, times: int) -> str:
    """The piece repeated; `{}` in it becomes a counter."""
    room = max(1, LONGEST_COMMAND // max(1, len(piece)))
    return "".join(piece.replace("{}", str(n)) for n in range(min(times, room)))


def command(dice: Random) -> str:
    kind = dice.randrange(7)
    size = dice.choice(SIZES)
    if kind == 0:
        begin, end = dice.choice(NESTS)
        depth = min(size, LONGEST_COMMAND // (len(begin) + len(end)))
        return begin * depth + dice.choice(WORDS) + end * (depth if dice.random() < 0.8 else 0)
    if kind == 1:
        layers = [dice.choice(NESTS) for _ in range(min(size, 300))]
        return "".join(begin for begin, _ in layers) + dice.choice(WORDS) + "".join(end for _, end in reversed(layers))
    if kind == 2:
        return dice.choice(("", "ls ", "cat ", "echo '", "find . ", "rm ", "git log ")) + repeated(
            dice.choice(REPEATED), size
        )
    if kind == 3:
        pieces = "".join(dice.choice(REPEATED).replace("{}", str(n)) for n in range(min(size, 3_000)))
        return pieces[:LONGEST_COMMAND]
    if kind == 4:
        row = dice.sample(REPEATED, 2) + dice.sample(WORDS, 1)
        return repeated("".join(row), size // 3 + 1) + dice.choice(WORDS)
    if kind == 5:
        joint = dice.choice(("; ", " && ", " || ", " | ", "\n", " & ", ";", " ", " $(", " > "))
        return joint.join(dice.choice(WORDS) for _ in range(min(size, 5_000)))
    head = dice.choice(
        ("cat ", "rm -rf ", "ls ", "cp a ", "mv ", "sed -n ", "sed -i ", "printf ", "cd ", "find ", "git diff ")
    )
    return head + path(dice) + dice.choice(("", " && ls", " > " + path(dice)))


def path(dice: Random) -> str:
    size = dice.choice(SIZES)
    if dice.random() < 0.5:
        made = repeated(dice.choice(PIECES), size)
    else:
        made = "".join(dice.choice(PIECES).replace("{}", str(n)) for n in range(min(size, 5_000)))
    return dice.choice(("", "/", "a", "~/")) + made + dice.choice(("", "x", "b", ".env"))


def name(dice: Random) -> str:
    return repeated(dice.choice(("a", "a-", "__", "é", "a:", "*", " ", "a.")), dice.choice(SIZES))


def url(dice: Random) -> str:
    piece = dice.choice(("a.", "a", "é.", "%61", "@", ":", "[", "/", "1.", "0x7f.", "-", "xn--"))
    return dice.choice(("https://", "http://u:p@", "", "//")) + repeated(piece, dice.choice(SIZES)) + "b.org/x"


def call(dice: Random) -> Call:
    kind = dice.randrange(16)
    if kind < 9:
        return "Bash", {"command": command(dice)}
    if kind < 12:
        tool = dice.choice(("Read", "Edit", "Write", "NotebookEdit", "LS"))
        parameter = {"NotebookEdit": "notebook_path", "LS": "path"}.get(tool, "file_path")
        return tool, {parameter: path(dice)}
    if kind < 14:
        return dice.choice(("Glob", "Grep")), {"pattern": path(dice), "path": dice.choice(("", ".", path(dice)))}
    makers: tuple[Callable[[], Call], ...] = (
        lambda: ("WebFetch", {"url": url(dice), "prompt": "x"}),
        lambda: ("Task", {"subagent_type": name(dice), "prompt": "x", "description": "x"}),
        lambda: ("Skill", {"skill": name(dice)}),
        lambda: (f"mcp__s__{name(dice)}", {"a": name(dice)}),
    )
    return dice.choice(makers)()


def calls(seed: int, count: int) -> Iterator[tuple[Call, int, str]]:
    """Calls, indexes of rule sets, and modes."""
    dice = Random(seed)
    for _ in range(count):
        yield call(dice), dice.randrange(len(RULE_SETS)), dice.choice(list(MODES))


# Measuring.


class Peak:
    """The growth of the peak of resident memory since its reset; without a reset, since the value before."""

    def __enter__(self) -> Peak:
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        self._before = self._peak()
        return self

    def __exit__(self, *_: object) -> None:
        self.grown = self._peak() - self._before

    @staticmethod
    def _peak() -> int:
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split(maxsplit=1)[0]) * 1024


class Measured:
    def __init__(self, call: Call, number: int, mode: str, seconds: float, grown: int, decision: Decision) -> None:
        self.call, self.number, self.mode = call, number, mode
        self.seconds, self.grown, self.decision = seconds, grown, decision

    @property
    def is_over(self) -> bool:
        return self.seconds > MOST_SECONDS or self.grown > MOST_BYTES

    def __str__(self) -> str:
        tool, input = self.call
        shown = str(input)
        shown = shown if len(shown) < 160 else f"{shown[:120]} ... {shown[-40:]} ({len(shown):,} characters)"
        cost = f"{1000 * self.seconds:7.1f} ms {self.grown / 2**20:6.1f} MB"
        return f"{cost}  rules {self.number} {self.mode} {tool} {shown}"


def measure(world: World, seed: int, count: int) -> Iterator[Measured]:
    kept = [world.rules(number) for number in range(len(RULE_SETS))]
    world.decide(("Bash", {"command": "ls $(ls)"}), kept[2], "default")  # What is loaded once is loaded.
    for given, number, mode in calls(seed, count):
        with Peak() as peak:
            decision, seconds = timed(world, given, kept[number], mode)
        if seconds > MOST_SECONDS / 4:  # Processor time grows, too, while others use the same caches: the least counts.
            seconds = min(seconds, *(timed(world, given, kept[number], mode)[1] for _ in range(4)))
        yield Measured(given, number, mode, seconds, peak.grown, decision)


def timed(world: World, given: Call, rules: RuleSet, mode: str) -> tuple[Decision, float]:
    for cached in (surveyed, read):
        cached.cache_clear()
    started = time.thread_time()
    decision = world.decide(given, rules, mode)
    return decision, time.thread_time() - started


def report(measured: list[Measured]) -> None:
    ordered = sorted(each.seconds for each in measured)
    verdicts = [type(each.decision) for each in measured]
    p50, p99 = (1000 * ordered[len(ordered) * share // 100] for share in (50, 99))
    sys.stdout.write(
        f"{len(measured):,} decisions: {verdicts.count(Allow):,} allowed, {verdicts.count(Deny):,} denied\n"
        f"  processor time: p50 {p50:.2f} ms, p99 {p99:.1f} ms, max {1000 * ordered[-1]:.1f} ms "
        f"(limit {1000 * MOST_SECONDS:.0f})\n"
        f"  memory: max {max(each.grown for each in measured) / 2**20:.1f} MB (limit {MOST_BYTES / 2**20:.0f})\n"
    )
    for each in sorted(measured, key=lambda each: -each.seconds)[:5]:
        sys.stdout.write(f"  {each}\n")
    for each in measured:
        if each.is_over:
            sys.stdout.write(f"OVER {each}\n")


# The executable.


PER_SESSION = 500
CHUNK_CHARS = 1_000_000
"""A call comes in one piece: streaming is not part of the decision."""
TOOLS = ("Bash", "Read", "Edit", "Write", "Glob", "Grep")
SAFE_RULE_SETS = (0, 1, 2, 3, 6)
"""Without allow rules: of the generated calls, only those that read may run."""


def script_of(made: list[Call]) -> str:
    """One turn per call. JSON strings are valid TOML strings."""
    turns = []
    for number, (tool, input) in enumerate(made):
        written = ", ".join(f"{key} = {json.dumps(value)}" for key, value in input.items())
        call = f"{{name = {json.dumps(tool)}, input = {{{written}}}}}"
        turns.append(f'[[turn]]\nwhen = "CALL {number}."\nchunk_chars = {CHUNK_CHARS}\ntools = [{call}]\n')
    return "".join(turns)


def is_result(line: Json) -> bool:
    return bool(line["type"] == "result")


class Answered:
    """The outcome of the interrupts."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        """Without the processor time of other processes."""
        self.wall_seconds: list[float] = []
        self.slowest: Call = ("", {})
        self.undecided = 0
        """Interrupts that were sent before the request or the result of the call was visible."""

    def note(self, call: Call, seconds: float, waited: float, undecided: bool) -> None:
        own = max(0.0, seconds - waited)
        if own >= max(self.seconds, default=0.0):
            self.slowest = call
        self.seconds.append(own)
        self.wall_seconds.append(seconds)
        self.undecided += undecided

    @property
    def late(self) -> int:
        return sum(seconds > ANSWER_SECONDS for seconds in self.seconds)

    def __str__(self) -> str:
        tool, input = self.slowest
        text = (
            f"{len(self.seconds):,} interrupts of the executable: {percentiles(self.seconds)}; {self.late} late; "
            f"{self.undecided:,} during the decision\n"
            f"  with the time that others had the processors: {percentiles(self.wall_seconds)}\n"
        )
        return f"{text}  the slowest: {tool} {str(input)[:120]} ({len(str(input)):,} characters)\n"


def is_end_of_message(line: Json) -> bool:
    """The last line before the calls of a message are decided."""
    return bool(line["type"] == "stream_event" and line["event"]["type"] == "message_stop")


class Watched(Engine):
    def is_silent(self) -> bool:
        """Whether there is no further line to read."""
        assert self._process.stdout is not None
        return not self._rest and not select.select([self._process.stdout], [], [], 0)[0]

    def waited_seconds(self) -> float:
        """How long the engine was ready to run but had no processor, if known."""
        with contextlib.suppress(OSError):
            return int(Path(f"/proc/{self._process.pid}/schedstat").read_text().split()[1]) / 1e9
        return 0.0


def tool_calls(seed: int) -> Iterator[Call]:
    """An endless stream of calls of the tools that every session has."""
    dice = Random(seed)
    while True:
        made = call(dice)
        if made[0] in TOOLS:
            yield made


def run_real(folder: Path, count: int, seed: int, command: list[str]) -> Answered:
    """Interrupt each call while it is decided."""
    answered, world, source = Answered(), World(folder), tool_calls(seed)
    for session, first in enumerate(range(0, count, PER_SESSION)):
        made = list(islice(source, min(PER_SESSION, count - first)))
        rows = RULE_SETS[SAFE_RULE_SETS[session % len(SAFE_RULE_SETS)]]
        settings = json.dumps({"permissions": {kind: texts for kind, texts in rows.items() if kind != "allow"}})
        with running(read_script(script_of(made), "costly decisions")) as server:
            engine = Watched([*command, "--settings", settings], world.cwd, server.url, mode="default")
            try:
                engine.until(is_answer(engine.ask("initialize")))
                for number, given in enumerate(made):
                    interrupt(engine, number, given, answered)
            finally:
                engine.close()
        sys.stderr.write(str(answered))
    return answered


def interrupt(engine: Watched, number: int, given: Call, answered: Answered) -> None:
    engine.say({"type": "user", "message": {"role": "user", "content": f"CALL {number}."}})
    engine.until(is_end_of_message)
    undecided, waited, asked_at = engine.is_silent(), engine.waited_seconds(), time.perf_counter()
    lines, answered_at = engine.until(is_answer(engine.ask("interrupt")))
    answered.note(given, answered_at - asked_at, engine.waited_seconds() - waited, undecided)
    if not any(map(is_result, lines)):  # The turn may have ended before it could be cut.
        engine.until(is_result)
    engine.say({"type": "user", "message": {"role": "user", "content": "/clear"}})
    engine.until(is_result)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=10_000, help="decisions in this process")
    parser.add_argument("--real", type=int, default=0, help="calls through the executable, with an interrupt each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", default=str(Path(sys.executable).with_name("parley")))
    chosen = parser.parse_args()
    is_over = False
    with tempfile.TemporaryDirectory() as folder:
        if chosen.count:
            measured = list(measure(World(Path(folder) / "played"), chosen.seed, chosen.count))
            report(measured)
            is_over = any(each.is_over for each in measured)
        if chosen.real:
            answered = run_real(Path(folder) / "real", chosen.real, chosen.seed, [chosen.engine])
            sys.stdout.write(str(answered))
            is_over = is_over or answered.late > 0
    return 1 if is_over else 0


if __name__ == "__main__":
    sys.exit(main())
