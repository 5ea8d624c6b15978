"""What a hook is, and when it runs.

A `HookEntry` says what a hook is for and what it runs, a `Hook` runs it. There is one pair of classes for each kind:
handlers of settings (command.py, handlers.py), callbacks of the client and functions of other packages (extension.py).
The engine runs hooks in `engine/hooks/runner.py`; `merge.py` merges their outputs; `events.py` has the events.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, ClassVar, Protocol

from parley.hooks.event_spec import HookEventSpec, OnFailure
from parley.hooks.events import EVENTS, MUST_DECIDE, NEVER_FIRED
from parley.hooks.output import HookFailed, HookOutput, find_similar
from parley.permissions.base import ToolRequest
from parley.protocol.base import UNSET, Json, Struct, UnsetType
from parley.workspace.process.processes import CommandStarter

MAX_CONTEXT_CHARS = 100_000
"""The limit for the context that one hook adds."""
DEFAULT_SECONDS = 60.0
"""How long a hook may run. `engine/hooks/runner.py` stops one that takes longer."""
PROMPT_SECONDS = 30.0
"""The default of hooks that ask a model."""
MAX_SECONDS = 365 * 24 * 3600.0
PLAIN = re.compile(r"[\w|, -]+")


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


class Matcher(Struct, frozen=True):
    """`""` and `*` match everything, `Edit|Write` or `Edit, Write` match names; other texts are regular expressions.

    A regular expression matches anywhere in the name. An invalid one matches everything: a guard that runs too often is
    better than one that never runs.
    """

    text: str = ""

    def matches(self, names: Iterable[str]) -> bool:
        """Whether one of the names matches. An event without a name is matched by all."""
        if self.text in ("", "*"):
            return True
        known = [name for name in names if name]
        if not known:
            return True
        if PLAIN.fullmatch(self.text):
            expected = {part.strip() for part in re.split(r"[|,]", self.text)}
            return not expected.isdisjoint(known)
        pattern = compile_pattern(self.text)
        return pattern is None or any(pattern.search(name) for name in known)

    @property
    def problem(self) -> str | None:
        """The warning for an invalid regular expression; None if it is valid."""
        if self.text in ("", "*") or PLAIN.fullmatch(self.text) or compile_pattern(self.text) is not None:
            return None
        return f"the matcher {self.text!r} is not a valid regular expression; it matches everything"


@functools.lru_cache(maxsize=256)
def compile_pattern(text: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError):
        return None


class HttpHookPolicy(Struct, frozen=True, kw_only=True):
    """What the settings permit to http hooks. None means no limit."""

    urls: tuple[str, ...] | None = None
    """`allowedHttpHookUrls`: patterns with `*`."""
    is_exempt: bool = False
    """Whether `urls` lists only what a user adds for the hook of an administrator, and refuses nothing."""
    variables: frozenset[str] | None = None
    """`httpHookAllowedEnvVars`."""


class HookRuntime(Struct, frozen=True, kw_only=True):
    """What the hooks of a settings file work with."""

    services: HookServices
    processes: CommandStarter
    environment: Mapping[str, str]
    """The session's environment, which changes with its settings."""
    project: str
    """The directory that commands run in. The model can change the session's current directory."""
    get_http_policy: Callable[[], HttpHookPolicy]


class Hook(Struct, frozen=True, kw_only=True, eq=False):
    """One hook. The kinds implement `call`."""

    kind: ClassVar[str] = ""
    keys: ClassVar[frozenset[str]] = frozenset()
    """The keys of its kind in settings."""
    only_blocks: ClassVar[bool] = False
    """Whether it has an effect only for events that can be blocked."""
    starts_agent: ClassVar[bool] = False
    """Whether it runs an agent, whose own calls must not start it again."""
    default_seconds: ClassVar[float] = DEFAULT_SECONDS
    event: str
    matcher: str
    timeout_seconds: float
    on_failure: OnFailure = "continue"
    source: str
    """`callback`, or the file or package that defines it."""
    is_managed: bool = False
    """Whether an administrator defines it. Its output comes before that of others."""
    condition: Condition | None = None
    """The rule in `if`; None if the hook runs for every call that its matcher matches."""
    condition_text: str = ""
    """`if` as it is written."""
    once: bool = False
    """Whether it runs only the first time."""
    status_message: str = ""
    """What a client shows while it runs; empty for the name of the event."""
    unusable: str = ""
    """Why it cannot run. It fails whenever it is called."""
    runtime: HookRuntime | None = None
    """None if it is only checked, and for the hooks of clients and packages."""

    @classmethod
    def read_fields(cls, handler: Json) -> Json | str:
        """The fields of its kind from an object in settings, or what is wrong with them."""
        return {}

    @property
    def subject(self) -> str:
        """What it runs, in a few words."""
        return ""

    @property
    def label(self) -> str:
        """A name for users."""
        return f"{self.kind} {self.subject!r} of {self.source}" if not self.unusable else f"hook of {self.source}"

    @property
    def guards(self) -> bool:
        """Whether something depends on its reply, so that one which cannot be read is a failure."""
        return self.on_failure == "block" or self.event in MUST_DECIDE

    def matches(self, names: Iterable[str]) -> bool:
        return Matcher(self.matcher).matches(names)

    async def run(self, invocation: HookInvocation, progress: Progress) -> HookRun:
        """Run the hook. Cancelling stops it. Raises HookFailed."""
        if self.unusable:
            raise HookFailed(self.unusable)
        return await self.call(invocation, progress)

    async def call(self, invocation: HookInvocation, progress: Progress) -> HookRun:
        """Raises HookFailed."""
        raise NotImplementedError

    def get_runtime(self) -> HookRuntime:
        assert self.runtime is not None
        return self.runtime

    def own_json(self) -> Json:
        """The fields of its kind, for get_hooks_listing."""
        return {}

    def to_json(self) -> Json:
        """For get_hooks_listing."""
        return {
            "event": self.event,
            "matcher": self.matcher,
            "type": self.kind,
            **self.own_json(),
            **({"if": self.condition_text} if self.condition_text else {}),
            **({"once": True} if self.once else {}),
            **({"statusMessage": self.status_message} if self.status_message else {}),
            "source": self.source,
            "timeout": self.timeout_seconds,
            "onFailure": self.on_failure,
        }


class UnusableHook(Hook, frozen=True, kw_only=True, eq=False):
    """A handler that cannot run and must not be ignored: it fails, and so it blocks."""

    kind: ClassVar[str] = "unusable"


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


def parse_timeout(value: object) -> float:
    """The timeout in seconds; the default if `value` is not a positive number."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        return DEFAULT_SECONDS
    return float(min(value, MAX_SECONDS))


def is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
