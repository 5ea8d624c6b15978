"""Every option, one row each: its flags, kind, default, limits, help, and who else may set it.

The engine reads its command line with these rows and the SDK writes one with the same rows:

    parse(["--model", "opus", "--max-turns=3", "hello"])
        -> ParsedArgs(options=CliOptions(model="opus", max_turns=3), words=("hello",), warnings=())
    format_args(CliOptions(model="opus", max_turns=3))
        -> ["--model=opus", "--max-turns=3"]

To add an option, add its row to a group and read it where it is used: `launch.options` in `compose/`,
`config.options` in the engine, `context.options` in a tool. From the row come `--help`, the completions and
docs/cli.md; the variable and the key in settings (`settings/env_vars.py`); the options of a gateway's clients,
with scopes and schema (`gateway/session_options.py`); the keys of `parley eval` (`evals/suite.py`); and how the SDK
passes its field of the same name (`sdk/launch/args.py`).

An option that is not given has its default: None, for a switch False, or the row's own. `--flag value` and
`--flag=value` mean the same for every row. A value may be the empty string, which differs from not given. A list
option takes every following word up to the next flag, as in Claude Code. An unknown flag takes the next word with it,
because the clients' `extra_args` have values. It is only reported here; `cli/main.py` decides whether it is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from parley.errors import UsageError
from parley.protocol.base import Struct
from parley.protocol.option_kinds import (
    COMMA_TEXT,
    COMMAS,
    EACH,
    INTEGER,
    MAYBE,
    NUMBER,
    ON_OFF,
    REPEATED,
    RULES,
    SWITCH,
    TEXT,
    TOOL_LIST,
    WORDS,
    Option,
    OptionGroup,
    OptionKind,
    one_of,
)

T = TypeVar("T")
MODES = ("default", "acceptEdits", "bypassPermissions", "plan", "dontAsk", "auto")
EFFORTS = ("low", "medium", "high", "xhigh", "max")
"""The effort levels, lowest first."""
SYNC_POLICIES = ("always", "turn", "off")
"""When the log of a session is forced to the disk."""


class RunOptions(OptionGroup):
    heading = "Running"

    print = Option(SWITCH, "--print -p", "Answer one prompt and exit.")
    background = Option(SWITCH, "--bg --background", "Refused: Parley has no background sessions.")
    screen_reader = Option(
        SWITCH,
        "--ax-screen-reader --plain",
        "At a terminal: print lines only and redraw nothing, for screen readers. TERM=dumb does the same.",
    )
    output_format = Option(
        one_of("text", "json", "stream-json", "message"),
        "--output-format",
        "The format of the output; message is stream-json without partial messages.",
    )
    input_format = Option(
        one_of("text", "stream-json"),
        "--input-format",
        "How to read stdin: as one prompt (text), or as messages until stdin ends (stream-json).",
    )
    verbose = Option(
        SWITCH, "--verbose", "Report every message, not only the result. Required for --output-format stream-json."
    )
    version = Option(SWITCH, "--version -v", "Print the version and exit.")
    help = Option(SWITCH, "--help -h", "Print this help and exit.")
    stdio = Option(SWITCH, "--stdio", "Serve one session over stdin and stdout in the dialect miriad or jsonrpc.")
    dialect = Option(
        TEXT,
        "--dialect NAME",
        "The format of messages: stream-json, spec001, miriad, jsonrpc, a dialect of an installed package, or "
        "auto to detect the dialect from the first line.",
    )
    sdk_url = Option(
        TEXT,
        "--sdk-url URL",
        "Connect to this WebSocket server and exchange messages with it instead of over stdin and stdout. The "
        "variable CLAUDE_CODE_SESSION_ACCESS_TOKEN is sent as a bearer token.",
    )


class ClientOptions(OptionGroup):
    heading = "What the client receives"

    include_partial_messages = Option(
        SWITCH, "--include-partial-messages", "Send the events of the model's stream as they arrive.", gateway="create"
    )
    include_hook_events = Option(SWITCH, "--include-hook-events", "Send an event when a hook starts and when it ends.")
    replay_user_messages = Option(
        SWITCH, "--replay-user-messages", "Send each prompt back when it enters the conversation."
    )
    session_mirror = Option(SWITCH, "--session-mirror", "Send every line of the transcript to the client as well.")
    extension_fields = Option(SWITCH, "--extension-fields", "Add thinkingMetadata and todos to assistant messages.")
    forward_subagent_text = Option(
        SWITCH,
        "--forward-subagent-text",
        "Send the text of subagents, not only their tool calls.",
        initialize="forwardSubagentText",
    )
    prompt_suggestions = Option(
        ON_OFF,
        "--prompt-suggestions",
        "Suggest a next prompt after each successful turn.",
        initialize="promptSuggestions",
    )
    max_line_bytes = Option(
        INTEGER, "--max-line-bytes BYTES", "The longest line to send; a longer tool result is saved to a file."
    )
    file_checkpointing = Option(
        SWITCH,
        "",
        "Save files before tools change them, so that the client can restore them (rewind_files).",
        variable="CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING",
        setting="fileCheckpointingEnabled",
        sdk="enable_file_checkpointing",
    )
    disable_agent_summaries = Option(
        SWITCH,
        "",
        "Send no summaries of what subagents do, even if the client asks for them.",
        variable="CLAUDE_CODE_DISABLE_AGENT_PROGRESS_SUMMARIES",
    )
    await_initialize = Option(
        SWITCH,
        "--await-initialize",
        "Read the initialize request before the session is opened, and load its plugins and MCP servers.",
    )
    await_claim = Option(
        SWITCH,
        "--await-claim",
        "Start without a session, and wait for the request claim_session, which names its directory.",
    )


class ModelOptions(OptionGroup):
    heading = "Model"

    model = Option(TEXT, "--model MODEL", "The model: an alias, a full name, or BACKEND:NAME.", gateway="create")
    fallback_model = Option(
        TEXT,
        "--fallback-model MODELS",
        "Models to try if the first fails, separated by commas.",
        gateway="create",
        evals="fallback_model",
    )
    api_key = Option(
        TEXT,
        "--api-key KEY",
        "The key for the Messages API. Prefer ANTHROPIC_API_KEY: the process list shows the command line.",
    )
    betas = Option(COMMAS, "--betas NAME", "Beta features to request from the Messages API.").with_default(())
    max_thinking_tokens = Option(
        INTEGER,
        "--max-thinking-tokens",
        "How many tokens the model may use for thinking in an answer; 0 disables thinking.",
        variable="MAX_THINKING_TOKENS",
        evals="max_thinking_tokens",
    )
    thinking = Option(
        one_of("adaptive", "disabled", "enabled"),
        "--thinking",
        "Whether the model thinks: when it chooses to (adaptive), never (disabled), or up to "
        "--max-thinking-tokens (enabled).",
    )
    thinking_display = Option(
        TEXT,
        "--thinking-display FORM",
        "The form in which the backend returns thinking, such as summarized or omitted.",
    )
    effort = Option(
        one_of(*EFFORTS, is_open=True),
        "--effort",
        "How much work the model puts into an answer.",
        variable="CLAUDE_CODE_EFFORT_LEVEL",
        setting="effortLevel",
        gateway="create",
        evals="effort",
    )
    max_effort = Option(one_of(*EFFORTS), "", "The highest effort that requests can use.", setting="maxEffortLevel")
    cache_ttl = Option(
        one_of("5m", "1h"),
        "",
        "How long the server keeps the prompt cache of the conversation; by default the server decides. "
        "ENABLE_PROMPT_CACHING_1H=1 sets it to 1h.",
        variable="CLAUDE_CODE_PROMPT_CACHE_TTL",
        switch=("ENABLE_PROMPT_CACHING_1H", "1h"),
        setting="promptCacheTtl",
    )
    subagent_cache_ttl = Option(
        one_of("5m", "1h"),
        "",
        "How long the server keeps the prompt cache of a subagent.",
        variable="CLAUDE_CODE_SUBAGENT_PROMPT_CACHE_TTL",
        setting="subagentPromptCacheTtl",
    )
    offline = Option(
        SWITCH, "--offline", "Offer no web tools, and connect only to the server of the model and to this machine."
    )


class PromptOptions(OptionGroup):
    heading = "System prompt and structured output"

    system_prompt = Option(
        TEXT, "--system-prompt", "Replace the system prompt by this text.", gateway="create", evals="system_prompt"
    )
    system_prompt_file = Option(
        TEXT, "--system-prompt-file FILE", "Replace the system prompt with the content of a file."
    )
    append_system_prompt = Option(
        TEXT,
        "--append-system-prompt",
        "Add this text to the system prompt.",
        gateway="create",
        evals="append_system_prompt",
    )
    append_system_prompt_file = Option(
        TEXT, "--append-system-prompt-file FILE", "Add the content of a file to the system prompt."
    )
    exclude_dynamic_sections = Option(
        SWITCH,
        "--exclude-dynamic-system-prompt-sections",
        "Leave facts that differ between machines out of the system prompt.",
    )
    system_prompt_snapshot = Option(
        MAYBE,
        "--system-prompt-snapshot true|false",
        "Whether later requests repeat the first system prompt (true, the default) or render it again (false).",
    )
    json_schema = Option(TEXT, "--json-schema JSON", "The JSON Schema that the result must match.")
    max_schema_attempts = Option(
        INTEGER,
        "",
        "The turn fails after this many answers that do not match the JSON Schema.",
        variable="MAX_STRUCTURED_OUTPUT_RETRIES",
        setting="limits.structuredOutputAttempts",
        least=1,
    ).with_default(5)


class LimitOptions(OptionGroup):
    heading = "Limits"

    max_turns = Option(
        INTEGER,
        "--max-turns",
        "End a turn after this many model calls.",
        setting="limits.maxTurns",
        least=1,
        gateway="create",
        evals="max_turns",
    )
    max_budget_usd = Option(
        NUMBER,
        "--max-budget-usd USD",
        "Stop when the session has cost this many dollars.",
        setting="limits.maxBudgetUsd",
        least=0,
        gateway="create",
        evals="max_cost_usd",
    )
    max_budget_tokens = Option(
        INTEGER,
        "--max-budget-tokens",
        "Stop when the session has used this many tokens, including cached tokens.",
        setting="limits.maxBudgetTokens",
        least=1,
    )
    max_budget_calls = Option(
        INTEGER,
        "--max-budget-calls",
        "Stop after this many model calls in the process, including retries and side queries.",
        setting="limits.maxBudgetCalls",
        least=1,
    )
    max_budget_seconds = Option(
        NUMBER,
        "--max-budget-seconds SECONDS",
        "End a turn that has taken this long.",
        setting="limits.maxBudgetSeconds",
        least=0,
    )
    task_budget = Option(
        INTEGER,
        "--task-budget TOKENS",
        "End a turn that has used this many tokens. Models that support task budgets are told this limit.",
        setting="limits.taskBudget",
        least=1,
    )
    max_retries = Option(
        INTEGER,
        "",
        "How many times a failed model call is repeated.",
        variable="CLAUDE_CODE_MAX_RETRIES",
        setting="limits.maxRetries",
        least=0,
    ).with_default(8)
    resume_reason = Option(
        TEXT,
        "",
        "Why this process continues a turn of an earlier process; reported in messages as `resume_reason`.",
        variable="CLAUDE_CODE_RESUME_REASON",
    )
    resume_interrupted_turn = Option(
        SWITCH,
        "",
        "Continue the last turn of a resumed session if it has no result.",
        variable="CLAUDE_CODE_RESUME_INTERRUPTED_TURN",
    )
    max_output_tokens = Option(
        INTEGER,
        "",
        "The longest answer; by default the model's own limit.",
        variable="CLAUDE_CODE_MAX_OUTPUT_TOKENS",
        setting="limits.maxOutputTokens",
        least=1,
    )
    disable_background_tasks = Option(
        SWITCH, "", "Run all commands and subagents in the foreground.", variable="CLAUDE_CODE_DISABLE_BACKGROUND_TASKS"
    )
    # 0 means the default; no timeout can be disabled. One variable can set two limits: API_TIMEOUT_MS limits the
    # request and its first byte, CLAUDE_STREAM_IDLE_TIMEOUT_MS a stream without data and one with only pings.
    connect_timeout_ms = Option(
        INTEGER,
        "",
        "How long to wait for a connection to the model's server.",
        setting="limits.connectTimeoutMs",
        least=0,
    )
    first_byte_timeout_ms = Option(
        INTEGER,
        "",
        "How long to wait for the first byte of a response.",
        variable="API_TIMEOUT_MS",
        setting="limits.firstByteTimeoutMs",
        least=0,
    )
    stream_idle_timeout_ms = Option(
        INTEGER,
        "",
        "How long to wait for the next data of a stream.",
        variable="CLAUDE_STREAM_IDLE_TIMEOUT_MS",
        setting="limits.streamIdleTimeoutMs",
        least=0,
    )
    content_timeout_ms = Option(
        INTEGER,
        "",
        "How long to wait for the next content of a stream; pings do not count.",
        variable="CLAUDE_STREAM_IDLE_TIMEOUT_MS",
        setting="limits.contentTimeoutMs",
        least=0,
    )
    request_timeout_ms = Option(
        INTEGER,
        "",
        "How long a whole model request may take.",
        variable="API_TIMEOUT_MS",
        setting="limits.requestTimeoutMs",
        least=0,
    )


class ToolOptions(OptionGroup):
    heading = "Tools and permissions"

    tools = Option(
        TOOL_LIST, "--tools", 'The built-in tools to offer; "default" for the usual list, "" for none.', evals="tools"
    )
    allowed_tools = Option(
        RULES,
        "--allowedTools --allowed-tools",
        'Allow these calls without asking, such as Read or "Bash(git *)".',
        gateway="approve",
        evals="allowed_tools",
    )
    disallowed_tools = Option(
        RULES,
        "--disallowedTools --disallowed-tools",
        "Deny these calls; a tool name without parentheses removes the tool.",
        gateway="create",
        evals="disallowed_tools",
    )
    brief = Option(
        SWITCH,
        "--brief",
        "Offer the tool SendUserMessage, for clients that show only the messages sent with this tool.",
    )
    client_tools = Option(TEXT, "--client-tools FILE|JSON", "Offer these tools, which the client itself runs.")
    permission_mode = Option(
        one_of(*MODES, "manual"),
        "--permission-mode",
        "The permission mode: what to do with calls that no rule decides. manual is another name for default.",
        gateway="create",
        evals="permission_mode",
    )
    permission_prompt_tool = Option(
        TEXT,
        "--permission-prompt-tool NAME",
        "Who approves calls: stdio for the client, or the MCP tool mcp__SERVER__TOOL.",
        sdk="permission_prompt_tool_name",
    )
    permission_prompts = Option(
        one_of("host", "none"),
        "--permission-prompts",
        "Send approval requests to the client (host), or deny the calls instead (none).",
    )
    skip_permissions = Option(
        SWITCH, "--dangerously-skip-permissions", "Allow every call that no rule denies. Use it only in a sandbox."
    )
    allow_skip_permissions = Option(
        SWITCH,
        "--allow-dangerously-skip-permissions",
        "Let the client switch to bypassPermissions later.",
        sdk="allow_dangerously_skip_permissions",
    )
    require_sandbox = Option(SWITCH, "--require-sandbox", "Run commands in the sandbox, and do not start without one.")
    guard = Option(
        SWITCH, "--guard", "Ask the client about every call that is not denied, in every mode.", initialize="guard"
    )
    fail_on_denial = Option(SWITCH, "--fail-on-denial", "End a turn with an error if a call was denied; exit code 3.")
    question_preview_format = Option(
        one_of("markdown", "html"),
        "",
        "The format in which the model writes the previews of AskUserQuestion.",
        variable="CLAUDE_CODE_QUESTION_PREVIEW_FORMAT",
    ).with_default("markdown")
    add_dirs = Option(WORDS, "--add-dir DIR", "Additional working directories, in which tools can work too.")


class ExtensionOptions(OptionGroup):
    heading = "MCP servers, agents and commands"

    mcp_config = Option(WORDS, "--mcp-config FILE|JSON", "Connect to the MCP servers in these configurations.")
    strict_mcp_config = Option(SWITCH, "--strict-mcp-config", "Use only the MCP servers given with --mcp-config.")
    agents = Option(TEXT, "--agents JSON", "Define subagents.")
    agent = Option(TEXT, "--agent NAME", "Run the session itself as this agent.")
    disable_slash_commands = Option(
        SWITCH, "--disable-slash-commands", "Treat slash commands and skills as plain text."
    )


class SessionOptions(OptionGroup):
    heading = "Sessions"

    resume = Option(MAYBE, "--resume -r SESSION", "Continue the session with this id or title.")
    continue_conversation = Option(SWITCH, "--continue -c", "Continue the most recent session of this directory.")
    session_id = Option(TEXT, "--session-id UUID", "The id of a new session.")
    fork_session = Option(SWITCH, "--fork-session", "Continue in a copy of the resumed session.")
    steal = Option(SWITCH, "--steal", "Take the session over from the process that holds it.")
    resume_session_at = Option(
        TEXT,
        "--resume-session-at UUID",
        "With --resume: continue after the message with this id, and ignore later messages.",
    )
    resume_drops_turn = Option(
        TEXT,
        "--resume-drops-turn UUID",
        "With --resume-session-at: fail unless exactly the turn of this prompt is dropped.",
    )
    no_session_persistence = Option(SWITCH, "--no-session-persistence", "Do not save the session.")
    name = Option(TEXT, "--name -n TITLE", "The title of the session.", initialize="title", sdk="title")
    worktree = Option(MAYBE, "--worktree -w NAME", "Work in a git worktree of this name; create it if needed.")
    workspace = Option(
        TEXT,
        "--workspace ADDRESS",
        "Work in the files of the workspace server at tcp://HOST:PORT/FOLDER, tls://HOST:PORT/FOLDER, unix:PATH.",
    )
    workspace_token_file = Option(
        TEXT,
        "--workspace-token-file FILE",
        "With --workspace: the file with its token, instead of PARLEY_WORKSPACE_TOKEN.",
    )
    workspace_ca = Option(TEXT, "--workspace-ca FILE", "With --workspace tls://HOST:PORT: the certificates to trust.")
    workspace_wait = Option(
        INTEGER,
        "--workspace-wait SECONDS",
        "With --workspace: how long to wait for a server that does not answer; 10 by default.",
        least=0,
    )
    store = Option(
        TEXT, "--store NAME[:PLACE]", "Where sessions are kept, such as folder:DIR or postgres://HOST/DATABASE."
    )
    database = Option(TEXT, "--db FILE", "Keep sessions in this SQLite file.")
    memory = Option(MAYBE, "--memory on|off|FILE", "Keep a long-term memory, in this file if one is named.")
    fsync = Option(
        one_of(*SYNC_POLICIES),
        "--fsync",
        "When to force the session's log to disk: after every record, at the end of a turn, or never.",
        variable="PARLEY_FSYNC",
        setting="fsync",
    ).with_default("turn")


class SettingsOptions(OptionGroup):
    heading = "Settings and plugins"

    settings = Option(
        TEXT, "--settings FILE|JSON", "Additional settings, which override those of the user and the project."
    )
    setting_sources = Option(
        COMMA_TEXT,
        "--setting-sources SOURCES",
        "The settings files to read, separated by commas: user, project, local.",
    )
    managed_settings = Option(TEXT, "--managed-settings JSON", "An administrator's settings, which nothing overrides.")
    managed_settings_in_initialize = Option(
        SWITCH,
        "--managed-settings-in-initialize",
        "Read an administrator's settings from the initialize request; needs --await-initialize.",
    )
    project_config_root = Option(
        TEXT, "--project-config-root DIR", "The directory whose .claude folder contains the project's settings."
    )
    plugin_dirs = Option(EACH, "--plugin-dir DIR", "Load the plugin in this directory. Repeatable.")
    plugin_dirs_no_mcp = Option(
        EACH, "--plugin-dir-no-mcp DIR", "Load the plugin in this directory without its MCP servers. Repeatable."
    )
    plugin_urls = Option(EACH, "--plugin-url URL", "Refused: plugins are not downloaded.")
    autocompact = Option(
        MAYBE,
        "--autocompact on|off|TOKENS",
        "Compact long conversations automatically: on, off, or the size of the context window in tokens.",
    )
    bare = Option(SWITCH, "--bare", "Read no settings, memory files, commands or MCP servers from this machine.")
    restricted = Option(
        SWITCH,
        "--restricted",
        "Offer no tools that run commands or fetch URLs, and limit file tools to the working directories.",
    )
    safe_mode = Option(
        SWITCH,
        "--safe-mode",
        "Ignore all customisation: memory files, commands, plugins, agents, MCP servers, hooks, extensions.",
    )


class DebugOptions(OptionGroup):
    heading = "Debugging and tests"

    debug = Option(
        MAYBE, "--debug -d CATEGORIES", "Write a debug log of all events, or of these categories (separated by commas)."
    )
    debug_file = Option(TEXT, "--debug-file FILE", "Write the debug log to this file.")
    debug_to_stderr = Option(SWITCH, "--debug-to-stderr -d2e", "Write the debug log to stderr.")
    record = Option(TEXT, "--record FILE", "Record every model call to this file, for --model replay:FILE.")
    faults = Option(REPEATED, "--fault FAULT", "Inject a fault into model calls. Repeatable.")


def unused(kind: OptionKind[T], flags: str, why: str) -> Option[T]:
    return Option(kind, flags, f"Accepted, no effect: {why}")


class UnusedOptions(OptionGroup):
    """Accepted so that the command line of a client is parsed correctly. They cause a warning."""

    heading = "Accepted without effect"

    files = unused(WORDS, "--file FILE", "files are not downloaded at the start.")
    channels = unused(COMMAS, "--channels NAME", "MCP servers cannot push prompts.")
    chrome = unused(SWITCH, "--chrome", "there is no browser integration.")
    no_chrome = unused(SWITCH, "--no-chrome", "there is no browser integration.")
    cloud = unused(SWITCH, "--cloud", "sessions run on this machine.")
    desktop = unused(SWITCH, "--desktop", "there is no desktop application.")
    environment = unused(TEXT, "--environment NAME", "sessions run on this machine.")
    from_pr = unused(MAYBE, "--from-pr PR", "sessions are not linked to pull requests.")
    ide = unused(SWITCH, "--ide", "Parley does not connect to IDE extensions (see `parley acp`).")
    remote = unused(MAYBE, "--remote", "sessions run on this machine.")
    remote_control = unused(MAYBE, "--remote-control --rc NAME", "there is no remote control.")
    remote_control_prefix = unused(TEXT, "--remote-control-session-name-prefix", "there is no remote control.")
    teleport = unused(MAYBE, "--teleport SESSION", "sessions stay on their machine.")
    tmux = unused(MAYBE, "--tmux", "no terminal window is opened.")
    repl = unused(SWITCH, "--repl", "parley alone opens a conversation.")
    inspect = unused(MAYBE, "--inspect", "no inspector can be attached.")
    dump = unused(MAYBE, "--dump SESSION", "use `parley sessions export`.")
    dump_format = unused(TEXT, "--format NAME", "use `parley sessions export`.")
    prompt = unused(TEXT, "--prompt", "give the prompt without a flag.")


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


FIELDS = OptionGroup.fields
"""All options by name, those without a flag as well."""
ROWS = [row for row in FIELDS.values() if row.flags]
"""The options of the command line, in the order of the table."""
BY_FLAG = {flag: row for row in ROWS for flag in row.flags}
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
