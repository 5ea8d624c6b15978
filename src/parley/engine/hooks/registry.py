"""The hooks that a session has registered, and the events it fires.

    await hooks.events.before_expansion(...)

One registry is shared by the conversations of a session, because hooks can be added and removed while it runs.
`SessionEvents` is a session without hooks, for which nothing is loaded: no event has an effect. The dispatcher runs the
hooks of a session that has some (turn_hooks.py); it is loaded with the first hook.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

from parley.engine.session.config import SessionConfig
from parley.engine.session.outbox import Outbox
from parley.host import Host
from parley.permissions.base import Allow, Deny
from parley.protocol.base import Json, Struct
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.requests import CanUseTool, Elicitation, HookMatcher
from parley.protocol.messages.system import Informational
from parley.settings.base import MergedSettings, SettingsValue
from parley.tools.base import Context, Tool, ToolOutput

if TYPE_CHECKING:
    from parley.engine.approval.request import PendingCall
    from parley.engine.session.prompts import Prompt
    from parley.errors import ModelError
    from parley.hooks.base import Hook, HookServices
    from parley.models.catalog import ModelRef
    from parley.permissions.base import Ask


SwitchSource = Literal["command", "sdk", "auto"]


class HookOpinion(Struct, frozen=True, kw_only=True):
    """What PreToolUse hooks decided about a call."""

    behavior: Literal["allow", "ask", "defer", "deny"]
    reason: str = ""
    event: str = "PreToolUse"


class BeforeTool(Struct, frozen=True, kw_only=True):
    """The result of the PreToolUse hooks."""

    opinion: HookOpinion | None = None
    updated_input: Json | None = None
    """The input that a hook set, if it differs from that of the call."""
    author: Hook | None = None
    """The hook that set it."""
    editors: frozenset[Hook | None] = frozenset()
    """All hooks that wanted another input."""
    contexts: tuple[str, ...] = ()
    stop_reason: str | None = None


class HookEffect(Struct, frozen=True, kw_only=True):
    """What hooks decide after a call, after a batch of calls, or at the end of a turn."""

    contexts: tuple[str, ...] = ()
    output: ToolOutput | None = None
    """Replaces the result of the call."""
    feedback: str | None = None
    """Makes the model continue."""
    stop_reason: str | None = None
    """Why the turn must end here; None if it need not."""


class SessionEvents:
    """The events of a session without hooks. `agent` has the `agent_id` and `agent_type` of a subagent."""

    services: HookServices
    """What hooks of settings use of the session; only where there are hooks."""

    def has_hooks(self, event: str, agent: Json | None = None) -> bool:
        return False

    def can_guarantee(self, hooks: Mapping[str, Sequence[HookMatcher]]) -> bool:
        """Whether every callback with `onFailure: block` is for an event that is fired here."""
        return True

    def start_watching(self) -> None:
        """Watch what the registered hooks are about: the settings files, and the files that matchers name."""

    # Tool calls (tool_hooks.py).

    async def before_tool(self, call: ToolUse, tool: Tool, agent: Json | None, context: Context) -> BeforeTool:
        """Fire PreToolUse for the input of the model."""
        return BeforeTool()

    async def before_changed_tool(
        self, call: ToolUse, tool: Tool, agent: Json | None, context: Context, earlier: BeforeTool
    ) -> BeforeTool:
        """Fire PreToolUse for an input that a hook or the client set, except for the hook that set it."""
        return earlier

    def request_permission(
        self, asking: Awaitable[Allow | Deny], question: Ask, pending: PendingCall, *, only_managed: bool
    ) -> Awaitable[Allow | Deny | Json]:
        """Fire PermissionRequest while the client is asked. The first answer decides; that of hooks is a reply."""
        return asking

    def notify_when_slow(self, asked: CanUseTool) -> AbstractContextManager[None]:
        """Fire a Notification if a permission request stays open."""
        return nullcontext()

    def guards_output(self, call: ToolUse, tool: Tool, agent: Json | None) -> bool:
        """Whether the output of a call is withheld until a hook with `onFailure: block` has seen it."""
        return False

    async def check_task(self, tool: Tool, input: Json, context: Context, agent: Json | None) -> None:
        """Fire the event of a task that a call adds or completes. Raises ToolError with the reason if it is blocked."""

    async def tool_denied(
        self, call: ToolUse, tool: Tool, denial: Deny, agent: Json | None, context: Context
    ) -> Sequence[str]:
        """Fire PermissionDenied. Returns context for the model: a hook may say that it can try again."""
        return ()

    async def after_tool(
        self, ran: ToolUse, tool: Tool, output: ToolOutput, seconds: float, agent: Json | None, context: Context
    ) -> HookEffect:
        """Fire PostToolUse or PostToolUseFailure for a call that ran `seconds`, with the input that it ran with."""
        return HookEffect()

    # Turns (turn_hooks.py).

    async def admit(
        self, prompts: list[Prompt], contexts: list[str], prompt_contexts: list[str]
    ) -> Informational | None:
        """Run the hooks for the prompts of a new turn. Returns the message that reports a refusal.

        Context for the model is added to `contexts`; context about the prompts to `prompt_contexts`.
        """
        return None

    async def submit(self, prompts: list[Prompt], contexts: list[str]) -> Informational | None:
        """Fire UserPromptSubmit. Returns the message that reports it if the prompts are blocked."""
        return None

    async def after_batch(self, done: list[tuple[ToolUse, ToolOutput]], agent: Json | None) -> HookEffect:
        """Fire PostToolBatch: all calls of one answer have results."""
        return HookEffect()

    async def start_subagent(self, agent: Json) -> Sequence[str]:
        """Fire SubagentStart. Returns context for the subagent."""
        return ()

    async def before_display(self, turn_id: str, text: str) -> str | None:
        """Fire MessageDisplay before a text of the model is sent. Returns the text to send instead, if any."""
        return None

    async def before_stop(self, text: str, stops: int, agent: Json | None, transcript: str) -> HookEffect:
        """Fire Stop or SubagentStop when the model makes no more calls. `stops` counts earlier objections.

        `agent` is the subagent that ends, `transcript` the path of its transcript.
        """
        return HookEffect()

    async def report_failure(self, error: ModelError) -> None:
        """Fire StopFailure: a turn ended because the model failed."""

    async def before_compaction(self, trigger: str, instructions: str | None) -> str | None:
        """Fire PreCompact. Returns why the conversation must not be compacted."""
        return None

    async def after_compaction(self, trigger: str, text: str) -> Sequence[str]:
        """Fire SessionStart and PostCompact. Returns context for the model."""
        return ()

    async def before_clear(self) -> None:
        """Fire SessionEnd for `/clear`."""

    async def after_clear(self) -> list[str]:
        """Fire SessionStart for `/clear`. Returns context for the model."""
        return []

    async def end_session(self, reason: str) -> None:
        """Fire SessionEnd, with a short limit, and cancel background hooks."""

    # What a session does beside its turns (session_hooks.py).

    async def before_expansion(self, kind: str, name: str, arguments: str, source: str, prompt: str) -> list[str]:
        """Fire UserPromptExpansion. Returns context for the model. Raises ToolError if it is blocked."""
        return []

    async def before_model_switch(
        self, before: ModelRef, after: ModelRef, asked: str | None, source: SwitchSource
    ) -> None:
        """Fire PreModelSwitch. Raises NotPossible if the model must stay."""

    async def after_model_switch(
        self, before: ModelRef, after: ModelRef, asked: str | None, source: SwitchSource
    ) -> None:
        """Fire PostModelSwitch. Its context reaches the model with the next request."""

    def model_switched(self, before: ModelRef, after: ModelRef, asked: str | None) -> None:
        """The settings or a fallback changed the model: fire PostModelSwitch, and do not wait for it."""

    async def answer_elicitation(self, question: Elicitation) -> Json | None:
        """Fire Elicitation. Returns the answer of the hooks; None if they have none."""
        return None

    async def check_elicitation(self, question: Elicitation, answer: Json) -> Json:
        """Fire ElicitationResult. Returns the answer for the server, which the hooks may replace."""
        return answer

    async def create_worktree(self, name: str) -> str | None:
        """Fire WorktreeCreate. Returns the folder that a hook made; None without such hooks. Raises ToolError."""
        return None

    async def remove_worktree(self, path: str) -> bool:
        """Fire WorktreeRemove. Returns whether there is such a hook."""
        return False

    def notify(self, event: str, details: Json, agent: Json | None = None) -> None:
        """Fire an event in the background: nothing waits for its hooks."""

    async def cwd_changed(self, old: str, new: str, agent: Json | None) -> None:
        """Fire CwdChanged, before the next call starts."""

    async def nested_instructions(self, texts: Sequence[str], trigger: Any) -> None:
        """Fire InstructionsLoaded for the memory files in texts, which a call that touched `trigger` has added."""

    async def before_settings_change(self, destination: str) -> None:
        """Fire ConfigChange. Raises NotPossible if a hook blocks the change."""

    def settings_changed(self) -> None:
        """The engine changed a settings file itself: it is not reported again."""


class HookRegistry:
    def __init__(
        self, config: SessionConfig, host: Host, outbox: Outbox, open_events: Callable[[], SessionEvents]
    ) -> None:
        """`open_events` loads what runs hooks."""
        self._config = config
        self._host = host
        """The client, as callback hooks reach it."""
        self._outbox = outbox
        self._open_events = open_events
        self._is_open = False
        self.events = SessionEvents()
        """Fires the events of the session."""
        self.callbacks: Sequence[Hook] = ()
        """Those of the client."""
        self.extensions: Sequence[Hook] = ()
        """Those of other packages."""
        self.commands: Sequence[Hook] = ()
        """Those of settings."""
        self.agent_hooks: dict[str, Sequence[Hook]] = {}
        """The hooks of subagents, by agent id."""
        self.main_agent: Json = {}
        """The fields of the agent that the session runs as, in hook inputs."""
        self._main_agent_hooks: tuple[SettingsValue, ...] = ()
        """The hooks of the agent that the session runs as."""

    def list_hooks(self) -> list[Hook]:
        """All hooks but those of subagents."""
        return [*self.callbacks, *self.extensions, *self.commands]

    def register(self, hooks: Mapping[str, Sequence[HookMatcher]]) -> bool:
        """Replace the callbacks of the client. Returns False if one with `onFailure: block` can never run."""
        if not hooks and not self._is_open:
            return True
        self.callbacks = self._config.extensions.make_callback_hooks(self._host, hooks)
        return self._open().can_guarantee(hooks)

    def set_commands(self, merged: MergedSettings) -> None:
        """Replace the command hooks by those of the settings."""
        wanted = (*merged.enabled_hooks(), *self._permitted(self._main_agent_hooks))
        self.add_extensions()
        if wanted or self._is_open:
            self.commands = self._load(wanted)
            self.events.start_watching()

    def add_extensions(self) -> None:
        """Add the hooks of other installed packages, unless the settings say that they do not run."""
        if self._config.extensions.hooks:
            closed = any(map(self._config.settings.merged.is_on, ("disableAllHooks", "allowManagedHooksOnly")))
            self.extensions = () if closed else self._config.extensions.hooks
            self._open()

    def _load(self, layers: Sequence[SettingsValue]) -> Sequence[Hook]:
        """The hooks of settings. Problems are reported on stderr, and to the client after `system/init`."""
        hooks, problems = self._config.extensions.make_command_hooks(layers, self._open().services)
        for problem in problems:
            self._config.warn(problem)
            self._outbox.add_notice(problem)
        return hooks

    def add_main_agent(self, hooks: SettingsValue) -> None:
        """Add the hooks of the agent that the session runs as."""
        self._main_agent_hooks = (hooks,)
        self.set_commands(self._config.settings.merged)

    def add_agent(self, agent_id: str, hooks: SettingsValue) -> None:
        """Add the hooks of a subagent. They run for its events only."""
        if permitted := self._permitted([hooks]):
            self.agent_hooks[agent_id] = self._load(permitted)

    def _permitted(self, of_agents: Sequence[SettingsValue]) -> Sequence[SettingsValue]:
        """The hooks of agents that may run, wherever the agents are defined: all of them or none."""
        lock = "--safe-mode" if self._config.options.safe_mode else self._config.settings.merged.find_agent_hook_lock()
        for hooks in of_agents if lock else ():
            self._config.warn(f"{hooks.path}: hooks have no effect ({lock})")
        return () if lock else of_agents

    def remove_agent(self, agent_id: str) -> None:
        self.agent_hooks.pop(agent_id, None)

    def disable(self) -> None:
        """Run no hooks from now on."""
        self._is_open, self.events = False, SessionEvents()

    def _open(self) -> SessionEvents:
        if not self._is_open:
            self._is_open, self.events = True, self._open_events()
        return self.events
