"""Every option, one row each: its name in Python, its flag, its kind.

The engine reads its command line with these rows and the SDK writes one with the
same rows, so the two cannot drift apart:

    parse(["--model", "opus", "--max-turns=3", "hello"])
        -> Parsed(options=Options(model="opus", max_turns=3), words=("hello",), warnings=())
    spell(Options(model="opus", max_turns=3))
        -> ["--model=opus", "--max-turns=3"]

An option that was not given is None (a switch: False). `--flag value` and
`--flag=value` mean the same for every row; a value may be the empty string, which is
not the same as not given. A list option takes every following word up to the next
flag, as the original does. A flag we do not know is a warning, never a failure:
clients pass flags of other versions. It takes the word behind it along, because the
clients' `extra_args` have values.

Not here: what an option means (compose/ and those it composes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

from parley.errors import UsageError
from parley.protocol.base import Struct

T = TypeVar("T")
MODES = ("default", "acceptEdits", "bypassPermissions", "plan", "dontAsk", "auto")
SYNC_POLICIES = ("always", "turn", "off")
"""When a session's log is forced to the device."""


class OptionKind(Struct, frozen=True):
    """How the words of an option become its value, and back."""

    words: str
    """How many words it takes: "none", "one", "maybe" or "many"."""
    read: Callable[[str, list[str]], Any]
    write: Callable[[Any], list[str]]
    empty: Any = None
    """The value of an option that was not given."""


class Option(Generic[T]):
    """One row of the table."""

    def __init__(self, kind: OptionKind, *flags: str) -> None:
        self.kind = kind
        self.flags = flags
        self.field = ""

    def __set_name__(self, owner: type[CliOptions], name: str) -> None:
        self.field = name
        ROWS.append(self)
        for flag in self.flags:
            BY_FLAG[flag] = self

    @overload
    def __get__(self, options: None, owner: type[CliOptions]) -> Option[T]: ...
    @overload
    def __get__(self, options: CliOptions, owner: type[CliOptions]) -> T: ...
    def __get__(self, options: CliOptions | None, owner: type[CliOptions]) -> Option[T] | T:
        if options is None:
            return self
        value: T = options.given.get(self.field, self.kind.empty)
        return value


ROWS: list[Option[Any]] = []
BY_FLAG: dict[str, Option[Any]] = {}


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
    """`nan` and `inf` would be limits that never apply. Raises ValueError."""
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


def read_rules(flag: str, words: list[str]) -> tuple[str, ...]:
    return tuple(rule for word in words for rule in split_rules(word))


def read_tool_list(flag: str, words: list[str]) -> tuple[str, ...]:
    """Rules; some clients send `{"type":"preset",...}` for "all of them"."""
    return ("default",) if words[-1].startswith("{") else read_rules(flag, words)


def read_commas(flag: str, words: list[str]) -> tuple[str, ...]:
    return tuple(part.strip() for word in words for part in word.split(",") if part.strip())


TEXT = OptionKind("one", read_one, lambda value: [value])
MAYBE = OptionKind("maybe", lambda flag, words: words[-1] if words else "", lambda value: [value])
SWITCH = OptionKind("none", lambda flag, words: True, lambda value: [], empty=False)
INTEGER = OptionKind("one", read_number(int, "a whole number"), lambda value: [str(value)])
NUMBER = OptionKind("one", read_number(parse_finite, "a number"), lambda value: [repr(value)])
RULES = OptionKind("many", read_rules, lambda value: [",".join(value)])
TOOL_LIST = OptionKind("many", read_tool_list, lambda value: [",".join(value)])
WORDS = OptionKind("many", lambda flag, words: tuple(words), list)
EACH = OptionKind("one", lambda flag, words: tuple(words), list)
"""One word each time, and as often as needed."""
COMMAS = OptionKind("many", read_commas, lambda value: [",".join(value)])
REPEATED = OptionKind("one", read_commas, lambda value: [",".join(value)])
COMMA_TEXT = OptionKind("one", lambda flag, words: read_commas(flag, words[-1:]), lambda value: [",".join(value)])


def one_of(*allowed: str) -> OptionKind:
    def read(flag: str, words: list[str]) -> str:
        if words[-1] not in allowed:
            raise UsageError(
                f"option '{flag}': argument {words[-1]!r} is invalid. Allowed choices are {', '.join(allowed)}."
            )
        return words[-1]

    return OptionKind("one", read, lambda value: [value])


class CliOptions:
    """What was asked for. Frozen: `options.but(model="x")` makes another."""

    def __init__(self, **given: Any) -> None:
        empty = {row.field: row.kind.empty for row in ROWS}
        if strange := sorted(set(given) - set(empty)):
            raise TypeError(f"no such option: {', '.join(strange)}")
        self.given = {name: value for name, value in given.items() if value is not empty[name]}

    def replace(self, **changes: Any) -> CliOptions:
        return CliOptions(**{**self.given, **changes})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CliOptions) and other.given == self.given

    __hash__ = None  # type: ignore[assignment]  # values may be lists

    def __repr__(self) -> str:
        shown = {**self.given, **({"api_key": "…"} if "api_key" in self.given else {})}
        return f"Options({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    # How to run.
    print = Option[bool](SWITCH, "--print", "-p")
    output_format = Option[str | None](one_of("text", "json", "stream-json", "message"), "--output-format")
    input_format = Option[str | None](one_of("text", "stream-json"), "--input-format")
    verbose = Option[bool](SWITCH, "--verbose")
    version = Option[bool](SWITCH, "--version", "-v")
    help = Option[bool](SWITCH, "--help", "-h")
    stdio = Option[bool](SWITCH, "--stdio")
    dialect = Option[str | None](TEXT, "--dialect")
    include_partial_messages = Option[bool](SWITCH, "--include-partial-messages")
    include_hook_events = Option[bool](SWITCH, "--include-hook-events")
    replay_user_messages = Option[bool](SWITCH, "--replay-user-messages")
    session_mirror = Option[bool](SWITCH, "--session-mirror")
    extension_fields = Option[bool](SWITCH, "--extension-fields")
    max_line_bytes = Option[int | None](INTEGER, "--max-line-bytes")
    await_initialize = Option[bool](SWITCH, "--await-initialize")

    # The model.
    model = Option[str | None](TEXT, "--model")
    fallback_model = Option[str | None](TEXT, "--fallback-model")
    api_key = Option[str | None](TEXT, "--api-key")
    betas = Option[tuple[str, ...] | None](COMMAS, "--betas")
    max_thinking_tokens = Option[int | None](INTEGER, "--max-thinking-tokens")
    thinking = Option[str | None](one_of("adaptive", "disabled", "enabled"), "--thinking")
    thinking_display = Option[str | None](TEXT, "--thinking-display")
    effort = Option[str | None](one_of("low", "medium", "high", "xhigh", "max"), "--effort")
    offline = Option[bool](SWITCH, "--offline")
    record = Option[str | None](TEXT, "--record")
    faults = Option[tuple[str, ...] | None](REPEATED, "--fault")

    # Instructions.
    system_prompt = Option[str | None](TEXT, "--system-prompt")
    system_prompt_file = Option[str | None](TEXT, "--system-prompt-file")
    append_system_prompt = Option[str | None](TEXT, "--append-system-prompt")
    append_system_prompt_file = Option[str | None](TEXT, "--append-system-prompt-file")
    exclude_dynamic_sections = Option[bool](SWITCH, "--exclude-dynamic-system-prompt-sections")
    system_prompt_snapshot = Option[str | None](MAYBE, "--system-prompt-snapshot")
    json_schema = Option[str | None](TEXT, "--json-schema")

    # Limits.
    max_turns = Option[int | None](INTEGER, "--max-turns")
    max_budget_usd = Option[float | None](NUMBER, "--max-budget-usd")
    max_budget_tokens = Option[int | None](INTEGER, "--max-budget-tokens")
    max_budget_calls = Option[int | None](INTEGER, "--max-budget-calls")
    max_budget_seconds = Option[float | None](NUMBER, "--max-budget-seconds")
    task_budget = Option[int | None](INTEGER, "--task-budget")

    # Tools and permission.
    tools = Option[tuple[str, ...] | None](TOOL_LIST, "--tools")
    allowed_tools = Option[tuple[str, ...] | None](RULES, "--allowedTools", "--allowed-tools")
    disallowed_tools = Option[tuple[str, ...] | None](RULES, "--disallowedTools", "--disallowed-tools")
    client_tools = Option[str | None](TEXT, "--client-tools")
    permission_mode = Option[str | None](one_of(*MODES, "manual"), "--permission-mode")
    permission_prompt_tool = Option[str | None](TEXT, "--permission-prompt-tool")
    permission_prompts = Option[str | None](one_of("host", "none"), "--permission-prompts")
    skip_permissions = Option[bool](SWITCH, "--dangerously-skip-permissions")
    allow_skip_permissions = Option[bool](SWITCH, "--allow-dangerously-skip-permissions")
    guard = Option[bool](SWITCH, "--guard")
    fail_on_denial = Option[bool](SWITCH, "--fail-on-denial")
    add_dirs = Option[tuple[str, ...] | None](WORDS, "--add-dir")
    mcp_config = Option[tuple[str, ...] | None](WORDS, "--mcp-config")
    strict_mcp_config = Option[bool](SWITCH, "--strict-mcp-config")
    agents = Option[str | None](TEXT, "--agents")
    agent = Option[str | None](TEXT, "--agent")
    forward_subagent_text = Option[bool](SWITCH, "--forward-subagent-text")
    disable_slash_commands = Option[bool](SWITCH, "--disable-slash-commands")
    prompt_suggestions = Option[str | None](MAYBE, "--prompt-suggestions")

    # Sessions.
    resume = Option[str | None](MAYBE, "--resume", "-r")
    continue_conversation = Option[bool](SWITCH, "--continue", "-c")
    session_id = Option[str | None](TEXT, "--session-id")
    fork_session = Option[bool](SWITCH, "--fork-session")
    steal = Option[bool](SWITCH, "--steal")
    resume_session_at = Option[str | None](TEXT, "--resume-session-at")
    resume_drops_turn = Option[str | None](TEXT, "--resume-drops-turn")
    no_session_persistence = Option[bool](SWITCH, "--no-session-persistence")
    name = Option[str | None](TEXT, "--name", "-n")
    store = Option[str | None](TEXT, "--store")
    database = Option[str | None](TEXT, "--db")
    memory = Option[str | None](MAYBE, "--memory")
    fsync = Option[str | None](one_of(*SYNC_POLICIES), "--fsync")

    # Settings.
    settings = Option[str | None](TEXT, "--settings")
    setting_sources = Option[tuple[str, ...] | None](COMMA_TEXT, "--setting-sources")
    managed_settings = Option[str | None](TEXT, "--managed-settings")
    managed_settings_in_initialize = Option[bool](SWITCH, "--managed-settings-in-initialize")
    project_config_root = Option[str | None](TEXT, "--project-config-root")
    plugin_dirs = Option[tuple[str, ...] | None](EACH, "--plugin-dir")
    plugin_dirs_no_mcp = Option[tuple[str, ...] | None](EACH, "--plugin-dir-no-mcp")
    plugin_urls = Option[tuple[str, ...] | None](EACH, "--plugin-url")
    autocompact = Option[str | None](MAYBE, "--autocompact")
    bare = Option[bool](SWITCH, "--bare")
    debug = Option[str | None](MAYBE, "--debug", "-d")
    debug_file = Option[str | None](TEXT, "--debug-file")
    debug_to_stderr = Option[bool](SWITCH, "--debug-to-stderr", "-d2e")
    restricted = Option[bool](SWITCH, "--restricted")
    safe_mode = Option[bool](SWITCH, "--safe-mode")

    # Accepted so that a client's command line is read right; nothing of ours answers to them.
    files = Option[tuple[str, ...] | None](WORDS, "--file")
    channels = Option[tuple[str, ...] | None](COMMAS, "--channels")
    sdk_url = Option[str | None](TEXT, "--sdk-url")
    worktree = Option[str | None](MAYBE, "--worktree", "-w")
    background = Option[bool](SWITCH, "--bg", "--background")
    brief = Option[bool](SWITCH, "--brief")
    chrome = Option[bool](SWITCH, "--chrome")
    no_chrome = Option[bool](SWITCH, "--no-chrome")
    cloud = Option[bool](SWITCH, "--cloud")
    desktop = Option[bool](SWITCH, "--desktop")
    environment = Option[str | None](TEXT, "--environment")
    from_pr = Option[str | None](MAYBE, "--from-pr")
    ide = Option[bool](SWITCH, "--ide")
    remote = Option[str | None](MAYBE, "--remote")
    remote_control = Option[str | None](MAYBE, "--remote-control", "--rc")
    remote_control_prefix = Option[str | None](TEXT, "--remote-control-session-name-prefix")
    await_claim = Option[bool](SWITCH, "--await-claim")
    teleport = Option[str | None](MAYBE, "--teleport")
    tmux = Option[str | None](MAYBE, "--tmux")
    screen_reader = Option[bool](SWITCH, "--ax-screen-reader")
    repl = Option[bool](SWITCH, "--repl")
    inspect = Option[str | None](MAYBE, "--inspect")
    dump = Option[str | None](MAYBE, "--dump")
    dump_format = Option[str | None](TEXT, "--format")
    prompt = Option[str | None](TEXT, "--prompt")


WITHOUT_EFFECT = frozenset(row.field for row in ROWS[[row.field for row in ROWS].index("files") :])


class ParsedArgs(Struct, frozen=True):
    """A command line, read."""

    options: CliOptions
    words: tuple[str, ...]
    """What is no option: the prompt."""
    warnings: tuple[str, ...]


def parse(argv: Sequence[str]) -> ParsedArgs:
    """Read a command line. Raises UsageError."""
    given: dict[str, list[str]] = {}
    flags: dict[str, str] = {}
    words: list[str] = []
    warnings: list[str] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word == "--":
            words += rest
            break
        if not is_flag(word):
            words.append(word)
            continue
        flag, has_value, value = word.partition("=")
        row = BY_FLAG.get(flag)
        if row is None:
            ignored = _take_values("maybe", flag, has_value, value, rest)
            behind = f" {ignored[0]!r}" if ignored else ""
            warnings.append(f"unknown option '{flag}'{behind} is ignored")
            continue
        flags[row.field] = flag
        given.setdefault(row.field, []).extend(_take_values(row.kind.words, flag, has_value, value, rest))
    values = {field: BY_FLAG[flags[field]].kind.read(flags[field], found) for field, found in given.items()}
    warnings += [f"option '{flags[field]}' has no effect here" for field in values if field in WITHOUT_EFFECT]
    return ParsedArgs(CliOptions(**values), tuple(word for word in words if word), tuple(warnings))


def is_flag(word: str) -> bool:
    """A lone dash and the empty string are words."""
    return len(word) > 1 and word.startswith("-")


def _take_values(takes: str, flag: str, has_value: str, value: str, rest: list[str]) -> list[str]:
    """The words that belong to a flag; those that come from the rest are taken off it."""
    if takes == "none":
        if has_value and value not in ("", "true"):
            raise UsageError(f"option '{flag}' takes no value, got {value!r}")
        return []
    if has_value:
        return [value]
    if takes == "one":
        # A value may look like a flag only where nothing else makes sense: `--system-prompt -` is fine.
        if not rest:
            raise UsageError(f"option '{flag}' needs a value")
        return [rest.pop(0)]
    found: list[str] = []
    while rest and not is_flag(rest[0]) and (takes == "many" or not found):
        found.append(rest.pop(0))
    if takes == "many" and not found:
        raise UsageError(f"option '{flag}' needs a value")
    return found


def format_args(options: CliOptions) -> list[str]:
    """The command line that says these options. Values are bound with `=`, so they may begin with a dash."""
    return [
        word for row in ROWS if row.field in options.given for word in _format_option(row, options.given[row.field])
    ]


def _format_option(row: Option[Any], value: Any) -> Iterable[str]:
    flag = row.flags[0]
    if row.kind.words == "none":
        return [flag]
    return [f"{flag}={word}" for word in row.kind.write(value)]
