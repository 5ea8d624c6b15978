"""The strict parser, and the command line that it proves: the only source of an allow.

It knows a small part of bash and proves that a text is in it: literal words, quotes, quoted here-documents as a word
or as input, `~` and `$HOME` at the start of a word, globs and `$?` (marked), assignments before a command, the
separators `&& || ; | |& &` and newline, redirections to literal files, `if`, and `for` over words. Everything else is
`Unclear`, however harmless it looks. A `CommandLine` exists only if bash reads the text the same way.

    parse_strict("git log | head -5")                  CommandLine with two commands
    parse_strict("cat ~/x", home="/home/me")           CommandLine that contains /home/me/x
    parse_strict("for f in a b; do wc $f; done")       CommandLine with `wc a` and `wc b`
    parse_strict('echo "in $(pwd)"')                   CommandLine with `pwd`, and `echo` with an opaque word
    parse_strict("rm $(id)")                           Unclear("an expansion")

A loop is unrolled: its body is read once for each word. A word with a harmless variable or a substitution is opaque:
its value is only known when the line runs, so it may only be an argument of a program that prints text. The commands
of a substitution and of all branches of an `if` are commands of the line. No `cd` may be in any of these.

See also: what a command may do (readers.py, command_rules.py), commands in unclear texts (deny_search.py).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from parley.permissions.base import word_set
from parley.protocol.base import Struct

DEV_NULL = "/dev/null"
MAX_COMMAND_CHARACTERS = 10_000
MAX_DEPTH = 4
"""Of loops, branches and substitutions in each other."""
MAX_COMMANDS = 80
MAX_WORDS = 1_600

FORBIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\ufeff]")
# In a substitution, bash ends a here-document at a line that only begins with its end mark.
TOKEN = re.compile(
    r"""
    (?P<blank>[ \t]+)
  | (?P<bare>(?:[A-Za-z0-9_./:,@%+=^!\]-]|(?<=[A-Za-z0-9_])[~\#]|(?<=[\ \t])\{\}(?=[\ \t;]))+)
  | (?P<single>'[^']*')
  | (?P<double>"(?:[^"\\$`]|\\[^\n]|\$(?=["\ |]|\?))*")
  | (?P<document>"\$\(cat\ <<'(?P<mark>[A-Za-z_]{2,})'\n(?:(?!(?P=mark))[^\n]*\n)*(?P=mark)\n\ *\)")
  | (?P<open>")
  | (?P<tilde>~(?=[/\ \t\n;&|<>]|\Z))
  | (?P<variable>\$(?:[A-Za-z_][A-Za-z0-9_]*|\{[A-Za-z_][A-Za-z0-9_]*\}))
  | (?P<substitution>\$\((?!\())
  | (?P<glob>[*?[]|\$\?)
  | (?P<escape>\\[\x20-\x7e])
  | (?P<input><<[\ \t]*(?P<quote>['"])(?P<end>[A-Za-z0-9_]+)(?P=quote)(?=[\ \t\n;&|<>]))
  | (?P<redirect>&>>|&>|>>|>\||>&|<>|>|<(?![<&(]))
  | (?P<separator>&&|\|\||\|&|\||;(?![;&])|&|\n)
    """,
    re.VERBOSE,
)
REASONS = (
    ("$", "an expansion"),
    ("`", "a substitution"),
    ("(", "a subshell, a function or an array"),
    (")", "a subshell, a function or an array"),
    ("{", "a brace"),
    ("}", "a brace"),
    ("<", "a here-document or a duplicated input"),
    ("~", "a tilde"),
    ("#", "a comment"),
    ("\\", "an escaped line end"),
    ('"', "an unclosed quote, or one with an expansion"),
    ("'", "an unclosed quote"),
    (";", "a case"),
)
ESCAPED_IN_QUOTES = re.compile(r'\\([\\"$`])')
ESCAPE_IN_QUOTES = re.compile(r"\\.")
COMMAND = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+:@,-]*|:")
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
DESCRIPTOR = re.compile(r"[0-9]{1,3}")
NUMBER = re.compile(r"[0-9]+")
SOCKET = re.compile(r"/dev/+(?:tcp|udp)\b")
RESERVED = word_set("if then elif else fi for while until do done case esac select function coproc in ! { } [[ ]]")
HOME = re.compile(r"/[^*?\[\]\\\n]*")
"""Absolute, and not a glob to an old bash."""
KEYWORD = re.compile(r"(?:if|then|elif|else|fi|for|do|done)(?=[ \t\n;&|)<>]|\Z)")
AFTER_KEYWORD = {"then": ("elif", "else", "fi"), "elif": ("then",), "else": ("fi",)}
"""The words that end the commands after each of these."""
LOOP = re.compile(r"[ \t]+([a-z][a-z0-9]*)[ \t]+in(?=[ \t])")
DO = re.compile(r"[ \t\n]*do(?=[ \t\n])")
WHOLE = "(0|[1-9][0-9]{0,3})"
COUNT = re.compile(rf"(?:\{{{WHOLE}\.\.{WHOLE}\}}|\$\(seq (?:{WHOLE} )?{WHOLE}\))(?=[ \t\n;])")
TO_NULL = re.compile(r"(?:[ \t]*(?:2>&1|[12]?>[ \t]*/dev/null)(?=[ \t\n;&|)]|\Z))*")
"""Redirections of a loop or branch that write no file."""
IN_QUOTES = re.compile(r'(?:[^"\\$`]|\\[^\n]|\$(?=["\ |]))+')
ONE_WORD = re.compile(r"[A-Za-z0-9_./:,@%+=^-]+")
"""A value that is one word without quotes, and not a glob."""
GLOB = re.compile(r"[*?\[\\]")
NOT_LOOPED = word_set("path cdpath fpath manpath mailpath argv histchars prompt status")
"""Names in lower case that mean something to some shell."""
CHANGES_FOLDER = word_set("cd pushd popd")
HARMLESS_VARIABLES = word_set(
    "HOME PWD USER LOGNAME HOSTNAME SHELL PATH LANG LC_ALL TERM TMPDIR EDITOR PAGER UID EUID OSTYPE HOSTTYPE MACHTYPE "
    "SHLVL PPID RANDOM SECONDS COLUMNS LINES BASH_VERSION VIRTUAL_ENV CONDA_DEFAULT_ENV CI NODE_ENV GOPATH GOROOT "
    "JAVA_HOME"
)
"""Variables that hold no secret."""
PRINTS_TEXT = word_set("echo printf basename dirname test [ : true")
"""Programs to which no argument is harmful; each has further conditions (readers.py)."""
PRINTS_ONE_WORD = (
    ("pwd",), ("whoami",), ("hostname",), ("nproc",), ("uname",), ("arch",), ("id",), ("date",), ("basename",),
    ("dirname",), ("git", "rev-parse"), ("git", "describe"), ("git", "merge-base"), ("git", "rev-list"),
    ("git", "branch", "--show-current"),
)  # fmt: skip
"""The beginnings of commands whose output has a glob only if their arguments or the current folder have one."""
JOBS = re.compile(r"(?:^|[;&|]\s*)(?:make|gmake|ninja|cmake|ctest)\b[^;&|'\"$`()]*\s(?:-j|--jobs|--parallel)[= ]?\"?\Z")
"""The beginning of a build up to the number of its jobs: which number `$(nproc)` prints there is no matter."""
PRINTF_ASSIGNS = re.compile(r"%[^A-Za-z%]*[hlqjztL]*n")
# One command of plain words. Most lines are just that, and are parsed four times as fast.
PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+:@,-]*(?: [A-Za-z0-9_./:,@%+=-]+)*")
NOT_PLAIN = RESERVED | {"time"}
SETS_VARIABLES = word_set(
    "source . eval export declare typeset local readonly read mapfile readarray printf unset getopts let trap exec set "
    "shopt builtin command alias enable coproc"
)
"""Commands that may set HOME, or run something that does; with them, `~` is not known."""


class Redirect(Struct, frozen=True):
    """`2>&1` is `("2", ">&", "1")`, `< notes` is `("", "<", "notes")`."""

    descriptor: str
    operator: str
    target: str

    @property
    def writes(self) -> bool:
        """Whether a file other than /dev/null may be opened for writing."""
        return self.operator not in ("<", ">&") and self.target != DEV_NULL

    @property
    def reads(self) -> bool:
        return self.operator in ("<", "<>") and self.target != DEV_NULL


class SimpleCommand(Struct, frozen=True, cache_hash=True):
    """One simple command. `argv` is what the program gets, unless a word is in `globs`."""

    argv: tuple[str, ...]
    words: tuple[str, ...]
    """The same words as written, with their quotes."""
    text: str
    """The whole command as written, with its here-document."""
    assignments: tuple[tuple[str, str], ...] = ()
    redirects: tuple[Redirect, ...] = ()
    globs: tuple[int, ...] = ()
    """Positions in `argv` of globs and of opaque words."""
    opaque: tuple[int, ...] = ()
    """Positions in `argv` of words whose value is only known when the line runs."""
    split: tuple[int, ...] = ()
    """Positions in `argv` of words with an expansion outside quotes: its value is split, and globs in it expand."""
    before: str = ""
    """The operator before it; empty for the first command."""
    after: str = ""
    """The operator after it; empty for the last command."""
    document: str | None = None
    """The here-document that is its input, from the end of the command's line to the end mark."""


class CommandLine(Struct, frozen=True):
    text: str
    commands: tuple[SimpleCommand, ...]

    @property
    def has_documents(self) -> bool:
        """Whether a command gets a here-document as its input."""
        return any(command.document is not None for command in self.commands)


class Unclear(Struct, frozen=True):
    """The text cannot be proven; the reason is shown to people."""

    reason: str


class _NotProvable(Exception):
    """The text is not in the provable part of bash; the message says why."""


class _Word:
    """A word under construction."""

    __slots__ = (
        "end", "expands", "glob", "is_loop_glob", "is_split", "opaque", "pattern", "raw", "start", "tilde", "value"
    )  # fmt: skip

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self.value = ""
        self.raw = ""
        """As written, with the values of loop variables in place of their names."""
        self.glob = False
        self.pattern = False
        """It contains `*`, `?` or `[`."""
        self.tilde = False
        self.opaque = False
        self.expands = False
        """It contains a variable or a substitution."""
        self.is_loop_glob = False
        """It is the variable of a loop, whose value is a glob, and nothing else."""
        self.is_split = False
        """It contains an expansion outside quotes."""

    def add(self, kind: str | None, text: str, end: int) -> None:
        if kind == "bare":
            self.value += text
        elif kind == "single":
            self.value += text[1:-1]
        elif kind == "double":
            self.value += ESCAPED_IN_QUOTES.sub(r"\1", text[1:-1])
            self.glob = self.glob or "$?" in ESCAPE_IN_QUOTES.sub("", text)
        elif kind == "document":
            self.value += _document_text(text)
        elif kind == "escape":
            self.value += text[1]
        else:
            self.value += text
            self.glob = True
            self.pattern = self.pattern or text != "$?"
        self.raw += text
        self.end = end

    def add_opaque(self, text: str, end: int, *, is_quoted: bool) -> None:
        self._spoil_loop_glob()
        self.is_split = self.is_split or not is_quoted
        self.value += text
        self.raw += text
        self.glob = self.opaque = self.expands = True
        self.end = end

    def add_value(self, value: str, end: int, *, is_quoted: bool) -> None:
        """Add the value of a variable, or a text in quotes."""
        if not is_quoted and not ONE_WORD.fullmatch(value):
            raise _NotProvable("a variable without quotes, whose value is not one plain word")
        self._spoil_loop_glob()
        self.value += value
        self.raw += shlex.quote(value)
        self.expands = True
        self.end = end

    def add_loop_glob(self, glob: _Word, end: int, *, is_quoted: bool) -> None:
        self.value, self.raw, self.end = glob.value, glob.raw, end
        self.glob = self.expands = self.is_loop_glob = True
        self.is_split = not is_quoted

    def _spoil_loop_glob(self) -> None:
        """With more text, the value is not one of the names that the glob matches."""
        self.opaque, self.is_loop_glob = self.opaque or self.is_loop_glob, False


def _document_text(text: str) -> str:
    """The value of `"$(cat <<'EOF' ... EOF )"`: nothing is expanded, and final newlines are removed."""
    body = "\n".join(text.split("\n")[1:-2])
    if '"' in body and ")" in body:
        raise _NotProvable("a here-document that an old bash would end too early")
    return body.rstrip("\n")


class _Command:
    """A simple command under construction."""

    __slots__ = ("before", "document", "end", "expands", "pending", "redirects", "start", "words")

    def __init__(self, before: str) -> None:
        self.before = before
        self.words: list[_Word] = []
        self.redirects: list[Redirect] = []
        self.document: str | None = None
        self.pending: tuple[str, str] | None = None
        self.expands = False
        self.start = -1
        self.end = -1

    @property
    def is_empty(self) -> bool:
        return self.start < 0

    def add_word(self, word: _Word, source: str) -> None:
        """Add a complete word: the target of the redirection before it, or a word of the command."""
        self._extend(word.start, word.end)
        self.expands = self.expands or word.expands
        if word.tilde and word.glob:
            raise _NotProvable("a glob after a tilde")
        if self.pending is None:
            self.words.append(word)
            return
        self.redirects.append(_make_redirect(*self.pending, word, source))
        self.pending = None

    def start_redirect(self, operator: str, word: _Word | None, start: int, end: int, source: str) -> None:
        """Start a redirection; digits directly before the operator are the descriptor."""
        descriptor = ""
        if word is not None and operator[0] != "&" and DESCRIPTOR.fullmatch(source, word.start, word.end):
            descriptor, start = word.value, word.start
        elif word is not None and operator[0] != "&" and NUMBER.fullmatch(source, word.start, word.end):
            raise _NotProvable("a file descriptor with too many digits")
        elif word is not None:
            self.add_word(word, source)
        if self.pending is not None:
            raise _NotProvable("a redirection without a target")
        self._extend(start, end)
        self.pending = (descriptor, operator)

    def add_document(self, document: _Document, word: _Word | None, source: str) -> None:
        """Add a here-document as the only input of the command."""
        if word is not None and NUMBER.fullmatch(source, word.start, word.end):
            raise _NotProvable("a here-document for another descriptor")
        if word is not None:
            self.add_word(word, source)
        if self.pending is not None or self.document is not None:
            raise _NotProvable("a redirection without a target, or several here-documents")
        self._extend(document.begin, document.end)
        self.document = document.text

    def build(self, after: str, source: str) -> SimpleCommand:
        if self.pending is not None:
            raise _NotProvable("a redirection without a target")
        text = source[self.start : self.end]
        if self.document is not None:
            if any(redirect.descriptor == "0" or redirect.operator in ("<", "<>") for redirect in self.redirects):
                raise _NotProvable("a here-document together with another input")
            text += self.document
        assignments, rest = _split_assignments(self.words, source)
        words = tuple(word.raw for word in rest)
        if rest:
            _check_command(rest, words)
        if self.expands:
            text = _format_command(assignments, words, self.redirects)
        opaque = tuple(index for index, word in enumerate(rest) if word.opaque)
        if opaque and (words[0] not in PRINTS_TEXT or any(rest[index].pattern for index in opaque)):
            raise _NotProvable("an expansion")
        return SimpleCommand(
            argv=tuple(word.value for word in rest),
            words=words,
            text=text,
            opaque=opaque,
            split=tuple(index for index, word in enumerate(rest) if word.is_split),
            assignments=assignments,
            redirects=tuple(self.redirects),
            globs=tuple(index for index, word in enumerate(rest) if word.glob and words[index] != "["),
            before=self.before,
            after=after,
            document=self.document,
        )

    def _extend(self, start: int, end: int) -> None:
        if self.start < 0:
            self.start = start
        self.end = end


class _Document:
    """A here-document: its operator, and the lines of the source that it covers."""

    __slots__ = ("after", "begin", "end", "line_end", "text")

    def __init__(self, begin: int, end: int, mark: str, source: str) -> None:
        self.begin = begin
        self.end = end
        self.line_end = close = source.find("\n", end)
        while close >= 0:
            close = source.find(f"\n{mark}", close)
            self.after = close + len(mark) + 2
            if close < 0 or source[self.after - 1 : self.after] in ("", "\n"):
                break
            close += 1
        if close < 0:
            raise _NotProvable("a here-document without an end mark")
        self.text = source[self.line_end : self.after - 1]
        """The newline, the contents and the end mark."""


def parse_strict(command: str, home: str | None = None) -> CommandLine | Unclear:
    """The simple commands of a text, if they can be proven. `home` is the HOME of the shell."""
    if len(command) > MAX_COMMAND_CHARACTERS:
        return Unclear(f"more than {MAX_COMMAND_CHARACTERS:,} characters")
    return _parse_cached(command, home if "~" in command or "HOME" in command else None)


@lru_cache(maxsize=64)
def _parse_cached(command: str, home: str | None) -> CommandLine | Unclear:
    """Cached: one decision parses a text for allow rules and for deny rules."""
    if PLAIN.fullmatch(command):
        words = tuple(command.split(" "))
        if words[0] not in NOT_PLAIN:
            return CommandLine(command, (SimpleCommand(words, words, command),))
    if FORBIDDEN.search(command):
        return Unclear("a control character")
    try:
        commands = tuple(_Parser(command, home).parse())
    except _NotProvable as exc:
        return Unclear(str(exc))
    if len(commands) > MAX_COMMANDS:
        return Unclear(f"more than {MAX_COMMANDS} commands")
    if sum(len(simple.argv) + len(simple.redirects) for simple in commands) > MAX_WORDS:
        return Unclear(f"more than {MAX_WORDS:,} words")
    return CommandLine(command, commands) if commands else Unclear("no command")


class _Parser:
    """Reads a text from left to right. Commands in loops, branches and substitutions become commands of the line."""

    def __init__(self, source: str, home: str | None) -> None:
        self._source = source
        self._home = home if home is not None and HOME.fullmatch(home) else None
        self._index = 0
        self._depth = 0
        self._substitutions = 0
        self._variables: dict[str, _Word] = {}
        """The variables of loops, each with its current word."""
        self._uses_home = False
        self._uses_variables = False
        self._found: list[SimpleCommand] = []

    def parse(self) -> list[SimpleCommand]:
        self._read_list("", ())
        if self._uses_home or self._uses_variables:
            # A variable is known only if nothing on the line may set it, or change how its value is split.
            if "IFS" in self._source:
                raise _NotProvable("a variable in a line that may change how words are split")
            for command in self._found:
                names = (*command.argv, *(name for name, _ in command.assignments))
                first = next((word for word in command.argv if word not in ("time", "-p")), "")
                sets = first in SETS_VARIABLES and not (first == "printf" and only_prints(command.argv))
                if sets or (self._uses_home and any("HOME" in name for name in names)):
                    raise _NotProvable(
                        "a tilde in a command that may change HOME"
                        if self._uses_home
                        else "a variable that the line may set"
                    )
        return self._found

    def _read_list(self, before: str, ends: Sequence[str]) -> str:
        """Read commands up to one of these words, or to the end of the text. Returns the word."""
        source, first = self._source, len(self._found)
        current, word, end_word = _Command(before), None, ""
        document: _Document | None = None
        is_closed = False  # right after a loop or branch
        while self._index < len(source) and not end_word:
            index = self._index
            if current.is_empty and word is None and (keyword := KEYWORD.match(source, index)):
                if keyword[0] in ends and current.before in (";", "\n", "&") and not is_closed:
                    end_word = keyword[0]
                    continue
                if keyword[0] not in ("for", "if") or is_closed or document is not None:
                    raise _NotProvable("a reserved word")
                self._read_compound(keyword[0], current.before)
                is_closed = True
                continue
            token = TOKEN.match(source, index)
            if token is None:
                if source[index] != ")" or ")" not in ends:
                    raise _NotProvable(_describe_character(source[index]))
                end_word = ")"
                continue
            kind, text, end = token.lastgroup, token[0], token.end()
            if is_closed and kind not in ("blank", "separator"):
                raise _NotProvable("a word after a loop")
            self._index = end
            if kind == "redirect":
                current.start_redirect(text, word, index, end, source)
                word = None
            elif kind in ("blank", "separator"):
                if word is not None:
                    current.add_word(word, source)
                    word = None
                if kind == "separator":
                    if document is not None and index == document.line_end:
                        if current.is_empty:
                            raise _NotProvable("a here-document after an operator")
                        self._index, document = document.after, None
                    current, is_closed = self._end_command(text, current, is_closed=is_closed), False
            elif kind == "input":
                if document is not None or self._depth:
                    raise _NotProvable("several here-documents on a line, or one in a loop or substitution")
                document = _Document(index, end, token["end"], source)
                current.add_document(document, word, source)
                word = None
            elif kind == "tilde":
                if word is not None or self._home is None:
                    raise _NotProvable("a tilde")
                word, self._uses_home = _Word(index), True
                word.tilde = True
                word.add("bare", self._home, end)
                word.raw = text
            else:
                word = word or _Word(index)
                self._add_part(word, kind or "", text, current.before)
            if document is not None and self._index > document.line_end:
                raise _NotProvable("a quoted string that continues into a here-document")
        self._index += len(end_word)
        if word is not None:
            current.add_word(word, source)
        if not current.is_empty:
            self._append(current.build("", source))
        elif current.before in ("&&", "||", "|", "|&") and not is_closed:
            raise _NotProvable("an operator without a command after it")
        if ends and (not end_word or len(self._found) == first):
            raise _NotProvable("a loop, a branch or a substitution without a command or an end")
        return end_word

    def _end_command(self, operator: str, current: _Command, *, is_closed: bool) -> _Command:
        """Start the command after an operator. Only a newline may come before a missing command."""
        if not current.is_empty:
            self._append(current.build(operator, self._source))
            return _Command(operator)
        if operator != "\n" and not is_closed:
            raise _NotProvable("an operator without a command before it")
        return _Command(operator) if is_closed else current

    def _append(self, command: SimpleCommand) -> None:
        self._found.append(command)
        if len(self._found) > MAX_COMMANDS:
            raise _NotProvable(f"more than {MAX_COMMANDS} commands")

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _NotProvable("loops, branches or substitutions that are nested too deeply")

    # Loops and branches.

    def _read_compound(self, keyword: str, before: str) -> None:
        self._enter()
        self._index += len(keyword)
        first = len(self._found)
        if keyword == "for":
            self._read_loop(before)
        else:
            end = self._read_list(before, ("then",))
            while end != "fi":
                end = self._read_list("\n", AFTER_KEYWORD[end])
        self._depth -= 1
        redirects = TO_NULL.match(self._source, self._index)
        self._index = redirects.end() if redirects else self._index
        commands = self._found[first:]
        _check_folder(commands)
        if before == "&&":
            # All of it belongs to the chain: a `cd` before it took place.
            self._found[first:] = [
                msgspec.structs.replace(command, before=before) if command.before in (";", "\n") else command
                for command in commands
            ]

    def _read_loop(self, before: str) -> None:
        """`for f in a b; do wc $f; done`: the body is read once for each word."""
        found = LOOP.match(self._source, self._index)
        if found is None or found[1] in NOT_LOOPED or found[1] in self._variables:
            raise _NotProvable("a loop that is not over words, or over a variable with a meaning")
        self._index = found.end()
        name, words = found[1], self._read_loop_words()
        body = DO.match(self._source, self._index)
        if body is None or not words:
            raise _NotProvable("a loop without words or without a body")
        self._uses_variables = True
        if globs := [word for word in words if word.glob]:
            # The names in the folders of a glob are read even if the body only prints them.
            raws = (":", *(word.raw for word in globs))
            values = (":", *(word.value for word in globs))
            self._append(SimpleCommand(values, raws, " ".join(raws), globs=tuple(range(1, len(raws))), before=before))
            before = before if before == "&&" else "\n"
        for word in words:
            self._index = body.end()
            self._variables[name] = word
            self._read_list(before, ("done",))
            before = before if before == "&&" else "\n"
        del self._variables[name]

    def _read_loop_words(self) -> list[_Word]:
        words: list[_Word] = []
        word: _Word | None = None
        while True:
            index = self._index
            counted = COUNT.match(self._source, index) if word is None else None
            if counted is not None:
                words += self._count(counted)
                continue
            token = TOKEN.match(self._source, index)
            kind = token.lastgroup if token else ""
            if token is None or kind in ("input", "redirect", "substitution", "tilde") or len(words) > MAX_COMMANDS:
                raise _NotProvable("a loop over words that are not known")
            self._index = token.end()
            if kind not in ("blank", "separator"):
                word = word or _Word(index)
                self._add_part(word, kind or "", token[0], "")
                continue
            words += [word] if word is not None else []
            word = None
            if kind == "separator":
                if token[0] not in (";", "\n") or any(each.opaque or each.is_loop_glob for each in words):
                    raise _NotProvable("a loop over words that are not known")
                return words

    def _count(self, counted: re.Match[str]) -> list[_Word]:
        """The numbers of `{1..5}` or `$(seq 1 5)`."""
        low, high = int(counted[1] or counted[3] or 1), int(counted[2] or counted[4])
        if high - low >= MAX_COMMANDS:
            raise _NotProvable("a loop over too many numbers")
        if counted[4]:
            argv = tuple(counted[0][2:-1].split())
            self._append(SimpleCommand(argv, argv, " ".join(argv)))
        found = []
        for number in range(low, high + 1):
            found.append(_Word(self._index))
            found[-1].add("bare", str(number), counted.end())
        self._index = counted.end()
        return found

    # Words.

    def _add_part(self, word: _Word, kind: str, text: str, before: str) -> None:
        if word.is_loop_glob and (word.is_split or kind != "open"):
            raise _NotProvable("a text after a variable that is a glob")
        if kind == "variable":
            self._add_variable(word, text, is_quoted=False)
        elif kind == "substitution":
            self._add_substitution(word, before, is_quoted=False)
        elif kind == "open":
            self._add_quoted(word, before)
        else:
            word.add(kind, text, self._index)

    def _add_variable(self, word: _Word, text: str, *, is_quoted: bool) -> None:
        name, end = text.strip("${}"), self._index
        value = self._variables.get(name)
        if value is not None and not value.glob:
            word.add_value(value.value, end, is_quoted=is_quoted)
        elif value is not None and not word.raw:
            word.add_loop_glob(value, end, is_quoted=is_quoted)
        elif name == "HOME" and self._home is not None:
            self._uses_home = True
            word.add_value(self._home, end, is_quoted=is_quoted)
        elif (value is not None and is_quoted) or name in HARMLESS_VARIABLES:
            self._uses_variables = True
            word.add_opaque(text, end, is_quoted=is_quoted)
        else:
            raise _NotProvable("an expansion")

    def _add_quoted(self, word: _Word, before: str) -> None:
        """A text in double quotes with variables or substitutions."""
        source = self._source
        while True:
            plain, token = IN_QUOTES.match(source, self._index), TOKEN.match(source, self._index)
            if plain is not None:
                self._index = plain.end()
                word.add_value(ESCAPED_IN_QUOTES.sub(r"\1", plain[0]), self._index, is_quoted=True)
                continue
            self._index = token.end() if token else self._index
            if token is None or token.lastgroup not in ("variable", "substitution", "double", "document", "open"):
                if token is None or token[0] != "$?":
                    raise _NotProvable("an unclosed quote, or one with an expansion")
                word.add_opaque(token[0], self._index, is_quoted=True)
            elif token.lastgroup == "variable":
                self._add_variable(word, token[0], is_quoted=True)
            elif token.lastgroup == "substitution":
                self._add_substitution(word, before, is_quoted=True)
            else:
                self._index = word.end = token.start() + 1
                return

    def _add_substitution(self, word: _Word, before: str, *, is_quoted: bool) -> None:
        """The output of commands; without quotes, it is split and its globs are expanded."""
        begin, first, count = self._index - 2, len(self._found), self._substitutions
        self._enter()
        self._substitutions += 1
        self._uses_variables = True
        self._read_list(before, (")",))
        self._depth -= 1
        commands, text = self._found[first:], self._source[begin : self._index]
        _check_folder(commands)
        if not text.count("(") == text.count(")") == self._substitutions - count:
            raise _NotProvable("a substitution that an old bash would end too early")
        if [command.argv for command in commands] == [("nproc",)] and JOBS.search(self._source, 0, begin):
            word.add_value("1", self._index, is_quoted=is_quoted)
            return
        if not is_quoted and not _prints_one_word(commands):
            raise _NotProvable("a substitution without quotes")
        word.add_opaque(text, self._index, is_quoted=is_quoted)


def _check_folder(commands: Sequence[SimpleCommand]) -> None:
    """A `cd` in a loop, branch or substitution may or may not take place."""
    if any(CHANGES_FOLDER.intersection(command.argv[:3]) for command in commands):
        raise _NotProvable("a loop, a branch or a substitution that changes the folder")


def _prints_one_word(commands: Sequence[SimpleCommand]) -> bool:
    *others, last = commands
    if any(command.after != "|" for command in others) or last.globs or any(GLOB.search(word) for word in last.argv):
        return False
    if last.argv[:1] == ("wc",):
        return all(word.startswith("-") for word in last.argv[1:])
    return any(last.argv[: len(words)] == words for words in PRINTS_ONE_WORD)


def only_prints(argv: Sequence[str]) -> bool:
    """Whether this is a `printf` that sets no variable."""
    return argv[0] == "printf" and len(argv) > 1 and argv[1][:1] != "-" and not PRINTF_ASSIGNS.search(argv[1])


def _format_command(assignments: Sequence[tuple[str, str]], words: Sequence[str], redirects: Sequence[Redirect]) -> str:
    """A command as it could be written without variables."""
    before = [f"{name}={shlex.quote(value)}" for name, value in assignments]
    after = [f"{each.descriptor}{each.operator}{shlex.quote(each.target)}" for each in redirects]
    return " ".join((*before, *words, *after))


def _describe_character(character: str) -> str:
    if character >= "\x80":
        return "an unquoted non-ASCII character"
    return dict(REASONS).get(character, f"an unexpected {character!r}")


def _make_redirect(descriptor: str, operator: str, word: _Word, source: str) -> Redirect:
    if word.glob or not word.value:
        raise _NotProvable("a redirection to a glob or to nothing")
    if operator == ">&" and not DESCRIPTOR.fullmatch(source, word.start, word.end):
        raise _NotProvable("a redirection of stdout and stderr together")
    if SOCKET.search(word.value):
        raise _NotProvable("a redirection to the network")
    return Redirect(descriptor, operator, word.value)


def _split_assignments(words: list[_Word], source: str) -> tuple[tuple[tuple[str, str], ...], list[_Word]]:
    """The assignments before a command, and its other words."""
    found: list[tuple[str, str]] = []
    for index, word in enumerate(words):
        assignment = ASSIGNMENT.match(source, word.start, word.end)
        if assignment is None:
            return tuple(found), words[index:]
        if assignment[2] or word.glob:
            raise _NotProvable("an assignment that is not just a name and a value")
        found.append((assignment[1], word.value[len(assignment[0]) :]))
    return tuple(found), []


def _check_command(rest: list[_Word], words: tuple[str, ...]) -> None:
    """The command name must be plain. `time` is a keyword, so the word after it is a command name too."""
    index = 0
    while True:
        word = rest[index]
        if word.value in RESERVED:
            raise _NotProvable("a reserved word")
        if words == ("[", *words[1:-1], "]") and not index:
            return
        if word.glob or word.expands or word.value != words[index] or not COMMAND.fullmatch(word.value):
            raise _NotProvable("a command name that is not a plain word")
        if word.value != "time":
            return
        index += 1
        if index < len(words) and words[index] == "-p":
            index += 1
        if index >= len(words):
            raise _NotProvable("`time` without a command")
