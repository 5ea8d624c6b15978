"""The tables of commands, for people: the end of docs/permissions.md.

What may run without a question, and what is looked through for denied commands, is decided by lists. Here they
can be read and reviewed; a change of a list is a change of the document.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from parley.permissions.paths.filesystem import MOST_PARTS
from parley.permissions.paths.patterns import LONGEST_PATH
from parley.permissions.shell import allowing, assignments, edits, treesitter, wrappers
from parley.permissions.shell.arguments import Program
from parley.permissions.shell.denied import interpreters, search
from parley.permissions.shell.denied.inert import INERT
from parley.permissions.shell.denied.mentions import SEARCHERS, SEARCHERS_IF_RECURSIVE
from parley.permissions.shell.readonly import following, git, special, tables

HEAD = """
## Commands that only read

They run without a rule, as long as every file they name lies in a working directory, and with these flags only. A
colon or `=` means that a flag has a value, two colons or `?` that it may have one.
"""
EDITS = (
    ("mkdir", edits.MKDIR),
    ("touch", edits.TOUCH),
    ("rm", edits.RM),
    ("rmdir", edits.RMDIR),
    ("mv", edits.MOVE),
    ("cp", edits.COPY),
    ("sed -i", edits.SED),
)


def lines() -> Iterator[str]:
    yield from HEAD.splitlines()
    yield ""
    programs = [*tables.READERS.items(), ("jq", special.JQ)]
    programs += [(f"git {name}", program) for name, program in (*git.READERS.items(), *git.NESTED.items())]
    yield from (f"- `{name}`: {flags(program)}" for name, program in sorted(programs, key=lambda row: row[0]))
    yield f"- `find`: {listed(special.FIND_TESTS | special.FIND_TESTS_WITH_VALUE)}"
    yield f"- `test` and `[`: {listed(special.TESTS)}"
    yield f"- `ps`: {listed(special.PS_WORDS | special.PS_VALUES)}; `xxd`: {listed(special.XXD_SWITCHES)}"
    yield f"- in forms of their own: {listed(special.CHECKS)}"
    yield f"- git alone: {listed(' '.join(words) for words in git.ALONE)}, behind {listed(git.GLOBAL_FLAGS)}"
    yield f"- links in folders are followed by `find` {listed(following.FIND)}, " + ", ".join(
        f"`{name}` {'unless `no-dereference` is given' if flags == '*' else listed(flags.split())}"
        for name, (flags, _) in sorted(following.FOLLOWING.items())
    )
    yield f"- versions: {listed(' '.join(words) for words in tables.VERSIONS)}"
    yield ""
    yield "In a mode that accepts edits also, in the working directories:"
    yield ""
    yield from (f"- `{name}`: {flags(program)}" for name, program in EDITS)
    yield ""
    yield f"Behind wrappers ({listed(wrappers.WRAPPERS)}) and assignments of {listed(assignments.SAFE)}."
    yield ""
    yield "A here-document with a quoted delimiter may be the input of these commands and, with a rule, of"
    yield f"{listed(allowing.TAKES_DATA)}. To any other program it may be a script, also through a pipe: only a rule"
    yield "for exactly the command allows it. `~` and `~/` at the start of a word mean the HOME of commands and are"
    yield "judged like the absolute path; `~user`, a pattern after `~/` and a line that may change HOME ask."
    yield ""
    yield "A command that cannot be read is allowed by a rule with exactly its text, unless it mentions git."
    yield ""
    yield "## Commands that no prefix allows"
    yield ""
    yield f"Only a rule for exactly the command does: {listed(allowing.EVALUATES | allowing.NEVER_BY_PREFIX)}."
    yield ""
    yield "## Where denied commands are searched for"
    yield ""
    yield f"- behind {listed(search.WRAPPERS)}; behind {listed(search.RUNS_NEXT)} of `find`"
    yield f"- in the texts of {listed(search.SHELLS | search.EVALUATORS | interpreters.TEXTS | interpreters.EDITORS)}"
    yield f"- in subscripts of {listed(interpreters.SUBSCRIPTS)}"
    yield from (f"- behind `{name}` {listed(words)}" for name, words in sorted(interpreters.SUBRUNNERS.items()))
    yield f"- behind the options of {listed(search.GIT_LIKE)}"
    yield from (f"- in the values of `{name}` {listed(words)}" for name, words in sorted(interpreters.OPTIONS.items()))
    yield f"- at every word, and in every text, of a program that is not named above and not one of {listed(INERT)}"
    yield ""
    yield "A command or a path that would take too long to judge is asked about in every mode: a command of more than"
    yield f"{treesitter.MOST_CHARACTERS:,} characters beside its here-documents, or {search.MOST_CHARACTERS:,} with"
    yield f"them, of more than {search.MOST_COMMANDS} commands or deeper than {search.DEEPEST}; a path of more than"
    yield f"{LONGEST_PATH:,} characters or {MOST_PARTS} folders."
    yield ""
    yield f"Whole folders are read by {listed(SEARCHERS)} and, with a flag for it, by "
    yield f"{listed(SEARCHERS_IF_RECURSIVE)}: where a rule denies a file, they are asked about."


def flags(program: Program) -> str:
    """The flags of a program, and what its operands are where that is not just files."""
    parts = [f"`-{program.short}`"] if program.short else []
    parts += [listed(program.long.split())] if program.long else []
    parts += ["`-5`"] if program.numbers else []
    parts += [f"({program.operands})"] if program.operands != "files" else []
    parts += [f"at most {program.most} operands"] if program.most is not None else []
    parts += [f"patterns of file names {program.globs}"] if program.globs != "behind a name" else []
    return " ".join(parts) or "no flags"


def listed(names: Iterable[str]) -> str:
    return " ".join(f"`{name}`" for name in sorted(names))
