"""What a row of the table of options is made of: the kind of its value, and who may set it.

    model = Option(TEXT, "--model MODEL", "The model of the session.", gateway="create")

See also: `options.py` for the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar, overload

from msgspec import Meta, defstruct

from parley.errors import UsageError
from parley.protocol.base import UNSET, Struct, UnsetType

T = TypeVar("T")
D = TypeVar("D")
G = TypeVar("G", bound="OptionGroup")
S = TypeVar("S", bound=Struct)
OFF = ("false", "0", "off")
Texts = tuple[str, ...]
GatewayScope = Literal["", "create", "approve"]


class OptionKind(Struct, Generic[T], frozen=True):
    """How the words of an option become its value, and back."""

    words: Literal["none", "one", "maybe", "many"]
    """How many words it takes."""
    read: Callable[[str, list[str]], Any]
    write: Callable[[Any], list[str]]
    empty: Any = None
    """The value of an option that is not given."""
    metavar: str = "TEXT"
    """What `--help` shows for a value, unless the row has a better word."""
    choices: Texts = ()
    """The valid values, if only some are."""
    is_open: bool = False
    """Variables and settings may hold values that are not among the choices."""
    expects: str = "text"
    """What a value must be, for error messages."""
    json_type: Any = str
    """The type of a value where it is not a word: in Python, JSON and TOML."""


class Option(Generic[T]):
    """One row of the table."""

    group: type[OptionGroup]
    field: str

    def __init__(
        self,
        kind: OptionKind[T],
        flags: str,
        help: str,
        *,
        variable: str = "",
        switch: tuple[str, str] = ("", ""),
        setting: str = "",
        least: int | None = None,
        sdk: str = "",
        initialize: str = "",
        gateway: GatewayScope = "",
        evals: str = "",
    ) -> None:
        self.kind = kind
        words = flags.split()
        self.flags = tuple(word for word in words if word.startswith("-"))
        """Without a flag, only a variable or settings can set it."""
        self.help = help
        """What `--help` says: a sentence."""
        self.metavar = "".join(words[len(self.flags) :])
        """What `--help` shows for a value, if there is a better word than that of the kind."""
        self.default: Any = kind.empty
        self.variable = variable
        """The environment variable that sets it if the flag is not given."""
        self.switch = switch
        """A variable that, if it is true, sets it to this value."""
        self.setting = setting
        """The key in settings that sets it if neither is given; `limits.maxTurns` is in the object `limits`."""
        self.least = least
        """The smallest number that is valid."""
        self.sdk = sdk
        """Its name in `Options` of the Python SDK, if that differs."""
        self.initialize = initialize
        """The field of `initialize` in which the SDK sends it; without one, it is a flag or a variable."""
        self.gateway = gateway
        """The scope with which a client of a gateway can give it to a new session, besides the scope `admin`."""
        self.evals = evals
        """Its key in the configurations of `parley eval`, if it has one."""

    def __set_name__(self, owner: type[OptionGroup], name: str) -> None:
        self.field, self.group = name, owner
        owner.fields[name] = self

    def with_default(self: Option[D | None], default: D) -> Option[D]:
        self.default = default
        return self  # type: ignore[return-value]  # it is never None now

    @property
    def sdk_name(self) -> str:
        return self.sdk or self.field

    def json_type(self, *, as_choices: bool = False) -> Any:
        """The type of a value, with what limits and describes it."""
        kind = Literal[self.kind.choices] if as_choices and self.kind.choices else self.kind.json_type
        return Annotated[kind, Meta(ge=self.least, description=self.help)]

    @overload
    def __get__(self, options: None, owner: type[OptionGroup]) -> Option[T]: ...
    @overload
    def __get__(self, options: OptionGroup, owner: type[OptionGroup]) -> T: ...
    def __get__(self, options: OptionGroup | None, owner: type[OptionGroup]) -> Option[T] | T:
        if options is None:
            return self
        value: T = options.given.get(self.field, self.default)
        vars(options)[self.field] = value  # options are frozen: the next read finds it there
        return value


class OptionGroup:
    """Options that belong together. Frozen: `options.replace(model="x")` makes another."""

    heading = ""
    """The title of the group in `--help`."""
    fields: ClassVar[dict[str, Option[Any]]] = {}
    """The options of all groups by name, in the order of the table."""

    def __init__(self, **given: Any) -> None:
        if unknown := sorted(given.keys() - self.fields.keys()):
            raise TypeError(f"no such option: {', '.join(unknown)}")
        self.given = {name: value for name, value in given.items() if value is not self.fields[name].kind.empty}

    def replace(self: G, **changes: Any) -> G:
        return type(self)(**{**self.given, **changes})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OptionGroup) and other.given == self.given

    __hash__ = None  # type: ignore[assignment]  # values may be lists

    def __repr__(self) -> str:
        shown = {**self.given, **({"api_key": "…"} if "api_key" in self.given else {})}
        return f"Options({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def add_options(base: type[S], name: str, types: Mapping[str, Any]) -> type[S]:
    """A structure with these optional fields besides those of its base."""
    fields = [(field, kind | UnsetType, UNSET) for field, kind in types.items()]
    config = base.__struct_config__
    return defstruct(  # type: ignore[return-value]  # it is a subclass of the base
        name, fields, bases=(base,), frozen=config.frozen, kw_only=True, forbid_unknown_fields=True
    )


# The kinds.


def read_one(flag: str, words: list[str]) -> str:
    return words[-1]


def read_number(make: Callable[[str], Any], what: str) -> Callable[[str, list[str]], Any]:
    def read(flag: str, words: list[str]) -> Any:
        try:
            return make(words[-1])
        except ValueError:
            raise UsageError(f"option '{flag}' needs {what}, got {words[-1]!r}") from None

    return read


def parse_finite(text: str) -> float:
    """`nan` and `inf` are limits that never apply. Raises ValueError."""
    value = float(text)
    if value - value != 0:
        raise ValueError(text)
    return value


def split_rules(text: str) -> Iterator[str]:
    """Cut at commas and spaces outside parentheses: `Read,Bash(git *)` is two rules."""
    depth, rule = 0, ""
    for letter in text:
        depth += (letter == "(") - (letter == ")" and depth > 0)
        if letter in ", \n\t" and depth == 0:
            if rule:
                yield rule
            rule = ""
        else:
            rule += letter
    if rule:
        yield rule


def read_rules(flag: str, words: list[str]) -> Texts:
    return tuple(rule for word in words for rule in split_rules(word))


def read_tool_list(flag: str, words: list[str]) -> Texts:
    """Rules; some clients send `{"type":"preset",...}` for "all of them"."""
    return ("default",) if words[-1].startswith("{") else read_rules(flag, words)


def read_commas(flag: str, words: list[str]) -> Texts:
    return tuple(part.strip() for word in words for part in word.split(",") if part.strip())


def read_words(flag: str, words: list[str]) -> Texts:
    return tuple(words)


def list_kind(
    words: Literal["one", "many"],
    read: Callable[[str, list[str]], Texts],
    write: Callable[[Any], list[str]] = lambda value: [",".join(value)],
    metavar: str = "TEXT",
) -> OptionKind[Texts | None]:
    return OptionKind(words, read, write, metavar=metavar, json_type=list[str])


def one_of(*allowed: str, is_open: bool = False) -> OptionKind[str | None]:
    def read(flag: str, words: list[str]) -> str:
        if words[-1] not in allowed:
            raise UsageError(
                f"option '{flag}': argument {words[-1]!r} is invalid. Allowed choices are {', '.join(allowed)}."
            )
        return words[-1]

    expects = f"{', '.join(allowed[:-1])} or {allowed[-1]}"
    return OptionKind("one", read, lambda value: [value], choices=allowed, is_open=is_open, expects=expects)


TEXT: OptionKind[str | None] = OptionKind("one", read_one, lambda value: [value])
MAYBE: OptionKind[str | None] = OptionKind(
    "maybe", lambda flag, words: words[-1] if words else "", lambda value: [value]
)
SWITCH: OptionKind[bool] = OptionKind(
    "none", lambda flag, words: True, lambda value: [], empty=False, metavar="", json_type=bool
)
ON_OFF: OptionKind[bool] = OptionKind(
    "maybe",
    lambda flag, words: not words or words[-1] not in OFF,
    lambda value: ["true"],
    empty=False,
    metavar="true|false",
    json_type=bool,
)
"""A switch that can also be given a value."""
INTEGER: OptionKind[int | None] = OptionKind(
    "one",
    read_number(int, "a whole number"),
    lambda value: [str(value)],
    metavar="N",
    expects="a whole number",
    json_type=int,
)
NUMBER: OptionKind[float | None] = OptionKind(
    "one",
    read_number(parse_finite, "a number"),
    lambda value: [repr(value)],
    metavar="NUMBER",
    expects="a number",
    json_type=float,
)
RULES = list_kind("many", read_rules, metavar="RULE")
TOOL_LIST = list_kind("many", read_tool_list, metavar="TOOL")
WORDS = list_kind("many", read_words, list)
EACH = list_kind("one", read_words, list)
"""One word each time, and as often as needed."""
COMMAS = list_kind("many", read_commas)
REPEATED = list_kind("one", read_commas)
COMMA_TEXT = list_kind("one", lambda flag, words: read_commas(flag, words[-1:]))
