"""What the official packages declare, as plain names by section.

    for section in SECTIONS:
        section.names(declarations)     {"PreToolUse": None, ...}, in the order of the declaration

A field is named after its owner: `system/init.tools`, `Bash.command`, `permissions.allow`. An item of a list is `[]`
and a value of a mapping is `*`: `plugins[].path`, `agents.*.tools`. What no package declares (the flags of the
original's `--help`, for instance) is listed in `observed/`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from parity import typescript
from parity.typescript import Module, Object, Type

OBSERVED = Path(__file__).with_name("observed")
CAPABILITY = re.compile(r"\b[a-z_]+_v\d\b")
CORE_EXPORTS = re.compile(r"^ +(\w+),$", re.MULTILINE)


class DriftError(Exception):
    """A declaration is not where this reader looks for it."""


@dataclass(frozen=True)
class Declarations:
    """The public declarations of the official packages."""

    python: dict[str, ast.Module]
    """The modules of `claude_agent_sdk` by name."""
    sdk: Module
    tools: Module
    browser: Module
    core: tuple[str, ...]
    """The names that the entry `/core` exports."""
    capabilities: tuple[str, ...]
    versions: str


def load(python: Path, typescript_folder: Path, versions: str) -> Declarations:
    """Read the packages `claude_agent_sdk` and `@anthropic-ai/claude-agent-sdk`. Raises DriftError."""
    try:
        modules = {name: ast.parse(read(python / f"{name}.py")) for name in ("__init__", "types", "client")}
        text = read(typescript_folder / "sdk.d.ts")
        sdk, tools, browser = (
            typescript.read(text),
            typescript.read(read(typescript_folder / "sdk-tools.d.ts")),
            typescript.read(read(typescript_folder / "browser-sdk.d.ts")),
        )
        core = CORE_EXPORTS.findall(read(typescript_folder / "core.d.ts").partition("}")[0])
    except (OSError, SyntaxError, typescript.ParseError) as exc:
        raise DriftError(f"cannot read the declarations: {exc}") from exc
    capabilities = tuple(dict.fromkeys(CAPABILITY.findall(text)))
    return Declarations(modules, sdk, tools, browser, tuple(core), capabilities, versions)


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@dataclass(frozen=True)
class Section:
    """One table of the page, and one file of rows."""

    key: str
    """The name of its file in `rows/`."""
    title: str
    source: str
    list: Callable[[Declarations], Iterable[str]]

    def names(self, declarations: Declarations) -> dict[str, None]:
        try:
            return dict.fromkeys(self.list(declarations))
        except KeyError as exc:
            raise DriftError(f"{self.title}: {exc} is not declared any more; look for its new name") from exc


# Python


def python_options(found: Declarations) -> Iterator[str]:
    classes = dict(python_classes(found.python["types"]))
    yield from classes["ClaudeAgentOptions"]
    for name in ("AgentDefinition", "SystemPromptPreset", "SystemPromptFile", "ToolsPreset", "SdkPluginConfig"):
        yield from (f"{name}.{one}" for one in classes[name])


def python_names(found: Declarations) -> Iterator[str]:
    """The exported names, the methods of the client, and what only `types` has."""
    exported = python_exports(found.python["__init__"])
    yield from exported
    classes = dict(python_classes(found.python["types"]))
    for name, fields in classes.items():
        if name.startswith("_"):
            continue
        if name not in exported:
            yield f"types.{name}"
        if name != "ClaudeAgentOptions":
            yield from (f"{name if name in exported else f'types.{name}'}.{field}" for field in fields)
    client = find_class(found.python["client"], "ClaudeSDKClient")
    methods = (node.name for node in client.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    yield from (f"ClaudeSDKClient.{name}" for name in methods if not name.startswith("_"))


def python_classes(module: ast.Module) -> Iterator[tuple[str, list[str]]]:
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            targets = [item.target for item in node.body if isinstance(item, ast.AnnAssign)]
            yield node.name, [target.id for target in targets if isinstance(target, ast.Name)]


def find_class(module: ast.Module, name: str) -> ast.ClassDef:
    for node in module.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
    raise KeyError(name)


def python_exports(module: ast.Module) -> list[str]:
    for node in module.body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]:
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise KeyError("__all__")


# TypeScript

ELSEWHERE = frozenset({"Settings", "SandboxSettings", "SessionStore", "AgentMcpServerSpec", "HookCallbackMatcher"})
"""Types of options that have a section of their own, or that only the TypeScript SDK itself reads."""


def typescript_options(found: Declarations) -> Iterator[str]:
    return found.sdk.flatten(found.sdk.types["Options"], 9, ELSEWHERE)


def browser_options(found: Declarations) -> Iterator[str]:
    return found.browser.flatten(found.browser.types["BrowserQueryOptions"], 9, ELSEWHERE)


def query_methods(found: Declarations) -> Iterable[str]:
    return found.sdk.fields(found.sdk.types["Query"])


# Messages

PARTS = (
    "SDKMessageOrigin",
    "SDKContextUsage",
    "SDKUsageReport",
    "ModelUsage",
    "SDKRateLimitInfo",
    "SDKPermissionDenial",
)
"""Types that several messages contain; they have rows of their own."""
ENVELOPES = frozenset({"control_request", "control_response"})


def messages(found: Declarations) -> Iterator[str]:
    sdk = found.sdk
    for member in sdk.members(sdk.types["StdoutMessage"]):
        for name in wire_names(sdk, member):
            yield name
            depth = 1 if name in ENVELOPES else 2
            yield from (f"{name}.{path}" for path in sdk.flatten(member, depth, frozenset(PARTS)))
    for part in PARTS:
        yield part
        yield from (f"{part}.{path}" for path in sdk.flatten(sdk.types[part], 2, frozenset(PARTS)))


def wire_names(sdk: Module, message: Type) -> Iterator[str]:
    """`system/init`; the four errors of a result are one."""
    fields = sdk.fields(message)
    subtypes = sdk.texts(fields["subtype"]) if "subtype" in fields else []
    for kind in sdk.texts(fields["type"]):
        yield f"{kind}/{subtypes[0].partition('_')[0] if len(subtypes) > 1 else subtypes[0]}" if subtypes else kind


def terminal_reasons(found: Declarations) -> Iterable[str]:
    return found.sdk.texts(found.sdk.types["TerminalReason"])


# Control requests


def control_requests(found: Declarations) -> Iterator[str]:
    """Requests and their fields; `-> field` is a field of the answer."""
    sdk = found.sdk
    for member in sdk.members(sdk.types["SDKControlRequestInner"]):
        (subtype,) = sdk.texts(sdk.fields(member)["subtype"])
        yield subtype
        yield from (f"{subtype}.{name}" for name in sdk.fields(member) if name != "subtype")
        answer = f"SDKControl{''.join(word.capitalize() for word in subtype.split('_'))}Response"
        if answer in sdk.types:
            yield from (f"{subtype} -> {name}" for name in sdk.fields(sdk.types[answer]))
    yield from observed("control-requests")


# Hooks


def hook_events(found: Declarations) -> Iterable[str]:
    return found.sdk.texts(found.sdk.constants["HOOK_EVENTS"])


def hook_inputs(found: Declarations) -> Iterator[str]:
    sdk = found.sdk
    common = sdk.fields(sdk.types["BaseHookInput"])
    yield from (f"*.{name}" for name in (*common, "hook_event_name"))
    for member in sdk.members(sdk.types["HookInput"]):
        fields = sdk.fields(member)
        (event,) = sdk.texts(fields["hook_event_name"])
        own = [name for name in fields if name != "hook_event_name"]
        # An event that redeclares a common field (SubagentStop.agent_id) promises it.
        yield from (f"{event}.{name}" for name in own if name not in common)


def hook_outputs(found: Declarations) -> Iterator[str]:
    sdk = found.sdk
    for kind in ("SyncHookJSONOutput", "AsyncHookJSONOutput"):
        yield from (f"*.{name}" for name in sdk.fields(sdk.types[kind]) if name != "hookSpecificOutput")
    for member in sdk.members(sdk.fields(sdk.types["SyncHookJSONOutput"])["hookSpecificOutput"]):
        (event,) = sdk.texts(sdk.fields(member)["hookEventName"])
        yield from (f"{event}.{path}" for path in sdk.flatten(member, 2) if path != "hookEventName")


def hook_handlers(found: Declarations) -> Iterator[str]:
    """The kinds of hooks in settings, and their fields."""
    sdk = found.sdk
    matchers = sdk.resolve(sdk.fields(sdk.types["Settings"])["hooks"])
    matcher = sdk.fields(item_of(sdk, matchers.values if isinstance(matchers, Object) else None))
    yield from (f"matcher.{name}" for name in matcher)
    for member in sdk.members(item_of(sdk, matcher["hooks"])):
        fields = sdk.fields(member)
        (kind,) = sdk.texts(fields["type"])
        yield kind
        yield from (f"{kind}.{name}" for name in fields if name != "type")
    callbacks = sdk.fields(sdk.types["HookCallbackMatcher"])
    yield from (f"callback.{name}" for name in callbacks)


def item_of(sdk: Module, type: Type | None) -> Type:
    found = None if type is None else sdk.resolve(type)
    if not isinstance(found, typescript.ListOf):
        raise KeyError("Settings.hooks")
    return found.item


# Tools

TOOL_NAMES = {
    "FileEdit": "Edit",
    "FileRead": "Read",
    "FileWrite": "Write",
    "ListMcpResources": "ListMcpResourcesTool",
    "ProposeSkills": "propose_skills",
    "ReadMcpResource": "ReadMcpResourceTool",
    "ReadMcpResourceDir": "ReadMcpResourceDirTool",
}
"""The tools whose input type is not called after them."""


def tools(found: Declarations) -> Iterator[str]:
    """Every tool and the fields of its input."""
    yield from found.sdk.texts(found.sdk.constants["BUILTIN_TOOL_NAMES"])
    for tool, type in input_types(found):
        yield tool
        yield from (f"{tool}.{path}" for path in found.tools.flatten(type, 9))


def input_types(found: Declarations) -> Iterator[tuple[str, Type]]:
    schemas = found.tools.types["ToolInputSchemas"]
    for member in schemas.members if isinstance(schemas, typescript.Choice) else ():
        if isinstance(member, typescript.Name) and member.name.endswith("Input") and member.name != "McpInput":
            name = member.name.removesuffix("Input")
            yield TOOL_NAMES.get(name, name), member


# Settings, capabilities, the command line


def settings(found: Declarations) -> Iterator[str]:
    fields = found.sdk.fields(found.sdk.types["Settings"])
    for name, type in fields.items():
        yield name
        if name in ("permissions", "sandbox"):
            yield from (f"{name}.{path}" for path in found.sdk.flatten(type, 2))


def capabilities(found: Declarations) -> Iterator[str]:
    yield from observed("capabilities")
    yield from found.capabilities


def observed(name: str) -> list[str]:
    lines = read(OBSERVED / f"{name}.txt").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


SECTIONS = (
    Section("options-python", "Options (Python)", "`ClaudeAgentOptions` in types.py", python_options),
    Section("options-typescript", "Options (TypeScript)", "`Options` in sdk.d.ts", typescript_options),
    Section("options-browser", "Options (browser)", "`BrowserQueryOptions` in browser-sdk.d.ts", browser_options),
    Section("exports-core", "Exports of `/core` (TypeScript)", "core.d.ts", lambda found: found.core),
    Section("names-python", "Names (Python)", "`__all__`, types.py and the client's methods", python_names),
    Section("query-methods", "Methods of a query (TypeScript)", "`Query` in sdk.d.ts", query_methods),
    Section("messages", "Messages and fields", "`StdoutMessage` in sdk.d.ts", messages),
    Section("terminal-reasons", "Reasons of a result", "`TerminalReason` in sdk.d.ts", terminal_reasons),
    Section("control-requests", "Control requests", "`SDKControlRequestInner` in sdk.d.ts", control_requests),
    Section("hook-events", "Hook events", "`HOOK_EVENTS` in sdk.d.ts", hook_events),
    Section("hook-inputs", "Hook input fields", "`HookInput` in sdk.d.ts", hook_inputs),
    Section("hook-outputs", "Hook output fields", "`HookJSONOutput` in sdk.d.ts", hook_outputs),
    Section("hook-handlers", "Hook handlers", "`Settings.hooks` in sdk.d.ts", hook_handlers),
    Section("tools", "Tools and input fields", "`BUILTIN_TOOL_NAMES` in sdk.d.ts, sdk-tools.d.ts", tools),
    Section("settings", "Settings", "`Settings` in sdk.d.ts", settings),
    Section("capabilities", "Capabilities", "recorded `system/init`, sdk.d.ts", capabilities),
    Section("flags", "Flags", "`--help`, and flags that the SDKs pass", lambda found: observed("flags")),
    Section("subcommands", "Subcommands", "`--help`", lambda found: observed("subcommands")),
)
