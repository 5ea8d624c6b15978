"""Finds commands that a deny or ask rule speaks of, wherever they hide in a text.

A rule is matched against the text as it stands and against every command in it: as it is spelled, with
its quotes resolved, by the last part of its path, without the global options of programs like git,
behind wrappers and assignments, inside `sh -c`, `eval`, substitutions, loops and here-documents. A hit
too many asks; a miss would run. A text that would cost more than the budget is searched in part, and asked about.

Nothing in here allows anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice

from parley.permissions.budget import too_much
from parley.permissions.shell.ast import Line, names
from parley.permissions.shell.denied import interpreters
from parley.permissions.shell.denied.interpreters import READS_INPUT, TEXTS
from parley.permissions.shell.rule_patterns import matches, may_match, together
from parley.permissions.shell.strict_parser import FORBIDDEN, LONGEST, read
from parley.permissions.shell.treesitter import Seen, TooMuch, fragments, may_expand, parse, without_documents
from parley.protocol.base import Struct

MOST_CHARACTERS = 300_000
"""With the contents of here-documents; shell/treesitter.py has the limits of the text around them."""
MOST_POSITIONS = 100
MOST_COMMANDS = 200
MOST_SPELLED = 100_000
"""Characters of all parts together."""
MOST_READ = 16_000
"""Characters of a text, and of the texts in it."""
MOST_GLANCED = 20_000
"""Characters at the beginning, and as many at the end, of a text that is over one of these limits."""
MOST_COMPARISONS = 20_000
DEEPEST = 12

ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[^]]*\])?\+?=")
# What tree-sitter is known to misread without an error.
MISREAD = re.compile(r"<<|\$\{|\$\[|\(\(|\[\[|\\\n|\r|@P|[^\x00-\x7f]|[\x00-\x08\x0b-\x1f\x7f]|\bcoproc\b|\btime\b")
SHELLS = names(
    "sh bash dash zsh ksh ash mksh rbash fish rksh lksh pdksh loksh csh tcsh yash posh sash osh oil hush brush "
    "static-sh xonsh nu elvish rc es pwsh powershell"
)
SHELL = re.compile(rf"(?:{'|'.join(sorted(map(re.escape, SHELLS)))})(?:-?[\d.]+)?(?:-static|\.distrib)?")
STARTUP_FILE = names("--rcfile --init-file")
INPUT = re.compile(r"-|/dev/stdin|/dev/fd/\d+|/proc/self/fd/\d+")
EVALUATORS = names("eval trap alias")
ECHOES = names("echo printf cat")
# Programs whose own words hold the command that runs; the number is how many operands come before it.
WRAPPERS = {
    **dict.fromkeys(
        names(
            "time nice nohup stdbuf command builtin noglob env sudo doas xargs watch setsid ionice exec coproc strace "
            "ltrace unshare nsenter busybox toybox parallel caffeinate chrt catchsegv systemd-run script gdb ! then do "
            "else elif if while until prlimit torify torsocks proxychains proxychains4 dbus-run-session xvfb-run "
            "fakeroot valgrind entr screen firejail bwrap unbuffer chronic npx bunx rlwrap cpulimit tsp choom pkexec "
            "ssh-agent start-stop-daemon eatmydata linux32 linux64 i386 x86_64 uname26 arch daemonize dumb-init tini "
            "catatonit chpst softlimit systemd-inhibit systemd-cat systemd-nspawn run0 nsjail minijail0 fakechroot "
            "ccache distcc sccache scan-build bear intercept-build heaptrack uftrace tsocks autossh sshpass "
            "dbus-launch xinit xterm urxvt rxvt alacritty kitty foot konsole gnome-terminal xfce4-terminal terminator "
            "st dtach abduco byobu ifne run-one uclampset openvt open cross-env env-cmd watchexec nodemon please "
            "calife gpg-agent aa-exec newrole schroot trickle cgexec cset nq tmate lldb rr libtool wine box64 winpty "
            "reflex concurrently onchange chokidar shell pwsh powershell"
        ),
        0,
    ),
    **dict.fromkeys(
        names(
            "timeout flock chroot taskset runuser su sg numactl setpriv setarch ssh faketime gosu su-exec setuidgid "
            "envuidgid envdir logsave runcon setlock lckdo kcov sandbox-exec lxc-attach lxc-execute mosh withlock proot"
        ),
        1,
    ),
}
RUNS_NEXT = names("-exec -execdir -ok -okdir")
# Programs whose subcommand may stand behind options of the program itself.
GIT_LIKE = names(
    "git hg svn docker podman kubectl helm npm pnpm yarn npx cargo gh glab aws gcloud az terraform systemctl go pip "
    "pip3 poetry uv brew apt apt-get dnf yum make"
)


NAME = re.compile(r"(?:/?(?:[\w.-]+/)*)[A-Za-z_][\w.+-]*")
MOST_WORDS = 8
MOST_PROSE = 1_000
KNOWN = (
    WRAPPERS,
    EVALUATORS,
    GIT_LIKE,
    TEXTS,
    READS_INPUT,
    interpreters.SUBRUNNERS,
    interpreters.OPTIONS,
    interpreters.SUBSCRIPTS,
    interpreters.RENAMERS,
    interpreters.EDITORS,
    interpreters.PAGERS,
    interpreters.SPEAKERS,
    interpreters.FILLERS,
    names("source . for case select function { } ( ) [[ (( in esac fi done sed gs busybox complete fc"),
)
KNOWN_FORMS = (
    interpreters.INTERPRETERS,
    interpreters.ANYWHERE,
    interpreters.PIPED,
    re.compile(r"python.*|pip[\d.]*|git-.*"),
)


class Found(Struct, frozen=True):
    pattern: str
    part: str
    """The command that the pattern speaks of, as it was found."""


class Survey(Struct, frozen=True):
    """All there is in a text that a rule may speak of."""

    parts: tuple[str, ...]
    commands: tuple[Seen, ...]
    redirects: tuple[tuple[str, str], ...]
    """Operators, and the files behind them."""
    beginnings: tuple[str, ...]
    """Of commands with a word that is only known when they run: all there is before it."""
    unresolved: bool
    """Some command is only known when it runs."""
    over_budget: str
    """Why the text was not searched to its end; nothing if it was."""


def finds(command: str, patterns: Sequence[str]) -> Found | None:
    """The first of the patterns that speaks of some command in the text, as far as the budget goes."""
    if not patterns:
        return None
    known = together(tuple(patterns))
    hits = [part for part in islice(surveyed(command).parts, _most_parts(patterns)) if known.fit(part)]
    pairs = ((pattern, part) for pattern in patterns for part in hits)
    return next((Found(pattern, part) for pattern, part in pairs if matches(pattern, part)), None)


def may_find(command: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern could speak of a command once all its words are known: `git $X` may be `git push`."""
    beginnings = surveyed(command).beginnings
    return any(may_match(pattern, beginning) for beginning in beginnings for pattern in patterns)


def over_budget(command: str, patterns: Sequence[str] = ()) -> str:
    """Why a command was not searched to its end for these patterns; nothing if it was."""
    survey = surveyed(command)
    most, parts = _most_parts(patterns), len(survey.parts) + len(survey.beginnings)
    if survey.over_budget or parts <= most:
        return survey.over_budget
    return too_much(f"The command has too many parts to compare with {len(patterns):,} rules", parts, most, "parts")


def _most_parts(patterns: Sequence[str]) -> int:
    return MOST_COMPARISONS // max(1, len(patterns))


def unresolved(command: str) -> bool:
    """Whether some command word is only known when it runs, or the text cannot be read at all."""
    return surveyed(command).unresolved


def surveyed(command: str) -> Survey:
    if len(command) > MOST_CHARACTERS:
        reason = too_much("The command is too long", len(command), MOST_CHARACTERS, "characters")
        return Survey((*_glanced(command), command[:MOST_READ]), (), (), (), True, reason)
    return _surveyed(command)


@lru_cache(maxsize=16)
def _surveyed(command: str) -> Survey:
    search = _Search()
    try:
        search.text(command, 0, sure=True)
    except TooMuch as exc:
        search.give_up(str(exc))
        search.parts.update(dict.fromkeys(_glanced(command)))
    too_long = len(without_documents(command)[0]) > LONGEST or FORBIDDEN.search(command) is not None
    return Survey(
        parts=tuple(search.parts),
        commands=tuple(search.done.values()),
        redirects=tuple(search.redirects),
        beginnings=tuple(search.beginnings),
        unresolved=search.unresolved or too_long,
        over_budget=search.over_budget,
    )


def _glanced(command: str) -> Iterator[str]:
    """What may be a command at the beginning or the end of a text that cannot be searched as a whole."""
    for text in (command[:MOST_GLANCED], command[MOST_GLANCED:][-MOST_GLANCED:]):
        for seen in islice(fragments(text), MOST_COMMANDS):
            yield " ".join(seen.spelled)[:LONGEST]


class _Search:
    """One walk through a text and the texts in it."""

    def __init__(self) -> None:
        self.parts: dict[str, None] = {}
        self.unresolved = False
        self.over_budget = ""
        self._read = 0
        self._guessed = set[Seen]()
        self._spelled = 0
        self.done: dict[tuple[str | None, ...], Seen] = {}
        self.redirects: dict[tuple[str, str], None] = {}
        self.beginnings: dict[str, None] = {}

    def text(self, command: str, depth: int, *, sure: bool = False) -> None:
        """A text that some shell reads, or (if it is not `sure`) may read. Raises TooMuch."""
        self._check_depth(depth)
        self._part(command.strip())
        # The contents of here-documents cost next to nothing if they are not read as commands.
        self._read += len(without_documents(command)[0])
        if self._read > MOST_READ:
            raise TooMuch(too_much("The commands in it are too long", self._read, MOST_READ, "characters"))
        line = read(command)
        if isinstance(line, Line):
            commands = tuple(Seen(simple.argv, simple.words) for simple in line.commands)
            if "$(cat <<" in command:
                self._part("cat")
            for simple in line.commands:
                self._part(simple.text)
                for redirect in simple.redirects:
                    self.redirects[redirect.operator, redirect.target] = None
            assigned = tuple(f"{name}={value}" for simple in line.commands for name, value in simple.assignments)
            inputs: tuple[str, ...] = ()
        else:
            commands, inputs, assigned = self._parsed(command)
        self._assignments(assigned, depth)
        for seen in commands:
            self.command(seen, depth, sure=sure and seen not in self._guessed)
        if any(_reads_its_input(seen) for seen in commands):
            self.unresolved = True
            for text in (*inputs, *_written(commands)):
                self.text(text, depth + 1)
                for found in interpreters.CRON_LINE.finditer(text):
                    self.text(found[1], depth + 1)
        elif any(interpreters.is_fed(seen.words) for seen in commands):
            for text in (*inputs, *_written(commands)):
                for quoted in interpreters.spoken(text):
                    self.text(quoted, depth + 1)

    def _assignments(self, assigned: Sequence[str], depth: int) -> None:
        """Values that bash, or a program, runs later: `PS4='$(rm x)'`, `GIT_PAGER=rm`."""
        if not assigned:
            return
        self.unresolved = self.unresolved or any(map(interpreters.LOADS_CODE.match, assigned))
        for text in interpreters.texts("", ["", *assigned]):
            self.text(text, depth + 1)

    def _parsed(self, command: str) -> tuple[tuple[Seen, ...], tuple[str, ...], tuple[str, ...]]:
        if "\0" in command:  # No program can be given it, and the parser is slow with it.
            self.unresolved = True
            return tuple(fragments(command)), (), ()
        parsed = parse(command)
        self.redirects.update(dict.fromkeys(parsed.redirects))
        unknown = any(map(interpreters.LOADS_UNKNOWN_CODE.match, parsed.unknown))
        self.unresolved = self.unresolved or parsed.error or unknown
        if not parsed.error and not MISREAD.search(command):
            return parsed.commands, parsed.inputs, parsed.assignments
        found = tuple(fragments(command if parsed.error else parsed.rest))
        self._guessed.update(found if not parsed.error else (*found, *parsed.commands))
        return (*parsed.commands, *found), parsed.inputs, parsed.assignments

    def command(self, seen: Seen, depth: int, *, sure: bool = False) -> None:
        """One command, and every command in its words. Raises TooMuch."""
        if seen.words in self.done:
            return
        self.done[seen.words] = seen
        self._check_depth(depth)
        if len(self.done) > MOST_COMMANDS:
            raise TooMuch(f"There are too many commands in it to judge (at most {MOST_COMMANDS:,})")
        begin = 0
        while begin < len(seen.spelled) and ASSIGNMENT.match(seen.spelled[begin]):
            self.unresolved = self.unresolved or interpreters.LOADS_CODE.match(seen.words[begin] or "") is not None
            begin += 1
        words, spelled = seen.words[begin:], seen.spelled[begin:]
        if not words:
            return
        self._part(" ".join(spelled))
        name = words[0]
        if name is None:
            self.unresolved = True
            return
        literal = [spelled[place] if word is None else word for place, word in enumerate(words)]
        self._part(" ".join(literal))
        name = name.rpartition("/")[2]
        self._part(" ".join([name, *literal[1:]]))
        if name.startswith("git-"):
            self._part(" ".join(["git", name[4:], *literal[1:]]))
        self._open(name, Seen(words, spelled), literal, 1)
        self._inside(name, Seen(words, spelled), literal, depth, sure=sure)

    def _open(self, name: str, seen: Seen, literal: list[str], begin: int) -> None:
        for place in range(begin, len(literal)):
            if seen.words[place] is None or may_expand(seen.spelled[place]):
                self.beginnings[" ".join([name, *literal[begin:place], ""])] = None
                return

    def give_up(self, reason: str) -> None:
        self.over_budget, self.unresolved = reason, True

    def _part(self, text: str) -> None:
        self._spelled += len(text) if self.parts else 0  # The whole text is the first part.
        self.parts[text] = None
        if self._spelled > MOST_SPELLED:
            raise TooMuch(f"The commands in it are too long to judge (at most {MOST_SPELLED:,} characters in all)")

    def _check_depth(self, depth: int) -> None:
        if depth > DEEPEST:
            raise TooMuch(f"There are commands within commands, too deep to judge (at most {DEEPEST} deep)")

    def _few(self, places: Iterable[int]) -> list[int]:
        found = list(islice(places, MOST_POSITIONS + 1))
        if len(found) > MOST_POSITIONS:
            raise TooMuch(f"A command may begin at too many of its words to judge (at most {MOST_POSITIONS})")
        return found

    def _inside(self, name: str, seen: Seen, literal: list[str], depth: int, *, sure: bool) -> None:
        if name in GIT_LIKE:
            for place in self._few(_reachable(seen, 0)):
                self._part(" ".join([name, *literal[place:]]))
                self._open(name, seen, literal, place)
        if name in WRAPPERS and not (name == "command" and "-v" in literal[1:2]):
            for place in self._few(_reachable(seen, WRAPPERS[name])):
                self.command(Seen(seen.words[place:], seen.spelled[place:]), depth + 1)
        is_shell = SHELL.fullmatch(name) is not None
        if is_shell or name in TEXTS:
            self._texts(seen, is_shell, depth, sure=sure)
        if sure and not is_shell and not _is_known(name):
            self._anywhere(literal, depth)
        for text in (*interpreters.texts(name, literal), *interpreters.renamed(name, seen.spelled)):
            self.text(text, depth + 1)
        for place in self._few(interpreters.places(name, literal)):
            if seen.words[place] is not None and "{}" not in literal[place]:
                self.command(Seen(seen.words[place:], seen.spelled[place:]), depth + 1)
        if interpreters.runs_what_it_reads(name, literal) or interpreters.reads_code(name, seen.spelled):
            self.unresolved = True
        if name in EVALUATORS:
            self.unresolved = self.unresolved or None in seen.words
            for text in (" ".join(literal[1:]), *(word.partition("=")[2] or word for word in literal[1:])):
                self.text(text, depth + 1)
        if name in ("source", ".") and None in seen.words:
            self.unresolved = True
        for place in self._few(place for place, word in enumerate(literal) if word in RUNS_NEXT):
            self.unresolved = self.unresolved or "{}" in "".join(literal[place + 1 : place + 2])
            self.command(Seen(seen.words[place + 1 :], seen.spelled[place + 1 :]), depth + 1)

    def _anywhere(self, literal: Sequence[str], depth: int) -> None:
        """The words of a program that is not known: a command may begin at each, and each may be a text."""
        unresolved, beginnings = self.unresolved, dict(self.beginnings)
        for place in range(1, min(len(literal), MOST_POSITIONS)):
            word = literal[place]
            for text in dict.fromkeys((word, word.partition("=")[2])):
                if NAME.fullmatch(text):
                    words = (text.rpartition("/")[2], *literal[place + 1 : place + MOST_WORDS])
                    self._part(" ".join(words))
                    if words[0] in WRAPPERS or SHELL.fullmatch(words[0]):
                        self.command(Seen(words, words), depth + 1)
                elif " " in text and len(text) <= MOST_PROSE:
                    self.text(text, depth + 1)
        # That it cannot be read means nothing: it may be prose.
        self.unresolved, self.beginnings = unresolved, beginnings

    def _texts(self, seen: Seen, is_shell: bool, depth: int, *, sure: bool) -> None:
        """Words that a shell reads as a text: those behind `-c`, and any with a blank in them."""
        behind_c = False
        for word in seen.words[1:]:
            if behind_c and word is None:
                self.unresolved = True
            elif word is not None and word[:1] in "-+" and word[:2] != "--":
                behind_c = behind_c or "c" in word
            elif word is not None and (behind_c or " " in word):
                self.text(word, depth + 1, sure=sure and is_shell)
        if is_shell and _script(seen.words) is None:
            self.unresolved = True


def _is_known(name: str) -> bool:
    """Whether it is known where the words of a program may hold a command, if they may at all."""
    from parley.permissions.shell.denied.inert import INERT  # few lines need it

    return name in INERT or any(name in table for table in KNOWN) or any(form.fullmatch(name) for form in KNOWN_FORMS)


def _reachable(seen: Seen, operands: int) -> Iterator[int]:
    """Where the command may begin in the words of its wrapper: behind options, their values and assignments."""
    waiting, known = [(1, operands)], set[tuple[int, int]]()
    while waiting:
        place, left = waiting.pop()
        if place >= len(seen.words) or (place, left) in known:
            continue
        known.add((place, left))
        word = seen.words[place]
        yield place
        if word is not None and word[:1] == "-":
            waiting += [(place + 1, left), (place + 2, left)]
        elif word is not None and ASSIGNMENT.match(word):
            waiting.append((place + 1, left))
        elif left:
            waiting.append((place + 1, left - 1))


def _reads_its_input(seen: Seen) -> bool:
    """Whether this is a shell that takes its commands from a pipe or a here-document."""
    words = [word for word in seen.words if word is None or not ASSIGNMENT.match(word)]
    while len(words) > 1 and words[0] is not None and words[0].rpartition("/")[2] in WRAPPERS:
        words = words[1:]
        while len(words) > 1 and words[0] is not None and words[0][:1] == "-":
            words = words[1:]
    if not words or words[0] is None:
        return False
    name = words[0].rpartition("/")[2]
    if name in READS_INPUT:
        return "-l" not in words
    if name in ("source", ".") and (None in words[1:2] or any(map(INPUT.fullmatch, filter(None, words[1:2])))):
        return True
    return SHELL.fullmatch(name) is not None and INPUT.fullmatch(_script(words) or "x") is not None


def _script(words: Sequence[str | None]) -> str | None:
    """The file that a shell takes its commands from; "-" for its input, None if that is not known."""
    place = 1
    while place < len(words):
        word = words[place]
        if word is None:
            return None
        if word[:2] == "--" and word != "--":
            if word in STARTUP_FILE and None in words[place + 1 : place + 2]:
                return None
            place += 2 if word in STARTUP_FILE else 1
        elif word[:1] in ("-", "+"):
            if "c" in word:
                return "-c"
            if "s" in word:
                return "-"
            place += 2 if word[-1] in "oO" else 1
        else:
            return word
    return "-"


def _written(commands: Sequence[Seen]) -> Iterator[str]:
    """What other commands of the line may write into the shell's input."""
    for seen in commands:
        if seen.words and seen.words[0] in ECHOES:
            for word in seen.words[1:]:
                if word is not None:
                    yield word.replace("\\n", "\n")
            yield " ".join(word for word in seen.words[1:] if word is not None)
