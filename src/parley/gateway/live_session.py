"""One session on the network: its engine, its log, and the clients that are connected to it.

What happens is recorded in the log (`session_log/`); nothing else is written down here.

The engine speaks as it does on a pipe, and so does every client. In between, lines are routed:

    engine -> clients
        messages               numbered, logged, then sent to every subscriber
        stream events          sent to the subscribers that want them, not logged
        control responses      sent to the client that asked, under its own id
        hook and MCP requests  sent to the client that declared the callbacks
        other requests         are questions: recorded, then sent to every client; the first answer counts
    clients -> engine
        prompts                recorded, logged and shown to the other clients
        control requests       under an id of ours, because two clients may use the same
        control responses      if they answer an open question

See also: `hub.py` for all sessions, `subscriber.py` for slow readers, `questions.py` for decisions.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from uuid import UUID, uuid4

import msgspec

from parley.engine.clock import Clock
from parley.engine.control.dispatcher import asks_a_model
from parley.engine.turn.outcome import no_session_result
from parley.errors import SessionError, UsageError
from parley.gateway.engines import Engine
from parley.gateway.questions import EXPIRED, QuestionDecided, QuestionInbox, find_answer, read_behavior
from parley.gateway.refusal import Refusal
from parley.gateway.reporting import AuditLog, Metrics, ServerLog
from parley.gateway.security.access import (
    Principal,
    Scope,
    changes_user_settings,
    runs_without_question,
    scope_of_request,
    without_secrets,
)
from parley.gateway.security.quotas import FREE_BYTES, OpenConnections, Spending, Unsent
from parley.gateway.session_log.records import (
    AnyRecord,
    DeclaredRecord,
    EngineChangedRecord,
    EngineEndedRecord,
    PromptCancelledRecord,
    PromptFinishedRecord,
    PromptReadRecord,
    PromptTakenRecord,
    StoredPrompt,
)
from parley.gateway.session_log.session_log import SessionLog
from parley.gateway.subscriber import UNREAD_REPLY_BYTES, LineBatch, Numbered, Subscriber
from parley.gateway.wire_log import WireLog
from parley.protocol.base import UNSET, Json, Struct, encode
from parley.protocol.messages.occasional import WorkerShuttingDown
from parley.protocol.peek import Head, peek
from parley.stores.wire_recording import Direction

LIVE_ONLY = frozenset({"stream_event", "keep_alive", "tool_progress"})
"""Messages that are not logged: parts of others, and signs of life."""
CALLBACKS = frozenset({"hook_callback", "mcp_message"})
"""Requests that only the client can answer that declared the callback or the server."""
ENVIRONMENT_REFUSED = "a session of a server does not take `update_environment_variables`; it has those of the server"
DECLARATIONS = frozenset({"hooks", "sdkMcpServers", "sdkMcpServerConfigs", "sdkMcpServerManifests", "clientTools"})
"""The fields of `initialize` by which a client promises to answer requests."""
BEHAVIORS = frozenset({"allow", "deny", "accept", "decline", "cancel"})
STATES = frozenset({"idle", "running", "requires_action"})


class Services(Struct, frozen=True):
    """What the sessions of a server share."""

    questions: QuestionInbox
    audit: AuditLog
    spending: Spending
    connections: OpenConnections
    metrics: Metrics
    log: ServerLog
    mark: Callable[[str], None]
    """Called with the id of a session that has changed."""


class SessionClient:
    """One connection to a session."""

    def __init__(self, number: int, principal: Principal, subscriber: Subscriber) -> None:
        self.number = number
        self.principal = principal
        self.subscriber = subscriber
        self.successor: SessionClient | None = None
        """The connection that continues this one."""

    def send(self, line: bytes) -> None:
        """Send a line to this client alone, on its latest connection."""
        latest = self
        while latest.successor is not None:
            latest = latest.successor
        latest.subscriber.send(line)

    def request_key(self, request_id: object) -> str:
        """The id of a request of this client, as the engine knows it."""
        return f"{self.number}-{request_id}"


class AcceptedPrompt(Struct, frozen=True, kw_only=True):
    uuid: str
    after: int
    """The number of the last line before the prompt: the lines after it are what the prompt leads to."""


class OpenRequest(Struct):
    """A control request that the engine has not answered."""

    reply: Callable[[bytes], None]
    placeholder: bytes
    """The id as the engine knows it."""
    original: bytes
    """The id as the client knows it."""
    wants_progress: bool
    """Whether the client can take lines before the reply."""
    asks_model: bool

    def send(self, line: bytes) -> None:
        """Pass a line of the engine about the request on to the client."""
        self.reply(line.replace(self.placeholder, self.original, 1))


class LiveSession:
    def __init__(
        self,
        log: SessionLog,
        wire: WireLog,
        services: Services,
        load: Callable[[LiveSession], Engine],
        admit: Callable[[LiveSession, bool], None],
        check_directory: Callable[[str, Principal], object],
    ) -> None:
        """`load` starts the engine. `admit` raises Refusal if no model may be asked now.

        The second argument of `admit`: whether it is asked in the turn of the session, if one runs.
        `check_directory` raises Refusal if the sessions of a principal may not work there.
        """
        self.id = log.session_id
        self.log = log
        self.wire = wire
        """What the session and its engine say to each other."""
        self.questions = services.questions
        self.state = "idle"
        """`idle`, `running` or `requires_action`."""
        self.clients: list[SessionClient] = []
        self.engine: Engine | None = None
        self.used_at = time.monotonic()
        self._services = services
        self._load = load
        self._admit = admit
        self._check_directory = check_directory
        self._requests: dict[str, OpenRequest] = {}
        """The open control requests of clients, by the id that the engine knows."""
        self._clients_seen = 0
        self._owner: SessionClient | None = None
        """The client that declared callbacks."""
        self._callbacks: dict[str, bytes] = {}
        """The open requests to the owner."""
        self._held: list[bytes] | None = None
        """What arrived while the engine is being unloaded, for the next one; None if it is not."""
        self._asked_before: frozenset[str] = frozenset()
        """The requests that were open when unloading began."""
        self._subscribers: list[Subscriber] = []
        self._cwd: str | None = None
        """The directory of the last `set_cwd`; None before it was looked up."""
        self._stream_clients: dict[str, SessionClient] = {}
        """The last client with an event stream, by token."""

    # Clients.

    def attach(self, principal: Principal, after: int | None, wants: Callable[[bytes], bool]) -> SessionClient:
        """Connect a client: with the lines after a number, or with new lines only. Raises Refusal.

        New are also those after a prompt that the same token has posted, until a connection of the token has got its
        result: who prompts first and then reads misses nothing.
        """
        if after is not None and after > self.log.last:
            text = f"`after` is {after}, but the last line of the session is {self.log.last}"
            raise Refusal("cursor_in_the_future", text)
        start = min((prompt.line - 1 for _, prompt in self._unread(principal.name)), default=None)
        if after is None:
            after = self.log.last if start is None else start
        client = self._make_client(principal, after, wants)
        if start is not None:
            client.subscriber.on_advance = partial(self._mark_read, client, client.subscriber.cursor)
        self.clients.append(client)
        self._subscribers.append(client.subscriber)
        self._services.mark(self.id)
        return client

    def _mark_read(self, client: SessionClient, start: int, cursor: int) -> None:
        """A client has got the lines from after one number to another."""
        unread = self._unread(client.principal.name)
        read = [uuid for uuid, prompt in unread if prompt.result is not None and start < prompt.result <= cursor]
        if read:
            self.log.record(*(PromptReadRecord(uuid=uuid) for uuid in read))
        if len(read) == len(unread):
            client.subscriber.on_advance = None

    def _unread(self, name: str) -> list[tuple[str, StoredPrompt]]:
        """The prompts that a token has posted and whose results no connection of it has got."""
        state = self.log.state
        unread = [(uuid, state.prompts[uuid]) for uuid in state.unread_prompts]
        return [(uuid, prompt) for uuid, prompt in unread if prompt.unread_by == name]

    def _make_client(
        self,
        principal: Principal,
        after: int,
        wants: Callable[[bytes], bool] = lambda line: True,
        free_bytes: int = FREE_BYTES,
    ) -> SessionClient:
        self._clients_seen += 1
        unsent = Unsent(self._services.connections.use_of(principal), free_bytes)
        return SessionClient(self._clients_seen, principal, Subscriber(self.log, after, wants, unsent=unsent))

    def attach_stream(self, principal: Principal, after: int, wants: Callable[[bytes], bool]) -> SessionClient:
        """Connect an official client with an event stream. Raises Refusal.

        Such a client connects again by itself, without a new `initialize`. It continues what it declared and asked.
        """
        client = self.attach(principal, after, wants)
        earlier = self.stream_client(principal)
        self._stream_clients[principal.name] = earlier.successor = client
        for reply in earlier.subscriber.take_replies():
            client.subscriber.send(reply)
        declared = self.log.state.declared
        if self._owner in (None, earlier) and declared is not None and declared.by == principal.name:
            self._owner = client
            for waiting in self._callbacks.values():
                client.subscriber.send(waiting)
        return client

    def stream_client(self, principal: Principal) -> SessionClient:
        """Who sends what is posted without a connection. Replies wait for its event stream."""
        client = self._stream_clients.get(principal.name)
        if client is None:
            client = self._stream_clients[principal.name] = self._make_client(principal, self.log.last, free_bytes=0)
        return client

    def receive_posted(self, principal: Principal, line: bytes) -> None:
        """Handle a line that is posted without a connection. Raises Refusal if its client does not read the replies."""
        client = self.stream_client(principal)
        if client not in self.clients and client.subscriber.reply_bytes > UNREAD_REPLY_BYTES:
            text = f"more than {UNREAD_REPLY_BYTES} bytes of replies were not read; connect to the event stream first"
            raise Refusal("quota_exceeded", text)
        self.receive(client, line)

    def drop_replies(self) -> None:
        """The session is unloaded: no client will read what waits for event streams."""
        for client in self._stream_clients.values():
            client.subscriber.take_replies()

    def detach(self, client: SessionClient) -> None:
        """Disconnect a client. Its callbacks wait for it to come back."""
        client.subscriber.close()
        if client not in self._stream_clients.values():
            client.subscriber.take_replies()  # it will not come back for them
        if client in self.clients:
            self.clients.remove(client)
            self._subscribers.remove(client.subscriber)
        if self._owner is client:
            self._owner = None
        self.used_at = time.monotonic()
        self._services.mark(self.id)

    def receive(self, client: SessionClient, data: bytes) -> None:
        """Handle lines of a client. What is wrong with one is reported to it."""
        self.used_at = time.monotonic()
        for line in data.split(b"\n"):
            if line := line.strip():
                self._receive_line(client, line)

    def refuse(self, client: SessionClient, line: bytes, refusal: Refusal) -> None:
        """Tell a client that a line of it is not taken."""
        if (head := self._read_head(client, line)) is not None:
            self._reject(client, head, refusal)

    def _read_head(self, client: SessionClient, line: bytes) -> Head | None:
        try:
            return peek(line)
        except msgspec.DecodeError as exc:
            self._report(client, Refusal("invalid_line", f"the line is not a JSON object: {exc}"))
            return None

    def _receive_line(self, client: SessionClient, line: bytes) -> None:
        head = self._read_head(client, line)
        if head is None:
            return
        try:
            match head.type:
                case "user":
                    self.prompt(client.principal, line, sender=client)
                case "control_request":
                    self._receive_request(client, head, line)
                case "control_response":
                    self._receive_response(client, head, line)
                case "control_cancel_request":
                    self._cancel_request(client, head)
                case "keep_alive" | "auth":  # a client whose headers had a token may send it again
                    pass
                case "update_environment_variables":
                    raise Refusal("invalid_line", ENVIRONMENT_REFUSED)
                case _:
                    self._check(client.principal, Scope.PROMPT)
                    self._write(line)
        except Refusal as refusal:
            self._reject(client, head, refusal)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:  # in a part that the head leaves out
            self._reject(client, head, Refusal("invalid_line", f"the line cannot be decoded: {exc}"))
        except (SessionError, UsageError) as exc:
            self._reject(client, head, Refusal("storage_error", str(exc)))

    def _receive_request(self, client: SessionClient, head: Head, line: bytes) -> None:
        if head.request.subtype is None:
            raise Refusal("invalid_line", "a control request needs the field `request`, with a `subtype`")
        if head.request_id is None:
            raise Refusal("invalid_line", "a control request needs the field `request_id`")
        request = msgspec.json.decode(line)["request"]
        self._check_request(client.principal, request)
        missed: Sequence[str] = ()
        if request["subtype"] == "initialize":
            missed = () if self._owner is client else list(self._callbacks)
            request = self._declare(client, request)
        asked = head.request_id

        def reply(response: bytes) -> None:
            client.send(self._filter_reply(client.principal, request["subtype"], response))
            for request_id in missed:  # what came later was sent to the owner when it came
                if self._owner is client and request_id in self._callbacks:
                    client.subscriber.send(self._callbacks[request_id])

        self._send_request(request, reply, asked, client.request_key(asked), wants_progress=True)

    def _declare(self, client: SessionClient, request: Json) -> Json:
        """The `initialize` request as the engine gets it. Raises Refusal.

        The last one applies, also to engines that are started later. So hooks and MCP servers stay with the token that
        declared them while its client is away: another client gets the reply to `initialize` and changes nothing.
        """
        principal, declares = client.principal, is_declaration(request)
        if declares and not principal.may(Scope.PROMPT):
            raise Refusal("forbidden", "declaring hooks, tools or MCP servers needs the scope 'prompt'")
        if runs_without_question(request) and not principal.may(Scope.APPROVE):
            text = "hooks, plugins, and agents with hooks, MCP servers or a permission mode need the scope 'approve'"
            raise Refusal("forbidden", text)
        holder = self._find_holder()
        is_held = holder not in (None, principal.name) and (self._owner is not None or not principal.may(Scope.ADMIN))
        if declares and is_held:
            text = f"the token {holder!r} already provides the hooks and MCP servers of this session"
            raise Refusal("callbacks_taken", text)
        if not declares and (
            holder not in (None, principal.name) or self._owner not in (None, client) or not principal.may(Scope.PROMPT)
        ):
            return {"subtype": "initialize"}
        self._owner = client
        self.log.record(DeclaredRecord(request=msgspec.json.encode(request), by=principal.name))
        return request

    def _find_holder(self) -> str | None:
        """The token that declared hooks, tools or MCP servers; None if there are none."""
        declared = self.log.state.declared
        if declared is None or not is_declaration(msgspec.json.decode(declared.request)):
            return None
        return declared.by

    def request(self, principal: Principal, request: Json) -> asyncio.Future[bytes]:
        """Send a control request without a connection; the future gets the line of the reply. Raises Refusal."""
        if not isinstance(request.get("subtype"), str):
            raise Refusal("invalid_line", "a control request needs the field `subtype`")
        self._check_request(principal, request)
        if request["subtype"] == "initialize":
            request = {"subtype": "initialize"}  # no connection could answer callbacks
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def resolve(line: bytes) -> None:
            if not reply.done():
                reply.set_result(self._filter_reply(principal, request["subtype"], line))

        self._send_request(request, resolve, "", uuid4().hex, wants_progress=False)
        return reply

    def _send_request(
        self, request: Json, reply: Callable[[bytes], None], asked: str | int, key: str, *, wants_progress: bool
    ) -> None:
        """Send a control request to the engine. `asked`: the id that the client gave it. Raises Refusal."""
        if key in self._requests:
            raise Refusal(
                "duplicate_request", f"the control request {asked!r:.100} is still unanswered; use another id"
            )
        asks_model = asks_a_model(request["subtype"])
        if asks_model:
            self._admit(self, False)
        self._requests[key] = OpenRequest(
            reply, msgspec.json.encode(key), msgspec.json.encode(asked), wants_progress, asks_model
        )
        self._write(msgspec.json.encode({"type": "control_request", "request_id": key, "request": request}))

    @property
    def side_requests(self) -> int:
        """How many control requests ask a model now."""
        return sum(pending.asks_model for pending in self._requests.values())

    def _cancel_request(self, client: SessionClient, head: Head) -> None:
        key = client.request_key(head.request_id)
        if key in self._requests:
            self._write(msgspec.json.encode({"type": "control_cancel_request", "request_id": key}))

    def _receive_response(self, client: SessionClient, head: Head, line: bytes) -> None:
        request_id = head.response.request_id
        if not isinstance(request_id, str):
            raise Refusal("invalid_line", "a control response needs `request_id` inside the field `response`")
        if request_id in self._callbacks:
            if client is not self._owner:
                raise Refusal("forbidden", "only the client that declared this callback can answer the request")
            self._check_settings(client.principal, msgspec.json.decode(line)["response"])
            del self._callbacks[request_id]
            self._write(line)
        elif head.response.subtype == "error":
            # A client without a callback for questions says so. Others may have one.
            if request_id not in self.log.state.questions:
                raise Refusal("unknown_question", f"the session has no question {request_id!r}")
        else:
            self.answer(client.principal, request_id, line, client)

    def answer(self, principal: Principal, request_id: str, line: bytes, sender: SessionClient | None = None) -> None:
        """Decide a question. Raises Refusal if it was decided before."""
        self._check(principal, Scope.APPROVE)
        self._check_settings(principal, msgspec.json.decode(line).get("response"))
        self._services.audit.write(
            "answer", principal, session=self.id, request_id=request_id, decision=read_behavior(line)
        )
        self._decide(request_id, line, principal.name, sender)

    def expire(self, request_id: str, line: bytes) -> None:
        """Decide a question that was not answered in time."""
        self._decide(request_id, line, EXPIRED, None)

    def _decide(self, request_id: str, line: bytes, who: str, sender: SessionClient | None) -> None:
        question = self.log.state.questions.get(request_id)
        if question is None:
            raise Refusal("unknown_question", f"the session has no question {request_id!r}")
        if question.delegate not in (None, who, EXPIRED) and who != EXPIRED:
            raise Refusal("delegated", f"this question was delegated to the token {question.delegate!r}")
        if not self.questions.decide(self.log, request_id, line, who):
            if question.decided_by is None:
                raise Refusal("question_withdrawn", "the session no longer waits for an answer to this question")
            raise Refusal("already_decided", f"this question was already decided by {question.decided_by!r}")
        if self.engine is None:
            self.ensure_loaded()  # it asks again and gets the recorded answer
        else:
            self.engine.write(line + b"\n")
        behavior = read_behavior(line)
        label = behavior if behavior in BEHAVIORS else "other"
        self._services.metrics.count("parley_decisions_total", behavior=label)
        self._publish(msgspec.json.encode(QuestionDecided(request_id=request_id, decided_by=who, behavior=behavior)))
        withdrawn = msgspec.json.encode({"type": "control_cancel_request", "request_id": request_id})
        for client in self.clients:
            if client is not sender:
                client.subscriber.send(withdrawn)

    # Prompts.

    def prompt(self, principal: Principal, line: bytes, sender: SessionClient | None = None) -> AcceptedPrompt:
        """Take a prompt. A repeated prompt is not run again. Raises Refusal.

        `sender`: the connection that it came on; None if it was posted, so that another one will read what follows.
        """
        self._check(principal, Scope.PROMPT)
        message = msgspec.json.decode(line)
        uuid = message.get("uuid")
        if not isinstance(uuid, str) or not uuid:
            uuid = make_own_uuid()
            message.pop("uuid", None)
            line = msgspec.json.encode({**message, "uuid": uuid})
        if not isinstance(message.get("message"), dict):
            raise Refusal("invalid_line", "a prompt needs the field `message`: an object with the content")
        digest = digest_of(message["message"])
        known = self.log.state.prompts.get(uuid)
        if known is not None:
            if known.digest != digest:
                raise Refusal("duplicate_prompt", f"another prompt has the id {uuid!r:.80}; give this one a new id")
            if known.result is None:
                self.ensure_loaded()
            return AcceptedPrompt(uuid=uuid, after=known.line - 1)
        self._admit(self, True)
        self.ensure_loaded()  # before the prompt is recorded: a refused one may be sent again
        taken = AcceptedPrompt(uuid=uuid, after=self.log.last)
        if has_only_tool_results(message["message"]):  # part of a turn that runs, and not a prompt with a result
            self._publish(line, sender)
            self._write(line)
            return taken
        self._services.audit.write("prompt", principal, session=self.id, uuid=uuid)
        unread_by = principal.name if sender is None else None
        record = PromptTakenRecord(uuid=uuid, line=self.log.last + 1, digest=digest, unread_by=unread_by)
        number = self.log.add_line(line, record)
        if sender is None:
            for client in self.clients:
                if client.principal.name == principal.name:
                    client.subscriber.on_advance = partial(self._mark_read, client, client.subscriber.cursor)
        self._services.metrics.count("parley_prompts_total")
        self._show(number, line, sender)
        self._write(line)
        return taken

    def _finished(self, uuids: object) -> list[AnyRecord]:
        """The next line is the result of prompts."""
        known = [uuid for uuid in uuids if uuid in self.log.state.prompts] if isinstance(uuids, list) else []
        return [PromptFinishedRecord(uuid=uuid, result=self.log.last + 1) for uuid in known]

    def _ended(self, uuid: object, state: object) -> list[AnyRecord]:
        """What follows from the `command_lifecycle` of a prompt."""
        prompt = self.log.state.prompts.get(uuid) if isinstance(uuid, str) else None
        if prompt is None:
            return []
        if state == "completed" and prompt.result is None:
            return self._finished([uuid])
        return [PromptCancelledRecord(uuid=str(uuid))] if state == "cancelled" else []

    # The engine.

    def ensure_loaded(self) -> Engine:
        """Start the engine if it does not run. Raises SessionError."""
        if self.engine is None:
            self.engine = self._load(self)
            self._services.mark(self.id)
        return self.engine

    def _write(self, line: bytes) -> None:
        if self._held is not None:
            self._held.append(line)
        else:
            self.ensure_loaded().write(line + b"\n")

    def unload(self, engine: Engine) -> Awaitable[None]:
        """End the engine; the result waits until it has ended. If something arrives meanwhile, another one is started.

        What arrives is kept from the moment of the call, before the engine is told.
        """
        self._held, self._asked_before = [], frozenset(self._requests)
        return engine.close()

    def on_lines(self, data: bytes) -> None:
        """Handle lines of the engine."""
        self.wire.add(Direction.OUT, data)
        events: list[Numbered] = []
        for line in filter(None, data.split(b"\n")):
            head = peek(line)
            if head.type == "stream_event":
                events.append((None, line))
                continue
            if events:
                self._offer(events)
                events = []
            try:
                self._on_line(head, line)
            except SessionError as exc:  # a full device must not stop the engine
                self._offer([(None, self._make_notice("storage_error", str(exc)))])
        if events:
            self._offer(events)

    def _on_line(self, head: Head, line: bytes) -> None:
        kind = head.type
        if kind in LIVE_ONLY or is_requesting(head):
            self._offer([(None, line)])
        elif kind == "control_response":
            self._on_response(head, line)
        elif kind == "control_request":
            self._on_request(head, line)
        elif head.subtype == "control_request_progress":
            pending = self._requests.get(str(head.request_id))
            if pending is not None and pending.wants_progress:
                pending.send(line)
        elif kind == "command_lifecycle" and is_own_uuid(head.command_uuid):
            self._record(self._ended(head.command_uuid, head.state))
        else:
            records = self._track(head)
            if kind == "result":
                result = msgspec.json.decode(line)
                records.append(self._services.spending.measure(self.log, result))
                self._services.metrics.count("parley_results_total", outcome=str(result.get("subtype")))
            self._publish(line, records=records)

    def _track(self, head: Head) -> list[AnyRecord]:
        """Keep up with what a message says about the session; returns what is recorded with it."""
        match head.type, head.subtype:
            case "system", "session_state_changed" if head.state in STATES:
                self.state = head.state or "idle"
            case "system", "init" if head.session_id not in (None, self.engine_id):
                return [EngineChangedRecord(engine_id=head.session_id or "")]
            case "result", _:
                return self._finished(head.user_message_uuids)
            case "command_lifecycle", _:
                return self._ended(head.command_uuid, head.state)
            case "control_cancel_request", _:
                self._callbacks.pop(str(head.request_id), None)
                self.questions.withdraw(self.log, str(head.request_id))
        return []

    @property
    def engine_id(self) -> str:
        """The id of the session in the engine."""
        return (self.log.state.engine_ids or [self.id])[-1]

    def _on_response(self, head: Head, line: bytes) -> None:
        pending = self._requests.pop(str(head.response.request_id), None)
        if pending is None:
            return
        if pending.asks_model and self.engine is not None and self._held is None:
            self._record_use(partial(pending.send, line))
        else:
            pending.send(line)

    def _record_use(self, then: Callable[[], None]) -> None:
        """Record what a request has cost, which no result says yet, before its reply is sent."""

        def record(line: bytes) -> None:
            response = msgspec.json.decode(line)["response"]
            if response["subtype"] == "success":
                self._record([self._services.spending.measure_between(self.log, response["response"]["session"])])
            then()

        self._send_request({"subtype": "get_usage"}, record, "", uuid4().hex, wants_progress=False)

    def _on_request(self, head: Head, line: bytes) -> None:
        subtype, request_id = str(head.request.subtype), str(head.request_id)
        if subtype in CALLBACKS:
            self._callbacks[request_id] = line
            if self._owner is not None:
                self._owner.subscriber.send(line)
            return
        answer = find_answer(self.log, request_id)
        if answer is None:
            number = self.questions.ask(self.log, request_id, subtype, line)
            self._services.metrics.count("parley_questions_total", kind=subtype)
            self._show(number, line)
        elif self.engine is not None:
            self.engine.write(answer + b"\n")

    def on_end(self, errors: str) -> None:
        """The engine has ended. What still waits for it gets an error."""
        self.engine, self.state = None, "idle"
        self._services.spending.forget(self.id)
        reason = errors.strip().rpartition("\n")[2] or "the engine of the session has ended"
        self._services.log.note("engine_end", session=self.id, errors=errors.strip() or None)
        held, self._held = self._held, None
        self._fail_requests(reason, self._asked_before if held else frozenset(self._requests))
        self._callbacks.clear()
        self.questions.withdraw_all(self.log)
        with suppress(SessionError):  # as if it was killed: the next engine looks for what is missing
            self.log.record(EngineEndedRecord())
        self._services.mark(self.id)
        if held:
            self._write_again(held)
        else:
            self.fail_prompts(reason)

    def _write_again(self, held: list[bytes]) -> None:
        """Start the next engine with what the last one did not read."""
        try:
            for line in held:
                self._write(line)
        except Refusal as refusal:  # the server is shutting down: its prompts run after the restart
            self._fail_requests(str(refusal), frozenset(self._requests))
        except (SessionError, UsageError) as exc:
            self._fail_requests(str(exc), frozenset(self._requests))
            self.fail_prompts(str(exc))

    def _fail_requests(self, reason: str, keys: frozenset[str]) -> None:
        for key in keys:
            if (pending := self._requests.pop(key, None)) is not None:
                failure = {"subtype": "error", "request_id": key, "error": reason, "error_code": "engine_ended"}
                pending.send(msgspec.json.encode({"type": "control_response", "response": failure}))

    def fail_prompts(self, reason: str, uuids: list[str] | None = None) -> None:
        """End the turns of prompts, by default of all that are unfinished."""
        if uuids is None:
            uuids = list(self.log.state.open_prompts)
        if uuids:
            self._publish(make_failure(reason, self.id, uuids), records=self._finished(uuids))

    @property
    def has_turn(self) -> bool:
        """Whether a turn runs or waits to run."""
        return self.state != "idle" or bool(self.log.state.open_prompts)

    @property
    def is_busy(self) -> bool:
        """Whether a model is asked, or soon will be."""
        return self.has_turn or self.side_requests > 0

    def publish_missing(self, line: bytes, at: float) -> None:
        """Publish a message that another engine wrote to the transcript, and when."""
        self._publish(line, records=self._track(peek(line)), at=at)

    def publish_notice(self, code: str, text: str) -> None:
        """Tell the clients, also later ones, something about the session."""
        self._publish(self._make_notice(code, text))

    def announce_shutdown(self) -> None:
        """Tell the clients that the server is about to stop, and that they can connect again."""
        line = encode(WorkerShuttingDown(reason="host_exit", session_id=self.id, uuid=str(uuid4())))
        self._offer([(None, line)])

    # Output.

    def _record(self, records: Sequence[AnyRecord]) -> None:
        """Raises SessionError."""
        if records:
            self.log.record(*records)

    def _publish(
        self,
        line: bytes,
        sender: SessionClient | None = None,
        records: Sequence[AnyRecord] = (),
        at: float | None = None,
    ) -> None:
        """Log a line with the records that belong to it, then send it to all clients but its sender."""
        try:
            number = self.log.add_line(line, *records, at=at)
        except SessionError:
            number = None  # the device is full: clients that are connected still get it
        self._show(number, line, sender)

    def _show(self, number: int | None, line: bytes, sender: SessionClient | None = None) -> None:
        """Send a line that is in the log to all clients but its sender."""
        self._services.metrics.count("parley_lines_total")
        self._services.mark(self.id)
        self._offer([(number, line)], None if sender is None else sender.subscriber)

    def _offer(self, lines: list[Numbered], skipped: Subscriber | None = None) -> None:
        if not self._subscribers:
            return
        batch = LineBatch(lines)
        for subscriber in self._subscribers:
            if subscriber is skipped:
                subscriber.skip(batch)
            else:
                subscriber.offer(batch)

    def _reject(self, client: SessionClient, head: Head, refusal: Refusal) -> None:
        """Report a refusal in the form that the client waits for."""
        if head.type == "control_request" and head.request_id is not None:
            failure = {
                "subtype": "error",
                "request_id": head.request_id,
                "error": str(refusal),
                "error_code": refusal.code,
            }
            client.subscriber.send(msgspec.json.encode({"type": "control_response", "response": failure}))
        elif head.type == "user":
            # The id of a duplicate is that of another prompt, which has a result of its own.
            uuids = [head.uuid] if head.uuid is not None and refusal.code != "duplicate_prompt" else []
            client.subscriber.send(make_failure(str(refusal), self.id, uuids))
        else:
            self._report(client, refusal)

    def _report(self, client: SessionClient, refusal: Refusal) -> None:
        client.subscriber.send(self._make_notice(refusal.code, str(refusal)))

    def _make_notice(self, code: str, text: str) -> bytes:
        notice = {"type": "system", "subtype": "informational", "content": text, "level": "warning", "code": code}
        return msgspec.json.encode({**notice, "session_id": self.id, "uuid": str(uuid4())})

    def _check_request(self, principal: Principal, request: Json) -> None:
        """Raises Refusal if the request needs another scope."""
        scope = scope_of_request(request["subtype"], request.get("mode"))
        self._check(principal, scope)
        if request["subtype"] == "update_settings":
            self._check_settings(principal, request)
        if request["subtype"] == "set_cwd":
            request["path"] = self._find_directory(request.get("path"), principal)
        if scope is not Scope.VIEW:
            self._services.audit.write("control", principal, session=self.id, request=request["subtype"])

    def _check_settings(self, principal: Principal, sent: object) -> None:
        if not principal.may(Scope.ADMIN) and changes_user_settings(sent):
            text = "'userSettings' applies to the sessions of all tenants and needs the scope 'admin'; use 'session'"
            raise Refusal("forbidden", text)

    def _filter_reply(self, principal: Principal, subtype: str, line: bytes) -> bytes:
        return line if principal.may(Scope.APPROVE) else without_secrets(subtype, line)

    def _find_directory(self, path: object, principal: Principal) -> str:
        """Where `set_cwd` moves the session, as the absolute path that was checked. Raises Refusal."""
        if not isinstance(path, str) or not path:
            raise Refusal("invalid_line", "set_cwd needs the field `path`: a directory")
        if self._cwd is None:
            self._cwd = "/" if self.log.state.created is None else self.log.state.created.cwd
        found = os.path.join(self._cwd, path)
        self._check_directory(found, principal)
        self._cwd = found
        return found

    def _check(self, principal: Principal, scope: Scope) -> None:
        if not principal.may(scope):
            raise Refusal("forbidden", f"the token {principal.name!r} does not have the scope '{scope}'")


def is_requesting(head: Head) -> bool:
    """Engines say this before each model call if they send stream events."""
    return (head.type, head.subtype, head.status) == ("system", "status", "requesting")


def make_own_uuid() -> str:
    """An id for a prompt without one. It is of version 8, so that every process knows that no client made it."""
    return str(UUID(int=uuid4().int & ~(0xF << 76) | 8 << 76))


def is_own_uuid(uuid: object) -> bool:
    return isinstance(uuid, str) and len(uuid) == 36 and uuid[14] == "8"


def has_only_tool_results(content: Json) -> bool:
    """Whether a message of the client only answers calls of the tools that it declared."""
    blocks = content.get("content")
    return (
        isinstance(blocks, list)
        and bool(blocks)
        and all(isinstance(block, dict) and block.get("type") == "tool_result" for block in blocks)
    )


def digest_of(content: Json) -> bytes:
    """The same for the same prompt, so that another one with its id is noticed."""
    return sha256(msgspec.json.encode(content, order="sorted")).digest()


def is_declaration(request: Json) -> bool:
    """Whether an `initialize` declares callbacks."""
    return any(request.get(field) for field in DECLARATIONS)


def make_failure(reason: str, session_id: str, uuids: list[str]) -> bytes:
    """The line of a result that says why a turn could not run to its end."""
    return encode(no_session_result(reason, session_id, Clock(), uuids or UNSET))
