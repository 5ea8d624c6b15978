"""A conversation with an engine.

    async with Client(Options(model="sonnet")) as client:
        result = await client.run("What is in this folder?")
        print(result.text)
        async for message in await client.ask("And in its parent?"):
            ...                                 this turn's messages, the result last

`ClaudeSDKClient` is the same class: `query`, `receive_response` and `receive_messages` behave as in
the official SDK. The engine's input stays open until `close()`, so callbacks are answered for as long
as anything runs. Any task may use or close a client.

See also: `query.py` for one-shot use, `sync.py` for use without `async`, `runtime/` for the connection.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Generic, Literal, cast

from parley.sdk.controls import Controls
from parley.sdk.errors import CLIConnectionError, NotConnected, OptionsError, Unfit
from parley.sdk.types.generic import OutputT

# What a client needs is imported when one is made: it takes far longer than everything else together.
if TYPE_CHECKING:
    import weakref
    from collections.abc import AsyncIterable, Callable
    from types import TracebackType

    from parley.protocol.base import Json, Message
    from parley.protocol.messages import requests as wire
    from parley.sdk import budget as budgets
    from parley.sdk import hooks, schema
    from parley.sdk.launch import args, in_process, network, process, session_wire, validation, worker_pool
    from parley.sdk.options import Options
    from parley.sdk.runtime import background, connection, mcp_servers, message_router, prompts, request_handlers, turns
    from parley.sdk.runtime import transport as transports
    from parley.sdk.runtime.prompts import Prompt
    from parley.sdk.runtime.transport import Transport, Wire
    from parley.sdk.runtime.turns import MessageStream, ResponseStream, Turn
    from parley.sdk.store import checkout
    from parley.sdk.types import messages
    from parley.sdk.types.messages import RunResult
else:
    from parley.sdk.types.deferred import DeferredModule

    args = DeferredModule("parley.sdk.launch.args")
    background = DeferredModule("parley.sdk.runtime.background")
    budgets = DeferredModule("parley.sdk.budget")
    checkout = DeferredModule("parley.sdk.store.checkout")
    connection = DeferredModule("parley.sdk.runtime.connection")
    hooks = DeferredModule("parley.sdk.hooks")
    in_process = DeferredModule("parley.sdk.launch.in_process")
    mcp_servers = DeferredModule("parley.sdk.runtime.mcp_servers")
    message_router = DeferredModule("parley.sdk.runtime.message_router")
    messages = DeferredModule("parley.sdk.types.messages")
    network = DeferredModule("parley.sdk.launch.network")
    process = DeferredModule("parley.sdk.launch.process")
    prompts = DeferredModule("parley.sdk.runtime.prompts")
    request_handlers = DeferredModule("parley.sdk.runtime.request_handlers")
    session_wire = DeferredModule("parley.sdk.launch.session_wire")
    schema = DeferredModule("parley.sdk.schema")
    transports = DeferredModule("parley.sdk.runtime.transport")
    turns = DeferredModule("parley.sdk.runtime.turns")
    validation = DeferredModule("parley.sdk.launch.validation")
    worker_pool = DeferredModule("parley.sdk.launch.worker_pool")

DRAIN_SECONDS = 1.0
"""How long to wait for the remaining output of an engine that failed during the handshake."""

LEAVE_SECONDS = 10.0
"""How long a client that leaves a gateway waits until its turns are stopped."""

NOT_CONNECTED = "the client is not connected: use it in `async with Client(...) as client`, or call connect() first"

Priority = Literal["now", "next", "later"]


class Client(Controls, Generic[OutputT]):
    """A conversation with one engine.

        async with Client(Options(model="sonnet")) as client:
            print((await client.run("What is in this folder?")).text)

    `async with` connects and closes. `run` sends a prompt and returns its result; `ask` returns its turn, to read the
    messages as they arrive. `ClaudeSDKClient` is the same class, with the methods of the official SDK: `query`,
    `receive_response`, `receive_messages`. Any task may use or close a client.
    """

    def __init__(self, options: Options[OutputT] | None = None, transport: Transport | Wire | None = None) -> None:
        """Raises TypeError or ValueError for invalid options. `transport` replaces the engine's process."""
        self.options: Options[OutputT] = validation.check_types(options)
        self._transport = transport
        self._connection: connection.EngineConnection | None = None
        self._is_connecting = False
        self.router = message_router.MessageRouter()
        self.servers: dict[str, mcp_servers.HostedServer] = {}
        self.request_handler = request_handlers.RequestHandler(self.options, self.servers, self.router)
        self._info: Json | None = None
        self._feeding: background.Job | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._stored_session: checkout.StoredSession | None = None
        self.watchers: list[Callable[[Message], None]] = []
        """Called with every message that arrives, as the protocol spells it. Set them before `connect`."""

    @classmethod
    def attach(cls, session_id: str, options: Options[OutputT]) -> Client[OutputT]:
        """A client for a session that is on a gateway: `Client.attach(ID, Options(engine=URL, token=TOKEN))`."""
        from dataclasses import replace

        if not validation.is_gateway(options.engine):
            raise ValueError(f"attach needs the URL of a gateway as engine, but engine is {options.engine!r}")
        return cls(replace(options, resume=session_id))

    # Connecting and closing.

    async def connect(self, prompt: str | AsyncIterable[Json] | None = None) -> None:
        """Start the engine and initialize the session; `async with` does this. With `prompt`, send it as `query` does.

        Raises CLIConnectionError, ProcessError, ControlError, and BudgetExceeded if the shared budget is spent. If
        connecting fails, the engine and its children are ended first.
        """
        if prompt is not None:
            prompts.check_prompt(prompt)
        if self._connection is not None:
            return
        if self._is_connecting:
            raise CLIConnectionError("the client is already connecting: connect() was called twice")
        self._is_connecting = True
        try:
            link = self._connection = await self._open()
        finally:
            self._is_connecting = False
        if isinstance(prompt, str):
            await self.query(prompt)
        elif prompt is not None:
            router, verbatim = self.router, self.options.verbatim_prompts

            def send(line: Json) -> None:
                prompts.send_prompt(link, router, line, verbatim)

            self._feeding = background.start(lambda: prompts.send_all(link, prompt, send))

    async def _open(self) -> connection.EngineConnection:
        import weakref

        link, spec = self._build_connection(await self._resume_from_store())
        self._finalizer = weakref.finalize(self, link.abandon)
        try:
            await link.open()
            self._info = await self._handshake(link, spec.initialize, self.request_handler)
        except BaseException as exc:
            await self._undo(link, exc)
            raise
        return link

    async def _resume_from_store(self) -> Options[OutputT]:
        """Return the options for an engine that resumes a session of the program's own store."""
        options = self.options
        if options.session_store is None:
            return options

        self._stored_session = checkout.StoredSession(options)
        return options if self._transport is not None else await self._stored_session.resume_options()

    def _build_connection(self, options: Options[OutputT]) -> tuple[connection.EngineConnection, args.LaunchSpec]:
        router = message_router.MessageRouter()
        router.watchers.extend(self.watchers)
        self.router = router
        if options.budget is not None:
            options.budget.check()
            router.watchers.append(
                budgets.BudgetMeter(options.budget, bool(options.resume or options.continue_conversation))
            )
            options = budgets.limit_options(options)
        servers: dict[str, mcp_servers.HostedServer] = {}
        handler = self.request_handler = request_handlers.RequestHandler(
            validation.check_types(options), servers, router
        )
        spec = args.build_launch(options, handler.hooks, os.environ)
        try:
            servers.update((name, mcp_servers.to_hosted(instance)) for name, instance in spec.servers.items())
            mirror = None if self._stored_session is None else self._stored_session.open_mirror(router)
            deliver = router.receive if mirror is None else mirror.receive
            link = connection.EngineConnection(
                self._open_wire(spec, options), deliver, handler, options.max_buffer_size or connection.LINE_CAP_BYTES
            )
        except BaseException:
            spec.remove_files()
            raise
        self.servers = servers

        def finish() -> None:
            router.finish(
                message_router.end_error(link.end or transports.Ended(), link.error, router.last_result), link.closing
            )

        link.on_end = finish if mirror is None else lambda: mirror.run_after_flush(finish)
        return link, spec

    def _open_wire(self, spec: args.LaunchSpec, options: Options[OutputT]) -> Wire:
        if self._transport is not None:
            spec.remove_files()
            return (
                cast("Wire", self._transport)
                if hasattr(self._transport, "chunks")
                else transports.CustomWire(self._transport)
            )
        if validation.is_gateway(options.engine):
            create, partial = network.session_request(options, spec.argv), options.include_partial_messages
            session_id = None if options.fork_session else options.resume
            return network.NetworkWire(options.engine, options.token, session_id, create, partial=partial)
        cwd = os.path.abspath(options.cwd or os.curdir)
        if options.engine == "local":
            if not os.path.isdir(cwd):
                raise CLIConnectionError(f"the working directory does not exist: {cwd}")
            if options.workers is not None:
                launch = session_wire.SessionLaunch(spec.argv, cwd, dict(spec.environment))
                return worker_pool.WorkerWire(
                    options.workers, launch, options.stderr or transports.log_line, spec.remove_files
                )

            engine = in_process.InProcessEngine(spec.argv, cwd, spec.environment, options.stderr, spec.remove_files)
            return in_process.connect_in_process(engine)

        argv = [process.find_engine(options.cli_path, spec.environment), *spec.argv]
        on_stderr = options.stderr or transports.write_stderr
        return process.EngineProcess(argv, cwd, spec.environment, on_stderr, options.user, spec.remove_files)

    async def _handshake(
        self, link: connection.EngineConnection, initialize: wire.Initialize, handler: request_handlers.RequestHandler
    ) -> Json:
        timeout_seconds = max(self.options.control_timeout_seconds, args.stream_close_seconds(self.options.env))
        info = await link.request(initialize, timeout_seconds)
        info = info if isinstance(info, dict) else {}
        if handler.hooks.needs_failure_support and not info.get("hook_on_failure_supported"):
            raise Unfit("the engine does not support hooks that block when they fail (on_failure='block')")
        if initialize.mcpServers and not info.get("mcp_servers_applied"):
            raise Unfit("the engine does not read MCP servers from initialize; set mcp_servers_delivery='argv'")
        handler.failures_block = bool(info.get("hook_on_failure_supported"))
        self.router.turns.has_lifecycle = "msg_lifecycle_v1" in (info.get("capabilities") or ())
        return info

    async def _undo(self, link: connection.EngineConnection, error: BaseException) -> None:
        """End an engine after a failed handshake.

        Raises the error that the engine reported, if any, because it explains why the connection was lost.
        """
        if isinstance(error, CLIConnectionError) and not isinstance(error, Unfit):
            await link.wait_finished(DRAIN_SECONDS)
        before, link.closing = link.end, True
        await link.close(busy=True)
        await self._close_rest()
        if isinstance(error, CLIConnectionError) and before is not None:
            reported = message_router.end_error(before, link.error, self.router.last_result)
            if isinstance(reported, OptionsError) and self.options.budget is not None:
                reported.args = (str(reported).replace("max_budget_tokens", "Budget(tokens=...)"),)
            if reported is not None:
                raise reported from None

    async def close(self) -> None:
        """End the session. Returns when the engine and all its children have exited; may be called again.

        On a gateway, the session stays, and the turns of this client's prompts are stopped. See `detach`.
        """
        link = self._connection
        if link is not None and link.is_open and self._transport is None and validation.is_gateway(self.options.engine):
            await self._stop_turns(link)
        await self._close()

    async def _stop_turns(self, link: connection.EngineConnection) -> None:
        from anyio import CancelScope, move_on_after

        self.router.queue.withdraw()
        with CancelScope(shield=True), move_on_after(LEAVE_SECONDS):
            for turn in self.router.turns.list_open():
                await message_router.stop_turn(link, self.router, turn)
            if self.router.unanswered and self.router.in_turn:  # prompts of `query`
                await super().interrupt()

    async def detach(self) -> None:
        """Close the connection to a gateway, and let the turn that runs there continue. `Client.attach` comes back."""
        await self._close()

    async def _close(self) -> None:
        link, self._connection = self._connection, None
        if link is None:
            return
        link.closing = True
        if self._feeding is not None:
            self._feeding.cancel()
        self.router.queue.finish(lambda: None)
        await link.close(self.router.is_busy)
        await self._close_rest()

    disconnect = close
    """The same as `close`, as it is named in the official SDK. Prefer `close`."""

    async def _close_rest(self) -> None:
        """Close what belongs to the engine: MCP servers, the mirror of the session store, the finalizer."""
        for server in self.servers.values():
            await server.close()
        if self._stored_session is not None:
            await self._stored_session.close()
        if self._finalizer is not None:
            self._finalizer.detach()

    async def __aenter__(self) -> Client[OutputT]:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    if not TYPE_CHECKING:  # a type checker reports it

        def __enter__(self):
            raise TypeError("a Client needs `async with`; in a program without async, use `with SyncClient(...)`")

        __exit__ = __enter__

    # Sending.

    async def ask(
        self,
        prompt: Prompt,
        *,
        uuid: str | None = None,
        priority: Priority | None = None,
        join: bool = False,
        deps: Any = None,
    ) -> Turn[OutputT]:
        """Send a prompt and return its turn, without waiting for the answer.

            turn = await client.ask("What is in this folder?")
            async for message in turn: ...

        Each prompt has a turn of its own: during another turn it waits for its end. With `join=True` it joins the
        running turn at its next model call, and both turns have the same messages and result. `priority` "next" joins
        too, "now" ends the running turn first, "later" is the default.

        `deps` replaces `Options.deps` in the `RunContext` of callbacks. `uuid` is the id of the prompt; ValueError is
        raised if another prompt with it is waiting. Raises BudgetExceeded if the shared budget is spent, NotConnected,
        and CLIConnectionError if the engine has exited.
        """
        from functools import partial

        link, router = self.connected(), self.router
        record = turns.TurnRecord(
            uuid or prompts.new_uuid(), self._parser(), self.options.deps if deps is None else deps
        )
        # Built now, so that an invalid prompt is an error here.
        message = prompts.build_user(prompt, record.uuid, priority, self.options.verbatim_prompts)
        budget = self.options.budget
        check_budget = budget.check if budget is not None else lambda: None
        check_budget()

        def send() -> None:  # without a reference to the client, so that a dropped client can be collected
            check_budget()
            # The engine may run a turn of its own, for the notification of a background task.
            link.send(prompts.later(message) if router.in_turn and not joins else message)

        record.stop = partial(message_router.leave_turn, link, router, record)
        joins = join or priority in ("now", "next")
        if not joins and (router.is_busy or not router.queue.is_empty):
            router.queue.add(record, send)
            return turns.Turn(record)
        router.turns.add(record)
        try:
            send()
        except BaseException:  # the engine has exited, or the message cannot be encoded
            router.turns.drop(record)
            raise
        try:
            await link.flush()
        except BaseException as exc:
            if background.is_cancellation(exc):
                record.stop()
            raise
        return turns.Turn(record)

    send = ask
    """The same as `ask`. Prefer `ask`."""

    async def run(self, prompt: Prompt, *, check: bool = True, deps: Any = None) -> RunResult[OutputT]:
        """Send a prompt, wait for the end of its turn and return the result.

            result = await client.run("What is in this folder?")
            print(result.text, result.cost_usd)

        Raises ResultError if the turn failed, unless `check` is False, and MessageParseError if there is an
        `output_type` that the output does not match. Raises what `ask` raises, and RuntimeError in a callback of this
        client, which would wait for its own turn. Cancelling the call interrupts the turn, or withdraws the prompt if
        it waits; the next prompt runs at once.
        """
        request_handlers.refuse_deadlock(self.router)
        turn, model = await self.ask(prompt, deps=deps), None
        async for message in turn:
            if isinstance(message, messages.AssistantMessage) and not message.parent_tool_use_id and not message.error:
                model = message.model
        result: RunResult[OutputT] = messages.RunResult(await turn.wait(check=check), self._parser(), model)
        if check and self.options.output_type is not None:
            _ = result.output
        return result

    def _parser(self) -> Any:
        if self.options.output_type is None:
            return None

        return schema.parser_of(self.options.output_type)

    async def cancel(self, turn: Turn[Any]) -> bool:
        """Withdraw a waiting prompt. Returns whether it was still waiting."""
        if self.router.queue.withdraw(turn.uuid):
            return True
        answer = await self.cancel_async_message(turn.uuid)
        return answer.get("cancelled") is not False

    async def interrupt(self, cancel_queued: bool = False) -> Json:
        """Stop the running turn; its result is an error. Waiting prompts follow, unless `cancel_queued` is set.

        Returns `still_queued`, and with `cancel_queued` also `cancelled`: the uuids of these prompts.
        """
        queue = self.router.queue
        held = queue.withdraw() if cancel_queued else queue.uuids()
        answer = await super().interrupt(cancel_queued)
        if held:
            name = "cancelled" if cancel_queued else "still_queued"
            answer = {**answer, name: [*(answer.get(name) or ()), *held]}
        return answer

    async def query(self, prompt: str | AsyncIterable[Json], session_id: str = "default") -> None:
        """Send a prompt, as in the official SDK; `receive_response()` yields the reply.

        Prompts sent during a turn join it, or wait and are answered together. Use `ask` to keep them apart.
        """
        prompts.check_prompt(prompt)
        link = self.connected()
        if self.options.budget is not None:
            self.options.budget.check()
        if isinstance(prompt, str):
            line: Json = {
                "type": "user",
                "message": {"role": "user", "content": prompt},
                "parent_tool_use_id": None,
                "session_id": session_id,
            }
            prompts.send_prompt(link, self.router, line, self.options.verbatim_prompts)
        else:
            async for line in prompt:
                prompts.send_prompt(
                    link, self.router, prompts.build_line(line, session_id), self.options.verbatim_prompts
                )
        await link.flush()

    # Receiving.

    def receive_messages(self) -> MessageStream:
        """All messages that do not belong to an `ask`, until the session ends."""
        self._check_was_connected()
        return turns.MessageStream(self.router.common)

    def receive_response(self) -> ResponseStream:
        """The same as `receive_messages()`, up to and including the next result."""
        self._check_was_connected()
        return turns.ResponseStream(self.router.common)

    async def get_server_info(self) -> Json | None:
        """The engine's reply to `initialize`."""
        self.connected()
        return self._info

    async def _server_info(self) -> Json:
        return await self.get_server_info() or {}

    async def reinitialize(self) -> Json:
        """Send `initialize` again with the current options (hooks, agents, prompts); returns the reply."""
        link = self.connected()
        self.request_handler.hooks = hooks.Registry(self.options.hooks)
        request = args.build_initialize(self.options, self.request_handler.hooks, self.servers)
        self._info = await self._handshake(link, request, self.request_handler)
        return self._info

    @property
    def server_info(self) -> Json | None:
        """The engine's reply to `initialize`; None before `connect`."""
        return self._info

    @property
    def pid(self) -> int | None:
        """The engine's process id, if it has its own process."""
        return None if self._connection is None else self._connection.wire.pid

    @property
    def session_id(self) -> str | None:
        """The id of the session. Known once a turn has started."""
        init, last = self.router.init, self.router.last_result
        found = init.session_id if init is not None else last.session_id if last is not None else None
        return found if isinstance(found, str) else None

    @property
    def is_busy(self) -> bool:
        """Whether a prompt of this client has not been answered."""
        return self.router.is_busy

    @property
    def exit_code(self) -> int | None:
        """How the engine exited; None while it runs."""
        return None if self._connection is None or self._connection.end is None else self._connection.end.exit_code

    async def request(self, request: wire.Request, timeout_seconds: float | None = None) -> Any:
        """Send any control request; returns the reply's payload.

        Raises ControlError if the engine refuses it, ControlTimeout, and CLIConnectionError.
        """
        seconds = self.options.control_timeout_seconds if timeout_seconds is None else timeout_seconds
        return await self.connected().request(request, seconds)

    async def end_input(self) -> None:
        """Close the engine's input: it finishes its work and exits."""
        await self.connected().wire.end_input()

    def connected(self) -> connection.EngineConnection:
        """The connection to the engine. Raises NotConnected."""
        if self._connection is None:
            raise NotConnected(NOT_CONNECTED if self._info is None else "the client was closed")
        return self._connection

    def _check_was_connected(self) -> None:
        """Messages received before the engine exited can still be read after close()."""
        if self._info is None:
            raise NotConnected(NOT_CONNECTED)


ClaudeSDKClient = Client
