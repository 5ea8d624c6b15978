"""The strict parser, and the command line that it proves: the only source of an allow.

It knows a small part of bash and proves that a text is in it: literal words, quotes without expansions, quoted
here-documents as a word or as input, `~` and `~/` at the start of a word, globs and `$?` (marked), assignments before a
command, the separators `&& || ; | |& &` and newline, and redirections to literal files. Everything else is `Unclear`,
however harmless it looks. A `CommandLine` exists only if bash reads the text the same way.

    parse_strict("git log | head -5")                  CommandLine with two commands
    parse_strict("cat ~/x", home="/home/me")           CommandLine that contains /home/me/x
    parse_strict("echo $(id)")                         Unclear("an expansion")

See also: what a command may do (readonly/check.py, command_rules.py), commands in unclear texts (denied/search.py).
"""

from __future__ import annotations

import re
from functools import lru_cache

from parley.permissions.base import word_set
from parley.protocol.base import Struct

DEV_NULL = "/dev/null"
MAX_COMMAND_CHARACTERS = 10_000
MAX_COMMANDS = 80
MAX_WORDS = 1_600

FORBIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\ufeff]")
# In a substitution, bash ends a here-document at a line that only begins with its end mark.
TOKEN = re.compile(
    r"""
    (?P<blank>[ \t]+)
  | (?P<bare>(?:[A-Za-z0-9_./:,@%+=^!\]-]|(?<=[A-Za-z0-9_])[~\#])+)
  | (?P<single>'[^']*')
  | (?P<double>"(?:[^"\\$`]|\\[^\n]|\$(?=["\ |]|\?))*")
  | (?P<document>"\$\(cat\ <<'(?P<mark>[A-Za-z_]{2,})'\n(?:(?!(?P=mark))[^\n]*\n)*(?P=mark)\n\ *\)")
  | (?P<tilde>~(?=[/\ \t\n;&|<>]|\Z))
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
    """Positions in `argv` of globs."""
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

    __slots__ = ("end", "glob", "start", "tilde", "value")

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self.value = ""
        self.glob = False
        self.tilde = False

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
        self.end = end


def _document_text(text: str) -> str:
    """The value of `"$(cat <<'EOF' ... EOF )"`: nothing is expanded, and final newlines are removed."""
    body = "\n".join(text.split("\n")[1:-2])
    if '"' in body and ")" in body:
        raise _NotProvable("a here-document that an old bash would end too early")
    return body.rstrip("\n")


class _Command:
    """A simple command under construction."""

    __slots__ = ("before", "document", "end", "pending", "redirects", "start", "words")

    def __init__(self, before: str) -> None:
        self.before = before
        self.words: list[_Word] = []
        self.redirects: list[Redirect] = []
        self.document: str | None = None
        self.pending: tuple[str, str] | None = None
        self.start = -1
        self.end = -1

    @property
    def is_empty(self) -> bool:
        return self.start < 0

    def add_word(self, word: _Word, source: str) -> None:
        """Add a complete word: the target of the redirection before it, or a word of the command."""
        self._extend(word.start, word.end)
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
        words = tuple(source[word.start : word.end] for word in rest)
        if rest:
            _check_command(rest, words)
        return SimpleCommand(
            argv=tuple(word.value for word in rest),
            words=words,
            text=text,
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
    return _parse_cached(command, home if "~" in command else None)


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
        commands = tuple(_parse_commands(command, home))
    except _NotProvable as exc:
        return Unclear(str(exc))
    if len(commands) > MAX_COMMANDS:
        return Unclear(f"more than {MAX_COMMANDS} commands")
    if sum(len(simple.argv) + len(simple.redirects) for simple in commands) > MAX_WORDS:
        return Unclear(f"more than {MAX_WORDS:,} words")
    return CommandLine(command, commands) if commands else Unclear("no command")


def _parse_commands(source: str, home: str | None) -> list[SimpleCommand]:
    found: list[SimpleCommand] = []
    current, word = _Command(""), None
    document: _Document | None = None
    has_tilde = False
    index = 0
    while index < len(source):
        token = TOKEN.match(source, index)
        if token is None:
            raise _NotProvable(_describe_character(source[index]))
        kind, text, end = token.lastgroup, token[0], token.end()
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
                    end, document = document.after, None
                current = _end_command(text, current, found, source)
        elif kind == "input":
            if document is not None:
                raise _NotProvable("several here-documents on a line")
            document = _Document(index, end, token["end"], source)
            current.add_document(document, word, source)
            word = None
        elif kind == "tilde":
            if word is not None or home is None or not HOME.fullmatch(home):
                raise _NotProvable("a tilde")
            word, has_tilde = _Word(index), True
            word.tilde = True
            word.add("bare", home, end)
        else:
            word = word or _Word(index)
            word.add(kind, text, end)
        if document is not None and end > document.line_end:
            raise _NotProvable("a quote across the start of a here-document")
        index = end
    if word is not None:
        current.add_word(word, source)
    if not current.is_empty:
        found.append(current.build("", source))
    elif current.before in ("&&", "||", "|", "|&"):
        raise _NotProvable("an operator without a command after it")
    if has_tilde:
        _check_home(found)
    return found


def _check_home(commands: list[SimpleCommand]) -> None:
    """`~` is known only if nothing on the line may set HOME."""
    for command in commands:
        names = (*command.argv, *(name for name, _ in command.assignments))
        first = next((word for word in command.argv if word not in ("time", "-p")), "")
        if first in SETS_VARIABLES or any("HOME" in name for name in names):
            raise _NotProvable("a tilde where HOME may change")


def _end_command(operator: str, current: _Command, found: list[SimpleCommand], source: str) -> _Command:
    """Start the command after an operator. Only a newline may come before a missing command."""
    if not current.is_empty:
        found.append(current.build(operator, source))
        return _Command(operator)
    if operator != "\n":
        raise _NotProvable("an operator without a command before it")
    return current


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
        if word.glob or word.value != words[index] or not COMMAND.fullmatch(word.value):
            raise _NotProvable("a command name that is not a plain word")
        if word.value != "time":
            return
        index += 1
        if index < len(words) and words[index] == "-p":
            index += 1
        if index >= len(words):
            raise _NotProvable("`time` without a command")
