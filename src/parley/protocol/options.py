"""Every option, one row each: its name in Python, its flags, its kind, its help text.

The engine reads its command line with these rows and the SDK writes one with the same rows:

    parse(["--model", "opus", "--max-turns=3", "hello"])
        -> ParsedArgs(options=CliOptions(model="opus", max_turns=3), words=("hello",), warnings=())
    format_args(CliOptions(model="opus", max_turns=3))
        -> ["--model=opus", "--max-turns=3"]

An option that is not given is None (a switch: False). `--flag value` and `--flag=value` mean the same for every row.
A value may be the empty string, which differs from not given. A list option takes every following word up to the
next flag, as in Claude Code. An unknown flag is a warning, never an error: clients pass flags of other versions. It
takes the next word with it, because the clients' `extra_args` have values.

See also: `compose/` for what the options do, `cli/help.py` for `--help`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

from parley.errors import UsageError
from parley.protocol.base import Struct

T = TypeVar("T")
MODES = ("default", "acceptEdits", "bypassPermissions", "plan", "dontAsk", "auto")
SYNC_POLICIES = ("always", "turn", "off")
"""When the log of a session is forced to the disk."""


class OptionKind(Struct, frozen=True):
    """How the words of an option become its value, and back."""

    words: str
    """How many words it takes: "none", "one", "maybe" or "many"."""
    read: Callable[[str, list[str]], Any]
    write: Callable[[Any], list[str]]
    empty: Any = None
    """The value of an option that is not given."""


class Option(Generic[T]):
    """One row of the table."""

    def __init__(self, kind: OptionKind, *flags: str, help: str = "") -> None:
        self.kind = kind
        self.flags = flags
        self.help = help
        """What `--help` says; empty for an option without effect."""
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
    """The options of a session. Frozen: `options.replace(model="x")` makes another."""

    def __init__(self, **given: Any) -> None:
        empty = {row.field: row.kind.empty for row in ROWS}
        if unknown := sorted(set(given) - set(empty)):
            raise TypeError(f"no such option: {', '.join(unknown)}")
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
    print = Option[bool](SWITCH, "--print", "-p", help="Answer one prompt and exit.")
    output_format = Option[str | None](
        one_of("text", "json", "stream-json", "message"),
        "--output-format",
        help="text, json, stream-json or message (stream-json without partial messages).",
    )
    input_format = Option[str | None](
        one_of("text", "stream-json"), "--input-format", help="text, or stream-json to read messages from stdin."
    )
    verbose = Option[bool](
        SWITCH, "--verbose", help="Report every message, not only the result. Required by --output-format stream-json."
    )
    version = Option[bool](SWITCH, "--version", "-v", help="Print the version and exit.")
    help = Option[bool](SWITCH, "--help", "-h", help="Print this help and exit.")
    stdio = Option[bool](
        SWITCH, "--stdio", help="Serve one session over stdin and stdout in the dialect miriad or jsonrpc."
    )
    dialect = Option[str | None](
        TEXT,
        "--dialect",
        help="How messages are written: stream-json, spec001, miriad, jsonrpc, auto, or one of an installed package.",
    )
    include_partial_messages = Option[bool](
        SWITCH, "--include-partial-messages", help="Send the events of the model's stream as they arrive."
    )
    include_hook_events = Option[bool](SWITCH, "--include-hook-events", help="Report when hooks start and finish.")
    replay_user_messages = Option[bool](
        SWITCH, "--replay-user-messages", help="Send each prompt back when it enters the conversation."
    )
    session_mirror = Option[bool](
        SWITCH, "--session-mirror", help="Send every line of the transcript to the client as well."
    )
    extension_fields = Option[bool](
        SWITCH, "--extension-fields", help="Add thinkingMetadata and todos to assistant messages."
    )
    max_line_bytes = Option[int | None](
        INTEGER, "--max-line-bytes", help="The longest line to send; larger tool results are saved to a file."
    )
    await_initialize = Option[bool](SWITCH, "--await-initialize", help="Accepted for compatibility; it has no effect.")

    # The model.
    model = Option[str | None](TEXT, "--model", help="The model: an alias, a full name, or BACKEND:NAME.")
    fallback_model = Option[str | None](
        TEXT, "--fallback-model", help="Models to try if the first is overloaded, separated by commas."
    )
    api_key = Option[str | None](
        TEXT,
        "--api-key",
        help="The key for the Messages API. It is visible in the process list; prefer ANTHROPIC_API_KEY.",
    )
    betas = Option[tuple[str, ...] | None](COMMAS, "--betas", help="Beta features to request from the Messages API.")
    max_thinking_tokens = Option[int | None](
        INTEGER, "--max-thinking-tokens", help="The thinking budget in tokens; 0 disables thinking."
    )
    thinking = Option[str | None](
        one_of("adaptive", "disabled", "enabled"), "--thinking", help="adaptive, enabled or disabled."
    )
    thinking_display = Option[str | None](
        TEXT, "--thinking-display", help="How the backend returns thinking, for example summarized or omitted."
    )
    effort = Option[str | None](
        one_of("low", "medium", "high", "xhigh", "max"),
        "--effort",
        help="How much work the model puts into an answer: low, medium, high, xhigh or max.",
    )
    offline = Option[bool](SWITCH, "--offline", help="Use no network: no web tools and only servers on this machine.")
    record = Option[str | None](TEXT, "--record", help="Record every model call to this file, for --model replay:FILE.")
    faults = Option[tuple[str, ...] | None](
        REPEATED, "--fault", help="Inject a fault into model calls, for tests. Repeatable."
    )

    # Instructions.
    system_prompt = Option[str | None](TEXT, "--system-prompt", help="Replace the system prompt.")
    system_prompt_file = Option[str | None](
        TEXT, "--system-prompt-file", help="Replace the system prompt with the content of this file."
    )
    append_system_prompt = Option[str | None](TEXT, "--append-system-prompt", help="Add to the system prompt.")
    append_system_prompt_file = Option[str | None](
        TEXT, "--append-system-prompt-file", help="Add the content of this file to the system prompt."
    )
    exclude_dynamic_sections = Option[bool](
        SWITCH,
        "--exclude-dynamic-system-prompt-sections",
        help="Leave facts that change between machines out of the system prompt.",
    )
    system_prompt_snapshot = Option[str | None](
        MAYBE, "--system-prompt-snapshot", help="Accepted for compatibility; it has no effect."
    )
    json_schema = Option[str | None](TEXT, "--json-schema", help="The JSON Schema that the result must follow.")

    # Limits.
    max_turns = Option[int | None](INTEGER, "--max-turns", help="End after this many model calls.")
    max_budget_usd = Option[float | None](NUMBER, "--max-budget-usd", help="End when the session has cost this much.")
    max_budget_tokens = Option[int | None](
        INTEGER, "--max-budget-tokens", help="End when the session has used this many tokens."
    )
    max_budget_calls = Option[int | None](
        INTEGER, "--max-budget-calls", help="End after this many model calls in the session, side queries included."
    )
    max_budget_seconds = Option[float | None](
        NUMBER, "--max-budget-seconds", help="End when model calls have taken this long."
    )
    task_budget = Option[int | None](
        INTEGER, "--task-budget", help="The tokens for a turn, sent to models that support it."
    )

    # Tools and permission.
    tools = Option[tuple[str, ...] | None](
        TOOL_LIST, "--tools", help='The built-in tools to offer; "default" for the usual list, "" for none.'
    )
    allowed_tools = Option[tuple[str, ...] | None](
        RULES,
        "--allowedTools",
        "--allowed-tools",
        help='Rules for calls that are allowed, such as Read or "Bash(git *)".',
    )
    disallowed_tools = Option[tuple[str, ...] | None](
        RULES,
        "--disallowedTools",
        "--disallowed-tools",
        help="Rules for calls that are denied. A bare name removes the tool.",
    )
    client_tools = Option[str | None](
        TEXT, "--client-tools", help="Tools that the client runs: JSON, or a file with JSON."
    )
    permission_mode = Option[str | None](
        one_of(*MODES, "manual"),
        "--permission-mode",
        help="default, acceptEdits, plan, dontAsk, auto, bypassPermissions, or manual (the same as default).",
    )
    permission_prompt_tool = Option[str | None](
        TEXT,
        "--permission-prompt-tool",
        help="Who approves calls: stdio for the client, or an MCP tool mcp__SERVER__TOOL.",
    )
    permission_prompts = Option[str | None](
        one_of("host", "none"), "--permission-prompts", help="host to send approval requests, none to deny instead."
    )
    skip_permissions = Option[bool](
        SWITCH, "--dangerously-skip-permissions", help="Allow every call that no rule denies. Use it in a sandbox only."
    )
    allow_skip_permissions = Option[bool](
        SWITCH, "--allow-dangerously-skip-permissions", help="Let the client switch to bypassPermissions later."
    )
    guard = Option[bool](SWITCH, "--guard", help="Ask the client about every call that is not denied, in every mode.")
    fail_on_denial = Option[bool](SWITCH, "--fail-on-denial", help="End the turn with an error if a call is denied.")
    add_dirs = Option[tuple[str, ...] | None](WORDS, "--add-dir", help="Further working directories.")
    mcp_config = Option[tuple[str, ...] | None](WORDS, "--mcp-config", help="MCP servers: files or JSON.")
    strict_mcp_config = Option[bool](SWITCH, "--strict-mcp-config", help="Use only the MCP servers of --mcp-config.")
    agents = Option[str | None](TEXT, "--agents", help="Subagents, as JSON.")
    agent = Option[str | None](TEXT, "--agent", help="The agent that the session runs as.")
    forward_subagent_text = Option[bool](
        SWITCH, "--forward-subagent-text", help="Send what subagents write, not only their tool calls."
    )
    disable_slash_commands = Option[bool](
        SWITCH, "--disable-slash-commands", help="Treat slash commands and skills as plain text."
    )
    prompt_suggestions = Option[str | None](
        MAYBE, "--prompt-suggestions", help="Suggest a next prompt after each successful turn."
    )

    # Sessions.
    resume = Option[str | None](MAYBE, "--resume", "-r", help="Continue the session with this id or title.")
    continue_conversation = Option[bool](SWITCH, "--continue", "-c", help="Continue the last session of this folder.")
    session_id = Option[str | None](TEXT, "--session-id", help="The id for a new session.")
    fork_session = Option[bool](SWITCH, "--fork-session", help="Continue in a copy of the resumed session.")
    steal = Option[bool](SWITCH, "--steal", help="Take a session over from the process that holds it.")
    resume_session_at = Option[str | None](
        TEXT, "--resume-session-at", help="Continue after the message with this UUID."
    )
    resume_drops_turn = Option[str | None](
        TEXT,
        "--resume-drops-turn",
        help="With --resume-session-at: fail unless exactly the turn of this prompt is dropped.",
    )
    no_session_persistence = Option[bool](SWITCH, "--no-session-persistence", help="Keep nothing after the end.")
    name = Option[str | None](TEXT, "--name", "-n", help="The title of the session.")
    store = Option[str | None](
        TEXT,
        "--store",
        help="Where sessions are kept: NAME or NAME:PLACE, such as folder:DIR or postgres://HOST/DATABASE.",
    )
    database = Option[str | None](TEXT, "--db", help="Keep sessions in this SQLite file.")
    memory = Option[str | None](MAYBE, "--memory", help="Keep a long-term memory: on, off, or its file.")
    fsync = Option[str | None](
        one_of(*SYNC_POLICIES), "--fsync", help="When the log is forced to the disk: always, turn or off."
    )

    # Settings.
    settings = Option[str | None](TEXT, "--settings", help="Further settings: a file or JSON.")
    setting_sources = Option[tuple[str, ...] | None](
        COMMA_TEXT, "--setting-sources", help="Which settings files to read: user, project, local."
    )
    managed_settings = Option[str | None](
        TEXT, "--managed-settings", help="An administrator's settings, as JSON. Nothing overrides them."
    )
    managed_settings_in_initialize = Option[bool](
        SWITCH, "--managed-settings-in-initialize", help="Accepted for compatibility; it has no effect."
    )
    project_config_root = Option[str | None](
        TEXT, "--project-config-root", help="The folder whose .claude holds the settings of the project."
    )
    plugin_dirs = Option[tuple[str, ...] | None](EACH, "--plugin-dir", help="A folder with a plugin. Repeatable.")
    plugin_dirs_no_mcp = Option[tuple[str, ...] | None](
        EACH, "--plugin-dir-no-mcp", help="A folder with a plugin whose MCP servers are not started. Repeatable."
    )
    plugin_urls = Option[tuple[str, ...] | None](
        EACH, "--plugin-url", help="Not supported; the session does not start."
    )
    autocompact = Option[str | None](
        MAYBE, "--autocompact", help="When to compact the conversation: on, off, or the window in tokens."
    )
    bare = Option[bool](
        SWITCH, "--bare", help="Read no settings, memory files, commands or MCP servers of this machine."
    )
    debug = Option[str | None](MAYBE, "--debug", "-d", help="Write a debug log; categories separated by commas.")
    debug_file = Option[str | None](TEXT, "--debug-file", help="Write the debug log to this file.")
    debug_to_stderr = Option[bool](SWITCH, "--debug-to-stderr", "-d2e", help="Write the debug log to stderr.")
    restricted = Option[bool](
        SWITCH,
        "--restricted",
        help="Offer no tools that run commands or fetch, and keep file tools in the working directories.",
    )
    safe_mode = Option[bool](
        SWITCH,
        "--safe-mode",
        help="Ignore all customisation: memory files, commands, plugins, agents, MCP servers, hooks, extensions.",
    )

    # Accepted so that the command line of a client is parsed correctly. They have no effect.
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
    """A parsed command line."""

    options: CliOptions
    words: tuple[str, ...]
    """The words that are not options: the prompt."""
    warnings: tuple[str, ...]


def parse(argv: Sequence[str]) -> ParsedArgs:
    """Parse a command line. Raises UsageError."""
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
            with_value = f" {ignored[0]!r}" if ignored else ""
            warnings.append(f"unknown option '{flag}'{with_value} is ignored")
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
    """The words that belong to a flag, removed from the rest."""
    if takes == "none":
        if has_value and value not in ("", "true"):
            raise UsageError(f"option '{flag}' takes no value, got {value!r}")
        return []
    if has_value:
        return [value]
    if takes == "one":
        # The value may look like a flag: `--system-prompt -` is valid.
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
    """The command line for these options. Values are bound with `=`, so they may start with a dash."""
    return [
        word for row in ROWS if row.field in options.given for word in _format_option(row, options.given[row.field])
    ]


def _format_option(row: Option[Any], value: Any) -> Iterable[str]:
    flag = row.flags[0]
    if row.kind.words == "none":
        return [flag]
    return [f"{flag}={word}" for word in row.kind.write(value)]
