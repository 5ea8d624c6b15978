"""The session that a `claim_session` request asks a spare process for (spare.py).

    bound = Binder(run, environment, session_id, warn).bind(claim, accepted, open_pump)     raises ClaimRefused

The session is composed as by a cold start in the claimed folder. Then it gets what the client sent while the process
was parked: the settings before it is composed, the other requests after that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from parley.cli.run import SessionRun, attach_debug, open_session, wants_debug
from parley.compose.composer import Composer
from parley.engine.control.routes import find_handler
from parley.engine.session.hub import Hub
from parley.engine.session.pump import Pump
from parley.engine.session.session import Session
from parley.errors import ModelError, NotPossible, SessionError, UsageError
from parley.protocol.base import UNSET, Struct
from parley.protocol.messages import panel_requests, requests
from parley.protocol.options import MODES, CliOptions
from parley.settings.base import SettingsWriteError

if TYPE_CHECKING:
    from parley.cli.debug import DebugLog

CLAIMABLE_VARIABLES = ("CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_SESSION_ACCESS_TOKEN", "CLAUDE_CODE_HOST_SESSION_ID")
"""The variables that a claim may set. Others are read at the start of the process."""
START_KEYS = ("env", "agent", "model")
"""Settings of a project that hosts expect to be refused: they are promised a cold start for such a folder."""
REPEATED = ("set_model", "set_permission_mode", "set_max_thinking_tokens")
"""Requests whose effect the claimed session gets by repeating the last one of each."""


class ClaimRefused(Exception):
    """The process cannot become this session."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code


class BoundSession(Struct, frozen=True):
    """A claimed session and what it is served with."""

    session: Session
    hub: Hub
    pump: Pump
    initialized: requests.InitializeAnswer
    """The answer to the handshake of the claimed session."""


class Binder:
    """Composes the session of a claim."""

    def __init__(
        self, run: SessionRun, environment: dict[str, str], session_id: str, warn: Callable[[str], None]
    ) -> None:
        self._run = run
        self._warn = warn
        self._environment = environment
        self._session_id = session_id
        """The id of the session unless the claim names one."""

    def bind(
        self,
        claim: panel_requests.ClaimSession,
        accepted: Sequence[requests.Request],
        open_pump: Callable[[DebugLog | None], Pump],
    ) -> BoundSession:
        """`accepted`: the requests that succeeded while the process was parked. Raises ClaimRefused."""
        cwd = find_cwd(claim.cwd)
        options = self._make_options(claim, cwd)
        environment = {**self._environment, **check_variables(claim.env)}
        initialize = merge_initialize(claim, accepted)
        hub, debug = Hub(), None
        try:
            composer = Composer(options, environment, cwd, self._run.clock)
            for request in accepted:
                if isinstance(request, panel_requests.ApplyFlagSettings):
                    composer.launch.settings.apply(request.settings)
            check_project(composer, has_mode=self._has_mode(claim))
            os.chdir(cwd)
            config = composer.make_config(self._warn, self._run.warned)
            config.workspace.processes.hides_engine = True
            if wants_debug(options):
                config, debug = attach_debug(options, config, self._run.clock)
            pump = open_pump(debug)
            session = open_session(hub, config, pump)
        except (UsageError, SessionError, SettingsWriteError, OSError) as exc:
            raise ClaimRefused("claim_failed", str(exc)) from None
        try:
            repeat(session, accepted)
            set_mode(session, claim.permission_mode)
            return BoundSession(session, hub, pump, run_handler(session, initialize))
        except (NotPossible, ModelError, UsageError) as exc:
            hub.close(session)
            raise ClaimRefused("claim_failed", str(exc)) from None
        except ClaimRefused:
            hub.close(session)
            raise

    def _make_options(self, claim: panel_requests.ClaimSession, cwd: str) -> CliOptions:
        """The options of the process with those of the claim. Raises ClaimRefused."""
        options, mode = self._run.options, given(claim.permission_mode, None)
        if mode is not None and mode not in MODES:
            reason = f"unknown permission mode {mode!r:.100} (choose from {', '.join(sorted(MODES))})"
            raise ClaimRefused("permission_mode_not_claimable", reason)
        added = [os.path.join(cwd, os.path.expanduser(one)) for one in given(claim.additional_directories, [])]
        changes: dict[str, Any] = {
            "add_dirs": (*(options.add_dirs or ()), *filter(is_directory, added)) or None,
            "name": given(claim.title, options.name),
            "resume": given(claim.resume, options.resume),
            "session_id": given(claim.session_id, options.session_id),
        }
        if mode not in (None, "bypassPermissions"):  # that one is checked as `set_permission_mode` checks it
            changes["permission_mode"] = mode
        if not (changes["resume"] or changes["session_id"] or options.continue_conversation):
            changes["session_id"] = self._session_id
        return options.replace(**changes)

    def _has_mode(self, claim: panel_requests.ClaimSession) -> bool:
        options = self._run.options
        return isinstance(claim.permission_mode, str) or options.permission_mode is not None or options.skip_permissions


def given(value: Any, default: Any) -> Any:
    """A field of a request; the default if it is absent or null."""
    return default if value is UNSET or value is None else value


def is_directory(path: str) -> bool:
    return "\0" not in path and os.path.isdir(path)


def find_cwd(path: str) -> str:
    """The real path of the claimed folder. Raises ClaimRefused."""
    if path.startswith(("//", "\\\\")) or "\0" in path:
        raise ClaimRefused(
            "unsafe_path", "cwd must be a local path, not a network path, and must not contain null bytes"
        )
    path = os.path.expanduser(path) if path == "~" or path.startswith("~/") else path
    if not os.path.isabs(path) or not os.path.isdir(path):
        raise ClaimRefused("cwd_not_found", f"cwd is not the absolute path of an existing folder: {path!r:.500}")
    return os.path.realpath(path)


def check_variables(env: Any) -> dict[str, str]:
    """Raises ClaimRefused."""
    wanted: dict[str, str] = given(env, {})
    for name in wanted:
        if name not in CLAIMABLE_VARIABLES:
            reason = (
                f"env: {name:.100} takes effect only when a process starts; set it in the environment of that process"
            )
            raise ClaimRefused("env_key_not_claimable", reason)
    return wanted


def check_project(composer: Composer, *, has_mode: bool) -> None:
    """Refuse a folder whose own settings decide how a process starts. Raises ClaimRefused."""
    for layer in composer.launch.settings.layers():
        if layer.source not in ("project", "local"):
            continue
        found = [key for key in START_KEYS if layer.values.get(key)]
        rules = layer.values.get("permissions")
        if not has_mode and isinstance(rules, dict) and rules.get("defaultMode"):
            found.append("permissions.defaultMode (and claim_session has no permission_mode)")
        if found:
            reason = f"{layer.path} sets {', '.join(found)}, which takes effect only when a process starts"
            raise ClaimRefused("project_settings_not_claimable", f"{reason}; start a new process for this session")


def merge_initialize(claim: panel_requests.ClaimSession, accepted: Sequence[requests.Request]) -> requests.Initialize:
    """The last handshake, with what the claim adds to it. Raises ClaimRefused."""
    asked = [request for request in accepted if isinstance(request, requests.Initialize)]
    sent = asked[-1] if asked else requests.Initialize()
    prompts = [sent.appendSystemPrompt, claim.append_system_prompt]
    text = "\n\n".join(prompt for prompt in prompts if isinstance(prompt, str) and prompt)
    try:
        more = msgspec.convert(given(claim.agents, {}), dict[str, requests.AgentDefinition])
    except msgspec.ValidationError as exc:
        raise ClaimRefused("invalid_request", f"agents: {exc}") from None
    agents = {**given(sent.agents, {}), **more}
    servers = list(dict.fromkeys([*given(sent.sdkMcpServers, []), *given(claim.sdk_mcp_servers, [])]))
    merged = msgspec.structs.replace(
        sent,
        title=UNSET if isinstance(claim.title, str) else sent.title,  # that of the claim is an option
        appendSystemPrompt=text or UNSET,
        agents=agents or UNSET,
        sdkMcpServers=servers or sent.sdkMcpServers,
    )
    merged.__dict__["unknown_fields"] = sent.unknown_fields
    return merged


def repeat(session: Session, accepted: Sequence[requests.Request]) -> None:
    """Give a session what the client set while the process was parked. Raises NotPossible or ModelError."""
    last = {request.subtype: request for request in accepted if request.subtype in REPEATED}
    for request in last.values():
        if isinstance(request, requests.SetModel):  # without the message that its handler sends
            session.conversation.use_model(given(request.model, "default"))
        else:
            run_handler(session, request)


def set_mode(session: Session, mode: Any) -> None:
    """Raises ClaimRefused if the session cannot have this mode: it must not run in another."""
    if not isinstance(mode, str) or session.mode == mode:
        return
    try:
        run_handler(session, requests.SetPermissionMode(mode=mode))
    except NotPossible as exc:
        raise ClaimRefused("permission_mode_not_claimable", str(exc)) from None


def run_handler(session: Session, request: requests.Request) -> Any:
    """The answer to a request, without sending it. Raises NotPossible."""
    handler = find_handler(request.subtype)
    assert handler is not None
    answer = handler(session, request)
    if not hasattr(answer, "send"):
        return answer
    try:
        answer.send(None)
    except StopIteration as finished:  # `initialize` waits for nothing
        return finished.value
    answer.close()
    raise NotPossible(f"{request.subtype} arrived before claim_session and cannot be applied to the claimed session")
