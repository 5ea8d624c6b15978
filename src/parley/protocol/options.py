"""Every option, one row each: its name in Python, flags, kind, default, help, and where else it can be set.

The engine reads its command line with these rows and the SDK writes one with the same rows:

    parse(["--model", "opus", "--max-turns=3", "hello"])
        -> ParsedArgs(options=CliOptions(model="opus", max_turns=3), words=("hello",), warnings=())
    format_args(CliOptions(model="opus", max_turns=3))
        -> ["--model=opus", "--max-turns=3"]

To add an option, add its row to a group and read it where it is used: `launch.options` in `compose/`,
`config.options` in the engine, `context.options` in a tool. `--help` and docs/cli.md are made from the rows.

An option that is not given has its default: None, for a switch False, or the row's own. `--flag value` and
`--flag=value` mean the same for every row. A value may be the empty string, which differs from not given. A list
option takes every following word up to the next flag, as in Claude Code. An unknown flag takes the next word with it,
because the clients' `extra_args` have values. It is only reported here; `cli/main.py` decides whether it is an error.

See also: `settings/option_values.py` for variables and settings, `cli/commands/help.py` for `--help`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

from parley.errors import UsageError
from parley.protocol.base import Struct

T = TypeVar("T")
G = TypeVar("G", bound="OptionGroup")
MODES = ("default", "acceptEdits", "bypassPermissions", "plan", "dontAsk", "auto")
SYNC_POLICIES = ("always", "turn", "off")
"""When the log of a session is forced to the disk."""
OFF = ("false", "0", "off")


class OptionKind(Struct, frozen=True):
    """How the words of an option become its value, and back."""

    words: str
    """How many words it takes: "none", "one", "maybe" or "many"."""
    read: Callable[[str, list[str]], Any]
    write: Callable[[Any], list[str]]
    empty: Any = None
    """The value of an option that is not given."""
    metavar: str = "TEXT"
    """What `--help` shows for a value, unless the row has a better word."""
    choices: tuple[str, ...] = ()
    """The valid values, if only some are."""
    is_open: bool = False
    """Variables and settings may hold values that are not among the choices."""
    expects: str = "text"
    """What a value must be, for error messages."""
    is_whole: bool = False
    """Whether a number has no fraction."""


class Option(Generic[T]):
    """One row of the table."""

    group: type[OptionGroup]
    field: str

    def __init__(
        self,
        kind: OptionKind,
        *flags: str,
        help: str,
        metavar: str = "",
        default: T | None = None,
        variable: str = "",
        setting: str = "",
        least: int | None = None,
    ) -> None:
        self.kind = kind
        self.flags = flags
        """Without a flag, only a variable or settings can set it."""
        self.help = help
        """What `--help` says: a sentence."""
        self.metavar = metavar
        self.default = kind.empty if default is None else default
        self.variable = variable
        """The environment variable that sets it if the flag is not given."""
        self.setting = setting
        """The key in settings that sets it if neither is given; `limits.maxTurns` is in the object `limits`."""
        self.least = least
        """The smallest number that is valid."""

    def __set_name__(self, owner: type[OptionGroup], name: str) -> None:
        self.field, self.group = name, owner
        FIELDS[name] = self
        if self.flags:
            ROWS.append(self)
            for flag in self.flags:
                BY_FLAG[flag] = self

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


ROWS: list[Option[Any]] = []
"""The options of the command line, in the order of the table."""
BY_FLAG: dict[str, Option[Any]] = {}
FIELDS: dict[str, Option[Any]] = {}
"""All options by name, those without a flag as well."""


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
SWITCH = OptionKind("none", lambda flag, words: True, lambda value: [], empty=False, metavar="")
ON_OFF = OptionKind(
    "maybe",
    lambda flag, words: not words or words[-1] not in OFF,
    lambda value: ["true"],
    empty=False,
    metavar="true|false",
)
"""A switch that can also be given a value."""
INTEGER = OptionKind(
    "one",
    read_number(int, "a whole number"),
    lambda value: [str(value)],
    metavar="N",
    expects="a whole number",
    is_whole=True,
)
NUMBER = OptionKind(
    "one",
    read_number(parse_finite, "a number"),
    lambda value: [repr(value)],
    metavar="NUMBER",
    expects="a number",
)
RULES = OptionKind("many", read_rules, lambda value: [",".join(value)], metavar="RULE")
TOOL_LIST = OptionKind("many", read_tool_list, lambda value: [",".join(value)], metavar="TOOL")
WORDS = OptionKind("many", lambda flag, words: tuple(words), list)
EACH = OptionKind("one", lambda flag, words: tuple(words), list)
"""One word each time, and as often as needed."""
COMMAS = OptionKind("many", read_commas, lambda value: [",".join(value)])
REPEATED = OptionKind("one", read_commas, lambda value: [",".join(value)])
COMMA_TEXT = OptionKind("one", lambda flag, words: read_commas(flag, words[-1:]), lambda value: [",".join(value)])


def one_of(*allowed: str, is_open: bool = False) -> OptionKind:
    def read(flag: str, words: list[str]) -> str:
        if words[-1] not in allowed:
            raise UsageError(
                f"option '{flag}': argument {words[-1]!r} is invalid. Allowed choices are {', '.join(allowed)}."
            )
        return words[-1]

    expects = f"{', '.join(allowed[:-1])} or {allowed[-1]}"
    return OptionKind("one", read, lambda value: [value], choices=allowed, is_open=is_open, expects=expects)


class OptionGroup:
    """Options that belong together. Frozen: `options.replace(model="x")` makes another."""

    heading = ""
    """The title of the group in `--help`."""

    def __init__(self, **given: Any) -> None:
        if unknown := sorted(given.keys() - FIELDS.keys()):
            raise TypeError(f"no such option: {', '.join(unknown)}")
        self.given = {name: value for name, value in given.items() if value is not FIELDS[name].kind.empty}

    def replace(self: G, **changes: Any) -> G:
        return type(self)(**{**self.given, **changes})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OptionGroup) and other.given == self.given

    __hash__ = None  # type: ignore[assignment]  # values may be lists

    def __repr__(self) -> str:
        shown = {**self.given, **({"api_key": "…"} if "api_key" in self.given else {})}
        return f"Options({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


class RunOptions(OptionGroup):
    heading = "Running"

    print: Option[bool] = Option(SWITCH, "--print", "-p", help="Answer one prompt and exit.")
    screen_reader: Option[bool] = Option(
        SWITCH,
        "--ax-screen-reader",
        "--plain",
        help="At a terminal: print lines only and redraw nothing, for screen readers. TERM=dumb does the same.",
    )
    output_format: Option[str | None] = Option(
        one_of("text", "json", "stream-json", "message"),
        "--output-format",
        help="The format of the output; message is stream-json without partial messages.",
    )
    input_format: Option[str | None] = Option(
        one_of("text", "stream-json"),
        "--input-format",
        help="How to read stdin: as one prompt (text), or as messages until stdin ends (stream-json).",
    )
    verbose: Option[bool] = Option(
        SWITCH, "--verbose", help="Report every message, not only the result. Required for --output-format stream-json."
    )
    version: Option[bool] = Option(SWITCH, "--version", "-v", help="Print the version and exit.")
    help: Option[bool] = Option(SWITCH, "--help", "-h", help="Print this help and exit.")
    stdio: Option[bool] = Option(
        SWITCH, "--stdio", help="Serve one session over stdin and stdout in the dialect miriad or jsonrpc."
    )
    dialect: Option[str | None] = Option(
        TEXT,
        "--dialect",
        metavar="NAME",
        help="The format of messages: stream-json, spec001, miriad, jsonrpc, a dialect of an installed package, or "
        "auto to detect the dialect from the first line.",
    )
    sdk_url: Option[str | None] = Option(
        TEXT,
        "--sdk-url",
        metavar="URL",
        help="Connect to this WebSocket server and exchange messages with it instead of over stdin and stdout. The "
        "variable CLAUDE_CODE_SESSION_ACCESS_TOKEN is sent as a bearer token.",
    )


class ClientOptions(OptionGroup):
    heading = "What the client receives"

    include_partial_messages: Option[bool] = Option(
        SWITCH, "--include-partial-messages", help="Send the events of the model's stream as they arrive."
    )
    include_hook_events: Option[bool] = Option(
        SWITCH, "--include-hook-events", help="Send an event when a hook starts and when it ends."
    )
    replay_user_messages: Option[bool] = Option(
        SWITCH, "--replay-user-messages", help="Send each prompt back when it enters the conversation."
    )
    session_mirror: Option[bool] = Option(
        SWITCH, "--session-mirror", help="Send every line of the transcript to the client as well."
    )
    extension_fields: Option[bool] = Option(
        SWITCH, "--extension-fields", help="Add thinkingMetadata and todos to assistant messages."
    )
    forward_subagent_text: Option[bool] = Option(
        SWITCH, "--forward-subagent-text", help="Send the text of subagents, not only their tool calls."
    )
    prompt_suggestions: Option[bool] = Option(
        ON_OFF, "--prompt-suggestions", help="Suggest a next prompt after each successful turn."
    )
    max_line_bytes: Option[int | None] = Option(
        INTEGER,
        "--max-line-bytes",
        metavar="BYTES",
        help="The longest line to send; a longer tool result is saved to a file.",
    )
    file_checkpointing: Option[bool] = Option(
        SWITCH,
        variable="CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING",
        setting="fileCheckpointingEnabled",
        help="Save files before tools change them, so that the client can restore them (rewind_files).",
    )
    disable_agent_summaries: Option[bool] = Option(
        SWITCH,
        variable="CLAUDE_CODE_DISABLE_AGENT_PROGRESS_SUMMARIES",
        help="Send no summaries of what subagents do, even if the client asks for them.",
    )
    await_initialize: Option[bool] = Option(
        SWITCH,
        "--await-initialize",
        help="Read the initialize request before the session is opened, and load its plugins and MCP servers.",
    )
    await_claim: Option[bool] = Option(
        SWITCH,
        "--await-claim",
        help="Start without a session, and wait for the request claim_session, which names its directory.",
    )


class ModelOptions(OptionGroup):
    heading = "Model"

    model: Option[str | None] = Option(
        TEXT, "--model", metavar="MODEL", help="The model: an alias, a full name, or BACKEND:NAME."
    )
    fallback_model: Option[str | None] = Option(
        TEXT, "--fallback-model", metavar="MODELS", help="Models to try if the first fails, separated by commas."
    )
    api_key: Option[str | None] = Option(
        TEXT,
        "--api-key",
        metavar="KEY",
        help="The key for the Messages API. Prefer ANTHROPIC_API_KEY: the process list shows the command line.",
    )
    betas: Option[tuple[str, ...]] = Option(
        COMMAS, "--betas", metavar="NAME", default=(), help="Beta features to request from the Messages API."
    )
    max_thinking_tokens: Option[int | None] = Option(
        INTEGER,
        "--max-thinking-tokens",
        variable="MAX_THINKING_TOKENS",
        help="How many tokens the model may use for thinking in an answer; 0 disables thinking.",
    )
    thinking: Option[str | None] = Option(
        one_of("adaptive", "disabled", "enabled"),
        "--thinking",
        help="Whether the model thinks: when it chooses to (adaptive), never (disabled), or up to "
        "--max-thinking-tokens (enabled).",
    )
    thinking_display: Option[str | None] = Option(
        TEXT,
        "--thinking-display",
        metavar="FORM",
        help="The form in which the backend returns thinking, such as summarized or omitted.",
    )
    effort: Option[str | None] = Option(
        one_of("low", "medium", "high", "xhigh", "max", is_open=True),
        "--effort",
        variable="CLAUDE_CODE_EFFORT_LEVEL",
        setting="effortLevel",
        help="How much work the model puts into an answer.",
    )
    max_effort: Option[str | None] = Option(
        one_of("low", "medium", "high", "xhigh", "max"),
        setting="maxEffortLevel",
        help="The highest effort that requests can use.",
    )
    cache_ttl: Option[str | None] = Option(
        one_of("5m", "1h"),
        variable="CLAUDE_CODE_PROMPT_CACHE_TTL",
        setting="promptCacheTtl",
        help="How long the server keeps the prompt cache of the conversation; by default the server decides.",
    )
    subagent_cache_ttl: Option[str | None] = Option(
        one_of("5m", "1h"),
        variable="CLAUDE_CODE_SUBAGENT_PROMPT_CACHE_TTL",
        setting="subagentPromptCacheTtl",
        help="How long the server keeps the prompt cache of a subagent.",
    )
    offline: Option[bool] = Option(
        SWITCH, "--offline", help="Offer no web tools, and connect only to the server of the model and to this machine."
    )


class PromptOptions(OptionGroup):
    heading = "System prompt and structured output"

    system_prompt: Option[str | None] = Option(TEXT, "--system-prompt", help="Replace the system prompt by this text.")
    system_prompt_file: Option[str | None] = Option(
        TEXT, "--system-prompt-file", metavar="FILE", help="Replace the system prompt with the content of a file."
    )
    append_system_prompt: Option[str | None] = Option(
        TEXT, "--append-system-prompt", help="Add this text to the system prompt."
    )
    append_system_prompt_file: Option[str | None] = Option(
        TEXT, "--append-system-prompt-file", metavar="FILE", help="Add the content of a file to the system prompt."
    )
    exclude_dynamic_sections: Option[bool] = Option(
        SWITCH,
        "--exclude-dynamic-system-prompt-sections",
        help="Leave facts that differ between machines out of the system prompt.",
    )
    system_prompt_snapshot: Option[str | None] = Option(
        MAYBE,
        "--system-prompt-snapshot",
        metavar="true|false",
        help="Whether later requests repeat the first system prompt (true, the default) or render it again (false).",
    )
    json_schema: Option[str | None] = Option(
        TEXT, "--json-schema", metavar="JSON", help="The JSON Schema that the result must match."
    )
    max_schema_attempts: Option[int] = Option(
        INTEGER,
        default=5,
        variable="MAX_STRUCTURED_OUTPUT_RETRIES",
        setting="limits.structuredOutputAttempts",
        least=1,
        help="The turn fails after this many answers that do not match the JSON Schema.",
    )


class LimitOptions(OptionGroup):
    heading = "Limits"

    max_turns: Option[int | None] = Option(
        INTEGER, "--max-turns", setting="limits.maxTurns", least=1, help="End a turn after this many model calls."
    )
    max_budget_usd: Option[float | None] = Option(
        NUMBER,
        "--max-budget-usd",
        metavar="USD",
        setting="limits.maxBudgetUsd",
        least=0,
        help="Stop when the session has cost this many dollars.",
    )
    max_budget_tokens: Option[int | None] = Option(
        INTEGER,
        "--max-budget-tokens",
        setting="limits.maxBudgetTokens",
        least=1,
        help="Stop when the session has used this many tokens, including cached tokens.",
    )
    max_budget_calls: Option[int | None] = Option(
        INTEGER,
        "--max-budget-calls",
        setting="limits.maxBudgetCalls",
        least=1,
        help="Stop after this many model calls in the process, including retries and side queries.",
    )
    max_budget_seconds: Option[float | None] = Option(
        NUMBER,
        "--max-budget-seconds",
        metavar="SECONDS",
        setting="limits.maxBudgetSeconds",
        least=0,
        help="End a turn that has taken this long.",
    )
    task_budget: Option[int | None] = Option(
        INTEGER,
        "--task-budget",
        metavar="TOKENS",
        setting="limits.taskBudget",
        least=1,
        help="End a turn that has used this many tokens. Models that support task budgets are told this limit.",
    )
    max_retries: Option[int] = Option(
        INTEGER,
        default=8,
        variable="CLAUDE_CODE_MAX_RETRIES",
        setting="limits.maxRetries",
        least=0,
        help="How many times a failed model call is repeated.",
    )
    resume_reason: Option[str | None] = Option(
        TEXT,
        variable="CLAUDE_CODE_RESUME_REASON",
        help="Why this process continues a turn of an earlier process; reported in messages as `resume_reason`.",
    )
    resume_interrupted_turn: Option[bool] = Option(
        SWITCH,
        variable="CLAUDE_CODE_RESUME_INTERRUPTED_TURN",
        help="Continue the last turn of a resumed session if it has no result.",
    )
    max_output_tokens: Option[int | None] = Option(
        INTEGER,
        variable="CLAUDE_CODE_MAX_OUTPUT_TOKENS",
        setting="limits.maxOutputTokens",
        least=1,
        help="The longest answer; by default the model's own limit.",
    )
    disable_background_tasks: Option[bool] = Option(
        SWITCH,
        variable="CLAUDE_CODE_DISABLE_BACKGROUND_TASKS",
        help="Run all commands and subagents in the foreground.",
    )
    # 0 means the default; no timeout can be disabled. One variable can set two limits: API_TIMEOUT_MS limits the
    # request and its first byte, CLAUDE_STREAM_IDLE_TIMEOUT_MS a stream without data and one with only pings.
    connect_timeout_ms: Option[int | None] = Option(
        INTEGER,
        setting="limits.connectTimeoutMs",
        least=0,
        help="How long to wait for a connection to the model's server.",
    )
    first_byte_timeout_ms: Option[int | None] = Option(
        INTEGER,
        variable="API_TIMEOUT_MS",
        setting="limits.firstByteTimeoutMs",
        least=0,
        help="How long to wait for the first byte of a response.",
    )
    stream_idle_timeout_ms: Option[int | None] = Option(
        INTEGER,
        variable="CLAUDE_STREAM_IDLE_TIMEOUT_MS",
        setting="limits.streamIdleTimeoutMs",
        least=0,
        help="How long to wait for the next data of a stream.",
    )
    content_timeout_ms: Option[int | None] = Option(
        INTEGER,
        variable="CLAUDE_STREAM_IDLE_TIMEOUT_MS",
        setting="limits.contentTimeoutMs",
        least=0,
        help="How long to wait for the next content of a stream; pings do not count.",
    )
    request_timeout_ms: Option[int | None] = Option(
        INTEGER,
        variable="API_TIMEOUT_MS",
        setting="limits.requestTimeoutMs",
        least=0,
        help="How long a whole model request may take.",
    )


class ToolOptions(OptionGroup):
    heading = "Tools and permissions"

    tools: Option[tuple[str, ...] | None] = Option(
        TOOL_LIST, "--tools", help='The built-in tools to offer; "default" for the usual list, "" for none.'
    )
    allowed_tools: Option[tuple[str, ...] | None] = Option(
        RULES,
        "--allowedTools",
        "--allowed-tools",
        help='Allow these calls without asking, such as Read or "Bash(git *)".',
    )
    disallowed_tools: Option[tuple[str, ...] | None] = Option(
        RULES,
        "--disallowedTools",
        "--disallowed-tools",
        help="Deny these calls; a tool name without parentheses removes the tool.",
    )
    brief: Option[bool] = Option(
        SWITCH,
        "--brief",
        help="Offer the tool SendUserMessage, for clients that show only the messages sent with this tool.",
    )
    client_tools: Option[str | None] = Option(
        TEXT, "--client-tools", metavar="FILE|JSON", help="Offer these tools, which the client itself runs."
    )
    permission_mode: Option[str | None] = Option(
        one_of(*MODES, "manual"),
        "--permission-mode",
        help="The permission mode: what to do with calls that no rule decides. manual is another name for default.",
    )
    permission_prompt_tool: Option[str | None] = Option(
        TEXT,
        "--permission-prompt-tool",
        metavar="NAME",
        help="Who approves calls: stdio for the client, or the MCP tool mcp__SERVER__TOOL.",
    )
    permission_prompts: Option[str | None] = Option(
        one_of("host", "none"),
        "--permission-prompts",
        help="Send approval requests to the client (host), or deny the calls instead (none).",
    )
    skip_permissions: Option[bool] = Option(
        SWITCH,
        "--dangerously-skip-permissions",
        help="Allow every call that no rule denies. Use it only in a sandbox.",
    )
    allow_skip_permissions: Option[bool] = Option(
        SWITCH, "--allow-dangerously-skip-permissions", help="Let the client switch to bypassPermissions later."
    )
    require_sandbox: Option[bool] = Option(
        SWITCH, "--require-sandbox", help="Run commands in the sandbox, and do not start without one."
    )
    guard: Option[bool] = Option(
        SWITCH, "--guard", help="Ask the client about every call that is not denied, in every mode."
    )
    fail_on_denial: Option[bool] = Option(
        SWITCH, "--fail-on-denial", help="End a turn with an error if a call was denied; exit code 3."
    )
    question_preview_format: Option[str] = Option(
        one_of("markdown", "html"),
        default="markdown",
        variable="CLAUDE_CODE_QUESTION_PREVIEW_FORMAT",
        help="The format in which the model writes the previews of AskUserQuestion.",
    )
    add_dirs: Option[tuple[str, ...] | None] = Option(
        WORDS, "--add-dir", metavar="DIR", help="Additional working directories, in which tools can work too."
    )


class ExtensionOptions(OptionGroup):
    heading = "MCP servers, agents and commands"

    mcp_config: Option[tuple[str, ...] | None] = Option(
        WORDS, "--mcp-config", metavar="FILE|JSON", help="Connect to the MCP servers in these configurations."
    )
    strict_mcp_config: Option[bool] = Option(
        SWITCH, "--strict-mcp-config", help="Use only the MCP servers given with --mcp-config."
    )
    agents: Option[str | None] = Option(TEXT, "--agents", metavar="JSON", help="Define subagents.")
    agent: Option[str | None] = Option(TEXT, "--agent", metavar="NAME", help="Run the session itself as this agent.")
    disable_slash_commands: Option[bool] = Option(
        SWITCH, "--disable-slash-commands", help="Treat slash commands and skills as plain text."
    )


class SessionOptions(OptionGroup):
    heading = "Sessions"

    resume: Option[str | None] = Option(
        MAYBE, "--resume", "-r", metavar="SESSION", help="Continue the session with this id or title."
    )
    continue_conversation: Option[bool] = Option(
        SWITCH, "--continue", "-c", help="Continue the most recent session of this directory."
    )
    session_id: Option[str | None] = Option(TEXT, "--session-id", metavar="UUID", help="The id of a new session.")
    fork_session: Option[bool] = Option(SWITCH, "--fork-session", help="Continue in a copy of the resumed session.")
    steal: Option[bool] = Option(SWITCH, "--steal", help="Take the session over from the process that holds it.")
    resume_session_at: Option[str | None] = Option(
        TEXT,
        "--resume-session-at",
        metavar="UUID",
        help="With --resume: continue after the message with this id, and ignore later messages.",
    )
    resume_drops_turn: Option[str | None] = Option(
        TEXT,
        "--resume-drops-turn",
        metavar="UUID",
        help="With --resume-session-at: fail unless exactly the turn of this prompt is dropped.",
    )
    no_session_persistence: Option[bool] = Option(SWITCH, "--no-session-persistence", help="Do not save the session.")
    name: Option[str | None] = Option(TEXT, "--name", "-n", metavar="TITLE", help="The title of the session.")
    worktree: Option[str | None] = Option(
        MAYBE,
        "--worktree",
        "-w",
        metavar="NAME",
        help="Work in a git worktree of this name; create it if needed.",
    )
    workspace: Option[str | None] = Option(
        TEXT,
        "--workspace",
        metavar="ADDRESS",
        help="Work in the files of the workspace server at tcp://HOST:PORT/FOLDER, tls://HOST:PORT/FOLDER, unix:PATH.",
    )
    workspace_token_file: Option[str | None] = Option(
        TEXT,
        "--workspace-token-file",
        metavar="FILE",
        help="With --workspace: the file with its token, instead of PARLEY_WORKSPACE_TOKEN.",
    )
    workspace_ca: Option[str | None] = Option(
        TEXT, "--workspace-ca", metavar="FILE", help="With --workspace tls://HOST:PORT: the certificates to trust."
    )
    workspace_wait: Option[int | None] = Option(
        INTEGER,
        "--workspace-wait",
        metavar="SECONDS",
        least=0,
        help="With --workspace: how long to wait for a server that does not answer; 10 by default.",
    )
    store: Option[str | None] = Option(
        TEXT,
        "--store",
        metavar="NAME[:PLACE]",
        help="Where sessions are kept, such as folder:DIR or postgres://HOST/DATABASE.",
    )
    database: Option[str | None] = Option(TEXT, "--db", metavar="FILE", help="Keep sessions in this SQLite file.")
    memory: Option[str | None] = Option(
        MAYBE, "--memory", metavar="on|off|FILE", help="Keep a long-term memory, in this file if one is named."
    )
    fsync: Option[str] = Option(
        one_of(*SYNC_POLICIES),
        "--fsync",
        default="turn",
        variable="PARLEY_FSYNC",
        setting="fsync",
        help="When to force the session's log to disk: after every record, at the end of a turn, or never.",
    )


class SettingsOptions(OptionGroup):
    heading = "Settings and plugins"

    settings: Option[str | None] = Option(
        TEXT,
        "--settings",
        metavar="FILE|JSON",
        help="Additional settings, which override those of the user and the project.",
    )
    setting_sources: Option[tuple[str, ...] | None] = Option(
        COMMA_TEXT,
        "--setting-sources",
        metavar="SOURCES",
        help="The settings files to read, separated by commas: user, project, local.",
    )
    managed_settings: Option[str | None] = Option(
        TEXT, "--managed-settings", metavar="JSON", help="An administrator's settings, which nothing overrides."
    )
    managed_settings_in_initialize: Option[bool] = Option(
        SWITCH,
        "--managed-settings-in-initialize",
        help="Read an administrator's settings from the initialize request; needs --await-initialize.",
    )
    project_config_root: Option[str | None] = Option(
        TEXT,
        "--project-config-root",
        metavar="DIR",
        help="The directory whose .claude folder contains the project's settings.",
    )
    plugin_dirs: Option[tuple[str, ...] | None] = Option(
        EACH, "--plugin-dir", metavar="DIR", help="Load the plugin in this directory. Repeatable."
    )
    plugin_dirs_no_mcp: Option[tuple[str, ...] | None] = Option(
        EACH,
        "--plugin-dir-no-mcp",
        metavar="DIR",
        help="Load the plugin in this directory without its MCP servers. Repeatable.",
    )
    plugin_urls: Option[tuple[str, ...] | None] = Option(
        EACH, "--plugin-url", metavar="URL", help="Refused: plugins are not downloaded."
    )
    autocompact: Option[str | None] = Option(
        MAYBE,
        "--autocompact",
        metavar="on|off|TOKENS",
        help="Compact long conversations automatically: on, off, or the size of the context window in tokens.",
    )
    bare: Option[bool] = Option(
        SWITCH, "--bare", help="Read no settings, memory files, commands or MCP servers from this machine."
    )
    restricted: Option[bool] = Option(
        SWITCH,
        "--restricted",
        help="Offer no tools that run commands or fetch URLs, and limit file tools to the working directories.",
    )
    safe_mode: Option[bool] = Option(
        SWITCH,
        "--safe-mode",
        help="Ignore all customisation: memory files, commands, plugins, agents, MCP servers, hooks, extensions.",
    )


class DebugOptions(OptionGroup):
    heading = "Debugging and tests"

    debug: Option[str | None] = Option(
        MAYBE,
        "--debug",
        "-d",
        metavar="CATEGORIES",
        help="Write a debug log of all events, or of these categories (separated by commas).",
    )
    debug_file: Option[str | None] = Option(
        TEXT, "--debug-file", metavar="FILE", help="Write the debug log to this file."
    )
    debug_to_stderr: Option[bool] = Option(SWITCH, "--debug-to-stderr", "-d2e", help="Write the debug log to stderr.")
    record: Option[str | None] = Option(
        TEXT, "--record", metavar="FILE", help="Record every model call to this file, for --model replay:FILE."
    )
    faults: Option[tuple[str, ...] | None] = Option(
        REPEATED, "--fault", metavar="FAULT", help="Inject a fault into model calls. Repeatable."
    )


class UnusedOptions(OptionGroup):
    """Accepted so that the command line of a client is parsed correctly. They cause a warning."""

    heading = "Accepted without effect"

    files: Option[tuple[str, ...] | None] = Option(
        WORDS, "--file", metavar="FILE", help="Accepted, no effect: files are not downloaded at the start."
    )
    channels: Option[tuple[str, ...] | None] = Option(
        COMMAS, "--channels", metavar="NAME", help="Accepted, no effect: MCP servers cannot push prompts."
    )
    background: Option[bool] = Option(
        SWITCH, "--bg", "--background", help="Accepted, no effect: the session runs in the foreground."
    )
    chrome: Option[bool] = Option(SWITCH, "--chrome", help="Accepted, no effect: there is no browser integration.")
    no_chrome: Option[bool] = Option(
        SWITCH, "--no-chrome", help="Accepted, no effect: there is no browser integration."
    )
    cloud: Option[bool] = Option(SWITCH, "--cloud", help="Accepted, no effect: sessions run on this machine.")
    desktop: Option[bool] = Option(SWITCH, "--desktop", help="Accepted, no effect: there is no desktop application.")
    environment: Option[str | None] = Option(
        TEXT, "--environment", metavar="NAME", help="Accepted, no effect: sessions run on this machine."
    )
    from_pr: Option[str | None] = Option(
        MAYBE, "--from-pr", metavar="PR", help="Accepted, no effect: sessions are not linked to pull requests."
    )
    ide: Option[bool] = Option(
        SWITCH, "--ide", help="Accepted, no effect: Parley does not connect to IDE extensions (see `parley acp`)."
    )
    remote: Option[str | None] = Option(MAYBE, "--remote", help="Accepted, no effect: sessions run on this machine.")
    remote_control: Option[str | None] = Option(
        MAYBE, "--remote-control", "--rc", metavar="NAME", help="Accepted, no effect: there is no remote control."
    )
    remote_control_prefix: Option[str | None] = Option(
        TEXT, "--remote-control-session-name-prefix", help="Accepted, no effect: there is no remote control."
    )
    teleport: Option[str | None] = Option(
        MAYBE, "--teleport", metavar="SESSION", help="Accepted, no effect: sessions stay on their machine."
    )
    tmux: Option[str | None] = Option(MAYBE, "--tmux", help="Accepted, no effect: no terminal window is opened.")
    repl: Option[bool] = Option(SWITCH, "--repl", help="Accepted, no effect: parley alone opens a conversation.")
    inspect: Option[str | None] = Option(MAYBE, "--inspect", help="Accepted, no effect: no inspector can be attached.")
    dump: Option[str | None] = Option(
        MAYBE, "--dump", metavar="SESSION", help="Accepted, no effect: use `parley sessions export`."
    )
    dump_format: Option[str | None] = Option(
        TEXT, "--format", metavar="NAME", help="Accepted, no effect: use `parley sessions export`."
    )
    prompt: Option[str | None] = Option(TEXT, "--prompt", help="Accepted, no effect: give the prompt without a flag.")


class CliOptions(
    RunOptions,
    ClientOptions,
    ModelOptions,
    PromptOptions,
    LimitOptions,
    ToolOptions,
    ExtensionOptions,
    SessionOptions,
    SettingsOptions,
    DebugOptions,
    UnusedOptions,
):
    """All options of a session."""


WITHOUT_EFFECT = frozenset(row.field for row in ROWS if row.group is UnusedOptions)


class ParsedArgs(Struct, frozen=True):
    """A parsed command line."""

    options: CliOptions
    words: tuple[str, ...]
    """The words that are not options: the prompt."""
    warnings: tuple[str, ...]
    unknown: tuple[str, ...] = ()
    """The unknown flags. Each has a warning too."""


def parse(argv: Sequence[str]) -> ParsedArgs:
    """Parse a command line. Raises UsageError."""
    given: dict[str, list[str]] = {}
    flags: dict[str, str] = {}
    words: list[str] = []
    warnings: list[str] = []
    unknown: list[str] = []
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
            unknown.append(flag)
            continue
        flags[row.field] = flag
        given.setdefault(row.field, []).extend(_take_values(row.kind.words, flag, has_value, value, rest))
    values = {field: BY_FLAG[flags[field]].kind.read(flags[field], found) for field, found in given.items()}
    warnings += [f"option '{flags[field]}' has no effect in this run" for field in values if field in WITHOUT_EFFECT]
    return ParsedArgs(CliOptions(**values), tuple(word for word in words if word), tuple(warnings), tuple(unknown))


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
