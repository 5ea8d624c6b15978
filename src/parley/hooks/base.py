"""The interface of a hook.

A `Hook` is a callback of the client (callback.py), a handler from settings (command.py, http.py, model.py, mcp_tool.py)
or an object of another package (extension.py). The engine runs hooks in `engine/hooks/dispatcher.py`; `merge.py` merges
their outputs; `events.py` has the events.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from parley.hooks.events import EVENTS, NEVER_FIRED, HookEventSpec, OnFailure
from parley.hooks.matcher import Matcher
from parley.hooks.output import HookOutput, find_similar
from parley.permissions.base import ToolRequest
from parley.protocol.base import UNSET, Json, Struct, UnsetType

MAX_CONTEXT_CHARS = 100_000
"""The limit for the context that one hook adds."""


class HookInvocation(Struct, frozen=True, kw_only=True):
    """One occurrence of an event."""

    event: HookEventSpec
    input: Json
    tool_use_id: str
    subjects: tuple[str, ...] = ()
    """The names that matchers are compared with, the one in the input first."""
    shown: str = ""
    """The name in messages: `PreToolUse:Bash`."""


class HookRun(Struct, frozen=True, kw_only=True):
    """The result of one hook."""

    output: HookOutput = HookOutput()
    stdout: str = ""
    stderr: str = ""
    exit_code: int | UnsetType = UNSET
    blocks: str | None = None
    """Why it blocks, if it says so by exit code 2."""
    failure: str | None = None
    """Why it failed. `onFailure` decides what follows."""
    unknown: tuple[str, ...] = ()
    """Unknown keys of its output."""
    background: Awaitable[HookRun] | None = None
    """The eventual result of a hook that continues in the background."""
    wakes: bool = False
    """Whether a block by a hook in the background wakes the model (`asyncRewake`)."""


Progress = Callable[[str, str], None]
"""Called now and then with the stdout and stderr so far."""


class HttpReply(Struct, frozen=True, kw_only=True):
    """The reply of a URL to an http hook."""

    status: int
    body: bytes


class HookServices(Protocol):
    """What handlers from settings use of a session. Every method raises HookFailed."""

    async def ask_model(self, prompt: str, model: str | None) -> str:
        """The answer of a model, by default the small one."""

    async def run_agent(self, prompt: str, model: str | None) -> str:
        """The final text of an agent that can read and search files."""

    async def call_mcp_tool(self, server: str, tool: str, input: Json) -> Json:
        """The result of a tool of a connected MCP server; its `content` is a list."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, *, is_listed: bool) -> HttpReply:
        """Send a POST request. `is_listed`: the user lists this host by name, so its address may be private."""


Condition = Callable[[ToolRequest], bool]
"""Whether a hook with `if` runs for a call."""


class Hook(Protocol):
    event: str
    matcher: Matcher
    timeout_seconds: float
    on_failure: OnFailure
    source: str
    """`callback`, or the file that defines it."""
    is_managed: bool
    """Whether an administrator defines it. Its output comes before that of others."""
    label: str
    """A name for users."""
    condition: Condition | None
    """The rule in `if`; None if the hook runs for every call that its matcher matches."""
    once: bool
    """Whether it runs only the first time."""
    status_message: str
    """What a client shows while it runs; empty for the name of the event."""
    starts_agent: bool
    """Whether it runs an agent, whose own calls must not start it again."""

    async def run(self, invocation: HookInvocation, progress: Progress) -> HookRun:
        """Run the hook. Cancelling stops it. Raises HookFailed."""

    def to_json(self) -> Json:
        """For get_hooks_listing."""


def describe_unknown_event(event: str) -> str:
    """The warning about hooks for an unknown event."""
    if event in NEVER_FIRED:
        return f"these hooks never run: {NEVER_FIRED[event]}"
    guess = guess_event(event)
    return "unknown event, so these hooks never run" + (f" (did you mean {guess}?)" if guess else "")


def guess_event(event: str) -> str | None:
    """A known event with a similar name."""
    return None if event in NEVER_FIRED else find_similar(event, frozenset(EVENTS))


def parse_failure_policy(value: object, event: str = "") -> OnFailure:
    """The failure policy. An unknown value means `block`."""
    if not value:
        known = EVENTS.get(event)
        return known.on_failure if known is not None else "continue"
    return "continue" if value == "continue" else "block"


def format_context(shown: str, text: str) -> str:
    """Context for the model, marked as from a hook and limited in size."""
    if len(text) > MAX_CONTEXT_CHARS:
        text = f"{text[:MAX_CONTEXT_CHARS]}\n[truncated: {len(text) - MAX_CONTEXT_CHARS} more characters]"
    return f"<hook-context from={shown!r}>\n{text}\n</hook-context>"
