"""Generate the tables of docs/permissions.md and docs/reference/permission-table.md.

The decisions are computed by the real `decide`: one row per kind of call and rule, one column per mode.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping

from pages import fill, main, table

from parley.permissions.base import Allow, Deny, EntryKind, ToolRequest
from parley.permissions.decision import MODES, decide
from parley.permissions.git import config
from parley.permissions.paths.filesystem import MAX_ENTRIES, MAX_PARTS
from parley.permissions.paths.patterns import MAX_PATH_CHARACTERS
from parley.permissions.paths.protected import FILES, FOLDER_PAIRS, FOLDERS
from parley.permissions.rule import Behavior, Rule, parse_rule
from parley.permissions.rules import RuleSet
from parley.permissions.shell import allowing, assignments, edits, strict_parser, treesitter, wrappers
from parley.permissions.shell.arguments import Program
from parley.permissions.shell.denied import interpreters, search
from parley.permissions.shell.denied.inert import INERT
from parley.permissions.shell.denied.mentions import SEARCHERS, SEARCHERS_IF_RECURSIVE
from parley.permissions.shell.readonly import following, git, special, tables
from parley.permissions.shell.targets import MAX_FOLDERS, MAX_NAMES
from parley.protocol.base import Json, Struct

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
    asks_person: bool = False

    def rules(self, behavior: Behavior | None) -> RuleSet:
        texts = {"allow": self.allow, "deny": self.deny, "ask": self.ask or self.deny}
        rules = [parse_rule(texts[behavior], behavior, "flag", CWD)] if behavior else []
        return RuleSet(cwd=CWD, rules=tuple(rule for rule in rules if isinstance(rule, Rule)))


def file(name: str) -> Json:
    return {"file_path": f"{CWD}/{name}" if not name.startswith("/") else name}


def command(text: str) -> Json:
    return {"command": text}


SAMPLES = (
    Sample(
        kind="reads a file in a working directory",
        tool="Read",
        input=file("a.py"),
        allow="Read(a.py)",
        deny="Read(*.py)",
    ),
    Sample(
        kind="reads a file elsewhere",
        tool="Read",
        input=file("/etc/hosts"),
        allow="Read(//etc/**)",
        deny="Read(//etc/hosts)",
    ),
    Sample(
        kind="edits a file in a working directory",
        tool="Edit",
        input=file("a.py"),
        allow="Edit(/**)",
        deny="Edit(a.py)",
    ),
    Sample(
        kind="edits a file elsewhere", tool="Write", input=file("/opt/a"), allow="Edit(//opt/**)", deny="Edit(//opt/a)"
    ),
    Sample(
        kind="edits a protected file",
        tool="Write",
        input=file(".git/config"),
        allow="Write",
        deny="Edit(.git/**)",
    ),
    Sample(
        kind="read-only command",
        tool="Bash",
        input=command("git status"),
        allow="Bash(git status)",
        deny="Bash(git *)",
    ),
    Sample(
        kind="command that edits files in a working directory",
        tool="Bash",
        input=command("mkdir made"),
        allow="Bash(mkdir:*)",
        deny="Bash(mkdir:*)",
    ),
    Sample(
        kind="any other command", tool="Bash", input=command("npm test"), allow="Bash(npm test)", deny="Bash(npm:*)"
    ),
    Sample(
        kind="command that cannot be parsed",
        tool="Bash",
        input=command('"$X" now'),
        allow="Bash",
        deny="Bash",
        ask="Bash(rm:*)",
    ),
    Sample(
        kind="command that deletes a critical directory",
        tool="Bash",
        input=command("rm -rf /"),
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
        asks_person=True,
    ),
)


class EmptyFilesystem:
    """A file system without symlinks."""

    home = "/home/me"

    def readlink(self, path: str) -> str | None:
        return None

    def exists(self, path: str) -> bool:
        return False

    def entries(self, path: str, limit: int) -> Mapping[str, EntryKind] | None:
        return {}

    def is_folder(self, path: str) -> bool:
        return False

    def read(self, path: str, max_bytes: int) -> bytes | None:
        return None

    def identity(self, path: str) -> tuple[int, int] | None:
        return None


def verdict(sample: Sample, behavior: Behavior | None, mode: str) -> str:
    request = ToolRequest(tool=sample.tool, input=sample.input, cwd=CWD, asks_user=sample.asks_person)
    decision = decide(request, sample.rules(behavior), mode, EmptyFilesystem())
    return "allow" if isinstance(decision, Allow) else "deny" if isinstance(decision, Deny) else "ask"


def pages() -> dict[str, str]:
    parts = {"modes": mode_table(), "limits": limits(), "protected": protected()}
    return {
        "docs/permissions.md": fill("docs/permissions.md", {name: "\n".join(lines) for name, lines in parts.items()}),
        "docs/reference/permission-table.md": "\n".join(reference()) + "\n",
    }


def mode_table() -> Iterator[str]:
    """The decisions without a rule. Modes and calls with equal decisions share a column or row."""
    columns: dict[tuple[str, ...], list[str]] = {}
    for mode in MODES:
        columns.setdefault(tuple(verdict(sample, None, mode) for sample in SAMPLES), []).append(mode)
    rows: dict[tuple[str, ...], list[str]] = {}
    for sample, *cells in zip(SAMPLES, *columns, strict=True):
        rows.setdefault(tuple(cells), []).append(sample.kind)
    header = ("call", *(", ".join(f"`{mode}`" for mode in modes) for modes in columns.values()))
    yield from table(header, (("; ".join(kinds), *cells) for cells, kinds in rows.items()))


def limits() -> Iterator[str]:
    yield fill_text(
        f"""A call that would take too long to analyse asks in every mode and gives the reason. The limits for a command
        are {treesitter.MAX_CHARACTERS:,} characters ({search.MAX_CHARACTERS:,} with here-documents),
        {search.MAX_COMMANDS} commands, {search.MAX_DEPTH} levels of nesting and {MAX_NAMES:,} file names, less if there
        are many rules. The limits for a path are {MAX_PATH_CHARACTERS:,} characters and {MAX_PARTS} directories."""
    )
    yield ""
    yield fill_text(
        f"""A command that could run in more than {MAX_FOLDERS} directories, or needs more than {MAX_ENTRIES:,}
        directory entries to be read, is never read-only. With more than {strict_parser.MAX_COMMANDS} parts, only a
        bare `Bash` rule allows it."""
    )


def fill_text(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 120)


def protected() -> Iterator[str]:
    pairs = ("/".join(parts) for parts in FOLDER_PAIRS)
    yield f"Directories: {', '.join(f'`{name}`' for name in (*sorted(FOLDERS), *pairs))}."
    yield ""
    yield f"Files: {', '.join(f'`{name}`' for name in sorted(FILES))}."


def reference() -> Iterator[str]:
    yield from INTRODUCTION.splitlines()
    yield ""
    rows = (
        (sample.kind, behavior or "-", *(verdict(sample, behavior, mode) for mode in MODES))
        for sample in SAMPLES
        for behavior in RULES
    )
    yield from table(("call", "rule", *MODES), rows)
    yield from command_tables()
    yield from (
        "",
        "## Git configuration",
        "",
        "Keys that are known to be harmless, some only with certain values:",
        "",
    )
    keys = {f"{section}.{name}" for section, known in config.SECTIONS.items() for name in known}
    keys |= {f"{section}.*.{name}" for section, known in config.SUBSECTIONS.items() for name in known}
    keys |= {f"{section}.*" for section in config.ANY_KEY}
    keys |= {f"{section}{'.*' if inner else ''}.{name}" for section, inner, name in config.VALUES}
    yield code_list(keys)


INTRODUCTION = """\
# Permission tables

Generated by `make docs` from the tables that the code uses; do not edit. [permissions.md](../permissions.md) explains
the model.

## Decisions

Every combination of call, matching rule and mode.
"""
READ_ONLY = """
## Read-only commands

These run without a rule if every file they name is in a working directory, and only with these flags. `:` or `=` after
a flag means that it takes a value; `::` or `?` means that the value is optional.
"""
OPERANDS = {0: "no operands", 1: "one operand"}
EDITS = (
    ("mkdir", edits.MKDIR),
    ("touch", edits.TOUCH),
    ("rm", edits.RM),
    ("rmdir", edits.RMDIR),
    ("mv", edits.MOVE),
    ("cp", edits.COPY),
    ("sed -i", edits.SED),
)


def command_tables() -> Iterator[str]:
    yield from READ_ONLY.splitlines()
    yield ""
    programs = [*tables.READERS.items(), ("jq", special.JQ)]
    programs += [(f"git {name}", program) for name, program in (*git.READERS.items(), *git.NESTED.items())]
    yield from (f"- `{name}`: {flags(program)}" for name, program in sorted(programs, key=lambda row: row[0]))
    yield f"- `find`: {code_list(special.FIND_TESTS | special.FIND_TESTS_WITH_VALUE)}"
    yield f"- `test` and `[`: {code_list(special.TESTS)}"
    yield f"- `ps`: {code_list(special.PS_WORDS | special.PS_VALUES)}; `xxd`: {code_list(special.XXD_SWITCHES)}"
    yield f"- checked by code of their own: {code_list(special.CHECKS)}"
    yield f"- complete git commands: {code_list(' '.join(words) for words in git.ALONE)}"
    yield f"- options before a git subcommand: {code_list(git.GLOBAL_FLAGS)}"
    yield f"- symlinks in directories are followed by `find` {code_list(following.FIND_FLAGS)}, " + ", ".join(
        f"`{name}` {'unless `no-dereference` is given' if flags == '*' else code_list(flags.split())}"
        for name, (flags, _) in sorted(following.FOLLOWING.items())
    )
    yield f"- version commands: {code_list(' '.join(words) for words in tables.VERSIONS)}"
    yield ""
    yield "In modes that accept edits, also these, in the working directories:"
    yield ""
    yield from (f"- `{name}`: {flags(program)}" for name, program in EDITS)
    yield ""
    yield f"They may follow wrappers ({code_list(wrappers.WRAPPERS)}) and assignments to {code_list(assignments.SAFE)}."
    yield ""
    yield "## Never by prefix"
    yield ""
    yield f"Only a rule for exactly the command allows: {code_list(allowing.EVALUATES | allowing.NEVER_BY_PREFIX)}."
    yield ""
    yield "## Where denied commands are found"
    yield ""
    yield f"- after {code_list(search.WRAPPERS)}, and after {code_list(search.RUNS_NEXT)} of `find`"
    texts = search.SHELLS | search.EVALUATORS | interpreters.TEXTS | interpreters.EDITORS
    yield f"- in the arguments of {code_list(texts)}"
    yield f"- in subscripts in {code_list(interpreters.SUBSCRIPTS)}"
    yield f"- after the options of {code_list(search.GIT_LIKE)}"
    yield from (f"- after {code_list(names)}: {code_list(words)}" for words, names in grouped(interpreters.SUBRUNNERS))
    yield from (
        f"- in option values of {code_list(names)}: {code_list(words)}"
        for words, names in grouped(interpreters.OPTIONS)
    )
    yield f"- in every argument of a program that is not named above and not one of {code_list(INERT)}"
    yield ""
    yield "## Directory searches"
    yield ""
    yield f"Always: {code_list(SEARCHERS)}. With a recursive flag: {code_list(SEARCHERS_IF_RECURSIVE)}."


def grouped(table: Mapping[str, Collection[str]]) -> list[tuple[tuple[str, ...], list[str]]]:
    """Programs grouped by their words."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, words in sorted(table.items()):
        groups.setdefault(tuple(sorted(words)), []).append(name)
    return list(groups.items())


def flags(program: Program) -> str:
    """The flags of a program, and its operands unless they are just files."""
    parts = [f"`-{program.short}`"] if program.short else []
    parts += [code_list(program.long.split())] if program.long else []
    parts += ["`-5`"] if program.number_flags else []
    parts += [f"({program.operands})"] if program.operands != "files" else []
    parts += (
        [OPERANDS.get(program.max_operands, f"at most {program.max_operands} operands")]
        if program.max_operands is not None
        else []
    )
    parts += [f"globs {program.globs}"] if program.globs != "behind a name" else []
    return " ".join(parts) or "no flags"


def code_list(names: Iterable[str]) -> str:
    return " ".join(f"`{name}`" for name in sorted(names))


if __name__ == "__main__":
    raise SystemExit(main(pages()))
