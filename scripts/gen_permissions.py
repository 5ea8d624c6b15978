"""docs/permissions.md, made by asking the decision itself: one row a kind of call and rule, one column a mode.

python scripts/gen_permissions.py      writes docs/permissions.md
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pages import main

from parley.permissions import gitconfig
from parley.permissions.base import Allow, Deny, Entry, Request
from parley.permissions.decision import MODES, decide
from parley.permissions.paths import LONGEST_PATH
from parley.permissions.protected import FILES, FOLDERS
from parley.permissions.rule import Behavior, Rule, read_rule
from parley.permissions.rules import Rules
from parley.permissions.shell import (
    allowing,
    assignments,
    edits,
    finder,
    following,
    git,
    runners,
    special,
    tables,
    tree,
    wrappers,
)
from parley.permissions.shell.glimpse import SEARCHERS, SEARCHERS_IF_RECURSIVE
from parley.permissions.shell.inert import INERT
from parley.permissions.shell.programs import Program
from parley.permissions.view import MOST_PARTS
from parley.protocol.base import Json, Struct

CWD = "/work"
RULES: tuple[Behavior | None, ...] = (None, "allow", "ask", "deny")


class Sample(Struct, frozen=True, kw_only=True):
    """A call that stands for its kind, and rules that fit it."""

    kind: str
    tool: str
    input: Json
    allow: str
    deny: str
    ask: str = ""
    """As the deny rule, if it does not say otherwise."""
    asks_person: bool = False

    def rules(self, behavior: Behavior | None) -> Rules:
        texts = {"allow": self.allow, "deny": self.deny, "ask": self.ask or self.deny}
        made = [read_rule(texts[behavior], behavior, "flag", CWD)] if behavior else []
        return Rules(cwd=CWD, rules=tuple(rule for rule in made if isinstance(rule, Rule)))


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
        kind="command that only reads",
        tool="Bash",
        input=command("git status"),
        allow="Bash(git status)",
        deny="Bash(git *)",
    ),
    Sample(
        kind="command that edits in a working directory",
        tool="Bash",
        input=command("mkdir made"),
        allow="Bash(mkdir:*)",
        deny="Bash(mkdir:*)",
    ),
    Sample(
        kind="any other command", tool="Bash", input=command("npm test"), allow="Bash(npm test)", deny="Bash(npm:*)"
    ),
    Sample(
        kind="command that cannot be read",
        tool="Bash",
        input=command('"$X" now'),
        allow="Bash",
        deny="Bash",
        ask="Bash(rm:*)",
    ),
    Sample(
        kind="command that deletes what all depends on",
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
        kind="fetches from this machine or a neighbour",
        tool="WebFetch",
        input={"url": "http://127.0.0.1/"},
        allow="WebFetch",
        deny="WebFetch(domain:127.0.0.1)",
    ),
    Sample(kind="tool of an MCP server", tool="mcp__git__push", input={}, allow="mcp__git", deny="mcp__git__push"),
    Sample(kind="list of the session's own", tool="TodoWrite", input={}, allow="TodoWrite", deny="TodoWrite"),
    Sample(
        kind="subagent",
        tool="Task",
        input={"subagent_type": "Explore"},
        allow="Agent(Explore)",
        deny="Agent(Explore)",
    ),
    Sample(
        kind="question to a person",
        tool="AskUserQuestion",
        input={},
        allow="AskUserQuestion",
        deny="AskUserQuestion",
        asks_person=True,
    ),
)


class Bare:
    """A file system without links."""

    home = "/home/me"

    def link(self, path: str) -> str | None:
        return None

    def has(self, path: str) -> bool:
        return False

    def entries(self, path: str, most: int) -> Mapping[str, Entry] | None:
        return {}

    def is_folder(self, path: str) -> bool:
        return False

    def read(self, path: str, most_bytes: int) -> bytes | None:
        return None

    def identity(self, path: str) -> tuple[int, int] | None:
        return None


def verdict(sample: Sample, behavior: Behavior | None, mode: str) -> str:
    request = Request(tool=sample.tool, input=sample.input, cwd=CWD, asks_person=sample.asks_person)
    decision = decide(request, sample.rules(behavior), mode, Bare())
    return "allow" if isinstance(decision, Allow) else "deny" if isinstance(decision, Deny) else "ask"


def pages() -> dict[str, str]:
    return {"docs/permissions.md": "\n".join(lines()) + "\n"}


def lines() -> Iterator[str]:
    yield from HEAD.splitlines()
    yield ""
    yield f"| call | rule | {' | '.join(MODES)} |"
    yield f"|---|---|{'---|' * len(MODES)}"
    for sample in SAMPLES:
        for behavior in RULES:
            cells = [verdict(sample, behavior, mode) for mode in MODES]
            yield f"| {sample.kind} | {behavior or '-'} | {' | '.join(cells)} |"
    yield from TAIL.splitlines()
    yield ""
    yield f"Folders: {', '.join(f'`{name}`' for name in sorted(FOLDERS))}."
    yield ""
    yield f"Files: {', '.join(f'`{name}`' for name in sorted(FILES))}."
    yield from command_lines()
    yield from GIT.splitlines()
    keys = {f"{section}.{name}" for section, known in gitconfig.SECTIONS.items() for name in known}
    keys |= {f"{section}.*.{name}" for section, known in gitconfig.SUBSECTIONS.items() for name in known}
    keys |= {f"{section}.*" for section in gitconfig.ANY_KEY}
    keys |= {f"{section}{'.*' if inner else ''}.{name}" for section, inner, name in gitconfig.VALUES}
    yield f"Harmless keys, some with certain values only: {listed(keys)}."


HEAD = """\
# Permissions

Made by `make docs`; do not edit. Every cell has a test, and is run through one-shot, streaming
and resumed sessions.

One function decides on every call: `decide(request, rules, mode, view)` in `permissions/decision.py`. The first of
these that applies wins:

1. a deny rule
2. an ask rule, a question only a person can answer, a deletion that is too grave, a command that cannot be read while
   rules deny some commands: asked in every mode. A tool that the client runs (`docs/control.md`) is allowed behind the
   ask rule: the rest is the client's own affair
3. an allow rule, unless the call is a hazard (a protected file, a host nearby), or changes something in plan mode
4. the mode
5. the host, if it can be asked; else the call is denied, told as `system/permission_denied` and listed in the result

A PreToolUse hook has its say between 1 and 2, and a PermissionRequest hook beside 5 (`docs/hooks.md`).

Rules are read from settings (managed, local, project, user), the command line, and what a host adds; where a rule
comes from does not matter for the order. In `dontAsk` nobody is asked, so what would be asked is denied. `auto` is as
careful as `acceptEdits`: no model decides on permissions here. With `--guard`, or `guard: true` in `initialize`, the
host is asked about every call that is not denied, in every mode, and no hook answers for it; without a host every call
is denied.
"""
GIT = """
## Git

Git runs programs that the configuration and the hooks of a repository name, and a repository may come with a working
tree. Before a git command runs without a question, the repository that git would find is looked for as git does it, and
its files are read, each time:

| in the repository | commands that only read | other git commands, by a rule |
|---|---|---|
| a key that is not in the list below, an included file, a file that cannot be read | asked | asked |
| a hook that reading can start (`post-index-change`, `reference-transaction`) | asked | as other hooks |
| other hooks | run | run in the repository of the session; asked in any other |
| an alias | run | asked |
| a remote that git fetches missing objects from by itself | asked | run |
| parts that are links or lie elsewhere (`alternates`, a `.git` that nothing leads back to) | asked | run |
| `commondir` or `core.worktree` that lead elsewhere | asked | asked |
| the same in a submodule that is checked out | asked | asked |
| no `.git`, but a folder with `HEAD`, `objects` and `refs` | asked | run if the session was started in it |

The repository of a session is the one that its working directory was in at the start; another one that takes its place
later, or is found in another folder, is not. If the folder is trusted ([settings.md](settings.md#trust)), what its
repository said at the start is accepted; what is added later is asked about. The person's own configuration
(`~/.gitconfig`) is not looked at, and a rule for all of `Bash` and the mode `bypassPermissions` are not affected.

A rule such as `Bash(git:*)` does not mean the options `--git-dir`, `--work-tree`, `--exec-path` and `--config-env`, nor
`-c` with a key that is not in the list. `git -C` is judged by the repository there.

Where a rule denies reading, a git command that prints lines of files (`log -p`, `show`, `diff`, `grep`, `stash show`,
`cat-file`, `format-patch`, `archive`, ...) is asked about, unless the rule can fit nothing in the repository, or the
command names every file that it prints. A denied file that is named, also as `HEAD:path`, is denied. `--stat`,
`--name-only`, `log` without a patch and the like are not affected.

`git config --get` shows keys without secrets; `--list` and `--get-regexp` are asked about, and so are `git remote -v`
and its like where a password stands in a URL. A format may have known placeholders only: `%G?` starts gpg.

"""
TAIL = """
## Rules

| rule | fits |
|---|---|
| `Tool`, `Tool()`, `Tool(*)` | every call of the tool; a bare deny also takes it off the model's list |
| `Bash(git status)` | exactly this command |
| `Bash(npm run:*)`, `Bash(npm run *)` | this, alone or followed by a blank and anything |
| `Read(...)` | reading, also by Grep, Glob and commands; a deny forbids writing, too |
| `Edit(...)` | writing, also by Write, NotebookEdit and commands |
| `WebFetch(domain:example.com)`, `WebFetch(domain:*.example.com)` | the host; all hosts beneath it, not itself |
| `mcp__server`, `mcp__server__*`, `mcp__server__tool` | tools of an MCP server |
| `Agent(type)`, `Skill(name)`, `Skill(name:*)` | a subagent or a skill |
| `Tool(parameter:value)` | calls of other tools with that value |

Paths are gitignore patterns: `//x` from the root, `~/x` from home, `/x` from the folder of the settings, `x` and `./x`
from the working directory. To deny, a pattern is read widely: any depth for a single name, any case, any link on the
way. To allow, every name on the way has to fit. What a rule denies is searched for in the whole of a command: behind
`sudo` and its like, in nested shells, loops and substitutions, and as a word of a program that is in no table; where it
is not sure, a person is asked. So it is about a line that moves a link and then goes by it, a folder that is copied
over another (links in that one would be written through), and git where it would obey a repository that names programs
(see [Git](#git)). A tool is meant by each of its names (Agent and Task, TaskOutput and BashOutput, TaskStop and
KillShell). Within parentheses a backslash makes a parenthesis plain. A malformed rule has no effect and is named on
stderr.

A command's files are judged by what they lead to when it is decided on. `cd` is followed; without a folder it leads
home, and `cd -`, `pushd` and `popd` are asked about. A pattern of file names stands for the files that are there: each
is judged, and so are the folders that are listed for it, for `echo ../x/*` as well. A reader that follows links
(below) is asked about if one in its folders leads out of the working directories. What is too much to look at is
asked about: more than 100 commands, 32 folders they may run in, 1,000 names, or 10,000 entries of folders.

## Who is asked

With `--permission-prompt-tool stdio` the host, by `can_use_tool`; it may take as long as it likes. With
`--permission-prompt-tool mcp__SERVER__TOOL` that tool of an MCP server: it is called with `tool_name`, `input` and
`tool_use_id` and answers with a text that is JSON, `{"behavior": "allow", "updatedInput": {...}}` or `{"behavior":
"deny", "message": "..."}`. The model is not offered it and nobody is asked about it. Whatever is not clearly an allow
is a denial: an error, an answer that cannot be read, is meant for another call, has a key twice or a key that may be a
misspelt one (`updated_input`), a host or a server that is not there. `parley permissions check` says what would be
decided and why ([cli.md](cli.md)).

## What a host grants

An answer to `can_use_tool` may hold `updatedPermissions`. Those for `localSettings`, `projectSettings` and
`userSettings` are written to these files; those for `session` are kept in the session's log and count again when it is
resumed in the same working directory. In a fork, or in another directory, only its deny and ask rules still count. All
updates of an answer are checked before any is applied or stored. One that is not possible in the session
(`bypassPermissions` that was not allowed at launch, a malformed rule, an unknown key, a directory outside of a
restricted session) makes the whole answer a denial, with the reason, and nothing is stored.

A mode that was set in a session (by `setMode`, `set_permission_mode`, or by the plan tools) is kept, too: a resumed
session is in it again, unless the command line says another mode. `bypassPermissions` must be allowed at launch again,
and a fork is never laxer than its own launch says.

What was approved is what runs: `can_use_tool` carries `input_sha256`, the SHA-256 of the input as JSON with sorted
keys; the decision in the log carries that of the input which may run; it is compared again right before the tool runs.

## Rules for the beginning of a command

`Bash(tee:*)`, `Bash(tee *)` and `Bash` say nothing of the words that follow. A person is asked, and told the word, if

- a word, the value of a flag (`--output=x`, `-ox`, `of=x`) or either half of `a=b` and `a:b` leads to a protected name,
  or to a file that an Edit rule denies or wants to be asked about. Links are followed, and patterns stand for the files
  that are there; a file whose name is a flag is not passed on. Words of programs that only read their operands
  (`cat`, `grep`, `git add`, `git commit`, `git diff`) and what is left out (`--exclude=.git`) do not count
- a program that only reads (below) gets a flag or an operand that is not in its table (`sort -o`, `git log --output`,
  `uniq IN OUT`, `date -s`), or a sed script does more than change lines (`w`, `e`, `r`)
- git is told which program to run: `git config` and `git -c` with a key that is not known to be harmless (`user.*`,
  `pull.rebase`, `core.autocrlf`, ...), `--exec-path`, `--git-dir`, `--upload-pack`, `--receive-pack`,
  `clone --template`, `rebase --exec`, `bisect run`, `submodule foreach` and the like; so are `tar -I`,
  `rsync -e`, `split --filter`, `ssh -o ProxyCommand=...`

A rule that spells the flag or the key (`Bash(sort -o:*)`, `Bash(git config core.pager:*)`) means it, but approves no
protected name; a rule for exactly the command approves its words. The files of `cp`, `mv`, `rm`, `mkdir`, `touch` and
`sed -i` are known, so that not even such a rule approves a protected name there.

## Where programs are found

The PATH of commands, hooks and MCP servers has absolute folders only: relative and empty entries are dropped, and so
are those beneath `/proc`. Before a command is taken for a reader, an editor or a wrapper, its name is looked up there
as the shell will do it. A file in a working directory, or one that a link leads to there, is none of these, whatever
it is called: with `.venv/bin` on PATH, `pip --version` is asked about if `.venv/bin/pip` exists, and `ls` is not.
Builtins of the shell need no file, and a name that is nowhere runs nothing. Writing a file with the name of such a
program into a folder of PATH, or moving a folder to where one is, is asked about like a protected name.

## Protected names

No rule for a part of a command, no rule for files and no mode but bypassPermissions approves writing to these in
advance, at any depth and in any spelling.
"""

READERS = """
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


def command_lines() -> Iterator[str]:
    yield from READERS.splitlines()
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
    yield "## Commands that no prefix allows"
    yield ""
    yield f"Only a rule for exactly the command does: {listed(allowing.EVALUATES | allowing.NEVER_BY_PREFIX)}."
    yield ""
    yield "## Where denied commands are searched for"
    yield ""
    yield f"- behind {listed(finder.WRAPPERS)}; behind {listed(finder.RUNS_NEXT)} of `find`"
    yield f"- in the texts of {listed(finder.SHELLS | finder.EVALUATORS | runners.TEXTS | runners.EDITORS)}"
    yield f"- in subscripts of {listed(runners.SUBSCRIPTS)}"
    yield from (f"- behind `{name}` {listed(words)}" for name, words in sorted(runners.SUBRUNNERS.items()))
    yield f"- behind the options of {listed(finder.GIT_LIKE)}"
    yield from (f"- in the values of `{name}` {listed(words)}" for name, words in sorted(runners.OPTIONS.items()))
    yield f"- at every word, and in every text, of a program that is not named above and not one of {listed(INERT)}"
    yield ""
    yield "A command or a path that would take too long to judge is asked about in every mode: a command of more than"
    yield f"{tree.MOST_CHARACTERS:,} characters beside its here-documents, or {finder.MOST_CHARACTERS:,} with them, of"
    yield f"more than {finder.MOST_COMMANDS} commands or deeper than {finder.DEEPEST}; a path of more than"
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


if __name__ == "__main__":
    raise SystemExit(main(pages()))
