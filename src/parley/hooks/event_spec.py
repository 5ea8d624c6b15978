"""How a hook event is declared: a decorator of the type of its input.

    @hook_event(matched="agent_type", output=SubagentStartHookSpecificOutput)
    class SubagentStartHookInput(BaseHookInput):
        \"\"\"When a subagent starts.\"\"\"

See also: the declarations in `event_types.py`, their tables in `events.py`.
"""

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from parley.protocol.base import Struct

OnFailure = Literal["continue", "block"]
CONTEXT = "additionalContext"
DEFAULT_OUTPUT_FIELDS = frozenset({CONTEXT})
COMMON_FIELDS = frozenset(
    {"session_id", "transcript_path", "cwd", "permission_mode", "prompt_id", "effort", "hook_event_name"}
)
"""The input fields of every event."""
AGENT_FIELDS = frozenset({"agent_id", "agent_type"})
"""Those of an event that may belong to a subagent, unless they are required."""


class HookEventSpec(Struct, frozen=True, kw_only=True):
    """One kind of event."""

    name: str
    when: str
    input: Any
    """The type of its input."""
    fields: tuple[str, ...]
    """The input fields in addition to the common ones."""
    effects: tuple[str, ...]
    """The output fields that have an effect, in addition to the general ones."""
    matched: str = ""
    """The input field that matchers are compared with. If empty, all hooks of the event run."""
    inert: tuple[str, ...] = ()
    """The output fields that the official SDKs declare for it besides, and that have no effect here."""
    block: str = ""
    """What `decision: block`, exit code 2, or a failure with `onFailure: block` does; empty if nothing."""
    failure_blocks: bool = True
    """Whether `onFailure: block` has an effect."""
    failure: str = ""
    """What a failure with `onFailure: block` does, if it differs from a block."""
    on_failure: OnFailure = "continue"
    """The default of `onFailure`."""
    block_continues: bool = False
    """Whether the model continues after a block: with the reason, or without the call."""
    can_defer: bool = False
    """Whether `permissionDecision: defer` is known."""
    stops: str = ""
    """What `continue: false` ends; empty if nothing."""
    includes_mode: bool = False
    includes_effort: bool = False
    accepts_text: bool = False
    """Whether command output that is not JSON has an effect: as `text_field`."""
    text_field: str = CONTEXT
    never: str = ""
    """Why it has no moment in this engine and is never fired; empty if it is."""

    @property
    def must_decide(self) -> bool:
        """Whether its hooks guard something. An output that may be a misspelled decision is a failure."""
        return "permissionDecision" in self.effects

    @property
    def output_fields(self) -> frozenset[str]:
        """The fields of `hookSpecificOutput` that are known."""
        return frozenset((*self.effects, *self.inert)) or DEFAULT_OUTPUT_FIELDS


C = TypeVar("C", bound=type)
DECLARED: dict[str, HookEventSpec] = {}
"""The events by name, in the order of their declarations. Filled by `event_types.py`; read it in `events.py`."""


def hook_event(
    *, output: Any = None, unsent: tuple[str, ...] = (), untyped: tuple[str, ...] = (), **row: Any
) -> Callable[[C], C]:
    """Declare the event of an input type.

    `output`: the type of its `hookSpecificOutput`. `unsent`: declared input fields that only other engines send.
    `untyped`: input fields that the type, which is that of the official SDK, has not.
    `row`: the other fields of its spec.
    """

    def declare(cls: C) -> C:
        name = cls.__name__.removesuffix("HookInput")
        hidden = COMMON_FIELDS.union(unsent, AGENT_FIELDS & cls.__optional_keys__)  # type: ignore[attr-defined]  # a TypedDict
        text = " ".join((cls.__doc__ or "").split()).rstrip(".")
        DECLARED[name] = HookEventSpec(
            name=name,
            when=text[:1].lower() + text[1:],
            input=cls,
            fields=(*(field for field in cls.__annotations__ if field not in hidden), *untyped),
            effects=tuple(field for field in output.__annotations__ if field != "hookEventName") if output else (),
            **row,
        )
        return cls

    return declare
