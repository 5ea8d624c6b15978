"""Permission callbacks.

async def ask(name: str, input: dict, context: ToolPermissionContext) -> PermissionResult:
    return PermissionResultAllow() if name == "Read" else PermissionResultDeny(message="not today")
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from parley.protocol.base import UNSET, Json
from parley.protocol.messages.requests import CanUseTool as Question
from parley.sdk.context import CURRENT, RunContext
from parley.sdk.errors import InvalidReturn
from parley.sdk.spelling import checks_names
from parley.sdk.types.shapes import PermissionBehavior, PermissionMode, PermissionUpdateDestination


class CanUseToolShadowedWarning(UserWarning):
    """`can_use_tool` is set, but other options allow some calls without it."""


@checks_names
@dataclass
class PermissionRuleValue:
    """A permission rule: `PermissionRuleValue("Bash", "git *")` is `Bash(git *)`."""

    tool_name: str
    rule_content: str | None = None
    """What is between the parentheses; None for the whole tool."""


@checks_names
@dataclass
class PermissionUpdate:
    """A change of rules, mode or directories: suggested by the engine, applied by a reply.

    PermissionUpdate("addRules", rules=[PermissionRuleValue("Bash", "git *")], behavior="allow", destination="session")
    """

    type: Literal["addRules", "replaceRules", "removeRules", "setMode", "addDirectories", "removeDirectories"]
    rules: list[PermissionRuleValue] | None = None
    behavior: PermissionBehavior | None = None
    mode: PermissionMode | None = None
    directories: list[str] | None = None
    destination: PermissionUpdateDestination | None = None

    def to_dict(self) -> Json:
        """The update as the protocol encodes it."""
        update: Json = {"type": self.type}
        if self.rules is not None:
            update["rules"] = [{"toolName": rule.tool_name, "ruleContent": rule.rule_content} for rule in self.rules]
        for name in ("behavior", "mode", "directories", "destination"):
            if (value := getattr(self, name)) is not None:
                update[name] = value
        return update

    @classmethod
    def from_dict(cls, data: Json) -> PermissionUpdate:
        """Raises KeyError or TypeError for an invalid update."""
        rules = data.get("rules")
        return cls(
            type=data["type"],
            rules=None
            if rules is None
            else [PermissionRuleValue(rule["toolName"], rule.get("ruleContent")) for rule in rules],
            behavior=data.get("behavior"),
            mode=data.get("mode"),
            directories=data.get("directories"),
            destination=data.get("destination"),
        )


class Signal:
    """Tells a callback that its request was cancelled."""

    def __init__(self) -> None:
        self.aborted = False
        """Whether it was cancelled."""


@dataclass
class ToolPermissionContext:
    """What `can_use_tool` is told about a call besides its name and input."""

    signal: Signal | None = None
    """Tells whether the request was cancelled."""
    suggestions: list[PermissionUpdate] = field(default_factory=list)
    """Changes that would allow such calls from now on."""
    tool_use_id: str | None = None
    """The id of the call."""
    agent_id: str | None = None
    """The subagent that calls; None for the session itself."""
    blocked_path: str | None = None
    """The path that needs permission, if it is about one."""
    decision_reason: str | None = None
    """Why permission is needed."""
    title: str | None = None
    """The call as a sentence for a person."""
    display_name: str | None = None
    """The tool's name for a person."""
    description: str | None = None
    """What the call does."""
    hints: list[str] = field(default_factory=list)
    """Suggestions that the engine sent as text."""
    suppress_always_allow_rule: bool = False
    """Offer to allow only this call, not all such calls."""
    default_to_no: bool = False
    """The denial should be the answer that a single key gives."""
    run: RunContext[Any] = field(default_factory=lambda: RunContext(None))
    """The run: `context.run.deps` is what the program gave it."""


@checks_names
@dataclass
class PermissionResultAllow:
    """Allows a call: `PermissionResultAllow(updated_input={**input, "timeout": 5})`."""

    behavior: Literal["allow"] = "allow"
    updated_input: Json | None = None
    """Run the call with this input instead."""
    updated_permissions: list[PermissionUpdate] | None = None
    """Changes to apply, so that such calls are not asked about again."""

    def __post_init__(self) -> None:
        check_behavior(self)


@checks_names
@dataclass
class PermissionResultDeny:
    """Denies a call: `PermissionResultDeny(message="Not on a Friday.")`."""

    behavior: Literal["deny"] = "deny"
    message: str = ""
    """The reason. The model reads it."""
    interrupt: bool = False
    """End the turn too."""

    def __post_init__(self) -> None:
        check_behavior(self)


PermissionResult = PermissionResultAllow | PermissionResultDeny


def check_behavior(decision: PermissionResult) -> None:
    """Raises InvalidReturn for another behavior than that of the class, such as a reason that was given as the first
    argument."""
    name, meant = type(decision).__name__, "allow" if isinstance(decision, PermissionResultAllow) else "deny"
    if decision.behavior != meant:
        raise InvalidReturn(
            f"the behavior of {name} is always {meant!r}, not {decision.behavior!r:.200}; "
            'to deny a call, write PermissionResultDeny(message="...")'
        )


CanUseTool = Callable[[str, dict[str, Any], ToolPermissionContext], Awaitable[PermissionResult] | PermissionResult]
"""Decides on a tool call: it gets the tool's name, the input and a context."""


def build_context(question: Question, signal: Signal) -> ToolPermissionContext:
    """Build the context that a callback receives with the call."""
    updates, hints = split_suggestions(question.permission_suggestions)
    return ToolPermissionContext(
        signal=signal,
        suggestions=updates,
        hints=hints,
        suppress_always_allow_rule=question.suppress_always_allow_rule is True,
        default_to_no=question.default_to_no is True,
        run=CURRENT.get(RunContext(None)),  # one prompt at a terminal has no program that gives one
        **{name: or_none(getattr(question, name)) for name in CONTEXT},
    )


CONTEXT = ("tool_use_id", "agent_id", "blocked_path", "decision_reason", "title", "display_name", "description")


def or_none(value: Any) -> Any:
    return None if value is UNSET else value


def split_suggestions(given: Any) -> tuple[list[PermissionUpdate], list[str]]:
    """Split suggestions into typed updates and hints. What is not a valid update becomes a hint."""
    updates: list[PermissionUpdate] = []
    hints: list[str] = []
    for one in given if isinstance(given, list) else ():
        if isinstance(one, str):
            hints.append(one)
            continue
        try:
            updates.append(PermissionUpdate.from_dict(one))
        except (KeyError, TypeError, AttributeError):
            hints.append(str(one))
    return updates, hints


def encode_decision(decision: object, question: Question) -> Json:
    """Encode a callback's decision for the wire. Raises InvalidReturn if it is not a PermissionResult."""
    if isinstance(decision, PermissionResultAllow | PermissionResultDeny):
        check_behavior(decision)  # it may have been assigned since
    if isinstance(decision, PermissionResultAllow):
        updated = question.input if decision.updated_input is None else decision.updated_input
        reply: Json = {"behavior": "allow", "updatedInput": updated}
        if decision.updated_permissions is not None:
            reply["updatedPermissions"] = [update.to_dict() for update in decision.updated_permissions]
        return reply
    if isinstance(decision, PermissionResultDeny):
        reply = {"behavior": "deny", "message": decision.message}
        return {**reply, "interrupt": True} if decision.interrupt else reply
    raise InvalidReturn(
        "can_use_tool must return PermissionResultAllow or PermissionResultDeny, "
        f"not {type(decision).__name__}: {decision!r:.200}"
    )
