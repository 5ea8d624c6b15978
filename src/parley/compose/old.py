"""From options to a ready session: the only place that knows the varieties.

Rows are strings, so that nothing is imported before it is needed.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from parley.engine.agents import Agents
from parley.engine.budget import Budget
from parley.engine.bulk import LINE_CAP_BYTES
from parley.engine.compaction import Policy, policy
from parley.engine.form import DEFAULT_ATTEMPTS, Form, read_form
from parley.engine.prompt import DATE, Instructions
from parley.engine.retry import DEFAULT_RETRIES
from parley.engine.setup import Limits, Setup
from parley.engine.stamp import Stamp
from parley.engine.tasks import Place
from parley.engine.thinking import Wish
from parley.errors import UsageError
from parley.host import Host
from parley.mcp.base import Lost, Spec, Supply, Wire
from parley.mcp.supply import Maker, supply
from parley.models.base import Model
from parley.models.endpoint import Endpoint, is_loopback
from parley.models.names import Choice, Facts, facts, resolve
from parley.models.prices import Prices
from parley.permissions.base import Permits
from parley.permissions.later import Later
from parley.protocol.base import Json, Message
from parley.protocol.dialects.base import Dialect
from parley.protocol.options import ROWS, Options
from parley.settings import backends, credentials, layers
from parley.settings.base import Plugin, Plugins, Recipe, Value, shown
from parley.settings.client import takes_rate_limits
from parley.settings.desk import Desk
from parley.settings.file import Unfit
from parley.settings.file import read as read_file
from parley.settings.limits import Given
from parley.settings.variables import (
    background_wait_seconds,
    child_environment,
    heartbeat_seconds,
    state_events,
    sync_policy,
    truthy,
    whole,
    whole_or,
)
from parley.stores.base import Log, Store
from parley.stores.choice import Chosen, choose
from parley.stores.claude import project_key
from parley.stores.line import Context as StoreContext
from parley.stores.opening import Wanted, open_session
from parley.tools.base import Context, Tool
from parley.tools.offer import Wishes, offered
from parley.tools.shelf import Shelf
from parley.version import PROTOCOL_LEVEL
from parley.workspace.checkpoints import Checkpoints
from parley.workspace.local import LocalFiles
from parley.workspace.processes import Processes
from parley.workspace.search import LocalSearch
from parley.workspace.web import Web

if TYPE_CHECKING:
    from parley.engine.client_tools import Declared
    from parley.hooks.base import Hook
    from parley.host import Host
    from parley.models.http import Deadlines
    from parley.protocol.messages.requests import AgentDefinition, HookMatcher
    from parley.settings.servers import Written

SMALLEST_LINE_BYTES = 50_000
PROMPT_TOOL = r"mcp__[\w-]+?__[\w-]+"
ROOT_BYPASS = "root may not bypass permissions (--dangerously-skip-permissions) outside of a sandbox (IS_SANDBOX=1)"

MODELS = {
    "anthropic": "parley.models.anthropic:Anthropic",
    "bedrock": "parley.models.cloud:Bedrock",
    "vertex": "parley.models.cloud:Vertex",
    "openai": "parley.models.openai:OpenAI",
    "scripted": "parley.models.scripted:Scripted",
    "offline": "parley.models.offline:Offline",
    "replay": "parley.models.replay:Replay",
}
TOOLS = {
    "Task": "parley.tools.agent:Agent",
    "Bash": "parley.tools.bash:Bash",
    "Edit": "parley.tools.edit:Edit",
    "Glob": "parley.tools.glob:Glob",
    "Grep": "parley.tools.grep:Grep",
    "NotebookEdit": "parley.tools.notebook:NotebookEdit",
    "AskUserQuestion": "parley.tools.question:AskUserQuestion",
    "EnterPlanMode": "parley.tools.plan:EnterPlanMode",
    "ExitPlanMode": "parley.tools.plan:ExitPlanMode",
    "ListMcpResourcesTool": "parley.tools.resources:ListMcpResources",
    "ReadMcpResourceTool": "parley.tools.resources:ReadMcpResource",
    "Skill": "parley.tools.skill:Skill",
    "TaskCreate": "parley.tools.task_list:TaskCreate",
    "TaskGet": "parley.tools.task_list:TaskGet",
    "TaskList": "parley.tools.task_list:TaskList",
    "TaskOutput": "parley.tools.task_output:TaskOutput",
    "TaskStop": "parley.tools.task_stop:TaskStop",
    "TaskUpdate": "parley.tools.task_list:TaskUpdate",
    "TodoWrite": "parley.tools.todo:TodoWrite",
    "WebFetch": "parley.tools.web_fetch:WebFetch",
    "WebSearch": "parley.tools.web_search:WebSearch",
    "Read": "parley.tools.read:Read",
    "Write": "parley.tools.write:Write",
}
WEB = ("WebFetch", "WebSearch")
"""The tools that lead into the network."""
NOT_YET = (
    "agent",
    "plugin_urls",
    *("prompt_suggestions", "debug", "debug_file", "debug_to_stderr"),
)
"""Options that are read so that a client's command line is understood; what they ask for is still to come."""
RESTRICTING_NOT_YET = ("restricted", "safe_mode")
WIRES = {
    "sdk": "parley.mcp.bridge:Bridge",
    "stdio": "parley.mcp.stdio:Stdio",
    "sse": "parley.mcp.remote:Sse",
    "http": "parley.mcp.remote:Http",
}
STORES = {
    "claude": "parley.stores.claude:Claude",
    "folder": "parley.stores.folder:Folder",
    "sqlite": "parley.stores.sqlite:Sqlite",
    "postgres": "parley.stores.postgres:Postgres",
    "memory": "parley.stores.memory:Memory",
}
LAYOUTS = ("claude", "folder")
"""Where a session is looked for by its id when no store is named."""
HOOKS = {"callback": "parley.hooks.host:registered", "command": "parley.hooks.entries:commands"}
DIALECTS = {"stream-json": "parley.protocol.dialects.stream_json:StreamJson"}


def variety(table: dict[str, str], name: str, what: str) -> Any:
    """The class of a row. Raises UsageError if there is no such row."""
    if name not in table:
        raise UsageError(f"there is no {what} {name!r} here; there are {', '.join(table)}")
    module, _, cls = table[name].partition(":")
    return getattr(import_module(module), cls)


def make_tool(name: str) -> Tool:
    made: Tool = variety(TOOLS, name, "tool")()
    return made


def not_yet(options: Options) -> list[str]:
    """A warning for every option that is given and not heeded yet. Raises UsageError for those that restrict."""
    flags = {row.field: row.flags[0] for row in ROWS}
    refused = [flags[field] for field in RESTRICTING_NOT_YET if field in options.given]
    if refused:
        raise UsageError(f"option '{refused[0]}' is not supported yet, and to go on without it could do harm")
    return [
        f"option '{flags[field]}' is not supported yet and has no effect" for field in NOT_YET if field in options.given
    ]


def dialect(options: Options) -> Dialect:
    """How lines are spelled. Raises UsageError."""
    name = options.dialect or ("miriad" if options.stdio else "stream-json")
    made: Dialect = variety(DIALECTS, name, "dialect")()
    return made


class Composer:
    """Turns options and the surroundings into the parts of a session."""

    def __init__(self, options: Options, environment: dict[str, str], cwd: str, stamp: Stamp | None = None) -> None:
        """Raises UsageError if the settings on the command line are wrong."""
        self.options = options
        self.cwd = cwd
        self.stamp = stamp or Stamp()
        self.config = layers.config_folder(environment)
        wanted = layers.Wanted(
            config=self.config,
            project=os.path.normpath(os.path.join(cwd, options.project_config_root or ".")),
            given=options.settings,
            managed=options.managed_settings,
            sources=options.setting_sources,
            bare=options.bare,
        )
        self.settings = Desk(wanted, environment, child_environment)
        self.complain: Callable[[str], None] = lambda text: None
        self.environment = self.settings.environment()
        """What the process was given, and the `env` of settings that may speak for the person."""

    def setup(self, complain: Callable[[str], None]) -> Setup:
        """Everything a session needs. Raises UsageError or SessionError."""
        options, environment = self.options, self.environment
        for warning in not_yet(options):
            complain(warning)
        limits, prices, form = self.limits(), self.prices(), self.form()
        chosen = resolve(self.model_name())
        self.check_model(chosen)
        if chosen.adapter not in ADDRESSES:
            self.bare_model(chosen)  # a broken script or tape is told now, not in the first turn
        for complaint in self.settings.complaints():
            complain(complaint)
        session_id, log = self.open_log(complain)
        begins_in = self.permission_mode(complain)
        context = self.tool_context(session_id)
        style = self.settings.style()
        if style.flaw is not None:
            complain(str(style.flaw))
        self.complain = complain
        if options.record or options.faults:
            self.wraps.tape()  # the last thing that may fail: nothing is recorded of a session that never was
        return Setup(
            session_id=session_id,
            cwd=self.cwd,
            log=log,
            sync=sync_policy(environment),
            open_model=self.open_model,
            model_name=self.model_name(),
            facts_of=self.facts_of,
            fallback_models=self.fallback_models(),
            small_model=environment.get("ANTHROPIC_SMALL_FAST_MODEL") or "haiku",
            instructions=msgspec.structs.replace(
                self.instructions(session_id),
                style=style.text,
                memory=lambda: self.memory(context.hides, complain),
                memory_files=lambda: self.memory_files(context.hides),
            ),
            tools=self.tools(),
            client_tools=self.client_tools(),
            tool_context=context,
            task_place=self.task_place(session_id),
            permits=self.permits(session_id, complain),
            asks_host=self.asks_host(),
            prompt_tool=self.prompt_tool(),
            guarded=options.guard,
            permission_mode=begins_in,
            mode_is_given=options.skip_permissions or options.permission_mode is not None,
            may_bypass=self.may_bypass(begins_in),
            partial=options.include_partial_messages and options.output_format != "message",
            replay=options.replay_user_messages,
            extension_fields=options.extension_fields,
            hook_events=options.include_hook_events,
            make_callbacks=self.callbacks,
            make_commands=lambda layers: self.commands(layers, context, complain),
            mirrored=lambda log, told: self.mirrored(session_id, log, told),
            transcript_path=lambda: self.transcript_path(session_id, complain),
            agents=self.agents,
            forwards_subagent_text=options.forward_subagent_text,
            open_agent_log=lambda agent_id, meta: self.agent_log(session_id, agent_id, meta, complain),
            agent_transcript_path=lambda agent_id: self.agent_transcript(session_id, agent_id, complain),
            begins_as=self.wanted_session().begins_as,
            title=" ".join((options.name or "").split()) or None,
            thinking=Wish(
                tokens=options.max_thinking_tokens
                if options.max_thinking_tokens is not None
                else whole(environment, "MAX_THINKING_TOKENS"),
                mode=options.thinking,
                display=options.thinking_display,
            ),
            effort=options.effort
            or environment.get("CLAUDE_CODE_EFFORT_LEVEL")
            or self.settings.merged.get("effortLevel"),
            mcp=self.servers(context, complain),
            settings=self.settings,
            output_style=style.name,
            styles=self.settings.styles,
            plugins=self.listed_plugins,
            recipes=None if options.disable_slash_commands else lambda: self.recipes(complain),
            betas=options.betas or (),
            limits=limits,
            compaction=self.compaction(),
            form=form,
            may_rewind=truthy(environment.get("CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING")),
            state_events=state_events(environment),
            tells_quota=takes_rate_limits(environment),
            api_key_source=credentials.source(self.places()),
            prices=prices,
            stamp=self.stamp,
            dice=throw,
            complain=complain,
        )

    # Settings.

    def permission_mode(self, complain: Callable[[str], None]) -> str:
        """The mode a session begins in: what the command line says, else what the settings say."""
        options, merged = self.options, self.settings.merged
        wanted = "bypassPermissions" if options.skip_permissions else options.permission_mode
        if wanted is None and merged.mode is not None:
            wanted = merged.mode.value
        if wanted == "bypassPermissions" and merged.bypass_disabled is not None:
            complain(f"settings: {shown(merged.bypass_disabled.path)} disables bypassPermissions; the mode is default")
            wanted = None
        return mode(wanted)

    def may_bypass(self, begins_in: str) -> bool:
        """Raises UsageError if the session would begin in a mode in which root could do anything at all."""
        bypasses = begins_in == "bypassPermissions"
        if os.geteuid() == 0 and not truthy(self.environment.get("IS_SANDBOX")):
            if bypasses:
                raise UsageError(ROOT_BYPASS)
            return False
        if self.settings.merged.bypass_disabled is not None:
            return False
        return bypasses or self.options.allow_skip_permissions

    def permits(self, session_id: str, complain: Callable[[str], None]) -> Permits:
        """What the command line and the settings allow and deny. What is wrong with a rule is told at the start."""
        later = Later(lambda: self.open_book(session_id, complain))
        if self.options.allowed_tools or self.options.disallowed_tools or self.settings.merged.rules:
            later.open()
        return later

    def open_book(self, session_id: str, complain: Callable[[str], None]) -> Permits:
        from parley.permissions.book import Book, Given
        from parley.permissions.view import RealView

        options = self.options
        given = Given(
            cwd=self.cwd,
            user_root=str(self.config),
            allowed=options.allowed_tools or (),
            denied=options.disallowed_tools or (),
            folders=options.add_dirs or (),
            readable=self.own_folders(session_id),
        )
        book = Book(given, RealView(str(layers.home(self.environment))), self.settings.store, complain)
        book.settle(self.settings.merged)
        return book

    def folders(self) -> tuple[str, ...]:
        """The working directories beside the first, absolute."""
        added = (os.path.normpath(os.path.join(self.cwd, folder)) for folder in self.options.add_dirs or ())
        return tuple(dict.fromkeys([*added, *self.settings.folders()]))

    @cached_property
    def plugins(self) -> Plugins:
        """The plugins that the command line names; their hooks count from now on."""
        options = self.options
        if not options.plugin_dirs and not options.plugin_dirs_no_mcp:
            return Plugins()
        from parley.settings.plugins import gather

        found = gather(self.located(options.plugin_dirs), self.located(options.plugin_dirs_no_mcp))
        self.settings.bring([plugin.hooks for plugin in found.found if plugin.hooks is not None])
        for flaw in found.errors:
            self.complain(f"plugin {shown(flaw['path'])}: {flaw['message']}")
        return found

    def located(self, folders: tuple[str, ...] | None) -> list[str]:
        return [os.path.realpath(os.path.join(self.cwd, os.path.expanduser(folder))) for folder in folders or ()]

    def listed_plugins(self, again: bool) -> tuple[list[Json], list[Json]]:
        """The plugins there are, and what is wrong with others."""
        if again:
            self.__dict__.pop("plugins", None)
        return [plugin.json() for plugin in self.plugins.found], list(self.plugins.errors)

    def recipes(self, complain: Callable[[str], None]) -> Sequence[Recipe]:
        """The commands and skills there are. What is wrong with their files is told."""
        found, flaws = self.settings.recipes(self.plugins.found)
        for flaw in flaws:
            complain(str(flaw))
        return found

    def memory(self, denies: Callable[[str], bool], complain: Callable[[str], None]) -> str:
        found = self.settings.memory(self.cwd, self.folders(), denies)
        for flaw in found.flaws:
            complain(str(flaw))
        return found.text

    def memory_files(self, denies: Callable[[str], bool]) -> list[tuple[str, str, int]]:
        """Path, kind and size of the memory files there are."""
        own = str(self.config)
        found: list[tuple[str, str, int]] = []
        for path in self.settings.memory(self.cwd, self.folders(), denies).files:
            kind = "User" if path.startswith(own) else "Local" if path.endswith(".local.md") else "Project"
            with suppress(OSError):
                found.append((path, kind, os.path.getsize(path)))
        return found

    # Limits.

    def limits(self) -> Limits:
        """Raises UsageError."""
        given, environment = self.given_limits(), self.environment
        given.deadlines()
        return Limits(
            max_turns=given.get("maxTurns"),
            budget=Budget(
                usd=given.get("maxBudgetUsd"),
                tokens=given.get("maxBudgetTokens"),
                calls=given.get("maxBudgetCalls"),
                seconds=given.get("maxBudgetSeconds"),
            ),
            task_budget=given.get("taskBudget"),
            max_retries=given.get_or("maxRetries", DEFAULT_RETRIES),
            max_form_attempts=given.get_or("structuredOutputAttempts", DEFAULT_ATTEMPTS),
            max_output_tokens=given.get("maxOutputTokens"),
            max_parallel_tools=max(1, whole_or(environment, "CLAUDE_CODE_MAX_TOOL_USE_CONCURRENCY", 10)),
            line_bytes=max(SMALLEST_LINE_BYTES, self.options.max_line_bytes or LINE_CAP_BYTES),
            fail_on_denial=self.options.fail_on_denial,
            heartbeat_seconds=heartbeat_seconds(environment),
            background_wait_seconds=background_wait_seconds(environment),
        )

    def compaction(self) -> Policy:
        """Raises UsageError."""
        environment = self.environment
        return policy(
            disabled=truthy(environment.get("DISABLE_COMPACT")),
            auto_disabled=truthy(environment.get("DISABLE_AUTO_COMPACT")),
            flag=self.options.autocompact,
            window=self.settings.merged.get("autoCompactWindow"),
            percent=whole(environment, "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE"),
        )

    def given_limits(self) -> Given:
        return Given(self.options, self.environment, self.settings.merged.get("limits"))

    def deadlines(self) -> Deadlines:
        """How long a silent backend is waited for. Raises UsageError."""
        from parley.models.http import Deadlines

        return Deadlines.of(self.given_limits().deadlines())

    def form(self) -> Form | None:
        """What an answer must look like. Raises UsageError if that is no schema."""
        text, attempts = self.options.json_schema, self.given_limits().get("structuredOutputAttempts")
        return None if text is None else read_form(text, attempts or DEFAULT_ATTEMPTS)

    # The model.

    def model_name(self) -> str:
        asked = self.options.model or self.environment.get("ANTHROPIC_MODEL")
        asked = asked or self.settings.merged.get("model")
        return str(asked or "default")

    def open_model(self, choice: Choice) -> Model:
        """A model with what was asked to be put around it. Raises UsageError or ModelError."""
        model = self.bare_model(choice)
        return self.wraps.around(model) if self.options.record or self.options.faults else model

    @cached_property
    def wraps(self) -> Any:
        """Raises UsageError."""
        from parley.models.wrap import Wraps

        environment, home = self.environment, layers.home(self.environment)
        return Wraps(
            environment=environment,
            secrets=credentials.known(self.places()),
            places={
                "cwd": self.cwd,
                "home": str(home),
                "config": str(self.config),
                "tmp": environment.get("TMPDIR") or "/tmp",
            },
            record=Path(self.cwd, self.options.record) if self.options.record else None,
            faults=self.options.faults or (),
            deadlines=self.deadlines(),
            now=self.stamp.now,
            clock=self.stamp.monotonic,
            complain=self.complain,
        )

    def bare_model(self, choice: Choice) -> Model:
        """Raises UsageError or ModelError."""
        self.check_model(choice)
        adapter = self.service(choice)
        made: Model = OPENERS[adapter](self, variety(MODELS, adapter, "model adapter"), choice)
        return made

    def endpoint(self, find: Callable[[], Endpoint]) -> Endpoint:
        """Raises ModelError if there must be a key and is none."""
        found = find()
        if found.auth is not None and self.options.record:
            self.wraps.redaction.add(found.auth[1].removeprefix("Bearer "))  # a helper's key is known only now
        return found

    def key_source(self, adapter: str) -> str:
        """Where the key of a backend comes from, never the key itself."""
        if adapter == "openai":
            return backends.openai_key_source(self.environment)
        return credentials.source(self.places())

    def facts_of(self, choice: Choice) -> Facts:
        """What is known of a model; of the other API's servers some things are declared."""
        known = facts(choice.name)
        if choice.adapter != "openai":
            return known
        fields = backends.declared(self.environment, backends.openai_url(self.environment))
        return msgspec.structs.replace(
            known,
            takes_effort="reasoning_effort" in fields,
            knows_schemas="response_format" in fields,
        )

    def fallback_models(self) -> tuple[str, ...]:
        """Raises UsageError if one of them can never be asked."""
        asked = self.options.fallback_model or self.settings.merged.get("fallbackModel") or ""
        names = tuple(name.strip() for name in str(asked).split(",") if name.strip())
        for name in names:
            self.check_model(resolve(name))
        return names

    def check_model(self, choice: Choice) -> None:
        """Raises UsageError if a model can never be asked."""
        if not choice.name:
            raise UsageError(f"the model {choice.adapter}: needs a name behind the colon")
        service = self.service(choice)
        if service in CLOUDS:
            backends.check_cloud(service)
        elif service in ADDRESSES:
            ADDRESSES[service](self.environment)

    def in_cloud(self, name: str, cls: Any) -> Model:
        made: Model = cls(backends.cloud_options(name, self.environment), warn=self.complain)
        return made

    def service(self, choice: Choice) -> str:
        """The adapter that asks a model: the Messages API may stand in a cloud."""
        cloud = backends.cloud(self.environment) if choice.adapter == "anthropic" else None
        return cloud or choice.adapter

    def places(self) -> credentials.Places:
        return credentials.Places(
            flag=self.options.api_key,
            environment=self.environment,
            settings=self.settings.merged.plain(),
            home=layers.home(self.environment),
        )

    def prices(self) -> Prices:
        path = self.environment.get("PARLEY_PRICES")
        prices = Prices(Path(path) if path else None)
        if path:
            prices.price("")  # a broken table is told at the start, not after the first answer
        return prices

    # Tools.

    def tool_context(self, session_id: str) -> Context:
        children = self.settings.child_environment()
        return Context(
            cwd=self.cwd,
            environment=children,
            files=self.files(session_id),
            processes=Processes(),
            results_folder=self.results_folder(session_id),
            new_id=short_ids(self.stamp),
            web=self.web(),
            plan_file=str(self.plan_file(session_id)),
            clock=self.stamp.monotonic,
            search=LocalSearch(children),
        )

    def callbacks(self, host: Host, hooks: Mapping[str, Sequence[HookMatcher]]) -> Sequence[Hook]:
        found: Sequence[Hook] = variety(HOOKS, "callback", "hook")(host, hooks)
        return found

    def commands(self, layers: Sequence[Value], context: Context, complain: Callable[[str], None]) -> Sequence[Hook]:
        """The commands that settings have as hooks. What is wrong with them is told."""
        found, flaws = variety(HOOKS, "command", "hook")(layers, context, self.cwd)
        for flaw in flaws:
            complain(str(flaw))
        hooks: Sequence[Hook] = found
        return hooks

    def tools(self) -> Shelf:
        """The tools the model may call, by the names they are listed under."""
        tasks = self.environment.get("CLAUDE_CODE_ENABLE_TASKS")
        wishes = Wishes(
            asked=self.options.tools,
            denied=(*(self.options.disallowed_tools or ()), *self.denied_tools()),
            has_person=self.asks_host(),
            tasks=truthy(tasks) if tasks else None,
        )
        return Shelf(offered(TOOLS, wishes), self.make_tool)

    def client_tools(self) -> Sequence[Declared]:
        """The tools that the client runs. Raises UsageError."""
        given = self.options.client_tools
        if not given:
            return ()
        if self.options.input_format != "stream-json" and not self.options.stdio:
            raise UsageError("option '--client-tools' needs --input-format stream-json: the client answers on stdin")
        from parley.engine.client_tools import declared_in

        inline = given.lstrip().startswith(("[", "{"))
        return declared_in(given if inline else text_file(os.path.join(self.cwd, given), "--client-tools"))

    def make_tool(self, name: str) -> Tool:
        if name == "Task":
            made: Tool = variety(TOOLS, name, "tool")(self.agents.listing)
            return made
        return make_tool(name)

    @cached_property
    def agents(self) -> Agents:
        """The kinds of subagents; files are read when a session first needs them. Raises UsageError."""
        given = agents_given(self.options.agents)

        def load() -> dict[str, AgentDefinition]:
            found, flaws = self.settings.agents()
            for flaw in flaws:
                self.complain(str(flaw))
            return {**found, **given}

        return Agents(load)

    def denied_tools(self) -> list[str]:
        """What the settings and `--offline` deny; rules with contents do no harm here, as no tool is called that."""
        denied = [rule.text for rule in self.settings.merged.rules if rule.behavior == "deny"]
        return [*denied, *WEB] if self.options.offline else denied

    def servers(self, context: Context, complain: Callable[[str], None]) -> Supply:
        """The MCP servers that are configured, and the way to more. Raises UsageError."""
        given = self.options.mcp_config or ()
        written, flaws = self.settings.servers(given, self.cwd, strict=self.options.strict_mcp_config)
        if not self.options.strict_mcp_config:
            written += [plugin_servers(plugin) for plugin in self.plugins.found if plugin.servers]
        maker = Maker(self.environment, context.environment)
        found = maker.gather(written)
        for flaw in (*flaws, *found.flaws):
            complain(flaw)

        async def open_wire(spec: Spec, host: Host) -> Wire:
            if self.options.offline and spec.url and not is_loopback(spec.url):
                raise Lost("this session runs with --offline, and the server is not on this machine")
            module, _, cls = WIRES[spec.kind].partition(":")
            # What a wire stands on may take a second to load; the loop must not wait for it.
            loaded = import_module(module) if spec.kind == "sdk" else await asyncio.to_thread(import_module, module)
            made: Wire = WIRE_OPENERS[spec.kind](getattr(loaded, cls), spec, host, context)
            return made

        # The tool that answers permission questions is not for the model.
        denied = (*(self.options.disallowed_tools or ()), *self.denied_tools(), *filter(None, [self.prompt_tool()]))
        return supply(maker, found.specs, open_wire, number=lambda name: whole(self.environment, name), denied=denied)

    def asks_host(self) -> bool:
        options = self.options
        return options.permission_prompt_tool == "stdio" and options.permission_prompts != "none"

    def prompt_tool(self) -> str | None:
        """The MCP tool that answers permission questions. Raises UsageError."""
        name = self.options.permission_prompt_tool
        if name in (None, "stdio") or self.options.permission_prompts == "none":
            return None
        if not re.fullmatch(PROMPT_TOOL, str(name)):
            raise UsageError(f"option '--permission-prompt-tool' must be stdio or mcp__SERVER__TOOL, got {name!r}")
        return name

    def web(self) -> Web:
        """The door to the network, opened as wide as the person says. Raises UsageError."""
        environment = self.environment
        search_url = environment.get("PARLEY_SEARCH_URL") or None
        if search_url and "{query}" not in search_url:
            raise UsageError("PARLEY_SEARCH_URL must have {query} in it, where the query goes")
        private = truthy(environment.get("PARLEY_WEBFETCH_ALLOW_PRIVATE")) or self.settings.merged.get(
            "webFetchAllowPrivate"
        )
        return Web(
            allow_private=private is True,
            ca_file=environment.get("NODE_EXTRA_CA_CERTS"),
            search_url=search_url,
            closed=self.options.offline,
        )

    def plan_file(self, session_id: str) -> Path:
        return self.config / "plans" / f"{session_id}.md"

    def own_folders(self, session_id: str) -> tuple[str, ...]:
        """Where a session puts what its model shall read: long output, that of tasks, and the plan."""
        place = self.task_place(session_id)
        tasks = place.temporary.joinpath(*place.names)
        return (
            str(self.results_folder(session_id)),
            str(tasks),
            str(place.otherwise),
            str(self.plan_file(session_id)),
        )

    def results_folder(self, session_id: str) -> Path:
        return self.config / "projects" / project_key(self.cwd) / session_id / "tool-results"

    def task_place(self, session_id: str) -> Place:
        """Where the output of background tasks goes."""
        temporary = self.environment.get("CLAUDE_CODE_TMPDIR") or self.environment.get("TMPDIR") or "/tmp"
        project = project_key(self.cwd)
        return Place(
            temporary=Path(temporary),
            names=(f"claude-{os.getuid()}", project, session_id, "tasks"),
            otherwise=self.config / "projects" / project / session_id / "tasks",
        )

    # Instructions.

    def instructions(self, session_id: str) -> Instructions:
        """Raises UsageError if a file cannot be read."""
        options = self.options
        replaced = options.system_prompt
        if options.system_prompt_file is not None:
            replaced = text_file(options.system_prompt_file, "--system-prompt-file")
        appended = options.append_system_prompt or ""
        if options.append_system_prompt_file is not None:
            appended = text_file(options.append_system_prompt_file, "--append-system-prompt-file")
        return Instructions(replaced=replaced, appended=appended, surroundings=self.surroundings(session_id))

    def surroundings(self, session_id: str) -> tuple[str, ...]:
        if self.options.exclude_dynamic_sections:
            return ()
        return (
            f"Working directory: {self.cwd}",
            f"Platform: {sys.platform}",
            f"{DATE}{self.stamp.now()[:10]}",
            *self.plan_rules(session_id),
        )

    def plan_rules(self, session_id: str) -> tuple[str, ...]:
        """What a model must know whose session begins in plan mode."""
        if self.permission_mode(lambda complaint: None) != "plan":
            return ()
        rule = "The session begins in plan mode: look around and change nothing until the user has approved your plan."
        return (f"{rule} ExitPlanMode presents it; you may write it to {self.plan_file(session_id)} first.",)

    # The log.

    def agent_log(self, session_id: str, agent_id: str, meta: Json, complain: Callable[[str], None]) -> Log:
        """Raises SessionError."""
        from parley.stores.memory import Memory
        from parley.stores.sidechain import opened

        path = self.transcript_path(session_id, complain)
        if not path:
            return Memory().create(agent_id)
        return opened(path, session_id, agent_id, meta, self.line_context(), complain)

    def agent_transcript(self, session_id: str, agent_id: str, complain: Callable[[str], None]) -> str:
        from parley.stores.sidechain import path_beside

        path = self.transcript_path(session_id, complain)
        return str(path_beside(path, agent_id)) if path else ""

    def wanted_session(self) -> Wanted:
        options = self.options
        return Wanted(
            session_id=options.session_id,
            resume=options.resume,
            newest=options.continue_conversation,
            fork=options.fork_session,
            steal=options.steal,
            keep=not options.no_session_persistence,
            at=options.resume_session_at,
            drops=options.resume_drops_turn,
        )

    def open_log(self, complain: Callable[[str], None]) -> tuple[str, Log]:
        """Which session this is, and its log. Raises UsageError or SessionError."""
        wanted = self.wanted_session()
        opened = open_session(wanted, self.store(complain, wanted.resume), self.stamp.new_uuid)
        if opened.copied is not None and wanted.keep:
            self.inherit_files(opened.session_id, opened.copied)
        return opened.session_id, opened.log

    def mirrored(self, session_id: str, log: Log, told: Callable[[Message], None]) -> Log:
        """The log for a session whose client wants to hear of its lines."""
        if not self.options.session_mirror:
            return log
        from parley.stores.mirror import Mirror

        layout = self.config / "projects" / project_key(self.cwd) / f"{session_id}.jsonl"
        return Mirror(
            log,
            told,
            # Clients know by the path which session is meant, wherever it is kept.
            path=str(next(self.config.glob(f"projects/*/{session_id}.jsonl"), layout)),
            session_id=session_id,
            context=self.line_context(),
            most_bytes=self.limits().line_bytes,
            is_copy=self.wanted_session().begins_as == "fork",
            complain=self.complain,
        )

    def transcript_path(self, session_id: str, complain: Callable[[str], None]) -> str:
        return "" if self.options.no_session_persistence else self.store(complain, session_id).path(session_id)

    # Files.

    def files(self, session_id: str) -> LocalFiles:
        # What is forgotten at the end must not be the checkpoints of the session that was read.
        history = self.stamp.new_uuid() if self.options.no_session_persistence else session_id
        checkpoints, tree = Checkpoints(self.file_history(history)), None
        if truthy(self.environment.get("PARLEY_SNAPSHOT_TREE")):
            from parley.workspace.tree import Tree

            tree = Tree(self.cwd, checkpoints, [str(self.config)])
        return LocalFiles(
            cwd=self.cwd,
            checkpoints=checkpoints,
            new_id=short_ids(self.stamp),
            tree=tree,
            forget_at_end=self.options.no_session_persistence,
        )

    def file_history(self, session_id: str) -> Path:
        return self.config / "file-history" / session_id

    def inherit_files(self, fork: str, session_id: str) -> None:
        """A fork can go back to the states of files of the session it comes from."""
        Checkpoints(self.file_history(fork)).inherit(Checkpoints(self.file_history(session_id)))

    def store(self, complain: Callable[[str], None], session_id: str | None = None) -> Store:
        """Where sessions are kept: as the options say, else in the layout that knows the session. Raises UsageError."""
        chosen = choose(self.options, self.environment)
        if chosen is not None:
            return self.open_store(chosen, complain)
        stores = (self.open_store(Chosen(name), complain) for name in LAYOUTS)
        first = next(stores)
        if session_id is None or first.exists(session_id):
            return first
        return next((store for store in stores if store.exists(session_id)), first)

    def open_store(self, chosen: Chosen, complain: Callable[[str], None]) -> Store:
        """Raises UsageError."""
        cls = variety(STORES, chosen.name, "store")
        return STORE_OPENERS[chosen.name](cls, self.store_place(chosen), self.line_context(), complain)

    def line_context(self) -> StoreContext:
        """What every line of a session says of its surroundings."""
        entrypoint = self.environment.get("CLAUDE_CODE_ENTRYPOINT", "sdk-cli")
        branch = git_branch(Path(self.cwd))
        return StoreContext(cwd=self.cwd, version=PROTOCOL_LEVEL, entrypoint=entrypoint, git_branch=branch)

    def store_place(self, chosen: Chosen) -> Any:
        """A path; of an address, the address."""
        if chosen.is_address:
            return chosen.place
        return Path(self.cwd, os.path.expanduser(chosen.place)) if chosen.place else self.config


STORE_OPENERS: dict[str, Callable[[Any, Any, StoreContext, Callable[[str], None]], Store]] = {
    "claude": lambda cls, place, context, complain: cls(place, context, complain),
    "folder": lambda cls, place, context, complain: cls(place, context, complain),
    "sqlite": lambda cls, place, context, complain: cls(place, context),
    "postgres": lambda cls, place, context, complain: cls(place, context),
    "memory": lambda cls, place, context, complain: cls(context.cwd),
}


CLOUDS = tuple(backends.CLOUDS)
ADDRESSES: dict[str, Callable[[dict[str, str]], str]] = {
    "anthropic": backends.anthropic_url,
    "openai": backends.openai_url,
}
"""Models over the network: where their servers are."""
OPENERS: dict[str, Callable[[Composer, Any, Choice], Model]] = {
    "anthropic": lambda composer, cls, choice: cls(
        lambda: composer.endpoint(lambda: backends.anthropic(composer.places())),
        deadlines=composer.deadlines(),
        warn=composer.complain,
    ),
    "bedrock": lambda composer, cls, choice: composer.in_cloud("bedrock", cls),
    "vertex": lambda composer, cls, choice: composer.in_cloud("vertex", cls),
    "openai": lambda composer, cls, choice: cls(
        lambda: composer.endpoint(lambda: backends.openai(composer.environment)),
        choice.name,
        short_ids(composer.stamp),
        deadlines=composer.deadlines(),
        warn=composer.complain,
    ),
    "scripted": lambda composer, cls, choice: cls(
        Path(composer.cwd, choice.name), short_ids(composer.stamp), composer.deadlines
    ),
    "offline": lambda composer, cls, choice: cls(short_ids(composer.stamp)),
    "replay": lambda composer, cls, choice: composer.wraps.replay(Path(composer.cwd, choice.name)),
}


WIRE_OPENERS: dict[str, Callable[[Any, Spec, Host, Context], Wire]] = {
    "sdk": lambda cls, spec, host, context: cls(spec.name, host),
    "stdio": lambda cls, spec, host, context: cls(spec, context.processes, context.cwd, context.environment),
    "sse": lambda cls, spec, host, context: cls(spec),
    "http": lambda cls, spec, host, context: cls(spec),
}


def plugin_servers(plugin: Plugin) -> Written:
    from parley.settings.servers import Written

    return Written(source="dynamic", place=shown(plugin.path), servers=plugin.servers)


def agents_given(text: str | None) -> Mapping[str, AgentDefinition]:
    """What `--agents` says. Raises UsageError."""
    if text is None:
        return {}
    from parley.settings.agents import on_command_line

    return on_command_line(text)


def throw() -> float:
    """A number in [0, 1); the standard library's module costs 3 ms at start-up."""
    return int.from_bytes(os.urandom(4)) / 2**32


def short_ids(stamp: Stamp) -> Callable[[], str]:
    return lambda: stamp.new_uuid().replace("-", "")[-24:]


def mode(name: str | None) -> str:
    return "default" if name in (None, "manual") else str(name)


def text_file(path: str, flag: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as flaw:
        raise UsageError(f"option '{flag}': {path} cannot be read: {flaw}") from None


def git_branch(folder: Path) -> str:
    """The branch a folder is on, read from git's own file; "" outside a repository."""
    for place in (folder, *folder.parents):
        try:
            text = read_file(place / ".git" / "HEAD", most_bytes=1000).data.decode().strip()
        except (Unfit, UnicodeDecodeError):
            continue
        return text.removeprefix("ref: refs/heads/") if text.startswith("ref: ") else text[:12]
    return ""


def working_directory() -> str:
    """Raises UsageError if the folder we were started in is gone."""
    try:
        return os.getcwd()
    except OSError:
        raise UsageError("the working directory does not exist any more") from None
