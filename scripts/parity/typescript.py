"""Read the types of a TypeScript declaration file.

    module = read(text)
    module.fields(module.types["Options"])      the names and types of its fields

Enough of the grammar for declarations: type aliases, interfaces, constants with a type. Functions, classes and
namespaces are skipped. A construct that is not understood raises `ParseError` with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

TOKEN = re.compile(
    r"""
      (?P<skip>\s+|//[^\n]*|/\*.*?\*/)
    | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\.)*`)
    | (?P<number>\d[\w.]*)
    | (?P<name>[A-Za-z_$][\w$]*)
    | (?P<sign>=>|\.\.\.|[{}()\[\]<>|&;:,.?=@*+\-!])
    """,
    re.VERBOSE | re.DOTALL,
)
CLOSING = {"{": "}", "(": ")", "[": "]", "<": ">"}
MODIFIERS = {"export", "declare", "abstract", "default"}


class ParseError(Exception):
    """A declaration that this reader does not understand."""


@dataclass(frozen=True)
class Name:
    """A reference to a type: `string`, `SDKMessage`, `Record<string, T>`."""

    name: str
    arguments: tuple[Type, ...] = ()


@dataclass(frozen=True)
class Literal:
    value: str


@dataclass(frozen=True)
class ListOf:
    item: Type


@dataclass(frozen=True)
class Choice:
    members: tuple[Type, ...]


@dataclass(frozen=True)
class Both:
    """An intersection."""

    members: tuple[Type, ...]


@dataclass(frozen=True)
class Object:
    fields: dict[str, Type] = field(default_factory=dict)
    values: Type | None = None
    """The type of an index signature."""


@dataclass(frozen=True)
class Opaque:
    """A function, or another type whose parts have no names."""

    kind: str


Type = Name | Literal | ListOf | Choice | Both | Object | Opaque


@dataclass
class Module:
    """The types and constants of one file by their names."""

    types: dict[str, Type] = field(default_factory=dict)
    constants: dict[str, Type] = field(default_factory=dict)

    def resolve(self, type: Type) -> Type:
        """Follow references to types of this file, and the wrappers that have no fields of their own."""
        seen: set[str] = set()
        while isinstance(type, Name):
            if type.name in seen:
                return type
            seen.add(type.name)
            own = type.name.removeprefix("coreTypes.")
            if own in self.types:
                type = self.types[own]
            elif (inner := self._unwrap(type)) is not None:
                type = inner
            else:
                return type
        return type

    def _unwrap(self, type: Name) -> Type | None:
        kind = type.name.rpartition(".")[2]
        if kind in ("infer", "ReturnType", "Partial", "Required", "Readonly", "Promise", "ZodOptional", "ZodObject"):
            return type.arguments[0]
        if kind in ("Omit", "Pick"):
            return self._select(type, keep=kind == "Pick")
        if kind in ("Array", "ReadonlyArray", "ZodArray"):
            return ListOf(type.arguments[0])
        if kind in ("Record", "ZodRecord"):
            return Object(values=type.arguments[1])
        if kind == "ZodUnion":
            return type.arguments[0]
        if type.name.startswith("typeof "):
            return self.constants.get(type.name.removeprefix("typeof "))
        return None

    def _select(self, type: Name, *, keep: bool) -> Type:
        names = {one.value for one in self.members(type.arguments[1]) if isinstance(one, Literal)}
        fields = self.fields(type.arguments[0])
        return Object({name: value for name, value in fields.items() if (name in names) is keep})

    def members(self, type: Type) -> Iterator[Type]:
        """The members of a union, those of nested unions too; the type itself if it is not a union."""
        found = self.resolve(type)
        if isinstance(found, Choice):
            for member in found.members:
                yield from self.members(member)
        else:
            yield found

    def fields(self, type: Type) -> dict[str, Type]:
        """The fields of an object type. Members of a union or an intersection put theirs together."""
        found = self.resolve(type)
        if isinstance(found, Object):
            return found.fields
        fields: dict[str, Type] = {}
        if isinstance(found, Choice | Both):
            for member in found.members:
                for name, value in self.fields(member).items():
                    known = fields.get(name)
                    fields[name] = value if known is None or known == value else Choice((known, value))
        return fields

    def flatten(self, type: Type, depth: int, stop: frozenset[str] = frozenset()) -> Iterator[str]:
        """The paths of all fields to a depth: `agents`, `agents.*.tools`, `plugins[].path`.

        Types named in `stop` are not entered.
        """
        for name, value in self.fields(type).items():
            yield name
            yield from (f"{name}{path}" for path in self._flatten_value(value, depth - 1, stop))

    def _flatten_value(self, type: Type, depth: int, stop: frozenset[str]) -> Iterator[str]:
        if depth <= 0 or (isinstance(type, Name) and type.name in stop):
            return
        seen: dict[str, None] = {}
        found = self.resolve(type)
        for member in found.members if isinstance(found, Choice) else (found,):
            if isinstance(member, Name) and member.name in stop:
                continue
            inner = self.resolve(member)
            if isinstance(inner, ListOf):
                seen.update((f"[]{path}", None) for path in self._flatten_value(inner.item, depth, stop))
            elif isinstance(inner, Object) and inner.values is not None:
                seen.update((f".*{path}", None) for path in self._flatten_value(inner.values, depth, stop))
            elif isinstance(inner, Choice):
                seen.update((path, None) for path in self._flatten_value(inner, depth, stop))
            if isinstance(inner, Object | Both):
                seen.update((f".{path}", None) for path in self.flatten(inner, depth, stop))
        yield from seen

    def texts(self, type: Type) -> list[str]:
        """The string literals among the members of a union, or among the items of a tuple."""
        found = self.resolve(type)
        inner = found.item if isinstance(found, ListOf) else found
        return [member.value for member in self.members(inner) if isinstance(member, Literal)]


def read(text: str) -> Module:
    """Raises ParseError."""
    return Reader(text).read()


class Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(tokenize(text))
        self.at = 0
        self.module = Module()

    # Tokens

    def peek(self, ahead: int = 0) -> str:
        index = self.at + ahead
        return self.tokens[index][0] if index < len(self.tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def skip(self, token: str) -> bool:
        if self.peek() != token:
            return False
        self.at += 1
        return True

    def expect(self, token: str) -> None:
        if not self.skip(token):
            raise self.error(f"expected {token!r}, found {self.peek()!r}")

    def error(self, problem: str) -> ParseError:
        offset = self.tokens[min(self.at, len(self.tokens) - 1)][1] if self.tokens else 0
        return ParseError(f"line {self.text.count(chr(10), 0, offset) + 1}: {problem}")

    def skip_group(self) -> None:
        """Skip a bracket and everything up to the one that closes it."""
        closing = CLOSING[self.next()]
        while not self.skip(closing):
            if not self.peek():
                raise self.error(f"expected {closing!r}, found the end of the file")
            if self.peek() in CLOSING:
                self.skip_group()
            else:
                self.at += 1

    # Statements

    def read(self) -> Module:
        while self.peek():
            while self.peek() in MODIFIERS:
                self.at += 1
            self.read_statement()
        return self.module

    def read_statement(self) -> None:
        word = self.peek()
        if word == "type" and is_name(self.peek(1)):
            self.at += 1
            name = self.next()
            self.skip_parameters()
            self.expect("=")
            self.module.types[name] = self.read_type()
            self.skip(";")
        elif word == "interface":
            self.read_interface()
        elif word == "const" and self.peek(2) == ":":
            self.at += 1
            name = self.next()
            self.at += 1
            self.module.constants[name] = self.read_type()
            self.skip(";")
        else:
            self.skip_statement()

    def read_interface(self) -> None:
        self.at += 1
        name = self.next()
        self.skip_parameters()
        bases: list[Type] = []
        if self.skip("extends"):
            bases.append(self.read_primary())
            while self.skip(","):
                bases.append(self.read_primary())
        body = self.read_object()
        self.module.types[name] = Both((*bases, body)) if bases else body

    def skip_parameters(self) -> None:
        if self.peek() == "<":
            self.skip_group()

    def skip_statement(self) -> None:
        """Skip to the end of a statement: a semicolon, or the block of a class, namespace or function."""
        has_block = self.peek() in ("class", "namespace", "module", "enum", "global")
        while self.peek():
            if self.peek() in CLOSING:
                is_block = self.peek() == "{"
                self.skip_group()
                if is_block and has_block:
                    return
            elif self.next() == ";":
                return

    # Types

    def read_type(self) -> Type:
        self.skip("|")
        members = [self.read_intersection()]
        while self.skip("|"):
            members.append(self.read_intersection())
        found = members[0] if len(members) == 1 else Choice(tuple(members))
        if self.peek() == "extends":
            return self.skip_condition()
        return found

    def skip_condition(self) -> Type:
        self.at += 1
        self.read_type()
        self.expect("?")
        self.read_type()
        self.expect(":")
        self.read_type()
        return Opaque("condition")

    def read_intersection(self) -> Type:
        self.skip("&")
        members = [self.read_postfix()]
        while self.skip("&"):
            members.append(self.read_postfix())
        return members[0] if len(members) == 1 else Both(tuple(members))

    def read_postfix(self) -> Type:
        found = self.read_primary()
        while self.peek() == "[":
            if self.peek(1) == "]":
                self.at += 2
                found = ListOf(found)
            else:
                self.skip_group()
                found = Opaque("member")
        return found

    def read_primary(self) -> Type:
        token = self.peek()
        if token == "{":
            return self.read_object()
        if token == "[":
            return self.read_tuple()
        if token in ("(", "<") or (token == "new" and self.peek(1) in ("(", "<")):
            return self.read_parenthesis()
        if token[:1] in ("'", '"', "`"):
            self.at += 1
            return Literal(unquote(token))
        if token == "-" or token[:1].isdigit():
            self.at += 2 if token == "-" else 1
            return Opaque("number")
        if token in ("readonly", "unique", "infer", "keyof", "asserts"):
            self.at += 1
            inner = self.read_postfix()
            return inner if token == "readonly" else Opaque(token)
        if is_name(token):
            return self.read_name()
        raise self.error(f"a type cannot start with {token!r}")

    def read_name(self) -> Type:
        prefix = "typeof " if self.skip("typeof") else ""
        name = self.next()
        if name == "import":
            self.skip_group()
        while self.peek() == "." and is_name(self.peek(1)):
            self.at += 1
            name = f"{name}.{self.next()}"
        if self.skip("is"):
            self.read_type()
            return Opaque("predicate")
        arguments = self.read_arguments() if self.peek() == "<" else ()
        return Name(prefix + name, arguments)

    def read_arguments(self) -> tuple[Type, ...]:
        self.expect("<")
        arguments: list[Type] = []
        while not self.skip(">"):
            arguments.append(self.read_type())
            self.skip(",")
        return tuple(arguments)

    def read_parenthesis(self) -> Type:
        """A function, or a type in parentheses."""
        self.skip("new")
        self.skip_parameters()
        start = self.at
        self.skip_group()
        if self.skip("=>"):
            result = self.read_type()
            # `() => z.ZodObject<...>` is how schemas are declared: `ReturnType` asks for the result.
            return result if isinstance(result, Name) and result.name.startswith("z.") else Opaque("function")
        end, self.at = self.at, start + 1
        inner = self.read_type()
        self.at = end
        return inner

    def read_tuple(self) -> Type:
        self.expect("[")
        members: list[Type] = []
        while not self.skip("]"):
            self.skip("...")
            if is_name(self.peek()) and (self.peek(1) == ":" or (self.peek(1), self.peek(2)) == ("?", ":")):
                self.at += 2 if self.peek(1) == ":" else 3
            members.append(self.read_type())
            self.skip("?")
            self.skip(",")
        return ListOf(Choice(tuple(members)))

    def read_object(self) -> Object:
        self.expect("{")
        found = Object()
        values: Type | None = None
        while not self.skip("}"):
            while self.peek() in ("readonly", "get", "set", "+", "-") and self.peek(1) not in (":", "?", "("):
                self.at += 1
            if self.peek() == "[":
                values = self.read_index() or values
            elif self.peek() in ("(", "<"):
                self.skip_method()
            else:
                name = unquote(self.next())
                self.skip("?")
                found.fields[name] = self.read_member()
            self.skip(";") or self.skip(",")
        return Object(found.fields, values)

    def read_member(self) -> Type:
        if self.peek() in ("(", "<"):
            self.skip_method()
            return Opaque("method")
        self.expect(":")
        return self.read_type()

    def skip_method(self) -> None:
        self.skip_parameters()
        self.skip_group()
        if self.skip(":"):
            self.read_type()

    def read_index(self) -> Type | None:
        """`[key: string]: T` or `[K in Names]: T`; None for a method such as `[Symbol.asyncIterator]()`."""
        self.skip_group()
        self.skip("?")
        if self.peek() in ("(", "<"):
            self.skip_method()
            return None
        self.expect(":")
        return self.read_type()


def tokenize(text: str) -> Iterator[tuple[str, int]]:
    at = 0
    while at < len(text):
        found = TOKEN.match(text, at)
        if found is None:
            raise ParseError(f"line {text.count(chr(10), 0, at) + 1}: unexpected {text[at]!r}")
        if found.lastgroup != "skip":
            yield found.group(), at
        at = found.end()


def is_name(token: str) -> bool:
    return bool(token) and (token[0].isalpha() or token[0] in "_$")


def unquote(token: str) -> str:
    if token[:1] in ("'", '"', "`"):
        return re.sub(r"\\(.)", r"\1", token[1:-1])
    return token
