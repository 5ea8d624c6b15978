"""The strict tokenizer: the only source of an allow.

It knows a small part of bash and proves that a text lies in it: literal words, quotes without
expansions, quoted here-documents as a word, globs and `$?` (marked), assignments in front, the
separators `&& || ; | |& &` and newline, and redirections to literal files. Everything else is
`Unclear`, however harmless it may look.

    read("git log | head -5")   ->  Line with two commands
    read("echo $(id)")          ->  Unclear("an expansion")

Not here: what a command may do (shell/readonly/check.py, allowing.py), and what hides in an unclear text
(shell/denied/search.py).
"""

from __future__ import annotations

import re
from functools import lru_cache

from parley.permissions.shell.ast import Line, Redirect, Simple, Unclear, names

LONGEST = 10_000
MOST_COMMANDS = 80
MOST_WORDS = 1_600

FORBIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\ufeff]")
# In a substitution bash takes a line for the end of a here-document that only begins with its mark.
TOKEN = re.compile(
    r"""
    (?P<blank>[ \t]+)
  | (?P<bare>(?:[A-Za-z0-9_./:,@%+=^!\]-]|(?<=[A-Za-z0-9_])[~\#])+)
  | (?P<single>'[^']*')
  | (?P<double>"(?:[^"\\$`]|\\[^\n]|\$(?=["\ |]|\?))*")
  | (?P<document>"\$\(cat\ <<'(?P<mark>[A-Za-z_]{2,})'\n(?:(?!(?P=mark))[^\n]*\n)*(?P=mark)\n\ *\)")
  | (?P<glob>[*?[]|\$\?)
  | (?P<escape>\\[\x20-\x7e])
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
    ('"', "a quote with an expansion in it, or without an end"),
    ("'", "a quote without an end"),
    (";", "a case"),
)
ESCAPED_IN_QUOTES = re.compile(r'\\([\\"$`])')
ESCAPE_IN_QUOTES = re.compile(r"\\.")
COMMAND = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+:@,-]*|:")
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
DESCRIPTOR = re.compile(r"[0-9]{1,3}")
SOCKET = re.compile(r"/dev/+(?:tcp|udp)\b")
RESERVED = names("if then elif else fi for while until do done case esac select function coproc in ! { } [[ ]]")
# One command of words that mean themselves: most lines are no more, and are read four times as fast.
PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+:@,-]*(?: [A-Za-z0-9_./:,@%+=-]+)*")
NOT_PLAIN = RESERVED | {"time"}


class _Doubt(Exception):
    """Why a text is not in the provable part."""


class _Word:
    """A word in the making."""

    __slots__ = ("end", "glob", "start", "value")

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self.value = ""
        self.glob = False

    def add(self, kind: str | None, text: str, end: int) -> None:
        if kind == "bare":
            self.value += text
        elif kind == "single":
            self.value += text[1:-1]
        elif kind == "double":
            self.value += ESCAPED_IN_QUOTES.sub(r"\1", text[1:-1])
            self.glob = self.glob or "$?" in ESCAPE_IN_QUOTES.sub("", text)
        elif kind == "document":
            self.value += _document(text)
        elif kind == "escape":
            self.value += text[1]
        else:
            self.value += text
            self.glob = True
        self.end = end


def _document(text: str) -> str:
    """What `"$(cat <<'EOF' ... EOF )"` stands for: nothing expands in it, and the last line ends are cut off."""
    body = "\n".join(text.split("\n")[1:-2])
    if '"' in body and ")" in body:
        raise _Doubt("a here-document that an old bash would end too soon")
    return body.rstrip("\n")


class _Command:
    """A simple command in the making."""

    __slots__ = ("before", "end", "pending", "redirects", "start", "words")

    def __init__(self, before: str) -> None:
        self.before = before
        self.words: list[_Word] = []
        self.redirects: list[Redirect] = []
        self.pending: tuple[str, str] | None = None
        self.start = -1
        self.end = -1

    @property
    def is_empty(self) -> bool:
        return self.start < 0

    def take(self, word: _Word, source: str) -> None:
        """A finished word: the target of the redirection before it, or one of the command's."""
        self._reach(word.start, word.end)
        if self.pending is None:
            self.words.append(word)
            return
        self.redirects.append(_redirect(*self.pending, word, source))
        self.pending = None

    def redirect(self, operator: str, word: _Word | None, start: int, end: int, source: str) -> None:
        """The operator of a redirection; digits right before it are the descriptor."""
        descriptor = ""
        if word is not None and operator[0] != "&" and DESCRIPTOR.fullmatch(source, word.start, word.end):
            descriptor, start = word.value, word.start
        elif word is not None:
            self.take(word, source)
        if self.pending is not None:
            raise _Doubt("a redirection without a target")
        self._reach(start, end)
        self.pending = (descriptor, operator)

    def finish(self, after: str, source: str) -> Simple:
        if self.pending is not None:
            raise _Doubt("a redirection without a target")
        assignments, rest = _assignments(self.words, source)
        words = tuple(source[word.start : word.end] for word in rest)
        if rest:
            _check_command(rest, words)
        return Simple(
            argv=tuple(word.value for word in rest),
            words=words,
            text=source[self.start : self.end],
            assignments=assignments,
            redirects=tuple(self.redirects),
            globs=tuple(place for place, word in enumerate(rest) if word.glob and words[place] != "["),
            before=self.before,
            after=after,
        )

    def _reach(self, start: int, end: int) -> None:
        if self.start < 0:
            self.start = start
        self.end = end


def read(command: str) -> Line | Unclear:
    """The simple commands of a text, if it can be proven what they are."""
    if len(command) > LONGEST:
        return Unclear(f"more than {LONGEST:,} characters")
    return _read(command)


@lru_cache(maxsize=64)
def _read(command: str) -> Line | Unclear:
    """Kept for a while: within one decision a text is read for allows and for denies."""
    if PLAIN.fullmatch(command):
        words = tuple(command.split(" "))
        if words[0] not in NOT_PLAIN:
            return Line(command, (Simple(words, words, command),))
    if FORBIDDEN.search(command):
        return Unclear("a control character")
    try:
        commands = tuple(_commands(command))
    except _Doubt as doubt:
        return Unclear(str(doubt))
    if len(commands) > MOST_COMMANDS:
        return Unclear(f"more than {MOST_COMMANDS} commands")
    if sum(len(simple.argv) + len(simple.redirects) for simple in commands) > MOST_WORDS:
        return Unclear(f"more than {MOST_WORDS:,} words")
    return Line(command, commands) if commands else Unclear("no command")


def _commands(source: str) -> list[Simple]:
    found: list[Simple] = []
    current, word = _Command(""), None
    place = 0
    while place < len(source):
        token = TOKEN.match(source, place)
        if token is None:
            raise _Doubt(_reason(source[place]))
        kind, text, end = token.lastgroup, token[0], token.end()
        if kind == "redirect":
            current.redirect(text, word, place, end, source)
            word = None
        elif kind in ("blank", "separator"):
            if word is not None:
                current.take(word, source)
                word = None
            if kind == "separator":
                current = _after(text, current, found, source)
        else:
            word = word or _Word(place)
            word.add(kind, text, end)
        place = end
    if word is not None:
        current.take(word, source)
    if not current.is_empty:
        found.append(current.finish("", source))
    elif current.before in ("&&", "||", "|", "|&"):
        raise _Doubt("an operator without a command behind it")
    return found


def _after(operator: str, current: _Command, found: list[Simple], source: str) -> _Command:
    """The command behind an operator. A newline may stand where a command is yet to come; nothing else may."""
    if not current.is_empty:
        found.append(current.finish(operator, source))
        return _Command(operator)
    if operator != "\n":
        raise _Doubt("an operator without a command before it")
    return current


def _reason(character: str) -> str:
    if character >= "\x80":
        return "a letter outside ASCII without quotes"
    return dict(REASONS).get(character, f"an unexpected {character!r}")


def _redirect(descriptor: str, operator: str, word: _Word, source: str) -> Redirect:
    if word.glob or not word.value:
        raise _Doubt("a redirection to a pattern or to nothing")
    if operator == ">&" and not DESCRIPTOR.fullmatch(source, word.start, word.end):
        raise _Doubt("a redirection of two streams at once")
    if SOCKET.search(word.value):
        raise _Doubt("a redirection to the network")
    return Redirect(descriptor, operator, word.value)


def _assignments(words: list[_Word], source: str) -> tuple[tuple[tuple[str, str], ...], list[_Word]]:
    """The assignments in front of a command, and its other words."""
    found: list[tuple[str, str]] = []
    for place, word in enumerate(words):
        assignment = ASSIGNMENT.match(source, word.start, word.end)
        if assignment is None:
            return tuple(found), words[place:]
        if assignment[2] or word.glob:
            raise _Doubt("an assignment that is more than a name and a value")
        found.append((assignment[1], word.value[len(assignment[0]) :]))
    return tuple(found), []


def _check_command(rest: list[_Word], words: tuple[str, ...]) -> None:
    """The command word is plain. `time` is a keyword: the word behind it is a command word too."""
    place = 0
    while True:
        word = rest[place]
        if word.value in RESERVED:
            raise _Doubt("a reserved word")
        if words == ("[", *words[1:-1], "]") and not place:
            return
        if word.glob or word.value != words[place] or not COMMAND.fullmatch(word.value):
            raise _Doubt("a command word that is not plain")
        if word.value != "time":
            return
        place += 1
        if place < len(words) and words[place] == "-p":
            place += 1
        if place >= len(words):
            raise _Doubt("`time` without a command")
