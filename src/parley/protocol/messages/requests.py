"""Control requests in both directions, and the structs of their replies.

`@request` registers a class under its `subtype`, and says who sends it, what answers it, and what a client of a gateway
needs for it. The union is open: an unknown subtype is an `UnknownRequest`, which is answered with an error.

`answer` of a class is the struct of its success payload. Requests that few clients send are in `panel_requests.py`.
"""

# No `from __future__ import annotations`: msgspec compiles and evaluates string annotations one by one when the first
# request comes, which takes 3 million instructions of the start for `initialize` alone.
from abc import ABCMeta
from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar, Literal, TypeVar

import msgspec

from parley.protocol.base import (
    BOTH,
    ENGINE_ONLY,
    HOST_ONLY,
    UNSET,
    Json,
    JsonBacked,
    Number,
    Role,
    Struct,
    UnsetType,
    convert,
)

Scope = Literal["view", "prompt", "approve"]
"""What a client of a gateway must be allowed to do. `view`: it changes nothing and reads nothing but the session.
`prompt`: it runs nothing without a question. `approve`: anything else."""


class Payload(JsonBacked, metaclass=ABCMeta):
    """The `request` of a control request: a known Request or an UnknownRequest."""

    __slots__ = ()

    @classmethod
    def read(cls, json: Any) -> Any:
        if not isinstance(json, dict):
            raise msgspec.ValidationError("`request` must be an object")
        subtype = json.get("subtype")
        if not isinstance(subtype, str):
            raise msgspec.ValidationError("`request` needs a `subtype`")
        known = find_request(subtype)
        if known is None:
            return UnknownRequest(json)
        found = convert(json, known)
        if known is Initialize:
            found.__dict__["unknown_fields"] = list_unknown(json)
        return found


def list_unknown(json: Json) -> list[str]:
    """The unknown fields of an `initialize` request, of its agents and of its hooks."""
    agents, hooks = json.get("agents") or {}, json.get("hooks") or {}
    return [
        *(key for key in json if key not in Initialize.__struct_fields__ and key != "subtype"),
        *(
            f"agents.{name}.{key}"
            for name, kind in agents.items()
            for key in kind
            if key not in AgentDefinition.__struct_fields__
        ),
        *(
            f"hooks.{event}[{index}].{key}"
            for event, matchers in hooks.items()
            for index, matcher in enumerate(matchers)
            for key in matcher
            if key not in HookMatcher.__struct_fields__
        ),
    ]


class UnknownRequest(Payload):
    """A request with an unknown subtype."""

    __slots__ = ()

    @property
    def subtype(self) -> str:
        found: str = self.json["subtype"]
        return found


class Request(Struct, frozen=True, kw_only=True, tag_field="subtype", tag=""):
    """A request with a known subtype."""

    answer: ClassVar[type[Struct] | None] = None
    area: ClassVar[str] = ""
    """Which of the engine's groups of handlers answers it: the function there has the name of the subtype."""
    scope: ClassVar[Scope] = "approve"
    senders: ClassVar[frozenset[Role]] = HOST_ONLY

    @property
    def subtype(self) -> str:
        return str(self.__struct_config__.tag)


Payload.register(Request)

SUBTYPES: dict[str, type[Request]] = {}
R = TypeVar("R", bound=type[Request])


def request(*, area: str = "", scope: Scope = "approve", by: frozenset[Role] = HOST_ONLY) -> Callable[[R], R]:
    """Register a request class under its subtype, with what is said of it on `Request`."""

    def register(cls: R) -> R:
        cls.area, cls.scope, cls.senders = area, scope, by
        SUBTYPES[str(cls.__struct_config__.tag)] = cls
        return cls

    return register


def find_request(subtype: str) -> type[Request] | None:
    """The class of a subtype; None if it is unknown."""
    return SUBTYPES.get(subtype) or list_requests().get(subtype)


def list_requests() -> dict[str, type[Request]]:
    """The classes of all requests by subtype, those of `panel_requests.py` too."""
    import_module("parley.protocol.messages.panel_requests")  # registers its classes
    return SUBTYPES


# Requests from the client to the engine.


class HookMatcher(Struct, frozen=True, kw_only=True):
    """Which callbacks are called for an event."""

    matcher: str | None | UnsetType = UNSET
    hookCallbackIds: list[str] = []
    timeout: Number | None | UnsetType = UNSET
    """Seconds."""
    onFailure: str | None | UnsetType = UNSET


class AgentDefinition(Struct, frozen=True, kw_only=True):
    """A subagent defined by the client."""

    description: str
    prompt: str
    tools: list[str] | None | UnsetType = UNSET
    disallowedTools: list[str] | None | UnsetType = UNSET
    model: str | None | UnsetType = UNSET
    skills: list[str] | None | UnsetType = UNSET
    memory: str | None | UnsetType = UNSET
    mcpServers: list[Any] | None | UnsetType = UNSET
    """Names of the session's servers, or configurations of the agent's own servers."""
    hooks: Json | None | UnsetType = UNSET
    """As in settings. They run only for this agent."""
    initialPrompt: str | None | UnsetType = UNSET
    maxTurns: int | None | UnsetType = UNSET
    background: bool | None | UnsetType = UNSET
    effort: str | int | None | UnsetType = UNSET
    permissionMode: str | None | UnsetType = UNSET
    isolation: str | None | UnsetType = UNSET
    """`worktree`: the agent works in its own git worktree."""
    autoCompactWindow: Any = UNSET
    omitClaudeMd: bool | None | UnsetType = UNSET
    observer: Any = UNSET
    """No effect, as `observerMessage`: this engine starts no observers."""
    observerMessage: Any = UNSET
    criticalSystemReminder_EXPERIMENTAL: str | None | UnsetType = UNSET


class InitializeAnswer(Struct, frozen=True, kw_only=True):
    """The reply to `initialize`."""

    commands: list[Json]
    agents: list[Json]
    output_style: str
    available_output_styles: list[str]
    models: list[Json]
    account: Json
    pid: int | UnsetType = UNSET
    claude_code_version: str | UnsetType = UNSET
    parley_version: str | UnsetType = UNSET
    current_permission_mode: str | UnsetType = UNSET
    hook_on_failure_supported: bool | UnsetType = UNSET
    hooks_applied: bool | UnsetType = UNSET
    hooks_when_unanswered_kept: int | UnsetType = UNSET
    """Read but never sent."""
    plugins_applied: bool | UnsetType = UNSET
    mcp_servers_applied: bool | UnsetType = UNSET
    """Whether the session started with the `mcpServers` of the request. Not whether each of them connected."""
    sdk_mcp_manifests_parked: dict[str, str] | UnsetType = UNSET
    """What became of each entry of `sdkMcpServerManifests`."""
    fast_mode_state: str | UnsetType = UNSET
    fast_mode_disabled_reason: str | UnsetType = UNSET
    session_state: str | UnsetType = UNSET
    analytics_disabled: bool | UnsetType = UNSET
    capabilities: list[str] | UnsetType = UNSET
    user_output_styles_dir: str | UnsetType = UNSET
    other_hook_ask_outranks_host: bool | UnsetType = UNSET
    feedback_mode: Json | UnsetType = UNSET
    remote_control_available: bool | UnsetType = UNSET
    remote_control_auto_enable: bool | UnsetType = UNSET
    remote_control_auto_connect_default: bool | UnsetType = UNSET
    remote_control_auto_on_by_default: bool | UnsetType = UNSET
    ide_rc_auto_enable_gate: bool | UnsetType = UNSET


class PluginEntry(Struct, frozen=True, kw_only=True):
    """A plugin that the client delivers in `initialize`."""

    type: Literal["local"]
    path: str
    skipMcpDiscovery: bool | None | UnsetType = UNSET
    """Load the plugin without its MCP servers."""


@request(area="initialize", scope="view")
class Initialize(Request, frozen=True, kw_only=True, tag="initialize", dict=True):
    """The handshake. Optional and repeatable; the last one applies."""

    answer = InitializeAnswer
    hooks: dict[str, list[HookMatcher]] | None | UnsetType = UNSET
    agents: dict[str, AgentDefinition] | None | UnsetType = UNSET
    systemPrompt: str | list[str] | None | UnsetType = UNSET
    """The TypeScript SDK sends its prompt here; `[""]` means none."""
    appendSystemPrompt: str | None | UnsetType = UNSET
    excludeDynamicSections: bool | None | UnsetType = UNSET
    systemPromptSnapshot: bool | None | UnsetType = UNSET
    skills: list[str] | str | None | UnsetType = UNSET
    forwardSubagentText: bool | None | UnsetType = UNSET
    jsonSchema: Json | None | UnsetType = UNSET
    sdkMcpServers: list[str] | None | UnsetType = UNSET
    sdkMcpServerConfigs: Json | None | UnsetType = UNSET
    sdkMcpServerManifests: Json | None | UnsetType = UNSET
    """What servers of the client answered to `initialize` and `tools/list`, so that they are not asked again."""
    sdkMcpServerManifestsOrigin: Any = UNSET
    """For remote transports; over stdio nothing depends on it."""
    clientTools: list[Json] | None | UnsetType = UNSET
    guard: bool | None | UnsetType = UNSET
    """Parley only: ask the client about every call, whatever the rules and the mode say. It cannot be revoked."""
    title: str | None | UnsetType = UNSET
    """The title of a new session. A resumed one keeps its own."""
    toolAliases: dict[str, str] | None | UnsetType = UNSET
    """A call of a key runs the tool that is its value."""
    planModeInstructions: str | None | UnsetType = UNSET
    """What the model does in plan mode, instead of the usual advice."""
    promptSuggestions: bool | None | UnsetType = UNSET
    agentProgressSummaries: bool | None | UnsetType = UNSET
    """Report what running subagents do, as `summary` of `task_progress`."""
    perTaskStopAffordance: bool | None | UnsetType = UNSET
    """The client can stop single tasks, so an interrupt spares background agents."""
    supportedDialogKinds: list[str] | None | UnsetType = UNSET
    """The dialogs that the client can show. No dialog is ever sent."""
    plugins: list[PluginEntry] | None | UnsetType = UNSET
    """Loaded with `--await-initialize` only."""
    mcpServers: Json | None | UnsetType = UNSET
    """Servers that the engine starts or connects to, as with `--mcp-config`. Needs `--await-initialize`."""
    managedSettings: Json | None | UnsetType = UNSET
    """An administrator's settings. Needs `--managed-settings-in-initialize`."""
    protocolVersion: Any = UNSET
    """Only "1.0" is known. `features` has no effect."""
    features: Any = UNSET

    @property
    def unknown_fields(self) -> list[str]:
        """The fields of the request and of its agents that this version does not know."""
        return list(self.__dict__.get("unknown_fields", ()))


class InterruptAnswer(Struct, frozen=True, kw_only=True):
    """The prompts that stay queued and those that were cancelled."""

    still_queued: list[str] = []
    cancelled: list[str] | UnsetType = UNSET


@request(area="session", scope="prompt")
class Interrupt(Request, frozen=True, kw_only=True, tag="interrupt"):
    """Stops the running turn. Without a running turn it does nothing."""

    answer = InterruptAnswer
    cancel_queued: bool | None | UnsetType = UNSET


@request(area="settings")
class SetPermissionMode(Request, frozen=True, kw_only=True, tag="set_permission_mode"):
    """Sets the permission mode."""

    mode: str


class SetModelAnswer(Struct, frozen=True, kw_only=True):
    """The model in use."""

    model: str


@request(area="settings", scope="prompt")
class SetModel(Request, frozen=True, kw_only=True, tag="set_model"):
    """Absent, null and "default" mean the default model."""

    answer = SetModelAnswer
    model: str | None | UnsetType = UNSET


@request(area="session", scope="prompt")
class EndSession(Request, frozen=True, kw_only=True, tag="end_session"):
    """Ends the session, as the end of stdin does."""


# Requests from the engine to the client.


class PermissionAnswer(Struct, frozen=True, kw_only=True):
    """allow or deny. `delegate` is treated as a denial; `selectedOptions` answers questions."""

    behavior: str
    updatedInput: Json | None | UnsetType = UNSET
    updatedPermissions: list[Json] | None | UnsetType = UNSET
    message: str | None | UnsetType = UNSET
    interrupt: bool | None | UnsetType = UNSET
    toolUseID: str | None | UnsetType = UNSET
    selectedOptions: list[str] | None | UnsetType = UNSET
    decisionClassification: str | None | UnsetType = UNSET


@request(by=ENGINE_ONLY)
class CanUseTool(Request, frozen=True, kw_only=True, tag="can_use_tool"):
    """Asks whether a tool call may run. It waits without a time limit."""

    answer = PermissionAnswer
    tool_name: str
    display_name: str | UnsetType = UNSET
    input: Json
    description: str | UnsetType = UNSET
    permission_suggestions: list[Any] | None | UnsetType = UNSET
    blocked_path: str | None | UnsetType = UNSET
    decision_reason: str | UnsetType = UNSET
    decision_reason_type: str | UnsetType = UNSET
    decision_reason_hook_event: str | UnsetType = UNSET
    decision_reason_hook_source: str | UnsetType = UNSET
    tool_use_id: str | UnsetType = UNSET
    agent_id: str | UnsetType = UNSET
    title: str | UnsetType = UNSET
    mcp_server: Any = UNSET
    requires_user_interaction: bool | UnsetType = UNSET
    server_policy_ask_only: bool | UnsetType = UNSET
    classifier_approvable: bool | UnsetType = UNSET
    suppress_always_allow_rule: bool | UnsetType = UNSET
    default_to_no: bool | UnsetType = UNSET
    matched_ask_rule: Any = UNSET
    input_sha256: str | UnsetType = UNSET
    """Parley only: SHA-256 of the input as JSON with sorted keys. Only the input in the answer runs."""


@request(by=ENGINE_ONLY)
class HookCallback(Request, frozen=True, kw_only=True, tag="hook_callback"):
    """Calls a hook of the client. `hook_name` and `hook_data` are read but never sent."""

    callback_id: str | UnsetType = UNSET
    input: Any = UNSET
    tool_use_id: str | None | UnsetType = UNSET
    hook_name: str | UnsetType = UNSET
    hook_data: Any = UNSET


class McpAnswer(Struct, frozen=True, kw_only=True):
    """The MCP server's JSON-RPC response."""

    mcp_response: Json


@request(area="mcp", scope="prompt", by=BOTH)
class McpMessage(Request, frozen=True, kw_only=True, tag="mcp_message"):
    """A JSON-RPC message to or from an MCP server of the client."""

    answer = McpAnswer
    server_name: str
    message: Json


@request(by=ENGINE_ONLY)
class SdkControlInterrupt(Request, frozen=True, kw_only=True, tag="sdk_control_interrupt"):
    """Read but never sent."""


class ElicitationAnswer(Struct, frozen=True, kw_only=True):
    """The user's answer to an elicitation."""

    action: str
    content: Json | None | UnsetType = UNSET


@request(by=ENGINE_ONLY)
class Elicitation(Request, frozen=True, kw_only=True, tag="elicitation"):
    """An MCP server asks the user a question."""

    answer = ElicitationAnswer
    mcp_server_name: str
    message: str
    mode: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    elicitation_id: str | UnsetType = UNSET
    requested_schema: Json | UnsetType = UNSET
    property_order: list[str] | UnsetType = UNSET
    title: str | UnsetType = UNSET
    """From the server's `_meta`, as `display_name` and `description` are."""
    display_name: str | UnsetType = UNSET
    description: str | UnsetType = UNSET


@request(by=ENGINE_ONLY)
class RequestUserDialog(Request, frozen=True, kw_only=True, tag="request_user_dialog"):
    """Asks the client to show a dialog. Read but never sent."""

    dialog_kind: str
    payload: Any
    tool_use_id: str | UnsetType = UNSET
