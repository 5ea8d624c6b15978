"""Generate the tables of docs/permissions.md and docs/reference/permission-table.md from the code.

    python scripts/gen_permissions.py

The tables of decisions come from `decide` itself: one row per kind of call and rule, one column per mode.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from pages import fill, main, table

from parley.permissions.base import Allow, Deny, ToolRequest
from parley.permissions.decision import MODES, decide
from parley.permissions.filesystem import MAX_ENTRIES, MAX_PARTS, EntryKind, Filesystem
from parley.permissions.git import config
from parley.permissions.patterns import MAX_PATH_CHARACTERS
from parley.permissions.rule import Behavior, Rule, parse_rule
from parley.permissions.rules import RuleSet
from parley.permissions.shell import (
    arguments,
    command_rules,
    deny_search,
    git_arguments,
    interpreters,
    prefix_rules,
    readers,
    special_readers,
    strict_parser,
    targets,
    treesitter,
)
from parley.permissions.shell.arguments import BUILDS, FILE_FREE, INERT, RUNNERS, Program
from parley.protocol.base import Json, Struct
from parley.workspace.sensitive_names import (
    KEY_NAMES,
    KEY_PATHS,
    PROTECTED_FILES,
    PROTECTED_FOLDERS,
    PROTECTED_PAIRS,
    PROTECTED_PATTERNS,
)

CWD = "/work"
RULES: tuple[Behavior | None, ...] = (None, "allow", "ask", "deny")


class Sample(Struct, frozen=True, kw_only=True):
    """A call that represents its kind, and rules that match it."""

    kind: str
    tool: str
    input: Json
    allow: str
    deny: str
    ask: str = ""
    """The deny rule if empty."""
    asks_user: bool = False

    def rules(self, behavior: Behavior | None) -> RuleSet:
        texts = {"allow": self.allow, "deny": self.deny, "ask": self.ask or self.deny}
        parsed = [parse_rule(texts[behavior], behavior, "flag", CWD)] if behavior else []
        return RuleSet(cwd=CWD, rules=tuple(rule for rule in parsed if isinstance(rule, Rule)))


def file_input(name: str) -> Json:
    return {"file_path": f"{CWD}/{name}" if not name.startswith("/") else name}


def command_input(text: str) -> Json:
    return {"command": text}


SAMPLES = (
    Sample(
        kind="reads a file in a working directory",
        tool="Read",
        input=file_input("a.py"),
        allow="Read(a.py)",
        deny="Read(*.py)",
    ),
    Sample(
        kind="reads a file elsewhere",
        tool="Read",
        input=file_input("/etc/hosts"),
        allow="Read(//etc/**)",
        deny="Read(//etc/hosts)",
    ),
    Sample(
        kind="edits a file in a working directory",
        tool="Edit",
        input=file_input("a.py"),
        allow="Edit(/**)",
        deny="Edit(a.py)",
    ),
    Sample(
        kind="edits a file elsewhere",
        tool="Write",
        input=file_input("/opt/a"),
        allow="Edit(//opt/**)",
        deny="Edit(//opt/a)",
    ),
    Sample(
        kind="edits a protected file",
        tool="Write",
        input=file_input(".git/config"),
        allow="Write",
        deny="Edit(.git/**)",
    ),
    Sample(
        kind="read-only command",
        tool="Bash",
        input=command_input("git status"),
        allow="Bash(git status)",
        deny="Bash(git *)",
    ),
    Sample(
        kind="command that edits files in a working directory",
        tool="Bash",
        input=command_input("mkdir made"),
        allow="Bash(mkdir:*)",
        deny="Bash(mkdir:*)",
    ),
    Sample(
        kind="any other command",
        tool="Bash",
        input=command_input("npm test"),
        allow="Bash(npm test)",
        deny="Bash(npm:*)",
    ),
    Sample(
        kind="command that cannot be parsed",
        tool="Bash",
        input=command_input('"$X" now'),
        allow="Bash",
        deny="Bash",
        ask="Bash(rm:*)",
    ),
    Sample(
        kind="command that deletes a critical directory",
        tool="Bash",
        input=command_input("rm -rf /"),
        allow="Bash(rm:*)",
        deny="Bash(rm:*)",
    ),
    Sample(
        kind="fetches from a public host",
        tool="WebFetch",
        input={"url": "https://example.com/"},
        allow="WebFetch(domain:example.com)",
        deny="WebFetch(domain:example.com)",
    ),
    Sample(
        kind="fetches from a local or private address",
        tool="WebFetch",
        input={"url": "http://127.0.0.1/"},
        allow="WebFetch",
        deny="WebFetch(domain:127.0.0.1)",
    ),
    Sample(kind="MCP tool", tool="mcp__git__push", input={}, allow="mcp__git", deny="mcp__git__push"),
    Sample(kind="task list of the session", tool="TodoWrite", input={}, allow="TodoWrite", deny="TodoWrite"),
    Sample(
        kind="subagent",
        tool="Task",
        input={"subagent_type": "Explore"},
        allow="Agent(Explore)",
        deny="Agent(Explore)",
    ),
    Sample(
        kind="question for a person",
        tool="AskUserQuestion",
        input={},
        allow="AskUserQuestion",
        deny="AskUserQuestion",
        asks_user=True,
    ),
)


class EmptyFilesystem(Filesystem):
    """A file system without symlinks and with empty folders."""

    home = "/home/me"

    def entries(self, path: str, limit: int) -> Mapping[str, EntryKind] | None:
        return {}


def find_verdict(sample: Sample, behavior: Behavior | None, mode: str) -> str:
    request = ToolRequest(tool=sample.tool, input=sample.input, cwd=CWD, asks_user=sample.asks_user)
    decision = decide(request, sample.rules(behavior), mode, EmptyFilesystem())
    return "allow" if isinstance(decision, Allow) else "deny" if isinstance(decision, Deny) else "ask"


def pages() -> dict[str, str]:
    parts = {"modes": build_mode_table(), "limits": describe_limits(), "protected": list_protected()}
    parts["credentials"] = list_credentials()
    return {
        "docs/permissions.md": fill("docs/permissions.md", {name: "\n".join(lines) for name, lines in parts.items()}),
        REFERENCE: fill(REFERENCE, {"page": "\n".join(build_reference())}),
    }


def build_mode_table() -> Iterator[str]:
    """What modes decide without a rule. Modes with equal decisions share a column, calls with equal decisions a row."""
    columns: dict[tuple[str, ...], list[str]] = {}
    for mode in MODES:
        columns.setdefault(tuple(find_verdict(sample, None, mode) for sample in SAMPLES), []).append(mode)
    rows: dict[tuple[str, ...], list[str]] = {}
    for sample, *cells in zip(SAMPLES, *columns, strict=True):
        rows.setdefault(tuple(cells), []).append(sample.kind)
    header = ("call", *(", ".join(f"`{mode}`" for mode in modes) for modes in columns.values()))
    yield from table(header, (("; ".join(kinds), *cells) for cells, kinds in rows.items()))


def describe_limits() -> Iterator[str]:
    yield wrap_text(
        f"""A call that would take too long to analyse needs approval in every mode, and the request gives the reason.
        The limits for a command are {treesitter.MAX_CHARACTERS:,} characters ({deny_search.MAX_CHARACTERS:,} with
        here-documents), {deny_search.MAX_COMMANDS} commands, {deny_search.MAX_DEPTH} levels of nesting and
        {targets.MAX_NAMES:,} file names. They are lower if there are many rules. The limits for a path are
        {MAX_PATH_CHARACTERS:,} characters and {MAX_PARTS} directories."""
    )
    yield ""
    yield wrap_text(
        f"""A command is never treated as read-only if it could run in more than {targets.MAX_FOLDERS} directories, or
        if more than {MAX_ENTRIES:,} directory entries would have to be read to check it. A command line with more than
        {strict_parser.MAX_COMMANDS} commands is allowed only by a bare `Bash` rule or a rule with exactly its text."""
    )


def wrap_text(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 120)


def list_protected() -> Iterator[str]:
    pairs = ("/".join(parts) for parts in PROTECTED_PAIRS)
    yield f"Directories: {quote_names([*sorted(PROTECTED_FOLDERS), *sorted(pairs)])}."
    yield ""
    yield f"Files: {quote_names(sorted(PROTECTED_FILES))}; {'; '.join(words for _, words in PROTECTED_PATTERNS)}."


def list_credentials() -> Iterator[str]:
    yield f"Files and directories: {quote_names([*sorted(KEY_NAMES), *sorted(KEY_PATHS)])}."


def quote_names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def build_reference() -> Iterator[str]:
    yield from INTRODUCTION.splitlines()
    yield ""
    rows = (
        (sample.kind, behavior or "-", *(find_verdict(sample, behavior, mode) for mode in MODES))
        for sample in SAMPLES
        for behavior in RULES
    )
    yield from table(("call", "rule", *MODES), rows)
    yield from build_command_tables()
    yield from (
        "",
        "## Git configuration",
        "",
        "These keys are known to be harmless, some only with certain values:",
        "",
    )
    keys = {f"{section}.{name}" for section, known in config.SECTIONS.items() for name in known}
    keys |= {f"{section}.*.{name}" for section, known in config.SUBSECTIONS.items() for name in known}
    keys |= {f"{section}.*" for section in config.ANY_KEY}
    keys |= {f"{section}{'.*' if inner else ''}.{name}" for section, inner, name in config.VALUES}
    yield from name_table("keys", keys)


REFERENCE = "docs/reference/permission-table.md"
INTRODUCTION = """\
## Decisions

Every combination of call, matching rule and mode.
"""
READ_ONLY = """
## Read-only commands

These commands run without a rule if every file they name is in a working directory and they have no other flags than
these. `:` or `=` after a flag means that it takes a value; `::` or `?` means that the value is optional.
"""
OPERANDS = {0: "no operands", 1: "one operand"}
EDITS = (
    ("mkdir", targets.EDITORS["mkdir"]),
    ("touch", targets.EDITORS["touch"]),
    ("rm", targets.EDITORS["rm"]),
    ("rmdir", targets.EDITORS["rmdir"]),
    ("mv", targets.EDITORS["mv"]),
    ("cp", targets.EDITORS["cp"]),
    ("sed -i", targets.EDITORS["sed"]),
)


def build_command_tables() -> Iterator[str]:
    yield from READ_ONLY.splitlines()
    yield ""
    programs = [*readers.READERS.items(), ("jq", special_readers.JQ)]
    programs += [
        (f"git {name}", program) for name, program in (*git_arguments.READERS.items(), *git_arguments.NESTED.items())
    ]
    yield from (f"- `{name}`: {format_flags(program)}" for name, program in sorted(programs, key=lambda row: row[0]))
    yield f"- `find`: {format_names(special_readers.FIND_TESTS | special_readers.FIND_TESTS_WITH_VALUE)}"
    yield f"- `test` and `[`: {format_names(special_readers.TESTS)}"
    ps, xxd = special_readers.PS_WORDS | special_readers.PS_VALUES, special_readers.XXD_SWITCHES
    yield f"- `ps`: {format_names(ps)}; `xxd`: {format_names(xxd)}"
    yield f"- programs with their own checks: {format_names(special_readers.CHECKS)}"
    yield f"- complete git commands: {format_names(' '.join(words) for words in git_arguments.ALONE)}"
    yield f"- options before a git subcommand: {format_names(git_arguments.GLOBAL_FLAGS)}"
    yield f"- symlinks in directories are followed by `find` {format_names(readers.FIND_FLAGS)}, " + ", ".join(
        f"`{name}` {'unless `no-dereference` is given' if flags == '*' else format_names(flags.split())}"
        for name, (flags, _) in sorted(readers.FOLLOWING.items())
    )
    yield f"- version commands: {format_names(' '.join(words) for words in readers.VERSIONS)}"
    yield ""
    yield "In `acceptEdits` and `auto`, these commands also run in the working directories:"
    yield ""
    yield from (f"- `{name}`: {format_flags(program)}" for name, program in EDITS)
    yield ""
    names = format_names(readers.SAFE_ASSIGNMENTS)
    yield f"All these commands may follow wrappers ({format_names(arguments.WRAPPERS)}) and assignments to {names}."
    yield ""
    yield "## Never by prefix"
    yield ""
    by_text = command_rules.EVALUATES | command_rules.NEVER_BY_PREFIX
    yield f"Only a rule with exactly the command's text allows: {format_names(by_text)}."
    yield ""
    yield "## Git subcommands"
    yield ""
    yield f"A rule for all of git covers: {format_names(prefix_rules.GIT_PLAIN)}."
    yield ""
    yield f"Only a rule with exactly the command's text allows: {format_names(prefix_rules.GIT_RUNNERS)}."
    yield ""
    yield "## Programs and files"
    yield ""
    yield f"These programs open no file: {format_names(FILE_FREE)}."
    yield ""
    yield f"These run code of the working tree, or read all of it: {format_names(BUILDS)}."
    yield ""
    yield "## Where denied commands are found"
    yield ""
    yield f"- after {format_names(RUNNERS)}, and after {format_names(deny_search.RUNS_NEXT)} of `find`"
    texts = deny_search.SHELLS | deny_search.EVALUATORS | interpreters.TEXTS | interpreters.EDITORS
    yield f"- in the arguments of {format_names(texts)}"
    yield f"- in subscripts in {format_names(interpreters.SUBSCRIPTS)}"
    yield f"- after the options of {format_names(deny_search.GIT_LIKE)}"
    yield from (
        f"- after {format_names(names)}: {format_names(words)}"
        for words, names in group_by_words(interpreters.SUBRUNNERS)
    )
    yield from (
        f"- in option values of {format_names(names)}: {format_names(words)}"
        for words, names in group_by_words(interpreters.OPTIONS)
    )
    yield (
        "- in other programs for packages, builds and services after `exec`, `dlx`, `rsh`, `ssh`, `cmd` and `devenv`, "
        "also with a prefix as in `dev:exec`"
    )
    yield "- in every argument of any other program, except those in the next table"
    yield ""
    yield from name_table("programs", INERT)
    yield ""
    yield "## Directory searches"
    yield ""
    if_recursive = format_names(readers.SEARCHERS_IF_RECURSIVE)
    yield f"Always: {format_names(readers.SEARCHERS)}. With a recursive flag: {if_recursive}."


def group_by_words(table: Mapping[str, Collection[str]]) -> list[tuple[tuple[str, ...], list[str]]]:
    """Programs grouped by equal words."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, words in sorted(table.items()):
        groups.setdefault(tuple(sorted(words)), []).append(name)
    return list(groups.items())


def format_flags(program: Program) -> str:
    """The flags of a program, and its operands if they are not just files."""
    parts = [f"`-{program.short}`"] if program.short else []
    parts += [format_names(program.long.split())] if program.long else []
    parts += ["`-5`"] if program.number_flags else []
    parts += [f"({program.operands})"] if program.operands != "files" else []
    parts += (
        [OPERANDS.get(program.max_operands, f"at most {program.max_operands} operands")]
        if program.max_operands is not None
        else []
    )
    parts += [f"globs {program.globs}"] if program.globs != "after a name" else []
    return " ".join(parts) or "no flags"


def name_table(title: str, names: Iterable[str]) -> Iterator[str]:
    """A long list, with a row for each first letter."""
    groups = groupby(sorted(names, key=str.lower), lambda name: name[0].lower() if name[0].isalpha() else "other")
    yield from table(("", title), ((letter, format_names(found)) for letter, found in groups))


def format_names(names: Iterable[str]) -> str:
    return " ".join(f"`{name}`" for name in sorted(names))


if __name__ == "__main__":
    raise SystemExit(main(pages()))
