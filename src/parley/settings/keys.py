"""The settings keys, one row each: the type of its value, which layers may set it, what it does here, and its limits.

A key *works*; or it has no effect, which is *reported* by name; or it is *quiet*, because it only concerns a terminal
or a service of the vendor, and leaving it out cannot change what the agent does. docs/settings.md and docs/sandbox.md
show the table. The keys of objects that are merged one by one are dotted: `sandbox.network.allowedDomains`.

In managed settings a key that is reported stops the start: a policy must not be skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from parley.protocol.base import Json, Struct
from parley.protocol.options import EFFORTS, MODES, SYNC_POLICIES
from parley.settings.env_vars import LIMITS, are_limits

# The types of values, each with a description for error messages.

PROVIDERS = (
    *("anthropic", "customEndpoint", "bedrock", "vertex", "foundry", "anthropicAws", "mantle", "gateway", "openai"),
)
Surface = Literal["skills", "agents", "hooks", "mcp"]
"""What `strictPluginOnlyCustomization` can lock."""
Rate = Annotated[float, Meta(ge=0, le=10_000)]
Count = Annotated[int, Meta(ge=1)]
Name = Annotated[str, Meta(min_length=1)]


class ValueKind(Struct, frozen=True):
    """A type of values, with its description for error messages."""

    description: str
    accepts: Callable[[Any], bool]


def of_type(description: str, kind: Any) -> ValueKind:
    """Values that msgspec accepts for a type."""

    def accepts(value: Any) -> bool:
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError:
            return False
        return True

    return ValueKind(description, accepts)


def one_of(*values: str) -> ValueKind:
    return ValueKind(f"one of {', '.join(values)}", lambda value: value in values)


def list_of(*values: str) -> ValueKind:
    return ValueKind(
        f"a list with items from {', '.join(values)}",
        lambda value: TEXTS.accepts(value) and all(item in values for item in value),
    )


class MemoryKeys(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys under `memory`, by the fields of the memory policy. A misspelled key would have no effect."""

    enabled: bool | UnsetType = UNSET
    model: Name | UnsetType = UNSET
    summary_model: Name | UnsetType = field(name="summaryModel", default=UNSET)
    view_tokens: Count | UnsetType = field(name="viewTokens", default=UNSET)
    consolidates: bool | UnsetType = field(name="consolidate", default=UNSET)
    trivial_tokens: Annotated[int, Meta(ge=0)] | UnsetType = field(name="trivialTokens", default=UNSET)
    piece_tokens: Count | UnsetType = field(name="pieceTokens", default=UNSET)
    max_calls: Count | UnsetType = field(name="maxCalls", default=UNSET)
    max_seconds: Count | UnsetType = field(name="maxSeconds", default=UNSET)


def policy_fields(value: Json) -> Json:
    """The values under `memory` by the names of the policy's fields."""
    given = msgspec.structs.asdict(msgspec.convert(value, MemoryKeys))
    return {name: found for name, found in given.items() if found is not UNSET and name != "enabled"}


class ModelRates(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    input: Rate
    output: Rate
    cacheRead: Rate
    cacheWrite: Rate


class ModelPricing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    multiplier: Annotated[float, Meta(gt=0, le=10)] = 1
    overrides: dict[str, ModelRates] = {}


class AttributionTexts(Struct, frozen=True, kw_only=True):
    commit: str = ""
    pr: str = ""


def is_server_entry(entry: Any) -> bool:
    """Whether an entry names a server by exactly one of its name, its command or its URL."""
    if not isinstance(entry, dict) or len(entry) != 1:
        return False
    key, value = next(iter(entry.items()))
    if key == "serverCommand":
        return TEXTS.accepts(value) and bool(value)
    return key in ("serverName", "serverUrl") and isinstance(value, str) and bool(value)


def is_remote_server(server: Any) -> bool:
    """Whether a server has a URL, and neither a command nor variables."""
    return (
        isinstance(server, dict)
        and server.get("type") in ("http", "sse")
        and isinstance(server.get("url"), str)
        and "command" not in server
        and "${" not in repr(server)
    )


def is_version(value: Any) -> bool:
    return isinstance(value, str) and all(part.isdecimal() for part in value.split("."))


TEXT = ValueKind("a string", lambda value: isinstance(value, str))
SWITCH = ValueKind("true or false", lambda value: isinstance(value, bool))
COUNT = ValueKind(
    "a whole number, 0 or more", lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0
)
OBJECT = ValueKind("an object", lambda value: isinstance(value, dict))
GROUP = ValueKind("an object", OBJECT.accepts)
"""An object whose keys are rows of the table."""
LIST = ValueKind("a list", lambda value: isinstance(value, list))
RULES = ValueKind("a list", LIST.accepts)
"""A list whose items are checked one by one."""
TEXTS = of_type("a list of strings", list[str])
TEXT_OR_TEXTS = of_type("a string or a list of strings", str | list[str])
TEXT_MAP = of_type("an object with strings as its values", dict[str, str])
MODE = ValueKind(f"one of {', '.join(MODES)}", lambda value: value in (*MODES, "manual"))
SYNC = one_of(*SYNC_POLICIES)
DISABLE = ValueKind('"disable"', lambda value: value == "disable")
LIMIT_OBJECT = ValueKind(f"an object of numbers with keys from {', '.join(LIMITS)}", are_limits)
MEMORY_OBJECT = of_type("an object with known keys and valid values (docs/memory.md)", MemoryKeys)
SERVER_LIST = ValueKind(
    "a list of objects, each with serverName, serverCommand (a list) or serverUrl",
    lambda value: isinstance(value, list) and all(map(is_server_entry, value)),
)
REMOTE_SERVERS = ValueKind(
    'an object of servers of the type "http" or "sse"; their values cannot contain ${VAR}',
    lambda value: isinstance(value, dict) and all(map(is_remote_server, value.values())),
)
VERSION = ValueKind("a version such as 2.1.300", is_version)
PRICING = of_type(
    "an object with multiplier (a number) and overrides (by model, each with input, output, cacheRead, cacheWrite)",
    ModelPricing,
)
SURFACE_LIST = of_type("true, false or a list with items from skills, agents, hooks, mcp", bool | list[Surface])
ATTRIBUTION = of_type("true, false or an object with the strings commit and pr", bool | AttributionTexts)
SKILL_MAP = of_type(
    "an object with values from on, name-only, user-invocable-only, off",
    dict[str, Literal["on", "name-only", "user-invocable-only", "off"]],
)
EFFORT = one_of(*EFFORTS)
ANY = ValueKind("anything", lambda value: True)

# The keys.

KeyScope = Literal["anyone", "trusted", "person", "managed", "flag"]
ANYONE: KeyScope = "anyone"
"""Every layer may set it, also an untrusted project: it only restricts, or it is harmless.

What a project restricts is the session and the project's own hooks, servers, skills and memory files. The user's and
the administrator's are subject to `SessionSettings.without_project`."""
TRUSTED: KeyScope = "trusted"
"""A project may set it if it is trusted."""
PERSON: KeyScope = "person"
"""A project may never set it: it changes credentials, endpoints or consent."""
MANAGED: KeyScope = "managed"
"""Only an administrator may set it."""
FLAG: KeyScope = "flag"
"""Only the program that starts the engine may set it, with `--settings`."""

KeyEffect = Literal["works", "reported", "quiet"]
KeyMerge = Literal["first", "any_true", "any_false", "union", "lowest_effort"]


class SettingKey(Struct, frozen=True):
    """The type of a key's value, which layers may set it, and what it does."""

    kind: ValueKind
    note: str = ""
    """What the key does here, or why it does nothing."""
    scope: KeyScope = TRUSTED
    effect: KeyEffect = "works"
    merge: KeyMerge = "first"
    """How the values of several layers are combined: the strongest layer's, any true, all items, or the lowest."""
    same_as_unset: tuple[Any, ...] = ()
    """Values of a reported key that ask for what happens anyway."""
    restricts: bool = False
    """Whether it restricts a session, which therefore does not start with a value of the wrong type."""
    addable: bool = False
    """Whether a program may add it with `--managed-settings` to an administrator's file that merges them."""
    updatable: bool = False
    """Whether a client may write it with update_settings: it runs no command and grants no permissions."""
    loosens: bool = False
    """Whether a project cannot set it if no command may leave the sandbox."""
    closed_by: tuple[str, ...] = ()
    """It loosens the restrictions that these switches make: if managed settings turn one, only they set the key."""

    def is_missed(self, value: Any) -> bool:
        """Whether the user asks for something that does not happen."""
        return self.effect == "reported" and not any(value is same for same in self.same_as_unset)


def reported(why: str, *, off: tuple[Any, ...] = (), scope: KeyScope = TRUSTED, updatable: bool = False) -> SettingKey:
    return SettingKey(ANY, why, scope, "reported", same_as_unset=off, updatable=updatable)


def policy(why: str) -> SettingKey:
    """A policy of administrators that is not supported."""
    return SettingKey(ANY, why, MANAGED, "reported")


def quiet(why: str) -> SettingKey:
    return SettingKey(ANY, why, effect="quiet")


def quiet_keys(why: str, names: str) -> dict[str, SettingKey]:
    return dict.fromkeys(names.split(), quiet(why))


TERMINAL = "it concerns only the display or keyboard of a terminal"
VENDOR = "it belongs to a service or an app of the vendor"
ABSENT = "Parley does not have this feature"
NO_MARKETPLACE = "sessions add no marketplaces; run `parley plugin marketplace add`"
MARKETPLACE_POLICY = "plugins of other marketplaces, and those without one, are not installed or loaded"
BLOCKED_MARKETPLACES = "plugins of these marketplaces, and those without one, are not installed or loaded"
MACOS = "it concerns only macOS"
NO_TLS = "the proxy does not decrypt connections"
SOCKETS = "the system call filter cannot tell Unix sockets by path; allowAllUnixSockets permits all of them"
BOUNDARY = ("permissions.blockReadsOutsideWorkingDirectories", "permissions.blockWritesOutsideWorkingDirectories")
CONFINEMENT = ("sandbox.enabled", "sandbox.allowUnsandboxedCommands")
NO_WAY_OUT = ("sandbox.allowUnsandboxedCommands",)
CLOSES_WHEN_FALSE = frozenset(NO_WAY_OUT)
"""The switches that restrict when they are false."""

ENTRY_OBJECTS = ("env", "mcpServers", "enabledPlugins", "models")
"""Objects that are merged, and trusted, entry by entry."""

KEYS: dict[str, SettingKey] = {
    "$schema": SettingKey(ANY, "the JSON schema, for editors; no effect on the session", ANYONE),
    # Models.
    "model": SettingKey(TEXT, "the model of the session", updatable=True),
    "fallbackModel": SettingKey(
        TEXT_OR_TEXTS, "the models to use if the model of a turn is unavailable", updatable=True
    ),
    "availableModels": SettingKey(TEXTS, "the models that can be used (see [Policies](#policies))", restricts=True),
    "availableModelsMatch": SettingKey(
        one_of("prefix", "exact"), "how entries of `availableModels` are matched", MANAGED
    ),
    "enforceAvailableModels": SettingKey(SWITCH, "`availableModels` also limits the default model", restricts=True),
    "deniedModels": SettingKey(
        TEXTS, "models that cannot be used (see [Policies](#policies))", MANAGED, merge="union", addable=True
    ),
    "modelOverrides": SettingKey(TEXT_MAP, "other names for models: the name to send to the server, by model", PERSON),
    "models": SettingKey(
        OBJECT, "window, longest answer, thinking and price of models (models.md)", PERSON, restricts=True
    ),
    "modelPricing": SettingKey(PRICING, "prices that replace the built-in price table", MANAGED),
    "modelPicker": reported("the list of models that clients receive is fixed"),
    "modelSettings": reported("use `effortLevel`, `maxEffortLevel` and `autoCompactWindow` instead"),
    "effortLevel": SettingKey(TEXT, "the effort level, for models that support it", updatable=True),
    "maxEffortLevel": SettingKey(EFFORT, "the highest effort level allowed", merge="lowest_effort", addable=True),
    "alwaysThinkingEnabled": SettingKey(
        SWITCH, "false: the model does not think, unless an option turns thinking on", updatable=True
    ),
    "showThinkingSummaries": SettingKey(SWITCH, "true: thinking is shown as a summary"),
    "promptCacheTtl": SettingKey(one_of("5m", "1h"), "how long the prompt cache of the main conversation lasts"),
    "subagentPromptCacheTtl": SettingKey(one_of("5m", "1h"), "how long the prompt cache of subagents lasts"),
    "advisorModel": reported("there is no advisor tool"),
    "fastMode": reported("there is no fast mode", off=(False,)),
    "switchModelsOnFlag": reported("to switch models after a refusal, use `fallbackModel`", off=(False,)),
    # Credentials and servers.
    "apiKeyHelper": SettingKey(TEXT, "a command that prints the API key", PERSON),
    "awsCredentialExport": SettingKey(TEXT, "a command that prints credentials for Bedrock as JSON", PERSON),
    "awsAuthRefresh": reported("Parley does not run it; sign in before you start a session", scope=PERSON),
    "gcpAuthRefresh": reported("Parley does not run it; sign in before you start a session", scope=PERSON),
    "proxyAuthHelper": reported("put the credentials into the URL of the proxy", scope=PERSON),
    "otelHeadersHelper": reported("set the variable OTEL_EXPORTER_OTLP_HEADERS instead", scope=PERSON),
    "env": SettingKey(OBJECT, "environment variables"),
    "allowedProviders": SettingKey(list_of(*PROVIDERS), "the model services that can be used", MANAGED),
    "allowNestedModelAccessUnderForceLogin": policy("there is no login, only API keys"),
    "forceLoginMethod": policy("there is no login, only API keys"),
    "forceLoginOrgUUID": policy("there is no login, only API keys"),
    "forceLoginGatewayUrl": policy("there is no login, only API keys"),
    "gatewayInternalNetworks": policy("there is no login, only API keys"),
    # Permissions, hooks and policies.
    "permissions": SettingKey(GROUP, "see [Keys of `permissions`](#keys-of-permissions)", restricts=True, addable=True),
    "sandbox": SettingKey(GROUP, "see [Sandbox](sandbox.md)", restricts=True, addable=True),
    "disableAutoMode": SettingKey(DISABLE, "the mode `auto` cannot be used", ANYONE, restricts=True, addable=True),
    "autoMode": reported("the mode `auto` has no classifier"),
    "useAutoModeDuringPlan": reported("plan mode allows no changes", off=(False,)),
    "hooks": SettingKey(OBJECT, "[hooks](hooks.md) by event"),
    "disableAllHooks": SettingKey(
        SWITCH, "no hooks run. Only managed settings can disable hooks of managed settings", PERSON, addable=True
    ),
    "allowManagedHooksOnly": SettingKey(
        SWITCH, "only hooks in managed settings run", MANAGED, merge="any_true", addable=True
    ),
    "allowManagedPermissionRulesOnly": SettingKey(
        SWITCH, "only rules in managed settings allow calls", MANAGED, merge="any_true", addable=True
    ),
    "allowManagedMcpServersOnly": SettingKey(
        SWITCH, "`allowedMcpServers` has an effect only in managed settings", MANAGED, merge="any_true", addable=True
    ),
    "allowedHttpHookUrls": SettingKey(
        TEXTS, "the URLs that `http` hooks may call; the lists of all layers are combined", PERSON
    ),
    "httpHookAllowedEnvVars": SettingKey(
        TEXTS, "the variables that headers of `http` hooks may contain; the lists of all layers are combined", PERSON
    ),
    "strictPluginOnlyCustomization": SettingKey(
        SURFACE_LIST,
        "skills, agents, hooks or MCP servers come only from plugins and managed settings",
        MANAGED,
        addable=True,
    ),
    "disableSideloadFlags": SettingKey(
        SWITCH, "refuses `--plugin-dir`, `--agents` and `--mcp-config`", MANAGED, merge="any_true", addable=True
    ),
    "disableSkillShellExecution": SettingKey(
        SWITCH,
        "shell commands in custom commands and skills do not run; in a project, only its own",
        ANYONE,
        merge="any_true",
        restricts=True,
        addable=True,
    ),
    "requiredMinimumVersion": SettingKey(
        VERSION, "the lowest `claude_code_version` with which a session starts", MANAGED, addable=True
    ),
    "requiredMaximumVersion": SettingKey(
        VERSION, "the highest `claude_code_version` with which a session starts", MANAGED, addable=True
    ),
    "parentSettingsBehavior": SettingKey(
        one_of("first-wins", "merge"), "whether `--managed-settings` applies in addition to the managed file", MANAGED
    ),
    "policyHelper": policy("put the settings into the managed file"),
    "forceRemoteSettingsRefresh": policy("there are no remote settings"),
    "webFetchAllowPrivate": SettingKey(SWITCH, "WebFetch may call servers in private networks", PERSON),
    # MCP servers.
    "mcpServers": SettingKey(OBJECT, "[MCP servers](mcp.md) by name"),
    "enableAllProjectMcpServers": SettingKey(SWITCH, "approves all servers in `.mcp.json` files", PERSON),
    "enabledMcpjsonServers": SettingKey(TEXTS, "approves these servers in `.mcp.json`", PERSON),
    "disabledMcpjsonServers": SettingKey(
        TEXTS, "rejects these servers in `.mcp.json`", ANYONE, merge="union", restricts=True
    ),
    "managedMcpServers": SettingKey(REMOTE_SERVERS, "MCP servers that every session uses", MANAGED),
    "allowedMcpServers": SettingKey(
        SERVER_LIST,
        "the servers that users can add (see [Policies](#policies))",
        PERSON,
        merge="union",
        restricts=True,
        closed_by=("allowManagedMcpServersOnly",),
    ),
    "deniedMcpServers": SettingKey(
        SERVER_LIST,
        "servers that are blocked (see [Policies](#policies)); in a project, only its own",
        ANYONE,
        merge="union",
        restricts=True,
        addable=True,
    ),
    # Instructions, skills, agents and plugins.
    "agent": SettingKey(TEXT, "the agent whose definition the session uses"),
    "outputStyle": SettingKey(
        TEXT, "the output style; that of an untrusted project only if no other layer sets one", ANYONE, updatable=True
    ),
    "language": SettingKey(
        TEXT,
        "the language of answers; that of an untrusted project only if no other layer sets one",
        ANYONE,
        updatable=True,
    ),
    "claudeMd": SettingKey(TEXT, "instructions of the organization", MANAGED),
    "claudeMdExcludes": SettingKey(
        TEXTS, "memory files that are not loaded; in a project, not the user's own", ANYONE, merge="union"
    ),
    "attribution": SettingKey(ATTRIBUTION, "text to add to commits and pull requests; none by default"),
    "includeCoAuthoredBy": reported("no attribution is added; use `attribution`", off=(False,), updatable=True),
    "includeGitInstructions": reported("the system prompt has no git instructions", off=(False,)),
    "skillOverrides": SettingKey(SKILL_MAP, "skills to hide, completely or only their descriptions"),
    "skillListingMaxDescChars": reported("each description of a skill is cut at 1000 characters"),
    "skillListingBudgetFraction": reported("all descriptions of skills together are cut at 15000 characters"),
    "enabledPlugins": SettingKey(OBJECT, "the installed plugins that are loaded"),
    "prependPlugins": reported("use the flag `--plugin-dir` instead"),
    "appendPlugins": reported("use the flag `--plugin-dir` instead"),
    "pluginConfigs": reported("plugins have no configuration"),
    "extraKnownMarketplaces": reported(NO_MARKETPLACE),
    "additionalMarketplaces": reported(NO_MARKETPLACE),
    "strictKnownMarketplaces": SettingKey(LIST, MARKETPLACE_POLICY, MANAGED),
    "allowedMarketplaces": SettingKey(LIST, MARKETPLACE_POLICY, MANAGED),
    "blockedMarketplaces": SettingKey(LIST, BLOCKED_MARKETPLACES, MANAGED),
    "worktree": reported("worktrees of agents always start at HEAD, with all files"),
    # Sessions, memory and files.
    "autoCompactEnabled": SettingKey(SWITCH, "whether a long conversation is compacted", updatable=True),
    "autoCompactWindow": SettingKey(COUNT, "the context window, in tokens"),
    "precomputeCompactionEnabled": reported("a summary is made only when it is needed", off=(False,)),
    "idleCompaction": reported("an idle session is not compacted", off=(False,)),
    "memory": SettingKey(MEMORY_OBJECT, "the [long-term memory](memory.md)"),
    "autoMemoryEnabled": SettingKey(SWITCH, "false: no long-term memory, unless `--memory` asks for one"),
    "autoMemoryDirectory": reported("use the flag `--memory FILE` instead"),
    "autoDreamEnabled": reported("use the setting `memory` instead", off=(False,)),
    "cleanupPeriodDays": reported("sessions are kept until you delete them", updatable=True),
    "fileCheckpointingEnabled": SettingKey(
        SWITCH, "whether files are saved before tools change them, so that a client can restore them", updatable=True
    ),
    "plansDirectory": SettingKey(TEXT, "the directory for plan files, relative to the project"),
    "fsync": SettingKey(
        SYNC, "when the engine waits until a session's log is on the disk ([Durability](sessions.md#durability))"
    ),
    "limits": SettingKey(LIMIT_OBJECT, "[limits](limits.md) of a session"),
    # Tools.
    "bashOutputMaxChars": SettingKey(
        COUNT, "how many characters of a command's output the model receives (4000 to 80000)"
    ),
    "bashEditDiffEnabled": reported("Bash shows no diffs", off=(False,)),
    "respectGitignore": SettingKey(SWITCH, "false: `file_suggestions` includes files that git ignores", updatable=True),
    "enableArtifact": reported("there is no Artifact tool", off=(False,)),
    "enableWorkflows": reported("there is no Workflow tool", off=(False,)),
    "ultracode": reported("there is no Workflow tool", off=(False,)),
    "promptSuggestionEnabled": SettingKey(SWITCH, "false: no suggestions for the next prompt"),
    # A terminal.
    "statusLine": SettingKey(
        OBJECT, "a command whose output is the status line of the [terminal](terminal.md#status-line)"
    ),
    "theme": SettingKey(TEXT, "the colours of the [terminal](terminal.md#themes)", updatable=True),
    "editorMode": SettingKey(
        one_of("normal", "emacs", "vim"), "the keys of the [terminal](terminal.md)", updatable=True
    ),
    "preferredNotifChannel": SettingKey(
        TEXT, "`notifications_disabled`: the [terminal](terminal.md) does not call you when it waits", updatable=True
    ),
    # Keys of `permissions`.
    "permissions.allow": SettingKey(RULES, "rules for calls that need no approval"),
    "permissions.deny": SettingKey(RULES, "rules for calls that are refused", ANYONE, restricts=True, addable=True),
    "permissions.ask": SettingKey(
        RULES, "rules for calls that always need approval", ANYONE, restricts=True, addable=True
    ),
    "permissions.additionalDirectories": SettingKey(RULES, "additional working directories", closed_by=BOUNDARY),
    "permissions.defaultMode": SettingKey(MODE, "the permission mode at the start", ANYONE),
    "permissions.disableBypassPermissionsMode": SettingKey(
        DISABLE, "the mode `bypassPermissions` cannot be used", ANYONE, restricts=True, addable=True
    ),
    "permissions.disableAutoMode": SettingKey(
        DISABLE, "the mode `auto` cannot be used", ANYONE, restricts=True, addable=True
    ),
    "permissions.blockReadsOutsideWorkingDirectories": SettingKey(
        SWITCH,
        "reads outside the working directories are refused",
        ANYONE,
        merge="any_true",
        restricts=True,
        addable=True,
    ),
    "permissions.blockWritesOutsideWorkingDirectories": SettingKey(
        SWITCH,
        "writes outside the working directories are refused",
        ANYONE,
        merge="any_true",
        restricts=True,
        addable=True,
    ),
    "permissions.blockReadsExemptPaths": SettingKey(
        TEXTS, "paths outside the working directories that may still be read", FLAG, closed_by=BOUNDARY
    ),
    "permissions.workingDirectoriesAsGiven": SettingKey(
        TEXTS, "working directories that must not be replaced by symbolic links", FLAG, restricts=True
    ),
    "permissions.denyInsteadOfPrompting": SettingKey(
        SWITCH,
        "calls that need approval are refused, and no one is asked; only managed PermissionRequest hooks run",
        PERSON,
        merge="any_true",
        restricts=True,
        addable=True,
    ),
    # Keys of `sandbox`. Without `sandbox.enabled` most of them mean nothing.
    "sandbox.enabled": SettingKey(SWITCH, "commands run in the sandbox", merge="any_true", restricts=True),
    "sandbox.failIfUnavailable": SettingKey(
        SWITCH, "whether a session without a sandbox is refused (default: true)", merge="any_true", restricts=True
    ),
    "sandbox.autoAllowBashIfSandboxed": SettingKey(
        SWITCH,
        "commands in the sandbox need no approval (default: false)",
        closed_by=("allowManagedPermissionRulesOnly",),
        loosens=True,
    ),
    "sandbox.allowUnsandboxedCommands": SettingKey(
        SWITCH, "the model may ask to run a command outside (default: true)", merge="any_false", restricts=True
    ),
    "sandbox.network": SettingKey(GROUP, restricts=True),
    "sandbox.filesystem": SettingKey(GROUP, restricts=True),
    "sandbox.credentials": SettingKey(GROUP, restricts=True),
    "sandbox.ignoreViolations": SettingKey(OBJECT, "violations that are not reported, by command", loosens=True),
    "sandbox.enableWeakerNestedSandbox": SettingKey(
        SWITCH, "keep the /proc of the host, for containers", closed_by=NO_WAY_OUT, loosens=True
    ),
    "sandbox.allowNestedUserNamespaces": SettingKey(
        SWITCH, "commands may create user namespaces", PERSON, closed_by=CONFINEMENT
    ),
    "sandbox.excludedCommands": SettingKey(
        TEXTS, "commands that run outside", merge="union", closed_by=NO_WAY_OUT, loosens=True
    ),
    "sandbox.bwrapPath": SettingKey(TEXT, "the path of bubblewrap", MANAGED),
    "sandbox.confineReaders": SettingKey(
        SWITCH,
        "commands that are allowed because they only read or edit run in a sandbox for just that (default: true)",
        PERSON,
    ),
    "sandbox.confineHooks": SettingKey(
        SWITCH, "command hooks run in the sandbox; in a project, only its own hooks", ANYONE, merge="any_true"
    ),
    "sandbox.confineMcpServers": SettingKey(
        SWITCH, "stdio MCP servers run in the sandbox; in a project, only its own servers", ANYONE, merge="any_true"
    ),
    "sandbox.network.allowedDomains": SettingKey(
        TEXTS,
        "hosts that commands may reach; `*.example.com` for subdomains",
        merge="union",
        closed_by=("sandbox.network.allowManagedDomainsOnly",),
        loosens=True,
    ),
    "sandbox.network.deniedDomains": SettingKey(
        TEXTS, "hosts that commands may not reach, even if they are allowed", ANYONE, merge="union", restricts=True
    ),
    "sandbox.network.strictAllowlist": SettingKey(
        SWITCH, "other hosts are refused, and no one is asked", PERSON, merge="any_true", restricts=True
    ),
    "sandbox.network.allowManagedDomainsOnly": SettingKey(SWITCH, "only managed settings can allow hosts", MANAGED),
    "sandbox.network.allowUnixSockets": reported(SOCKETS),
    "sandbox.network.allowAllUnixSockets": SettingKey(
        SWITCH, "commands may use Unix sockets, such as that of Docker", closed_by=NO_WAY_OUT, loosens=True
    ),
    "sandbox.network.allowLocalBinding": SettingKey(
        SWITCH, "always true in bubblewrap: commands have a loopback interface of their own", loosens=True
    ),
    "sandbox.network.httpProxyPort": SettingKey(
        COUNT, "the port of your own HTTP proxy, which replaces the built-in one", PERSON, closed_by=CONFINEMENT
    ),
    "sandbox.network.socksProxyPort": SettingKey(
        COUNT, "the port of your own SOCKS5 proxy", PERSON, closed_by=CONFINEMENT
    ),
    "sandbox.network.tlsTerminate": reported(NO_TLS),
    "sandbox.filesystem.allowWrite": SettingKey(
        TEXTS, "more paths that commands may change", merge="union", loosens=True
    ),
    "sandbox.filesystem.denyWrite": SettingKey(
        TEXTS, "paths in writable folders that commands may not change", ANYONE, merge="union", restricts=True
    ),
    "sandbox.filesystem.denyRead": SettingKey(
        TEXTS, "paths that commands may not read", ANYONE, merge="union", restricts=True
    ),
    "sandbox.filesystem.allowRead": SettingKey(
        TEXTS,
        "paths that commands may read, although they are denied or hidden",
        PERSON,
        merge="union",
        closed_by=("sandbox.filesystem.allowManagedReadPathsOnly",),
        loosens=True,
    ),
    "sandbox.filesystem.allowManagedReadPathsOnly": SettingKey(
        SWITCH, "only managed settings can set `allowRead`", MANAGED
    ),
    "sandbox.filesystem.disabled": SettingKey(
        SWITCH, "commands may read and change all files; only the network is confined", PERSON, closed_by=CONFINEMENT
    ),
    "sandbox.credentials.files": SettingKey(
        LIST,
        "files that commands may not read; the mode `mask` is treated as `deny`",
        ANYONE,
        merge="union",
        restricts=True,
    ),
    "sandbox.credentials.envVars": SettingKey(
        LIST, "variables that commands do not get; `mask` is treated as `deny`", ANYONE, merge="union", restricts=True
    ),
    "sandbox.credentials.allowPlaintextInject": reported(NO_TLS, off=(False,)),
    "sandbox.credentials.awsPairs": reported(NO_TLS),
    "sandbox.credentials.sigv4": reported(NO_TLS),
    # Keys that are quiet.
    **quiet_keys(
        ABSENT,
        """
        fastModePerSessionOptIn disableClaudeAiConnectors disableBundledSkills disableArtifact disableWorkflows
        workflowSizeGuideline workflowKeywordTriggerEnabled disableAgentView disableRemoteControl
        """,
    ),
    "managedSourcesBehavior": quiet("there is only one file with managed settings"),
    "wslInheritsWindowsSettings": quiet("it concerns only Windows"),
    "disableWindowsBashCommandSplit": quiet("it concerns only Windows"),
    "skipWebFetchPreflight": quiet("WebFetch does not check a blocklist"),
    **quiet_keys(
        VENDOR,
        """
        allowAllClaudeAiMcps allowClaudeInChromeWithManagedMcp channelsEnabled allowedChannelPlugins
        desktopSessionCleanupPeriodDays attributionProject attributionProjectPolicy syncClaudeAiSkills
        syncClaudeAiPlugins disableReplyCheck remoteControlAtStartup isolatePeerMachines crossSessionInbound
        dialogExpiry daemonColdStart autoUploadSessions autoContinueAtUsageLimit inputNeededNotifEnabled
        agentPushNotifEnabled feedbackSurveyRate feedbackDrafts remote sshConfigs sshHostCommands
        autoUpdatesChannel minimumVersion disableDeepLinkRegistration
        """,
    ),
    "disableCommandPluginSources": quiet(NO_MARKETPLACE),
    "pluginSuggestionMarketplaces": quiet(NO_MARKETPLACE),
    **quiet_keys(
        TERMINAL,
        """
        pluginTrustMessage fileSuggestion defaultShell respondToBashCommands subagentStatusLine
        footerLinksRegexes prUrlTemplate viewMode defaultView tui keybindingFlavor vimInsertModeRemaps verbose
        spinnerTipsEnabled spinnerVerbs spinnerTipsOverride syntaxHighlightingDisabled maxProseWidth spellcheck
        emojiCompletionEnabled terminalTitleFromRename terminalProgressBarEnabled
        prefersReducedMotion autoScrollEnabled wheelScrollAccelerationEnabled showTurnDuration
        showMessageTimestamps showClearContextOnPlanAccept timeFormat timeZone todoFeatureEnabled
        askUserQuestionTimeout companyAnnouncements skipDangerousModePermissionPrompt skipAutoPermissionPrompt
        teammateMode voice voiceEnabled
        """,
    ),
    "taskOutputMaxChars": quiet("it has no effect in Claude Code either"),
    "processWrapper": quiet("there is no background service"),
    **quiet_keys(
        MACOS,
        """
        sandbox.enableWeakerNetworkIsolation sandbox.allowAppleEvents sandbox.network.allowMachLookup
        """,
    ),
    "sandbox.ripgrep": quiet("Parley finds protected files without ripgrep"),
    "sandbox.socatPath": quiet("the proxy does not need socat"),
}


def find_key(prefix: str, name: str) -> SettingKey | None:
    """The row of a key of a file, or of an object in it (`sandbox.`). A dotted name is not a key."""
    return None if "." in name else KEYS.get(prefix + name)


def nearest(prefix: str, name: str) -> str | None:
    """The key of the same object that is spelled most like an unknown one."""
    from difflib import get_close_matches  # slow to import and rarely needed

    names = [key.removeprefix(prefix) for key in KEYS if key.startswith(prefix)]
    by_lower = {known.lower(): known for known in names if "." not in known}
    found = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.7)
    return by_lower[found[0]] if found else None
