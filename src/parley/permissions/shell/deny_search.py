"""Find commands that match a deny or ask rule, wherever they are in a text.

A rule is matched against the whole text and against every command in it: as written, with quotes resolved, by the
last part of its path, without the global options of programs like git, after wrappers and assignments, inside `sh -c`,
`eval`, substitutions, loops and here-documents. A false match costs a question; a missed one would run. A text over
the budget is searched in part, and needs approval.

Nothing here allows anything.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice

from parley.permissions.base import describe_excess, word_set
from parley.permissions.shell import interpreters
from parley.permissions.shell.arguments import INERT, RUNNERS
from parley.permissions.shell.command_rules import compile_patterns, matches, may_match
from parley.permissions.shell.interpreters import READS_INPUT, TEXTS
from parley.permissions.shell.strict_parser import FORBIDDEN, MAX_COMMAND_CHARACTERS, CommandLine, parse_strict
from parley.permissions.shell.treesitter import (
    CommandWords,
    TooComplex,
    may_expand,
    parse,
    split_fragments,
    strip_documents,
)
from parley.protocol.base import Struct

MAX_CHARACTERS = 300_000
"""Including here-documents; shell/treesitter.py has the limits for the text around them."""
MAX_POSITIONS = 100
MAX_COMMANDS = 200
MAX_SPELLED = 100_000
"""Characters of all parts together."""
MAX_READ = 16_000
"""Characters of a text and of the texts nested in it."""
MAX_SAMPLED = 20_000
"""Characters that are searched at the beginning and at the end of a text over one of these limits."""
MAX_COMPARISONS = 20_000
MAX_DEPTH = 12

ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[^]]*\])?\+?=")
# Syntax that tree-sitter misreads without reporting an error.
MISREAD = re.compile(r"<<|\$\{|\$\[|\(\(|\[\[|\\\n|\r|@P|[^\x00-\x7f]|[\x00-\x08\x0b-\x1f\x7f]|\bcoproc\b|\btime\b")
SHELLS = word_set(
    "sh bash dash zsh ksh ash mksh rbash fish rksh lksh pdksh loksh csh tcsh yash posh sash osh oil hush brush "
    "static-sh xonsh nu elvish rc es pwsh powershell"
)
SHELL = re.compile(rf"(?:{'|'.join(sorted(map(re.escape, SHELLS)))})(?:-?[\d.]+)?(?:-static|\.distrib)?")
STARTUP_FILE = word_set("--rcfile --init-file")
INPUT = re.compile(r"-|/dev/stdin|/dev/fd/\d+|/proc/self/fd/\d+")
EVALUATORS = word_set("eval trap alias")
ECHOES = word_set("echo printf cat")
GNU_TOOLS = word_set(
    "sed awk tar find xargs env nice nohup timeout stdbuf chroot time parallel install split sort rm cp mv ln"
)
RUNS_NEXT = word_set("-exec -execdir -ok -okdir")
# Programs whose own options may come before the subcommand.
GIT_LIKE = word_set(
    "git hg svn docker podman kubectl helm npm pnpm yarn npx cargo gh glab aws gcloud az terraform systemctl go pip "
    "pip3 poetry uv brew apt apt-get dnf yum make"
)


NAME = re.compile(r"(?:/?(?:[\w.-]+/)*)[A-Za-z_][\w.+-]*")
MAX_WORDS = 8
MAX_PROSE = 1_000
KNOWN = frozenset(RUNNERS).union(
    *(EVALUATORS, GIT_LIKE, TEXTS, READS_INPUT, interpreters.OPTIONS, interpreters.SUBSCRIPTS),
    *(interpreters.COPYING_PROGRAMS, interpreters.EDITORS, interpreters.PAGERS, interpreters.SHELL_ESCAPERS),
    *(interpreters.FILLERS, INERT),
    word_set("source . for case select function { } ( ) [[ (( in esac fi done sed gs busybox complete fc"),
)
KNOWN_FORMS = (
    interpreters.INTERPRETERS,
    interpreters.ANYWHERE,
    interpreters.PIPED,
    re.compile(r"python.*|pip[\d.]*|git-.*"),
)


class DenyMatch(Struct, frozen=True):
    pattern: str
    part: str
    """The command that matches, as found."""


def find_denied(command: str, patterns: Sequence[str]) -> DenyMatch | None:
    """The first pattern that matches a command in the text, within the budget."""
    if not patterns:
        return None
    compiled = compile_patterns(tuple(patterns))
    hits = [part for part in islice(survey_command(command).parts, _max_parts(patterns)) if compiled.matches(part)]
    pairs = ((pattern, part) for pattern in patterns for part in hits)
    return next((DenyMatch(pattern, part) for pattern, part in pairs if matches(pattern, part)), None)


def may_find_denied(command: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern could match a command when all its words are known: `git $X` may be `git push`."""
    beginnings = survey_command(command).beginnings
    return any(may_match(pattern, beginning) for beginning in beginnings for pattern in patterns)


def explain_over_budget(command: str, patterns: Sequence[str] = ()) -> str:
    """Why a command was not searched completely for these patterns; empty if it was."""
    survey = survey_command(command)
    max_parts, parts = _max_parts(patterns), len(survey.parts) + len(survey.beginnings)
    if survey.over_budget or parts <= max_parts:
        return survey.over_budget
    return describe_excess(
        f"The command has too many parts to compare with {len(patterns):,} rules", parts, max_parts, "parts"
    )


def _max_parts(patterns: Sequence[str]) -> int:
    return MAX_COMPARISONS // max(1, len(patterns))


def is_unresolved(command: str) -> bool:
    """Whether some command name is only known at run time, or the text cannot be parsed."""
    return survey_command(command).unresolved


def survey_command(command: str) -> Survey:
    if len(command) <= MAX_CHARACTERS:
        return _survey_cached(command)
    survey = Survey()
    survey.parts = dict.fromkeys((*_sample_parts(command), command[:MAX_READ]))
    survey.give_up(describe_excess("The command is too long", len(command), MAX_CHARACTERS, "characters"))
    return survey


@lru_cache(maxsize=16)
def _survey_cached(command: str) -> Survey:
    survey = Survey()
    try:
        survey.search_text(command, 0, sure=True)
    except TooComplex as exc:
        survey.give_up(str(exc))
        survey.parts.update(dict.fromkeys(_sample_parts(command)))
    too_long = len(strip_documents(command)[0]) > MAX_COMMAND_CHARACTERS or FORBIDDEN.search(command) is not None
    survey.unresolved = survey.unresolved or too_long
    return survey


def _sample_parts(command: str) -> Iterator[str]:
    """Possible commands at the beginning and end of a text that is too large to search."""
    for text in (command[:MAX_SAMPLED], command[MAX_SAMPLED:][-MAX_SAMPLED:]):
        for candidate in islice(split_fragments(text), MAX_COMMANDS):
            yield " ".join(candidate.raw_words)[:MAX_COMMAND_CHARACTERS]


class Survey:
    """Everything in a text that a rule may match, also in the texts nested in it."""

    def __init__(self) -> None:
        self.parts: dict[str, None] = {}
        self.redirects: dict[tuple[str, str], None] = {}
        """Operators and their files."""
        self.beginnings: dict[str, None] = {}
        """For commands with a word that is only known at run time: the text before that word."""
        self.unresolved = False
        """Some command is only known at run time."""
        self.over_budget = ""
        """Why the text was not searched completely; empty if it was."""
        self._done: dict[tuple[str | None, ...], CommandWords] = {}
        self._uncertain = set[CommandWords]()
        self._characters_read = 0
        self._characters_added = 0

    @property
    def commands(self) -> Collection[CommandWords]:
        return self._done.values()

    def search_text(self, command: str, depth: int, *, sure: bool = False) -> None:
        """Search a text that some shell reads, or may read if not `sure`. Raises TooComplex."""
        self._check_depth(depth)
        self._add_part(command.strip())
        # The contents of here-documents are cheap unless they are searched as commands.
        self._characters_read += len(strip_documents(command)[0])
        if self._characters_read > MAX_READ:
            raise TooComplex(
                describe_excess("The commands in it are too long", self._characters_read, MAX_READ, "characters")
            )
        line = parse_strict(command)
        # A here-document may be the input of a shell: then its contents are commands, which the full grammar finds.
        if isinstance(line, CommandLine) and not line.has_documents:
            commands = tuple(CommandWords(simple.argv, simple.words) for simple in line.commands)
            if "$(cat <<" in command:
                self._add_part("cat")
            for simple in line.commands:
                self._add_part(simple.text)
                for redirect in simple.redirects:
                    self.redirects[redirect.operator, redirect.target] = None
            assigned = tuple(f"{name}={value}" for simple in line.commands for name, value in simple.assignments)
            inputs: tuple[str, ...] = ()
        else:
            commands, inputs, assigned = self._parse_loosely(command)
        self._search_assignments(assigned, depth)
        for candidate in commands:
            self.search_command(candidate, depth, sure=sure and candidate not in self._uncertain)
        has_input = "|" in command or "<" in command
        starts_shell = has_input and any(interpreters.starts_shell(candidate.words) for candidate in self.commands)
        if starts_shell or any(_reads_commands_from_input(candidate) for candidate in commands):
            self.unresolved = True
            for text in (*inputs, *_find_echoed_texts(commands)):
                self.search_text(text, depth + 1)
                for found in interpreters.CRON_LINE.finditer(text):
                    self.search_text(found[1], depth + 1)
        elif any(interpreters.reads_program_from_input(candidate.words) for candidate in commands):
            for text in (*inputs, *_find_echoed_texts(commands)):
                for quoted in interpreters.find_shell_escapes(text):
                    self.search_text(quoted, depth + 1)

    def _search_assignments(self, assigned: Sequence[str], depth: int) -> None:
        """Search values that bash or a program runs later: `PS4='$(rm x)'`, `GIT_PAGER=rm`."""
        if not assigned:
            return
        self.unresolved = self.unresolved or any(map(interpreters.LOADS_CODE.match, assigned))
        for text in interpreters.find_shell_texts("", ["", *assigned]):
            self.search_text(text, depth + 1)

    def _parse_loosely(self, command: str) -> tuple[tuple[CommandWords, ...], tuple[str, ...], tuple[str, ...]]:
        if "\0" in command:  # no argument can contain NUL, and the parser is slow with it
            self.unresolved = True
            return tuple(split_fragments(command)), (), ()
        parsed = parse(command)
        self.redirects.update(dict.fromkeys(parsed.redirects))
        unknown = any(map(interpreters.LOADS_UNKNOWN_CODE.match, parsed.unknown_assignments))
        self.unresolved = self.unresolved or parsed.has_error or unknown
        if not parsed.has_error and not MISREAD.search(command):
            return parsed.commands, parsed.inputs, parsed.assignments
        found = tuple(split_fragments(command if parsed.has_error else parsed.rest))
        self._uncertain.update(found if not parsed.has_error else (*found, *parsed.commands))
        return (*parsed.commands, *found), parsed.inputs, parsed.assignments

    def search_command(self, candidate: CommandWords, depth: int, *, sure: bool = False) -> None:
        """Search one command and every command in its arguments. Raises TooComplex."""
        key = candidate.raw_words if None in candidate.words else candidate.words
        if key in self._done:
            return
        self._done[key] = candidate
        self._check_depth(depth)
        if len(self._done) > MAX_COMMANDS:
            raise TooComplex(f"It contains too many commands to check (at most {MAX_COMMANDS:,})")
        begin = 0
        while begin < len(candidate.raw_words) and ASSIGNMENT.match(candidate.raw_words[begin]):
            self.unresolved = self.unresolved or interpreters.LOADS_CODE.match(candidate.words[begin] or "") is not None
            begin += 1
        words, raw_words = candidate.words[begin:], candidate.raw_words[begin:]
        if not words:
            return
        self._add_part(" ".join(raw_words))
        name = words[0]
        if name is None:
            self.unresolved = True
            return
        literal = [raw_words[index] if word is None else word for index, word in enumerate(words)]
        self._add_part(" ".join(literal))
        name = name.rpartition("/")[2]
        self._add_part(" ".join([name, *literal[1:]]))
        if name[:1] == "g" and name[1:] in GNU_TOOLS:  # how the GNU tools are called on a Mac
            self.search_command(CommandWords((name[1:], *words[1:]), (name[1:], *raw_words[1:])), depth + 1)
        if name.startswith("git-"):
            self._add_part(" ".join(["git", name[4:], *literal[1:]]))
            for other in interpreters.other_names(["git", name[4:], *literal[1:]]):
                self._add_part(other)
        self._add_beginning(name, CommandWords(words, raw_words), literal, 1)
        self._search_inside(name, CommandWords(words, raw_words), literal, depth, sure=sure)

    def _add_beginning(self, name: str, candidate: CommandWords, literal: list[str], begin: int) -> None:
        for index in range(begin, len(literal)):
            if candidate.words[index] is None or may_expand(candidate.raw_words[index]):
                self.beginnings[" ".join([name, *literal[begin:index], ""])] = None
                return

    def give_up(self, reason: str) -> None:
        self.over_budget, self.unresolved = reason, True

    def _add_part(self, text: str) -> None:
        self._characters_added += len(text) if self.parts else 0  # the whole text is the first part
        self.parts[text] = None
        if self._characters_added > MAX_SPELLED:
            raise TooComplex(f"The commands in it are too long to check (at most {MAX_SPELLED:,} characters in all)")

    def _check_depth(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise TooComplex(f"Its commands are nested too deeply to check (at most {MAX_DEPTH} deep)")

    def _limit_positions(self, positions: Iterable[int]) -> list[int]:
        found = list(islice(positions, MAX_POSITIONS + 1))
        if len(found) > MAX_POSITIONS:
            raise TooComplex(f"More than {MAX_POSITIONS} of its words may start a command, which is too many to check")
        return found

    def _search_inside(self, name: str, candidate: CommandWords, literal: list[str], depth: int, *, sure: bool) -> None:
        if name in GIT_LIKE:
            for index in self._limit_positions(_find_positions(candidate, 0)):
                self._add_part(" ".join([name, *literal[index:]]))
                self._add_beginning(name, candidate, literal, index)
                if name == "git":
                    for other in interpreters.other_names([name, *literal[index:]]):
                        self._add_part(other)
        if name in RUNNERS and not (name == "command" and "-v" in literal[1:2]):
            for index in self._limit_positions(_find_positions(candidate, RUNNERS[name])):
                self.search_command(CommandWords(candidate.words[index:], candidate.raw_words[index:]), depth + 1)
        is_shell = SHELL.fullmatch(name) is not None
        if is_shell or name in TEXTS:
            self._search_shell_texts(candidate, is_shell, depth, sure=sure)
        if sure and not is_shell and not _is_known_program(name):
            self._search_anywhere(literal, depth)
        for text in (
            *interpreters.find_shell_texts(name, literal),
            *interpreters.find_renamed_programs(name, candidate.raw_words),
        ):
            self.search_text(text, depth + 1)
        for index in self._limit_positions(interpreters.find_command_positions(name, literal)):
            if candidate.words[index] is not None and "{}" not in literal[index]:
                self.search_command(CommandWords(candidate.words[index:], candidate.raw_words[index:]), depth + 1)
            if " " in literal[index] and len(literal[index]) <= MAX_PROSE:
                self.search_text(literal[index], depth + 1)
        if interpreters.runs_its_input(name, literal) or interpreters.reads_code(name, candidate.raw_words):
            self.unresolved = True
        if name in EVALUATORS:
            self.unresolved = self.unresolved or None in candidate.words
            for text in (" ".join(literal[1:]), *(word.partition("=")[2] or word for word in literal[1:])):
                self.search_text(text, depth + 1)
        if name in ("source", ".") and None in candidate.words:
            self.unresolved = True
        for index in self._limit_positions(index for index, word in enumerate(literal) if word in RUNS_NEXT):
            self.unresolved = self.unresolved or "{}" in "".join(literal[index + 1 : index + 2])
            self.search_command(CommandWords(candidate.words[index + 1 :], candidate.raw_words[index + 1 :]), depth + 1)

    def _search_anywhere(self, literal: Sequence[str], depth: int) -> None:
        """Search the arguments of an unknown program: a command may begin at each, and each may be a script."""
        unresolved, beginnings = self.unresolved, dict(self.beginnings)
        for index in range(1, min(len(literal), MAX_POSITIONS)):
            word = literal[index]
            for text in dict.fromkeys((word, word.partition("=")[2])):
                if NAME.fullmatch(text):
                    words = (text.rpartition("/")[2], *literal[index + 1 : index + MAX_WORDS])
                    self._add_part(" ".join(words))
                    if words[0] in RUNNERS or SHELL.fullmatch(words[0]):
                        self.search_command(CommandWords(words, words), depth + 1)
                elif " " in text and len(text) <= MAX_PROSE:
                    self.search_text(text, depth + 1)
        # A word that cannot be parsed may be prose, so it does not count.
        self.unresolved, self.beginnings = unresolved, beginnings

    def _search_shell_texts(self, candidate: CommandWords, is_shell: bool, depth: int, *, sure: bool) -> None:
        """Search the arguments that a shell runs as scripts: those after `-c`, and any with a blank."""
        after_c = False
        for word in candidate.words[1:]:
            if after_c and word is None:
                self.unresolved = True
            elif word is not None and word[:1] in "-+" and word[:2] != "--":
                after_c = after_c or "c" in word
            elif word is not None and (after_c or " " in word):
                self.search_text(word, depth + 1, sure=sure and is_shell)
        if is_shell and _find_script(candidate.words) is None:
            self.unresolved = True


def _is_known_program(name: str) -> bool:
    """Whether it is known which arguments of a program may contain a command."""
    return name in KNOWN or any(form.fullmatch(name) for form in KNOWN_FORMS)


def _find_positions(candidate: CommandWords, operands: int) -> Iterator[int]:
    """Where the command may begin in the arguments of its wrapper: after options, their values and assignments."""
    pending, known = [(1, operands)], set[tuple[int, int]]()
    while pending:
        index, left = pending.pop()
        if index >= len(candidate.words) or (index, left) in known:
            continue
        known.add((index, left))
        word = candidate.words[index]
        yield index
        if word is not None and word[:1] == "-":
            pending += [(index + 1, left), (index + 2, left)]
        elif word is not None and ASSIGNMENT.match(word):
            pending.append((index + 1, left))
        elif left:
            pending.append((index + 1, left - 1))


def _reads_commands_from_input(candidate: CommandWords) -> bool:
    """Whether this is, or may run, a shell that reads commands from a pipe or a here-document."""
    words = tuple(word for word in candidate.words if word is None or not ASSIGNMENT.match(word))
    pending, known = [0], set[int]()
    while pending:
        begin = pending.pop()
        inner = CommandWords(words[begin:], ())
        if begin in known or not inner.words or inner.words[0] is None:
            continue
        known.add(begin)
        if _takes_commands(inner.words) or len(known) > MAX_POSITIONS:
            return True
        operands = RUNNERS.get(inner.words[0].rpartition("/")[2])
        if operands is not None:
            pending += [begin + index for index in islice(_find_positions(inner, operands), MAX_POSITIONS)]
    return False


def _takes_commands(words: Sequence[str | None]) -> bool:
    """Whether a program runs its input."""
    name = (words[0] or "").rpartition("/")[2]
    if name in READS_INPUT:
        return "-l" not in words
    if name in ("source", ".") and (None in words[1:2] or any(map(INPUT.fullmatch, filter(None, words[1:2])))):
        return True
    return SHELL.fullmatch(name) is not None and INPUT.fullmatch(_find_script(words) or "x") is not None


def _find_script(words: Sequence[str | None]) -> str | None:
    """The file from which a shell reads its commands; "-" for its input, None if unknown."""
    index = 1
    while index < len(words):
        word = words[index]
        if word is None:
            return None
        if word[:2] == "--" and word != "--":
            if word in STARTUP_FILE and None in words[index + 1 : index + 2]:
                return None
            index += 2 if word in STARTUP_FILE else 1
        elif word[:1] in ("-", "+"):
            if "c" in word:
                return "-c"
            if "s" in word:
                return "-"
            index += 2 if word[-1] in "oO" else 1
        else:
            return word
    return "-"


def _find_echoed_texts(commands: Sequence[CommandWords]) -> Iterator[str]:
    """Texts that other commands of the line may write to the shell's input."""
    for candidate in commands:
        if candidate.words and candidate.words[0] in ECHOES:
            for word in candidate.words[1:]:
                if word is not None:
                    yield word.replace("\\n", "\n")
            yield " ".join(word for word in candidate.words[1:] if word is not None)
