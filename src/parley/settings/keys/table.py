"""The table of settings keys: for each, the type of its value, which layers may set it, and what it does here.

A key *works*; or it has no effect, which is *reported* by name; or it is *quiet*, because it only concerns a terminal
or a service of the vendor, and leaving it out cannot change what the agent does. docs/settings.md shows the table.

In managed settings a key that is reported stops the start: a policy must not be skipped.
"""

from __future__ import annotations

from typing import Any, Literal

from parley.protocol.base import Struct
from parley.settings.keys.kinds import (
    ANY,
    ATTRIBUTION,
    COUNT,
    DISABLE,
    EFFORT,
    LIMIT_OBJECT,
    LIST,
    MEMORY_OBJECT,
    MODE,
    OBJECT,
    PRICING,
    PROVIDERS,
    REMOTE_SERVERS,
    SERVER_LIST,
    SKILL_MAP,
    SURFACE_LIST,
    SWITCH,
    SYNC,
    TEXT,
    TEXT_MAP,
    TEXT_OR_TEXTS,
    TEXTS,
    VERSION,
    ValueKind,
    list_of,
    one_of,
)

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
    scope: KeyScope = TRUSTED
    note: str = ""
    """What the key does here, or why it does nothing."""
    effect: KeyEffect = "works"
    merge: KeyMerge = "first"
    """How the values of several layers are combined: the strongest layer's, any true, all items, or the lowest."""
    same_as_unset: tuple[Any, ...] = ()
    """Values of a reported key that ask for what happens anyway."""

    def is_missed(self, value: Any) -> bool:
        """Whether the user asks for something that does not happen."""
        return self.effect == "reported" and not any(value is same for same in self.same_as_unset)


def reported(why: str, *, off: tuple[Any, ...] = (), scope: KeyScope = TRUSTED) -> SettingKey:
    return SettingKey(ANY, scope, why, "reported", same_as_unset=off)


def policy(why: str) -> SettingKey:
    """A policy of administrators that is not supported."""
    return SettingKey(ANY, MANAGED, why, "reported")


def quiet(why: str) -> SettingKey:
    return SettingKey(ANY, TRUSTED, why, "quiet")


TERMINAL = "it concerns only the display or keyboard of a terminal"
VENDOR = "it belongs to a service or an app of the vendor"
ABSENT = "Parley does not have this feature"
NO_MARKETPLACE = "sessions add no marketplaces; run `parley plugin marketplace add`"
MARKETPLACE_POLICY = "plugins of other marketplaces, and those without one, are not installed or loaded"
BLOCKED_MARKETPLACES = "plugins of these marketplaces, and those without one, are not installed or loaded"

KEYS: dict[str, SettingKey] = {
    "$schema": SettingKey(ANY, ANYONE, "the JSON schema, for editors; no effect on the session"),
    # Models.
    "model": SettingKey(TEXT, note="the model of the session"),
    "fallbackModel": SettingKey(TEXT_OR_TEXTS, note="the models to use if the model of a turn is unavailable"),
    "availableModels": SettingKey(TEXTS, note="the models that can be used (see [Policies](#policies))"),
    "availableModelsMatch": SettingKey(
        one_of("prefix", "exact"), MANAGED, "how entries of `availableModels` are matched"
    ),
    "enforceAvailableModels": SettingKey(SWITCH, note="`availableModels` also limits the default model"),
    "deniedModels": SettingKey(TEXTS, MANAGED, "models that cannot be used (see [Policies](#policies))", merge="union"),
    "modelOverrides": SettingKey(TEXT_MAP, PERSON, "other names for models: the name to send to the server, by model"),
    "models": SettingKey(OBJECT, PERSON, "window, longest answer, thinking and price of models (models.md)"),
    "modelPricing": SettingKey(PRICING, MANAGED, "prices that replace the built-in price table"),
    "modelPicker": reported("the list of models that clients receive is fixed"),
    "modelSettings": reported("use `effortLevel`, `maxEffortLevel` and `autoCompactWindow` instead"),
    "effortLevel": SettingKey(TEXT, note="the effort level, for models that support it"),
    "maxEffortLevel": SettingKey(EFFORT, note="the highest effort level allowed", merge="lowest_effort"),
    "alwaysThinkingEnabled": SettingKey(
        SWITCH, note="false: the model does not think, unless an option turns thinking on"
    ),
    "showThinkingSummaries": SettingKey(SWITCH, note="true: thinking is shown as a summary"),
    "promptCacheTtl": SettingKey(one_of("5m", "1h"), note="how long the prompt cache of the main conversation lasts"),
    "subagentPromptCacheTtl": SettingKey(one_of("5m", "1h"), note="how long the prompt cache of subagents lasts"),
    "advisorModel": reported("there is no advisor tool"),
    "fastMode": reported("there is no fast mode", off=(False,)),
    "fastModePerSessionOptIn": quiet(ABSENT),
    "switchModelsOnFlag": reported("to switch models after a refusal, use `fallbackModel`", off=(False,)),
    # Credentials and servers.
    "apiKeyHelper": SettingKey(TEXT, PERSON, "a command that prints the API key"),
    "awsCredentialExport": SettingKey(TEXT, PERSON, "a command that prints credentials for Bedrock as JSON"),
    "awsAuthRefresh": reported("Parley does not run it; sign in before you start a session", scope=PERSON),
    "gcpAuthRefresh": reported("Parley does not run it; sign in before you start a session", scope=PERSON),
    "proxyAuthHelper": reported("put the credentials into the URL of the proxy", scope=PERSON),
    "otelHeadersHelper": reported("set the variable OTEL_EXPORTER_OTLP_HEADERS instead", scope=PERSON),
    "env": SettingKey(OBJECT, note="environment variables"),
    "allowedProviders": SettingKey(list_of(*PROVIDERS), MANAGED, "the model services that can be used"),
    "allowNestedModelAccessUnderForceLogin": policy("there is no login, only API keys"),
    "forceLoginMethod": policy("there is no login, only API keys"),
    "forceLoginOrgUUID": policy("there is no login, only API keys"),
    "forceLoginGatewayUrl": policy("there is no login, only API keys"),
    "gatewayInternalNetworks": policy("there is no login, only API keys"),
    # Permissions, hooks and policies.
    "permissions": SettingKey(OBJECT, note="see [Keys of `permissions`](#keys-of-permissions)"),
    "sandbox": SettingKey(OBJECT, note="see [Sandbox](#sandbox)"),
    "disableAutoMode": SettingKey(DISABLE, ANYONE, "the mode `auto` cannot be used"),
    "autoMode": reported("the mode `auto` has no classifier"),
    "useAutoModeDuringPlan": reported("plan mode allows no changes", off=(False,)),
    "hooks": SettingKey(OBJECT, note="[hooks](hooks.md) by event"),
    "disableAllHooks": SettingKey(
        SWITCH, PERSON, "no hooks run. Only managed settings can disable hooks of managed settings"
    ),
    "allowManagedHooksOnly": SettingKey(SWITCH, MANAGED, "only hooks in managed settings run", merge="any_true"),
    "allowManagedPermissionRulesOnly": SettingKey(
        SWITCH, MANAGED, "only rules in managed settings allow calls", merge="any_true"
    ),
    "allowManagedMcpServersOnly": SettingKey(
        SWITCH, MANAGED, "`allowedMcpServers` has an effect only in managed settings", merge="any_true"
    ),
    "allowedHttpHookUrls": SettingKey(
        TEXTS, PERSON, "the URLs that `http` hooks may call; the lists of all layers are combined"
    ),
    "httpHookAllowedEnvVars": SettingKey(
        TEXTS, PERSON, "the variables that headers of `http` hooks may contain; the lists of all layers are combined"
    ),
    "strictPluginOnlyCustomization": SettingKey(
        SURFACE_LIST, MANAGED, "skills, agents, hooks or MCP servers come only from plugins and managed settings"
    ),
    "disableSideloadFlags": SettingKey(
        SWITCH, MANAGED, "refuses `--plugin-dir`, `--agents` and `--mcp-config`", merge="any_true"
    ),
    "disableSkillShellExecution": SettingKey(
        SWITCH,
        ANYONE,
        "shell commands in custom commands and skills do not run; in a project, only its own",
        merge="any_true",
    ),
    "requiredMinimumVersion": SettingKey(
        VERSION, MANAGED, "the lowest `claude_code_version` with which a session starts"
    ),
    "requiredMaximumVersion": SettingKey(
        VERSION, MANAGED, "the highest `claude_code_version` with which a session starts"
    ),
    "parentSettingsBehavior": SettingKey(
        one_of("first-wins", "merge"), MANAGED, "whether `--managed-settings` applies in addition to the managed file"
    ),
    "managedSourcesBehavior": quiet("there is only one file with managed settings"),
    "wslInheritsWindowsSettings": quiet("it concerns only Windows"),
    "policyHelper": policy("put the settings into the managed file"),
    "forceRemoteSettingsRefresh": policy("there are no remote settings"),
    "webFetchAllowPrivate": SettingKey(SWITCH, PERSON, "WebFetch may call servers in private networks"),
    "skipWebFetchPreflight": quiet("WebFetch does not check a blocklist"),
    # MCP servers.
    "mcpServers": SettingKey(OBJECT, note="[MCP servers](mcp.md) by name"),
    "enableAllProjectMcpServers": SettingKey(SWITCH, PERSON, "approves all servers in `.mcp.json` files"),
    "enabledMcpjsonServers": SettingKey(TEXTS, PERSON, "approves these servers in `.mcp.json`"),
    "disabledMcpjsonServers": SettingKey(TEXTS, ANYONE, "rejects these servers in `.mcp.json`", merge="union"),
    "managedMcpServers": SettingKey(REMOTE_SERVERS, MANAGED, "MCP servers that every session uses"),
    "allowedMcpServers": SettingKey(
        SERVER_LIST, PERSON, "the servers that users can add (see [Policies](#policies))", merge="union"
    ),
    "deniedMcpServers": SettingKey(
        SERVER_LIST,
        ANYONE,
        "servers that are blocked (see [Policies](#policies)); in a project, only its own",
        merge="union",
    ),
    "disableClaudeAiConnectors": quiet(ABSENT),
    "allowAllClaudeAiMcps": quiet(VENDOR),
    "allowClaudeInChromeWithManagedMcp": quiet(VENDOR),
    "channelsEnabled": quiet(VENDOR),
    "allowedChannelPlugins": quiet(VENDOR),
    # Instructions, skills, agents and plugins.
    "agent": SettingKey(TEXT, note="the agent whose definition the session uses"),
    "outputStyle": SettingKey(
        TEXT, ANYONE, "the output style; that of an untrusted project only if no other layer sets one"
    ),
    "language": SettingKey(
        TEXT, ANYONE, "the language of answers; that of an untrusted project only if no other layer sets one"
    ),
    "claudeMd": SettingKey(TEXT, MANAGED, "instructions of the organization"),
    "claudeMdExcludes": SettingKey(
        TEXTS, ANYONE, "memory files that are not loaded; in a project, not the user's own", merge="union"
    ),
    "attribution": SettingKey(ATTRIBUTION, note="text to add to commits and pull requests; none by default"),
    "includeCoAuthoredBy": reported("no attribution is added; use `attribution`", off=(False,)),
    "includeGitInstructions": reported("the system prompt has no git instructions", off=(False,)),
    "skillOverrides": SettingKey(SKILL_MAP, note="skills to hide, completely or only their descriptions"),
    "skillListingMaxDescChars": reported("each description of a skill is cut at 1000 characters"),
    "skillListingBudgetFraction": reported("all descriptions of skills together are cut at 15000 characters"),
    "disableBundledSkills": quiet(ABSENT),
    "enabledPlugins": SettingKey(OBJECT, note="the installed plugins that are loaded"),
    "prependPlugins": reported("use the flag `--plugin-dir` instead"),
    "appendPlugins": reported("use the flag `--plugin-dir` instead"),
    "pluginConfigs": reported("plugins have no configuration"),
    "extraKnownMarketplaces": reported(NO_MARKETPLACE),
    "additionalMarketplaces": reported(NO_MARKETPLACE),
    "strictKnownMarketplaces": SettingKey(LIST, MANAGED, MARKETPLACE_POLICY),
    "allowedMarketplaces": SettingKey(LIST, MANAGED, MARKETPLACE_POLICY),
    "blockedMarketplaces": SettingKey(LIST, MANAGED, BLOCKED_MARKETPLACES),
    "disableCommandPluginSources": quiet(NO_MARKETPLACE),
    "pluginSuggestionMarketplaces": quiet(NO_MARKETPLACE),
    "pluginTrustMessage": quiet(TERMINAL),
    "worktree": reported("worktrees of agents always start at HEAD, with all files"),
    # Sessions, memory and files.
    "autoCompactEnabled": SettingKey(SWITCH, note="whether a long conversation is compacted"),
    "autoCompactWindow": SettingKey(COUNT, note="the context window, in tokens"),
    "precomputeCompactionEnabled": reported("a summary is made only when it is needed", off=(False,)),
    "idleCompaction": reported("an idle session is not compacted", off=(False,)),
    "memory": SettingKey(MEMORY_OBJECT, note="the [long-term memory](memory.md)"),
    "autoMemoryEnabled": SettingKey(SWITCH, note="false: no long-term memory, unless `--memory` asks for one"),
    "autoMemoryDirectory": reported("use the flag `--memory FILE` instead"),
    "autoDreamEnabled": reported("use the setting `memory` instead", off=(False,)),
    "cleanupPeriodDays": reported("sessions are kept until you delete them"),
    "desktopSessionCleanupPeriodDays": quiet(VENDOR),
    "fileCheckpointingEnabled": SettingKey(
        SWITCH, note="whether files are saved before tools change them, so that a client can restore them"
    ),
    "plansDirectory": SettingKey(TEXT, note="the directory for plan files, relative to the project"),
    "fsync": SettingKey(
        SYNC, note="when the engine waits until a session's log is on the disk ([Durability](sessions.md#durability))"
    ),
    "limits": SettingKey(LIMIT_OBJECT, note="[limits](limits.md) of a session"),
    # Tools.
    "bashOutputMaxChars": SettingKey(
        COUNT, note="how many characters of a command's output the model receives (4000 to 80000)"
    ),
    "bashEditDiffEnabled": reported("Bash shows no diffs", off=(False,)),
    "taskOutputMaxChars": quiet("it has no effect in Claude Code either"),
    "respectGitignore": SettingKey(SWITCH, note="false: `file_suggestions` includes files that git ignores"),
    "fileSuggestion": quiet(TERMINAL),
    "defaultShell": quiet(TERMINAL),
    "respondToBashCommands": quiet(TERMINAL),
    "disableWindowsBashCommandSplit": quiet("it concerns only Windows"),
    "enableArtifact": reported("there is no Artifact tool", off=(False,)),
    "disableArtifact": quiet(ABSENT),
    "enableWorkflows": reported("there is no Workflow tool", off=(False,)),
    "disableWorkflows": quiet(ABSENT),
    "workflowSizeGuideline": quiet(ABSENT),
    "workflowKeywordTriggerEnabled": quiet(ABSENT),
    "ultracode": reported("there is no Workflow tool", off=(False,)),
    "promptSuggestionEnabled": SettingKey(SWITCH, note="false: no suggestions for the next prompt"),
    "processWrapper": quiet("there is no background service"),
    # A terminal.
    "statusLine": SettingKey(
        OBJECT, note="a command whose output is the status line of the [terminal](terminal.md#status-line)"
    ),
    "subagentStatusLine": quiet(TERMINAL),
    "footerLinksRegexes": quiet(TERMINAL),
    "prUrlTemplate": quiet(TERMINAL),
    "viewMode": quiet(TERMINAL),
    "defaultView": quiet(TERMINAL),
    "theme": SettingKey(TEXT, note="the colours of the [terminal](terminal.md#themes)"),
    "tui": quiet(TERMINAL),
    "editorMode": SettingKey(one_of("normal", "emacs", "vim"), note="the keys of the [terminal](terminal.md)"),
    "keybindingFlavor": quiet(TERMINAL),
    "vimInsertModeRemaps": quiet(TERMINAL),
    "verbose": quiet(TERMINAL),
    "spinnerTipsEnabled": quiet(TERMINAL),
    "spinnerVerbs": quiet(TERMINAL),
    "spinnerTipsOverride": quiet(TERMINAL),
    "syntaxHighlightingDisabled": quiet(TERMINAL),
    "maxProseWidth": quiet(TERMINAL),
    "spellcheck": quiet(TERMINAL),
    "emojiCompletionEnabled": quiet(TERMINAL),
    "terminalTitleFromRename": quiet(TERMINAL),
    "terminalProgressBarEnabled": quiet(TERMINAL),
    "preferredNotifChannel": quiet(TERMINAL),
    "prefersReducedMotion": quiet(TERMINAL),
    "autoScrollEnabled": quiet(TERMINAL),
    "wheelScrollAccelerationEnabled": quiet(TERMINAL),
    "showTurnDuration": quiet(TERMINAL),
    "showMessageTimestamps": quiet(TERMINAL),
    "showClearContextOnPlanAccept": quiet(TERMINAL),
    "timeFormat": quiet(TERMINAL),
    "timeZone": quiet(TERMINAL),
    "todoFeatureEnabled": quiet(TERMINAL),
    "askUserQuestionTimeout": quiet(TERMINAL),
    "companyAnnouncements": quiet(TERMINAL),
    "skipDangerousModePermissionPrompt": quiet(TERMINAL),
    "skipAutoPermissionPrompt": quiet(TERMINAL),
    "teammateMode": quiet(TERMINAL),
    "voice": quiet(TERMINAL),
    "voiceEnabled": quiet(TERMINAL),
    # Services and apps of the vendor.
    "attributionProject": quiet(VENDOR),
    "attributionProjectPolicy": quiet(VENDOR),
    "syncClaudeAiSkills": quiet(VENDOR),
    "syncClaudeAiPlugins": quiet(VENDOR),
    "disableReplyCheck": quiet(VENDOR),
    "disableAgentView": quiet(ABSENT),
    "disableRemoteControl": quiet(ABSENT),
    "remoteControlAtStartup": quiet(VENDOR),
    "isolatePeerMachines": quiet(VENDOR),
    "crossSessionInbound": quiet(VENDOR),
    "dialogExpiry": quiet(VENDOR),
    "daemonColdStart": quiet(VENDOR),
    "autoUploadSessions": quiet(VENDOR),
    "autoContinueAtUsageLimit": quiet(VENDOR),
    "inputNeededNotifEnabled": quiet(VENDOR),
    "agentPushNotifEnabled": quiet(VENDOR),
    "feedbackSurveyRate": quiet(VENDOR),
    "feedbackDrafts": quiet(VENDOR),
    "remote": quiet(VENDOR),
    "sshConfigs": quiet(VENDOR),
    "sshHostCommands": quiet(VENDOR),
    "autoUpdatesChannel": quiet(VENDOR),
    "minimumVersion": quiet(VENDOR),
    "disableDeepLinkRegistration": quiet(VENDOR),
}
PERMISSIONS: dict[str, SettingKey] = {
    "allow": SettingKey(LIST, note="rules for calls that need no approval"),
    "deny": SettingKey(LIST, ANYONE, "rules for calls that are refused"),
    "ask": SettingKey(LIST, ANYONE, "rules for calls that always need approval"),
    "additionalDirectories": SettingKey(LIST, note="additional working directories"),
    "defaultMode": SettingKey(MODE, ANYONE, "the permission mode at the start"),
    "disableBypassPermissionsMode": SettingKey(DISABLE, ANYONE, "the mode `bypassPermissions` cannot be used"),
    "disableAutoMode": SettingKey(DISABLE, ANYONE, "the mode `auto` cannot be used"),
    "blockReadsOutsideWorkingDirectories": SettingKey(
        SWITCH, ANYONE, "reads outside the working directories are refused", merge="any_true"
    ),
    "blockWritesOutsideWorkingDirectories": SettingKey(
        SWITCH, ANYONE, "writes outside the working directories are refused", merge="any_true"
    ),
    "blockReadsExemptPaths": SettingKey(TEXTS, FLAG, "paths outside the working directories that may still be read"),
    "workingDirectoriesAsGiven": SettingKey(
        TEXTS, FLAG, "working directories that must not be replaced by symbolic links"
    ),
    "denyInsteadOfPrompting": SettingKey(
        SWITCH,
        PERSON,
        "calls that need approval are refused, and no one is asked; only managed PermissionRequest hooks run",
        merge="any_true",
    ),
}
UPDATABLE = frozenset(
    {"alwaysThinkingEnabled", "autoCompactEnabled", "cleanupPeriodDays", "effortLevel", "fallbackModel"}
    | {"fileCheckpointingEnabled", "includeCoAuthoredBy", "language", "model", "outputStyle", "respectGitignore"}
    | {"editorMode", "theme"}
)
"""Keys that a client may write with update_settings: none of them runs a command or grants permissions."""


def scope_of(key: str) -> KeyScope:
    known = KEYS.get(key)
    return TRUSTED if known is None else known.scope


def nearest(key: str, known: dict[str, SettingKey]) -> str | None:
    """The known key that is spelled most like an unknown one."""
    from difflib import get_close_matches  # slow to import and rarely needed

    by_lower = {name.lower(): name for name in known}
    found = get_close_matches(key.lower(), by_lower, n=1, cutoff=0.7)
    return by_lower[found[0]] if found else None
