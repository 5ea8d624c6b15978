"""A conversation with an engine.

    async with Client(Options(model="sonnet")) as client:
        async for message in await client.ask("What is in this folder?"):
            ...                                 this turn's messages, the result last

`ClaudeSDKClient` is the same class: `query`, `receive_response` and `receive_messages` do what
programs of the official SDK expect. The input of the engine stays open until `close()`, so that
callbacks are answered as long as anything runs. A client may be used and closed by any task.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import AsyncIterable
from types import TracebackType
from typing import Any

from parley.protocol.base import Json
from parley.protocol.messages import requests as wire
from parley.sdk.controls import Controls
from parley.sdk.errors import CLIConnectionError, NotConnected, Unfit
from parley.sdk.hooks import Registry
from parley.sdk.launch.args import Spelled, spelled
from parley.sdk.launch.handshake import initialize, stream_close_seconds
from parley.sdk.launch.in_process import Seat, seated
from parley.sdk.launch.validation import checked
from parley.sdk.options import Options
from parley.sdk.runtime.background import Job, start
from parley.sdk.runtime.connection import LINE_CAP_BYTES, Link
from parley.sdk.runtime.mcp_servers import Hosted, hosted
from parley.sdk.runtime.message_router import Inbox, flaw_of
from parley.sdk.runtime.prompts import Prompt, feed, line_of, must_be_prompt, new_uuid, say, user
from parley.sdk.runtime.request_handlers import Answerer
from parley.sdk.runtime.transport import Custom, Ended, Wire, to_stderr
from parley.sdk.runtime.turns import Response, Stream, Turn
from parley.sdk.store.stored_session import Kept
from parley.sdk.structured import parser_of

LAST_WORDS_SECONDS = 1.0
"""How long an engine that does not listen any more has to say why."""


class Client(Controls):
    def __init__(self, options: Options | None = None, transport: Any = None) -> None:
        self.options = checked(options)
        self._transport = transport
        self._link: Link | None = None
        self._is_connecting = False
        self.inbox = Inbox()
        self.servers: dict[str, Hosted] = {}
        self.answerer = Answerer(self.options, self.servers)
        self._info: Json | None = None
        self._feeding: Job | None = None
        self._finalizer: weakref.finalize[Any, Client] | None = None
        self._kept: Kept | None = None

    # Its life.

    async def connect(self, prompt: str | AsyncIterable[Json] | None = None) -> None:
        """Start the engine and initialize the session. Raises CLIConnectionError, ProcessError, ControlError.

        Whatever goes wrong, nothing is left running.
        """
        if prompt is not None:
            must_be_prompt(prompt)
        if self._link is not None:
            return
        if self._is_connecting:
            raise CLIConnectionError("this client is connecting already")
        self._is_connecting = True
        try:
            link = self._link = await self._opened()
        finally:
            self._is_connecting = False
        if isinstance(prompt, str):
            await self.query(prompt)
        elif prompt is not None:
            self._feeding = start(lambda: feed(link, self.inbox, prompt, self.options.verbatim_prompts))

    async def _opened(self) -> Link:
        link, made = self._linked(await self._taken_up())
        self._finalizer = weakref.finalize(self, link.abandon)
        try:
            await link.open()
            self._info = await self._shaken(link, made.initialize, self.answerer)
        except BaseException as flaw:
            await self._undo(link, flaw)
            raise
        return link

    async def _taken_up(self) -> Options:
        """The options for an engine that goes on with a session of the program's own store."""
        options = self.options
        if options.session_store is None:
            return options
        self._kept = Kept(options)
        return options if self._transport is not None else await self._kept.taken_up()

    def _linked(self, options: Options) -> tuple[Link, Spelled]:
        inbox = Inbox()
        self.inbox = inbox
        servers: dict[str, Hosted] = {}
        answerer = self.answerer = Answerer(checked(options), servers)
        made = spelled(options, answerer.hooks, os.environ)
        try:
            servers.update((name, hosted(instance)) for name, instance in made.servers.items())
            mirror = None if self._kept is None else self._kept.mirrored(inbox)
            deliver = inbox.put if mirror is None else mirror.put
            link = Link(self._wire(made, options), deliver, answerer, options.max_buffer_size or LINE_CAP_BYTES)
        except BaseException:
            made.remove_files()
            raise
        self.servers = servers

        def finish() -> None:
            inbox.finish(flaw_of(link.end or Ended(), link.flaw, inbox.last_result), link.closing)

        link.on_end = finish if mirror is None else lambda: mirror.then(finish)
        return link, made

    def _wire(self, made: Spelled, options: Options) -> Wire:
        if self._transport is not None:
            made.remove_files()
            return self._transport if hasattr(self._transport, "chunks") else Custom(self._transport)
        cwd = os.path.abspath(options.cwd or os.curdir)
        told = options.stderr or to_stderr
        if options.engine == "local":
            if not os.path.isdir(cwd):
                raise CLIConnectionError(f"the working directory does not exist: {cwd}")
            return seated(Seat(made.argv, cwd, made.environment, told))
        from parley.sdk.launch.find_cli import engine
        from parley.sdk.launch.process import Process

        argv = [engine(options.cli_path, made.environment), *made.argv]
        return Process(argv, cwd, made.environment, told, options.user, made.remove_files)

    async def _shaken(self, link: Link, initialize: wire.Initialize, answerer: Answerer) -> Json:
        patience = max(self.options.control_timeout_seconds, stream_close_seconds(self.options.env))
        info = await link.ask(initialize, patience)
        info = info if isinstance(info, dict) else {}
        if answerer.hooks.needs_failure_support and not info.get("hook_on_failure_supported"):
            raise Unfit("the engine does not support hooks that block when they fail (on_failure='block')")
        self.inbox.turns.tells_lives = "msg_lifecycle_v1" in (info.get("capabilities") or ())
        return info

    async def _undo(self, link: Link, flaw: BaseException) -> None:
        """End an engine that could not be connected to; what it said of the reason counts more than that it ended."""
        if isinstance(flaw, CLIConnectionError) and not isinstance(flaw, Unfit):
            await link.over(LAST_WORDS_SECONDS)
        before, link.closing = link.end, True
        await link.close(busy=True)
        await self._close_rest()
        if isinstance(flaw, CLIConnectionError) and before is not None:
            truth = flaw_of(before, link.flaw, self.inbox.last_result)
            if truth is not None:
                raise truth from flaw

    async def close(self) -> None:
        """End the session. Returns when the engine and all its children have exited; may be called again."""
        link, self._link = self._link, None
        if link is None:
            return
        link.closing = True
        if self._feeding is not None:
            self._feeding.cancel()
        await link.close(self.inbox.is_busy)
        await self._close_rest()

    disconnect = close

    async def _close_rest(self) -> None:
        """What lives as long as the engine."""
        for server in self.servers.values():
            await server.close()
        if self._kept is not None:
            await self._kept.close()
        if self._finalizer is not None:
            self._finalizer.detach()

    async def __aenter__(self) -> Client:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, flaw: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Speaking.

    async def ask(self, prompt: Prompt, *, uuid: str | None = None, priority: str | None = None) -> Turn:
        """Send a prompt; returns its turn. During another turn, the prompt joins that turn or waits for its end.

        Raises ValueError for the `uuid` of a prompt that still waits.
        """
        link = self.connected()
        parser = None if self.options.output_type is None else parser_of(self.options.output_type)
        turn = Turn(uuid or new_uuid(), parser)
        message = user(prompt, turn.uuid, priority, self.options.verbatim_prompts)
        self.inbox.turns.add(turn)
        try:
            link.send(message)
        except BaseException:  # the engine is gone, or no line can say it
            self.inbox.turns.drop(turn)
            raise
        await link.flush()
        return turn

    send = ask
    """The receipt of a prompt in the middle of a turn is a Turn: `state`, `until("started")`, `result`."""

    async def cancel(self, turn: Turn) -> bool:
        """Withdraw a waiting prompt. Returns whether it was still waiting."""
        answer = await self.cancel_async_message(turn.uuid)
        return answer.get("cancelled") is not False

    async def query(self, prompt: str | AsyncIterable[Json], session_id: str = "default") -> None:
        """Send a prompt, as in the official SDK; `receive_response()` yields the reply."""
        must_be_prompt(prompt)
        link = self.connected()
        if isinstance(prompt, str):
            line: Json = {
                "type": "user",
                "message": {"role": "user", "content": prompt},
                "parent_tool_use_id": None,
                "session_id": session_id,
            }
            say(link, self.inbox, line, self.options.verbatim_prompts)
        else:
            async for line in prompt:
                say(link, self.inbox, line_of(line, session_id), self.options.verbatim_prompts)
        await link.flush()

    # Listening.

    def receive_messages(self) -> Stream:
        """All messages that do not belong to an `ask`, until the session ends."""
        self._heard()
        return self.inbox.stream

    def receive_response(self) -> Response:
        """The same, up to and including the next result."""
        self._heard()
        return Response(self.inbox.stream)

    async def get_server_info(self) -> Json | None:
        """The engine's reply to `initialize`."""
        self.connected()
        return self._info

    async def _greeting(self) -> Json:
        return await self.get_server_info() or {}

    async def reinitialize(self) -> Json:
        """Send `initialize` again with the current options (hooks, agents, prompts); returns the reply."""
        link = self.connected()
        self.answerer.hooks = Registry(self.options.hooks)
        request = initialize(self.options, self.answerer.hooks, self.servers)
        self._info = await self._shaken(link, request, self.answerer)
        return self._info

    @property
    def server_info(self) -> Json | None:
        return self._info

    @property
    def pid(self) -> int | None:
        """The engine's process id, if it has its own process."""
        return None if self._link is None else self._link.wire.pid

    @property
    def session_id(self) -> str | None:
        """Known once a turn has started."""
        init, last = self.inbox.init, self.inbox.last_result
        found = init.session_id if init is not None else last.session_id if last is not None else None
        return found if isinstance(found, str) else None

    @property
    def exit_code(self) -> int | None:
        return None if self._link is None or self._link.end is None else self._link.end.exit_code

    async def request(self, request: wire.Request, timeout_seconds: float | None = None) -> Any:
        patience = self.options.control_timeout_seconds if timeout_seconds is None else timeout_seconds
        return await self.connected().ask(request, patience)

    async def end_input(self) -> None:
        """Close the engine's input: it finishes its work and exits."""
        await self.connected().wire.end_input()

    def connected(self) -> Link:
        """The connection to the engine. Raises NotConnected."""
        if self._link is None:
            raise NotConnected("the client is not connected: call connect() first")
        return self._link

    def _heard(self) -> None:
        """What was said before the end can still be read after it."""
        if self._info is None:
            raise NotConnected("the client is not connected: call connect() first")


ClaudeSDKClient = Client
