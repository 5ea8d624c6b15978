"""Seven properties of every rule set and every call, checked by Hypothesis.

    python -m tests.stress.permissions.rule_properties --count 10000

1. another deny rule never loosens          5. another command after a line never loosens it
2. another ask rule never loosens           6. a wrapper around a command never loosens
3. another allow rule never beats a deny    7. another spelling of a path changes nothing
4. the order of rules does not matter

"Loosens" compares verdicts: allow < ask < deny. Calls and rules come from pools that match each other (otherwise almost
nothing would match) and from free text. The exit code is 1 if there is a counter-example.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as some

from parley.permissions.base import Allow, Deny, ToolRequest
from parley.permissions.decision import MODES, decide
from parley.permissions.filesystem import EntryKind, Filesystem
from parley.permissions.rule import Behavior, Rule, parse_rule
from parley.permissions.rules import RuleSet
from parley.permissions.shell.treesitter import parse
from tests.helpers import paths

CORPORA = paths.DATA / "permissions"
CWD = "/w"
BEHAVIORS: tuple[Behavior, ...] = ("allow", "deny", "ask")
STRICTNESS = {Allow: 0, Deny: 2}
LINKS = {"/w/link": "src", "/w/out": "/etc", "/w/up": "..", "/w/keys": ".env", "/w/loop": "loop", "/w/src/here": "."}


def commands_of(name: str) -> list[str]:
    rows = map(json.loads, (CORPORA / name).read_text(encoding="utf-8").splitlines())
    found = [row.get("command") or row.get("input", {}).get("command") for row in rows]
    return sorted({text for text in found if isinstance(text, str) and len(text) < 400})


COMMANDS = commands_of("decisions.jsonl") + commands_of("everyday.jsonl") + commands_of("hostile.jsonl")
PATHS = (
    "a.py", "src/a.py", ".env", "src/.env", "secrets/key", "link/a.py", "out/passwd", "up/etc/passwd", "keys", "loop/x",
    "/etc/passwd", "/w/src/deep/b.py", "/home/me/.ssh/id_rsa", ".git/config", "../x", "src/../.env", "src/here/a.py",
)  # fmt: skip
SPECS = (
    "ls:*", "ls", "git *", "git push:*", "git status", "npm test:*", "npm run *", "rm:*", "rm -rf *", "cat *", "curl *",
    "echo:*", "bash:*", "sudo *", "find *", "* --force", "make", "python3 *", "xargs *", "env *", "eval *", "touch:*",
)  # fmt: skip
PATTERNS = (
    "/**", "*.py", ".env", "src/**", "secrets", "secrets/**", "//etc/**", "~/.ssh/**", "src/", "/src/a.py", "//**",
    "**/*.py", "link/**", "../**", "out/**", "./.env",
)  # fmt: skip
SHARED = ("Bash", "Read", "Edit", "Write", "Grep", "WebFetch", "WebFetch(domain:example.com)", "mcp__s", "mcp__s__*")
REFUSING = ("*", "Task*", "mcp__*", "WebFetch(domain:*.org)", "Agent(Explore)", "Skill(pdf)", "mcp__s__t(a:1)")
HOSTS = ("example.com", "a.example.com", "evil.org", "127.0.0.1", "localhost")

text = some.text(some.characters(codec="utf-8", exclude_characters="\0"), max_size=24)
shellish = some.text("ls rm-f.*?[]{}$`'\"\\;&|<>()=~#!\n/", min_size=1, max_size=20)
commands = some.sampled_from(COMMANDS) | shellish
whole_commands = some.sampled_from(
    ["ls", "ls -la src", "cat a.py", "git status", "git push --force", "npm test", "rm -rf src", "rm x", "curl x",
     "echo 'a b'", "cat .env", "touch src/x", "sudo make", "cat secrets/key", "mkdir d", "echo x > .env", "make -j4",
     "find . -name '*.py'", "python3 x.py", "sed -n 1,5p a.py", "cp a.py b.py", "cat /etc/passwd", "head -n 5 a.py"]
)  # fmt: skip
calls = some.one_of(
    some.tuples(some.just("Bash"), commands.map(lambda command: {"command": command})),
    some.tuples(
        some.sampled_from(("Read", "Write", "Edit")), (some.sampled_from(PATHS) | text).map(lambda p: {"file_path": p})
    ),
    some.tuples(
        some.sampled_from(("Grep", "Glob")), some.sampled_from(PATHS).map(lambda p: {"path": p, "pattern": "x"})
    ),
    some.tuples(some.just("WebFetch"), some.sampled_from(HOSTS).map(lambda host: {"url": f"https://{host}/"})),
    some.sampled_from(
        [("mcp__s__t", {"a": 1}), ("Task", {"subagent_type": "Explore"}), ("Agent", {}), ("Skill", {"skill": "pdf"}),
         ("TodoWrite", {}), ("TaskStop", {"task_id": "b"}), ("WebSearch", {"query": "x"})]
    ),
)  # fmt: skip
modes = some.sampled_from([*MODES, "unknown"])


def pool(behavior: Behavior) -> list[Rule]:
    file_rules = [f"{tool}({pattern})" for tool in ("Read", "Edit") for pattern in PATTERNS]
    whole = SHARED if behavior == "allow" else SHARED + REFUSING
    return [
        rule for text in (*(f"Bash({spec})" for spec in SPECS), *file_rules, *whole) for rule in made(text, behavior)
    ]


def made(text: str, behavior: Behavior) -> list[Rule]:
    rule = parse_rule(text, behavior, "user", CWD)
    return [rule] if isinstance(rule, Rule) else []


def rules_to(behavior: Behavior) -> some.SearchStrategy[Rule]:
    free = shellish.map(lambda spec: f"Bash({spec})").filter(lambda text: bool(made(text, behavior)))
    return some.sampled_from(pool(behavior)) | free.map(lambda text: made(text, behavior)[0])


rule_lists = some.lists(some.sampled_from([rule for behavior in BEHAVIORS for rule in pool(behavior)]), max_size=5)


class Tree(Filesystem):
    home = "/home/me"

    def readlink(self, path: str) -> str | None:
        return LINKS.get(path)

    def entries(self, path: str, limit: int) -> Mapping[str, EntryKind] | None:
        top = path.rstrip("/") + "/"
        return {link.removeprefix(top).partition("/")[0]: "link" for link in LINKS if link.startswith(top)}


def verdict(call: tuple[str, Any], rules: list[Rule], mode: str) -> int:
    """0 allow, 1 ask, 2 deny."""
    tool, input = call
    request = ToolRequest(tool=tool, input=input, cwd=CWD)
    decision = decide(request, RuleSet(cwd=CWD, rules=tuple(rules), folders=("/more",)), mode, Tree())
    return STRICTNESS.get(type(decision), 1)


def run(command: str, rules: list[Rule], mode: str) -> int:
    return verdict(("Bash", {"command": command}), rules, mode)


# The properties. Each is a function of what Hypothesis draws for its parameters.


def another_deny_rule_never_loosens(call: Any, rules: list[Rule], mode: str, rule: Rule) -> None:
    assert verdict(call, [*rules, rule], mode) >= verdict(call, rules, mode)


def another_ask_rule_never_loosens(call: Any, rules: list[Rule], mode: str, rule: Rule) -> None:
    assert verdict(call, [*rules, rule], mode) >= verdict(call, rules, mode)


def another_allow_rule_never_beats_a_deny(call: Any, rules: list[Rule], mode: str, rule: Rule) -> None:
    refusing = [each for each in rules if each.behavior != "allow"]
    before = verdict(call, refusing, "bypassPermissions")
    assert verdict(call, [*refusing, rule], "bypassPermissions") == before
    assert verdict(call, [*rules, rule], mode) >= before


def the_order_of_rules_does_not_matter(call: Any, rules: list[Rule], mode: str, order: Any) -> None:
    shuffled = list(rules)
    order.shuffle(shuffled)
    assert verdict(call, shuffled, mode) == verdict(call, rules, mode)


SEPARATORS = ("; ", " && ", " || ", " | ", "\n", " & ", ";", " |& ")


def another_command_behind_a_line_never_loosens(
    command: str, rules: list[Rule], mode: str, separator: str, more: str
) -> None:
    # An incomplete line may become a different one with more text after it.
    assume(command.strip() and not command.rstrip().endswith(("\\", "&", "|")) and not parse(command).has_error)
    assert run(f"{command}{separator}{more}", rules, mode) >= run(command, rules, mode)


WRAPPERS: tuple[Callable[[str], str], ...] = (
    *(lambda command, word=word: f"{word} {command}" for word in (
        "timeout 5", "timeout -k 3 5s", "nice", "nice -n 5", "nohup", "command", "stdbuf -oL", "time", "env", "env A=1",
        "sudo", "sudo -u me", "exec", "xargs", "setsid", "watch", "doas", "ionice -c 3", "builtin", "eval", "! ", "A=1",
        "LANG=C", "PATH=x", "flock f", "strace -f", "busybox", "chroot /",
    )),
    *(lambda command, shell=shell: f"{shell} {shlex.quote(command)}" for shell in (
        "bash -c", "sh -c", "/bin/bash -ec", "sudo bash -c", "eval", "su me -c", "timeout 5 dash -c", "env -S bash -c",
    )),
    lambda command: f"({command})",
    lambda command: f"{{ {command}; }}",
    lambda command: f"if true; then {command}; fi",
    lambda command: f"for i in 1; do {command}; done",
    lambda command: f"while {command}; do :; done",
    lambda command: f"f() {{ {command}; }}; f",
    lambda command: f"echo $({command})",
    lambda command: f"echo `{command}`",
    lambda command: f'echo "$({command})"',
    lambda command: f"cat <({command})",
    lambda command: f"true && {command}",
    lambda command: f"find . -exec {command} \\;",
)  # fmt: skip


def a_wrapper_around_a_command_never_loosens(command: str, rules: list[Rule], mode: str, wrapper: Any) -> None:
    assert run(wrapper(command), rules, mode) >= run(command, rules, mode)


def respellings(path: str) -> list[str]:
    """Spellings of a path below the working directory, or of an absolute one."""
    absolute = path if path.startswith("/") else f"{CWD}/{path}"
    head, _, tail = absolute.rpartition("/")
    return [
        absolute,
        f"/{absolute}",
        absolute.replace("/", "//"),
        f"{head}/./{tail}",
        f"{head}/nowhere/../{tail}",
        f"/nowhere/..{absolute}",
        f"{absolute}/.",
        f"../../..{absolute}",
        f"{CWD}/../..{absolute}",
    ]


def another_spelling_of_a_path_changes_nothing(path: str, tool: str, rules: list[Rule], mode: str, number: int) -> None:
    spelled = respellings(path)
    respelled = spelled[number % len(spelled)]
    parameter = "path" if tool == "Grep" else "file_path"
    first, second = ((tool, {parameter: each, "pattern": "x"}) for each in (path, respelled))
    assert verdict(first, rules, mode) == verdict(second, rules, mode)


drawn: dict[str, some.SearchStrategy[Any]] = {"call": calls, "rules": rule_lists, "mode": modes}
PROPERTIES: dict[Callable[..., None], dict[str, some.SearchStrategy[Any]]] = {
    another_deny_rule_never_loosens: {**drawn, "rule": rules_to("deny")},
    another_ask_rule_never_loosens: {**drawn, "rule": rules_to("ask")},
    another_allow_rule_never_beats_a_deny: {**drawn, "rule": rules_to("allow")},
    the_order_of_rules_does_not_matter: {**drawn, "order": some.randoms(use_true_random=False)},
    another_command_behind_a_line_never_loosens: {
        "command": whole_commands | commands,
        "rules": rule_lists,
        "mode": modes,
        "separator": some.sampled_from(SEPARATORS),
        "more": whole_commands,
    },
    a_wrapper_around_a_command_never_loosens: {
        "command": whole_commands, "rules": rule_lists, "mode": modes, "wrapper": some.sampled_from(WRAPPERS),
    },
    another_spelling_of_a_path_changes_nothing: {
        "path": some.sampled_from(PATHS),
        "tool": some.sampled_from(("Read", "Write", "Edit", "Grep")),
        "rules": rule_lists,
        "mode": modes,
        "number": some.integers(0, 100),
    },
}  # fmt: skip


def check(holds: Callable[..., None], count: int) -> None:
    """Raises AssertionError with the smallest counter-example."""
    careful = settings(
        max_examples=count,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        derandomize=count < 1000,
    )
    careful(given(**PROPERTIES[holds])(holds))()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=10_000, help="examples of each property")
    count, broken = parser.parse_args().count, 0
    for holds in PROPERTIES:
        started = time.monotonic()
        try:
            check(holds, count)
            told = "holds"
        except AssertionError as exc:
            broken += 1
            told = "BROKEN\n" + "\n".join([str(exc), *getattr(exc, "__notes__", ())])
        sys.stdout.write(f"{holds.__name__}: {count:,} examples, {time.monotonic() - started:.0f} s: {told}\n")
        sys.stdout.flush()
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
