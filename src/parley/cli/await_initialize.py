"""Read `initialize` before the session is opened: it can deliver plugins, MCP servers and managed settings.

    pending = receive_initialize(options)     with the options that the request adds
    pending.messages                          the request itself first, then what arrived with it

`--await-initialize` makes it the first line. `--managed-settings-in-initialize` also requires its `managedSettings`,
which then have the same effect as `--managed-settings`. A client that sends something else gets an error result.

See also: `handshake.py` handles messages before the session in other dialects.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import msgspec

from parley.cli.handshake import PendingConnection, first_line
from parley.cli.process_secrets import erase
from parley.cli.stdio import warn, write
from parley.compose.registry import get_profile, make_dialect
from parley.engine.clock import Clock
from parley.errors import SessionError
from parley.protocol.base import UNSET, Json, Message, Refused, UnsetType
from parley.protocol.connection import Connection, Role
from parley.protocol.framing import INBOUND_CAP
from parley.protocol.messages.control import ControlRequest
from parley.protocol.messages.requests import Initialize
from parley.protocol.options import CliOptions

NOT_FIRST = "initialize_not_first"
NOT_DELIVERED = "managed_settings_not_delivered"


class NotDelivered(SessionError):
    """The client did not send what the command line announces."""

    def __init__(self, text: str, reason: str | UnsetType = UNSET) -> None:
        super().__init__(text)
        self.reason = reason
        """The `startup_failure_reason` of the result."""


def receive_initialize(options: CliOptions) -> PendingConnection | None:
    """Wait for the request. None if the client sent something else, which was reported."""
    clock = Clock()
    connection = Connection(Role.ENGINE, make_dialect(options, clock))
    erase()  # the client may take its time
    try:
        check_flags(options)
        received = first_line()
        messages = connection.iter_messages(received)
        first = next(messages, None) if len(received) <= INBOUND_CAP else None
        if first is None and len(received) <= INBOUND_CAP:  # a last line without its end
            messages = iter(connection.end())
            first = next(messages, None)
        return PendingConnection(with_delivered(options, first, received), connection, keep(first, messages))
    except NotDelivered as exc:
        from parley.engine.session.no_session import no_session_result

        warn(f"Error: {exc}")
        session_id = options.resume or options.session_id or clock.new_uuid()
        if options.output_format in ("stream-json", "message"):
            failed = no_session_result(str(exc), session_id, clock, startup_failure_reason=exc.reason)
            write(connection.send(failed))
        return None


def keep(first: Message | None, messages: Iterator[Message]) -> Iterator[Message]:
    return messages if first is None else chain([first], messages)


def check_flags(options: CliOptions) -> None:
    """Raises NotDelivered if the command line cannot deliver the request first."""
    if options.input_format != "stream-json" or get_profile(options).over_stdio:
        flag, reason = "--await-initialize", NOT_FIRST
        if options.managed_settings_in_initialize:
            flag, reason = "--managed-settings-in-initialize", NOT_DELIVERED
        raise NotDelivered(f"option '{flag}' needs --input-format stream-json", reason)
    if not options.managed_settings_in_initialize:
        return
    if not options.await_initialize:
        raise NotDelivered("option '--managed-settings-in-initialize' needs --await-initialize", NOT_DELIVERED)
    if options.managed_settings is not None:
        text = "options '--managed-settings-in-initialize' and '--managed-settings' cannot be combined"
        raise NotDelivered(text, NOT_DELIVERED)


def with_delivered(options: CliOptions, first: Message | None, received: bytes) -> CliOptions:
    """The options with the plugins, the servers and the managed settings of the request. Raises NotDelivered."""
    needs_settings = options.managed_settings_in_initialize
    if first is None and not received and not needs_settings:
        return options  # the client has nothing to say
    if isinstance(first, Refused) and is_initialize(received):
        raise NotDelivered(f"initialize: {first.reason}", NOT_DELIVERED if needs_settings else UNSET)
    if not (isinstance(first, ControlRequest) and isinstance(first.request, Initialize)):
        found = describe(first, received)
        if needs_settings:
            text = "option '--managed-settings-in-initialize' needs the field managedSettings of an initialize request"
            raise NotDelivered(f"{text}, but {found}", NOT_DELIVERED)
        text = "option '--await-initialize' needs the initialize request as the first line of stdin"
        raise NotDelivered(f"{text}, but {found}", NOT_FIRST)
    request = first.request
    plugins = request.plugins if isinstance(request.plugins, list) else []
    with_servers = tuple(one.path for one in plugins if one.skipMcpDiscovery is not True)
    without_servers = tuple(one.path for one in plugins if one.skipMcpDiscovery is True)
    changes: Json = {}
    if with_servers:
        changes["plugin_dirs"] = (*(options.plugin_dirs or ()), *with_servers)
    if without_servers:
        changes["plugin_dirs_no_mcp"] = (*(options.plugin_dirs_no_mcp or ()), *without_servers)
    if request.mcpServers:
        config = msgspec.json.encode({"mcpServers": request.mcpServers}).decode()
        changes["mcp_config"] = (*(options.mcp_config or ()), config)
    if needs_settings:
        if not isinstance(request.managedSettings, dict):
            text = (
                "option '--managed-settings-in-initialize' needs an object in the field managedSettings of initialize"
            )
            raise NotDelivered(text, NOT_DELIVERED)
        changes["managed_settings"] = msgspec.json.encode(request.managedSettings).decode()
    return options.replace(**changes)


def is_initialize(received: bytes) -> bool:
    """Whether the first line is an `initialize` request, if perhaps an invalid one."""
    try:
        line = msgspec.json.decode(received.lstrip().split(b"\n")[0], type=dict)
    except (msgspec.DecodeError, RecursionError):
        return False
    request = line.get("request")
    return isinstance(request, dict) and request.get("subtype") == "initialize"


def describe(first: Message | None, received: bytes) -> str:
    if first is None:
        return "the first line of stdin is too long" if received else "stdin ended without a line"
    if isinstance(first, Refused):
        return f"the first line of stdin was refused: {first.reason}"
    return "the first line of stdin is another message"
