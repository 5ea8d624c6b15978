"""From options to a ready session: the only place that knows the varieties.

Rows are strings, so that nothing is imported before it is needed.
"""

from __future__ import annotations

import os
import random
import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from parley.engine.prompt import Instructions
from parley.engine.retry import DEFAULT_RETRIES
from parley.engine.session import Limits, Setup
from parley.engine.stamp import Stamp
from parley.engine.thinking import Wish
from parley.errors import ModelError, SessionError, UsageError
from parley.models.base import Model
from parley.models.names import Choice
from parley.models.prices import Prices
from parley.protocol.base import Json
from parley.protocol.dialects.base import Dialect
from parley.protocol.options import Options
from parley.settings import credentials, layers
from parley.stores.base import Log, Store
from parley.version import PROTOCOL_LEVEL

DEFAULT_BASE_URL = "https://api.anthropic.com"
LOOPBACK = re.compile(r"https?://(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?(/|$)")

MODELS = {
    "anthropic": "parley.models.anthropic:Anthropic",
    "scripted": "parley.models.scripted:Scripted",
    "offline": "parley.models.offline:Offline",
}
DIALECTS = {"stream-json": "parley.protocol.dialects.stream_json:StreamJson"}


def variety(table: dict[str, str], name: str, what: str) -> Any:
    """The class of a row. Raises UsageError if there is no such row."""
    if name not in table:
        raise UsageError(f"there is no {what} {name!r} here; there are {', '.join(table)}")
    module, _, cls = table[name].partition(":")
    return getattr(import_module(module), cls)


def dialect(options: Options) -> Dialect:
    """How lines are spelled. Raises UsageError."""
    name = options.dialect or ("miriad" if options.stdio else "stream-json")
    made: Dialect = variety(DIALECTS, name, "dialect")()
    return made


class Composer:
    """Turns options and the surroundings into the parts of a session."""

    def __init__(self, options: Options, environment: dict[str, str], cwd: str, stamp: Stamp | None = None) -> None:
        self.options = options
        self.environment = environment
        self.cwd = cwd
        self.stamp = stamp or Stamp()
        self.config = layers.config_folder(environment)
        self.settings: Json = {**layers.user_settings(self.config), **layers.given_settings(options.settings)}

    def setup(self, complain: Callable[[str], None]) -> Setup:
        """Everything a session needs. Raises UsageError or SessionError."""
        options, environment = self.options, self.environment
        session_id, log = self.open_log()
        bypass = options.skip_permissions or options.permission_mode == "bypassPermissions"
        return Setup(
            session_id=session_id,
            cwd=self.cwd,
            log=log,
            open_model=self.open_model,
            model_name=self.model_name(),
            instructions=self.instructions(),
            permission_mode="bypassPermissions" if bypass else mode(options.permission_mode),
            may_bypass=bypass or options.allow_skip_permissions,
            partial=options.include_partial_messages and options.output_format != "message",
            replay=options.replay_user_messages,
            thinking=Wish(
                tokens=options.max_thinking_tokens
                if options.max_thinking_tokens is not None
                else whole(environment, "MAX_THINKING_TOKENS"),
                mode=options.thinking,
                display=options.thinking_display,
            ),
            effort=options.effort or environment.get("CLAUDE_CODE_EFFORT_LEVEL"),
            betas=options.betas or (),
            limits=Limits(
                max_turns=options.max_turns,
                max_retries=whole_or(environment, "CLAUDE_CODE_MAX_RETRIES", DEFAULT_RETRIES),
                max_output_tokens=whole(environment, "CLAUDE_CODE_MAX_OUTPUT_TOKENS"),
            ),
            state_events=state_events(environment),
            api_key_source=credentials.source(self.places()),
            prices=self.prices(),
            stamp=self.stamp,
            dice=random.random,
            complain=complain,
        )

    # The model.

    def model_name(self) -> str:
        asked = self.options.model or self.environment.get("ANTHROPIC_MODEL") or self.settings.get("model")
        return str(asked or "default")

    def open_model(self, choice: Choice) -> Model:
        """Raises UsageError or ModelError."""
        cls = variety(MODELS, choice.adapter, "model adapter")
        made: Model = OPENERS[choice.adapter](self, cls, choice)
        return made

    def endpoint(self) -> Any:
        """Where the Messages API is and the key for it. Raises ModelError if there must be a key and is none."""
        from parley.models.anthropic import Endpoint

        base_url = self.environment.get("ANTHROPIC_BASE_URL") or DEFAULT_BASE_URL
        if not base_url.startswith(("http://", "https://")):
            raise ModelError(f"ANTHROPIC_BASE_URL must begin with http:// or https://, not {base_url!r}", kind="no_key")
        found = credentials.find(self.places())
        if found is None and not LOOPBACK.match(base_url):
            raise ModelError(credentials.ADVICE, kind="no_key")
        return Endpoint(
            base_url=base_url,
            auth=found.pair() if found else None,
            headers=custom_headers(self.environment.get("ANTHROPIC_CUSTOM_HEADERS", "")),
            extra_body=extra_body(self.environment.get("CLAUDE_CODE_EXTRA_BODY")),
        )

    def places(self) -> credentials.Places:
        return credentials.Places(
            flag=self.options.api_key,
            environment=self.environment,
            settings=self.settings,
            home=layers.home(self.environment),
        )

    def prices(self) -> Prices:
        path = self.environment.get("PARLEY_PRICES")
        prices = Prices(Path(path) if path else None)
        if path:
            prices.price("")  # a broken table is told at the start, not after the first answer
        return prices

    # Instructions.

    def instructions(self) -> Instructions:
        """Raises UsageError if a file cannot be read."""
        options = self.options
        replaced = options.system_prompt
        if options.system_prompt_file is not None:
            replaced = text_file(options.system_prompt_file, "--system-prompt-file")
        appended = options.append_system_prompt or ""
        if options.append_system_prompt_file is not None:
            appended = text_file(options.append_system_prompt_file, "--append-system-prompt-file")
        return Instructions(replaced=replaced, appended=appended, surroundings=self.surroundings())

    def surroundings(self) -> tuple[str, ...]:
        if self.options.exclude_dynamic_sections:
            return ()
        return (
            f"Working directory: {self.cwd}",
            f"Platform: {sys.platform}",
            f"Today's date: {self.stamp.now()[:10]}",
        )

    # The log.

    def open_log(self) -> tuple[str, Log]:
        """Which session this is, and its log. Raises UsageError, SessionError or UnknownSession."""
        options, store = self.options, self.store()
        wanted = options.session_id
        if wanted is not None and not is_uuid(wanted):
            raise UsageError("Invalid session ID. Must be a valid UUID.")
        old = options.resume or (store.newest() if options.continue_conversation else None)
        if options.continue_conversation and old is None and not options.resume:
            raise SessionError("No conversation found to continue")
        if old is None:
            session_id = wanted or self.stamp.new_uuid()
            if store.exists(session_id):
                raise UsageError(f"Session ID {session_id} is already in use.")
            return session_id, store.create(session_id)
        if not options.fork_session:
            return old, store.open(old)
        session_id = wanted or self.stamp.new_uuid()
        fork = store.create(session_id)
        for entry in store.open(old).entries():
            fork.append(entry)
        return session_id, fork

    def store(self) -> Store:
        from parley.stores.claude import Claude, Context
        from parley.stores.memory import Memory

        if self.options.no_session_persistence:
            return Memory()
        entrypoint = self.environment.get("CLAUDE_CODE_ENTRYPOINT", "sdk-cli")
        context = Context(
            cwd=self.cwd, version=PROTOCOL_LEVEL, entrypoint=entrypoint, git_branch=git_branch(Path(self.cwd))
        )
        return Claude(self.config, context)


OPENERS: dict[str, Callable[[Composer, Any, Choice], Model]] = {
    "anthropic": lambda composer, cls, choice: cls(composer.endpoint()),
    "scripted": lambda composer, cls, choice: cls(Path(composer.cwd, choice.name), short_ids(composer.stamp)),
    "offline": lambda composer, cls, choice: cls(short_ids(composer.stamp)),
}


def short_ids(stamp: Stamp) -> Callable[[], str]:
    return lambda: stamp.new_uuid().replace("-", "")[:24]


def mode(name: str | None) -> str:
    return "default" if name in (None, "manual") else str(name)


def state_events(environment: dict[str, str]) -> str | None:
    """Who reads session_state_changed lines."""
    if truthy(environment.get("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS")):
        return "everybody"
    return "sdk" if truthy(environment.get("CLAUDE_CODE_SDK_READS_SESSION_STATE")) else None


def truthy(value: str | None) -> bool:
    return (value or "").lower() in ("1", "true", "yes", "on")


def whole(environment: dict[str, str], name: str) -> int | None:
    """A variable that holds a whole number. Raises UsageError."""
    value = environment.get(name)
    if not value:
        return None
    try:
        return int(value)
    except ValueError:
        raise UsageError(f"{name} must be a whole number, not {value!r}") from None


def whole_or(environment: dict[str, str], name: str, default: int) -> int:
    value = whole(environment, name)
    return default if value is None else value


def is_uuid(text: str) -> bool:
    return re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text) is not None


def text_file(path: str, flag: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as flaw:
        raise UsageError(f"option '{flag}': {path} cannot be read: {flaw}") from None


def custom_headers(text: str) -> dict[str, str]:
    """`Name: value` lines."""
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def extra_body(text: str | None) -> Json:
    if not text:
        return {}
    try:
        return msgspec.json.decode(text, type=dict)
    except msgspec.DecodeError as flaw:
        raise ModelError(f"CLAUDE_CODE_EXTRA_BODY is not a JSON object: {flaw}", kind="no_key") from None


def git_branch(folder: Path) -> str:
    """The branch a folder is on, read from git's own file; "" outside a repository."""
    for place in (folder, *folder.parents):
        head = place / ".git" / "HEAD"
        try:
            text = head.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            continue
        return text.removeprefix("ref: refs/heads/") if text.startswith("ref: ") else text[:12]
    return ""


def working_directory() -> str:
    """Raises UsageError if the folder we were started in is gone."""
    try:
        return os.getcwd()
    except OSError:
        raise UsageError("the working directory does not exist any more") from None
