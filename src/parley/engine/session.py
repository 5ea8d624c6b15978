"""One live session: its state, one handler a message, one turn at a time.

    handle(message)   takes a line of the host; never waits for a turn
    run_turns()       the task that runs turn after turn, until nothing more will come
    finish()          no more input: what runs and what waits is still done

The log is the session. A line is in the log before it is told (`say`), and the
conversation is a fold over the log (`history`).

Not here: bytes and pipes (serve.py), what happens inside a turn (turn.py), which
models, tools and stores there are (compose.py).
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from parley.engine import outcome
from parley.engine.answers import ANSWERERS, NotPossible
from parley.engine.asking import Asker
from parley.engine.errand import Errand
from parley.engine.history import History, marked
from parley.engine.inbox import Inbox, Prompt, Rejected, join
from parley.engine.lines import init_line, result_line
from parley.engine.outcome import Outcome
from parley.engine.prompt import render, system_blocks
from parley.engine.setup import Setup
from parley.engine.tasks import Tasks
from parley.engine.thinking import thinking_field
from parley.engine.tool_call import Caller
from parley.engine.turn import Turn, prompt_content
from parley.engine.usage import Ledger
from parley.errors import ModelError, SessionError
from parley.host import Host
from parley.models.base import Model, ModelRequest
from parley.models.names import CHARS_PER_TOKEN, PUPPETS, UNKNOWN, Choice, facts, resolve
from parley.protocol.base import UNSET, Json, Message, Refused, Unknown, convert, plain
from parley.protocol.blocks import ToolResult, as_json
from parley.protocol.messages import requests as ask
from parley.protocol.messages.control import (
    ControlRequest,
    ControlResponse,
    Failure,
    RequestId,
    Success,
    UpdateEnvironment,
)
from parley.protocol.messages.conversation import User, UserContent
from parley.protocol.messages.dialects import Control, JsonRpc
from parley.protocol.messages.notices import CommandLifecycle, KeepAlive
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import SessionStateChanged, Status
from parley.stores.base import Entry
from parley.tools.base import Context


class Session:
    def __init__(self, setup: Setup, host: Host) -> None:
        self.id = setup.session_id
        self.setup = setup
        self.host = host
        self.stamp = setup.stamp
        self.dice = setup.dice
        self.limits = setup.limits
        self.partial = setup.partial
        self.mode = setup.permission_mode
        self._mode_before = "default"
        self.model = resolve(setup.model_name)
        self.instructions = setup.instructions
        self.thinking = setup.thinking
        self.history = History()
        self.ledger = Ledger(setup.prices)
        self.results = 0
        self.last_result: Result | None = None
        self.inbox = Inbox()
        self.tasks = setup.tool_context.tasks = Tasks(
            processes=setup.tool_context.processes,
            place=setup.task_place,
            stamp=setup.stamp,
            tell=self.tell,
            inbox=self.inbox,
        )
        self._turn: Turn | None = None
        self._turn_task: asyncio.Task[Outcome] | None = None
        self._abort_next = False
        """An interrupt came between a prompt and its turn."""
        self._system_text: str | None = None
        self._models: dict[Choice, Model] = {}
        self._next_seq = 0
        self._known_uuids: set[str] = set()
        self._silent: list[Prompt] = []
        """Prompts that start no turn, until they can be recorded."""
        for entry in setup.log.entries():
            try:
                self._fold(entry)
                if entry.kind == "result":
                    self.ledger.resume(entry.message)
            except (KeyError, TypeError, AttributeError, ValueError) as flaw:
                # Another program may have written to the file; one odd line must not cost the session.
                setup.complain(f"entry {entry.seq} of the session cannot be read and is skipped: {flaw!r}")
        self._lend(setup.tool_context)
        self.asker = Asker(
            setup.permits,
            host if setup.asks_host else None,
            guarded=setup.guarded,
            may_bypass=setup.may_bypass,
            set_mode=self.set_mode,
            tell_state=self._tell_state,
            complain=setup.complain,
        )
        self.caller = Caller(setup.tools, self.asker, setup.tool_context, self._note, setup.complain)
        for call in self.history.open_calls():
            self._record(self._unknown_outcome(call, "The engine ended while this call ran. Its outcome is unknown."))

    def _lend(self, context: Context) -> None:
        """Give the tools what only a session has."""
        errand = Errand(
            open_model=self.open_model,
            current=lambda: self.model,
            small=resolve(self.setup.small_model),
            ledger=self.ledger,
            clock=self.stamp.monotonic,
            session_id=self.id,
        )
        context.ask_small_model = context.ask_small_model or errand.ask_small
        context.consult = errand.consult
        context.set_mode = self.set_mode
        context.hides = self.setup.permits.hides
        context.strict_reads = facts(self.model.name).reads_first

    # Speaking.

    def tell(self, message: Message) -> None:
        """Say a line that is not part of the session's record."""
        self.host.tell(self.stamp.on(message, self.id))

    def say(self, message: Message) -> None:
        """Record a line of the conversation, then say it. Raises SessionError if it cannot be kept."""
        stamped = self.stamp.on(message, self.id)
        self._record(stamped)
        self.host.tell(stamped)

    def _record(self, message: Message, **context: Any) -> None:
        json = plain(message)
        at = json.get("timestamp") or self.stamp.now()
        self._append(Entry(seq=self._next_seq, kind=json["type"], at=at, message=json, context=context))

    def _note(self, kind: str, message: Json) -> None:
        """Record what is never told."""
        self._append(Entry(seq=self._next_seq, kind=kind, at=self.stamp.now(), message=message))

    def _append(self, entry: Entry) -> None:
        self.setup.log.append(entry)
        self._fold(entry)

    def _fold(self, entry: Entry) -> None:
        """State is a fold over the log: the same for a line just said and for one read after a restart."""
        self._next_seq = entry.seq + 1
        self.history.apply(entry)
        match entry.kind:
            case "user" if isinstance(entry.message.get("uuid"), str):
                self._known_uuids.add(entry.message["uuid"])
            case "prompt":
                self._system_text = entry.message.get("text")

    # Listening.

    def handle(self, message: Message) -> None:
        """Take a line of the host."""
        handler = HANDLERS.get(type(message))
        if handler is None:
            self.setup.complain(f"{type(message).__name__} is ignored")
        else:
            handler(self, message)

    def finish(self) -> None:
        """Nothing more will come."""
        self.inbox.close()

    def _take_user(self, message: User) -> None:
        named = isinstance(message.uuid, str) and message.uuid != ""
        uuid = str(message.uuid) if named else self.stamp.new_uuid()
        content = as_json(message.message.content)
        if named and uuid in self._known_uuids:
            if self.setup.replay:
                self._echo(Prompt(content=content, uuid=uuid, named=named))
            return
        self._known_uuids.add(uuid)
        prompt = Prompt(content=content, uuid=uuid, named=named, origin=message.origin or None)
        if message.shouldQuery is False:
            # It must not come between a call and its result, so it waits for the end of what runs.
            self._silent.append(prompt)
            if not self.is_running:
                self._record_silent()
            return
        self.report(prompt, "queued")
        self.inbox.put(prompt)

    def _refuse(self, refused: Refused) -> None:
        """A line we cannot take: answered where somebody waits, else complained about."""
        self.setup.complain(f"a line from the host was refused: {refused.reason}")
        if refused.request_id is not None:
            self._answer_error(refused.request_id, refused.reason, "invalid_request")
        elif refused.kind == "user":
            self.inbox.put(Rejected(refused.reason))

    def _ignore(self, message: Message) -> None:
        """Known, and of no consequence."""

    def _note_unknown(self, message: Unknown) -> None:
        self.setup.complain(f"a line of the unknown type {message.kind!r} is ignored")

    # Answering.

    def _take_request(self, message: ControlRequest) -> None:
        handler = ANSWERERS.get(type(message.request))
        if handler is None:
            text = f"Unsupported control request subtype: {message.request.subtype}"
            self._answer_error(message.request_id, text, "unsupported_request")
            return
        try:
            answer = handler(self, message.request)
        except NotPossible as flaw:
            self._answer_error(message.request_id, str(flaw), flaw.code)
            return
        self._answer(message.request_id, answer)
        if isinstance(message.request, ask.Interrupt):
            self._abort()
        elif isinstance(message.request, ask.EndSession):
            self.finish()

    def _answer(self, request_id: RequestId, answer: Any) -> None:
        more: Json = {"pending_permission_requests": []} if isinstance(answer, ask.InitializeAnswer) else {}
        payload = UNSET if answer is None else plain(answer)
        self.host.tell(ControlResponse(response=Success(request_id=request_id, response=payload, **more)))

    def _answer_error(self, request_id: RequestId, text: str, code: str) -> None:
        self.host.tell(ControlResponse(response=Failure(request_id=request_id, error=text, error_code=code)))

    def set_mode(self, mode: str | None) -> None:
        """Go into a mode and tell it; None leaves plan mode for the mode before it."""
        if mode is None:
            mode = self._mode_before if self.mode == "plan" else self.mode
        if mode != self.mode:
            self._mode_before = self.mode
            self.mode = mode
            self.tell(Status(status=None, permissionMode=self.mode))

    # Turns.

    @property
    def is_running(self) -> bool:
        return self._turn is not None

    async def run_turns(self) -> None:
        """Run turn after turn until the input has ended and nothing waits."""
        together = False
        try:
            while (taken := await self._take(together)) is not None:
                if isinstance(taken, Rejected):
                    self._end_turn(Turn(self, []), outcome.broken(f"The prompt was refused: {taken.reason}"))
                else:
                    await self._run_turn(taken)
                # Whatever arrived while that turn ran makes up the next one.
                together = len(self.inbox) > 0
        finally:
            await self._close()

    async def _close(self) -> None:
        """Leave nothing behind, also when we are cancelled: the process may go on without us."""
        self.tasks.end()
        await self.setup.tool_context.processes.close()
        self.setup.tool_context.files.close()
        for model in self._models.values():
            await model.close()

    async def _take(self, together: bool) -> list[Prompt] | Rejected | None:
        """What the next turn is about. When the input has ended, background tasks may still have something to say."""
        while (taken := await self.inbox.take(together)) is None:
            if not await self.tasks.one_ended(self.limits.background_wait_seconds):
                return None
        return taken

    async def _run_turn(self, prompts: list[Prompt]) -> None:
        self._tell_state("running")
        turn = self._turn = Turn(self, prompts)
        turn.interrupted, self._abort_next = self._abort_next, False
        task = self._turn_task = asyncio.create_task(self._guarded(turn))
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
            self._turn = self._turn_task = None
        self._end_turn(turn, task.result())

    async def _guarded(self, turn: Turn) -> Outcome:
        """Run a turn so that it ends with an outcome, come what may."""
        try:
            self.ledger.begin_turn()
            return await turn.run()
        except SessionError as flaw:
            return outcome.broken(str(flaw))
        except Exception as bug:
            # One result for every turn, also where the fault is ours.
            self.setup.complain("".join(traceback.format_exception(bug)))
            self._answer_after_bug()
            return outcome.broken(f"internal error: {type(bug).__name__}: {bug}")

    def answer_open_calls(self, text: str) -> None:
        """Give every call that has no result one that says why. Raises SessionError."""
        for call in self.history.open_calls():
            self.say(self._unknown_outcome(call, text))

    def _answer_after_bug(self) -> None:
        try:
            self.answer_open_calls("An internal error of the engine ended this call. Its outcome is unknown.")
        except SessionError as flaw:
            self.setup.complain(str(flaw))

    def _unknown_outcome(self, tool_use_id: str, text: str) -> Message:
        block = ToolResult.of(tool_use_id, text, is_error=True)
        message = User(
            message=UserContent(content=[block]),
            parent_tool_use_id=None,
            timestamp=self.stamp.now(),
            tool_use_result=f"Error: {text}",
        )
        return self.stamp.on(message, self.id)

    def _record_silent(self) -> None:
        silent, self._silent = self._silent, []
        try:
            if silent:
                self._record_prompt(silent)
        except SessionError as flaw:
            self.setup.complain(str(flaw))

    def begin(self, turn: Turn) -> None:
        """Announce a turn and take its prompts into the conversation. Raises ModelError if they can never fit."""
        for prompt in turn.prompts:
            self.report(prompt, "started")
        self.tell(init_line(self))
        self._check_size(turn.prompts)
        self._record_prompt(turn.prompts)
        self._echo_all(turn.prompts)

    def join_waiting(self, turn: Turn) -> None:
        """Prompts that came while tools ran go into the running turn, before its next model call."""
        joining = self.inbox.take_prompts()
        if joining:
            self._record_prompt(joining)
            self._echo_all(joining)
            for prompt in joining:
                self.report(prompt, "started")
            turn.prompts += joining

    def _check_size(self, prompts: list[Prompt]) -> None:
        """A prompt that no request can hold is refused before it spoils the conversation for good."""
        known = facts(self.model.name)
        window = known.context_window
        chars = sum(len(block.get("text", "")) for prompt in prompts for block in prompt.content)
        if known is not UNKNOWN and chars > window * CHARS_PER_TOKEN:
            text = f"Prompt is too long: about {chars // CHARS_PER_TOKEN} tokens, and {self.model.name} takes {window}"
            raise ModelError(text, kind="prompt_too_long")

    def _end_turn(self, turn: Turn, ended: Outcome) -> None:
        self._record_silent()
        result = result_line(self, turn, ended)
        self.results += 1
        self.last_result = result
        try:
            self._record(result)
        except SessionError as flaw:
            self.setup.complain(str(flaw))
        self.host.tell(result)
        for prompt in turn.prompts:
            self.report(prompt, "completed")
        if not len(self.inbox):
            self._tell_state("idle")

    def _abort(self) -> None:
        """Stop the running turn, or the one that is about to run."""
        if self._turn is None or self._turn_task is None:
            self._abort_next = self.inbox.next_is_prompt()
        elif not self._turn.interrupted:
            self._turn.interrupted = True
            if self._turn.announced:
                self._turn_task.cancel()

    def stop(self) -> None:
        """End as soon as the running turn has told its result: what waits is not begun any more. For signals."""
        self._abort()
        for prompt in self.inbox.waiting()[0 if self.is_running else 1 :]:
            self.withdraw(prompt)
        self.tasks.end()
        self.finish()

    def withdraw(self, prompt: Prompt) -> None:
        """Take a waiting prompt back."""
        self.inbox.drop(prompt.uuid)
        self.report(prompt, "cancelled")

    # What a model call needs.

    def current_model(self) -> Model:
        """The model of the session. Raises ModelError."""
        return self.open_model(self.model)

    def open_model(self, choice: Choice) -> Model:
        """A model, opened when it is first needed. Raises UsageError or ModelError."""
        if choice not in self._models:
            self._models[choice] = self.setup.open_model(choice)
        return self._models[choice]

    def request(self) -> ModelRequest:
        """The next model call. Its beginning is the last one, byte for byte."""
        known = facts(self.model.name)
        max_tokens = self.limits.max_output_tokens or known.max_output_tokens
        return ModelRequest(
            model=self.model.name if self.model.adapter == "anthropic" else self.model.shown,
            system=system_blocks(self._system_prompt()),
            messages=marked(self.history.messages()),
            # Models that are no models need no schemas, and loading the tools takes its time.
            tools=self.setup.tools.schemas() if self.model.adapter not in PUPPETS else [],
            max_tokens=max_tokens,
            thinking=thinking_field(self.thinking, known, max_tokens),
            effort=self.setup.effort if known.takes_effort else None,
            betas=self.setup.betas,
            session_id=self.id,
        )

    def new_result_file(self, ending: str) -> Path:
        context = self.setup.tool_context
        return context.results_folder / f"{context.new_id()}.{ending}"

    def _system_prompt(self) -> str:
        if self._system_text is None:
            self._note("prompt", {"text": render(self.instructions)})
        return self._system_text or ""

    # Prompts.

    def _record_prompt(self, prompts: list[Prompt]) -> None:
        for prompt in prompts:
            self.setup.tool_context.files.begin_message(prompt.uuid)
        content = prompt_content(join(prompts))
        json: Json = {
            "type": "user",
            "message": {"role": "user", "content": content},
            "parent_tool_use_id": None,
            "uuid": prompts[0].uuid,
            "session_id": self.id,
            "timestamp": self.stamp.now(),
        }
        context = {"permissionMode": self.mode, "promptId": prompts[0].uuid}
        self._append(Entry(seq=self._next_seq, kind="user", at=json["timestamp"], message=json, context=context))

    def _echo_all(self, prompts: list[Prompt]) -> None:
        if self.setup.replay:
            for prompt in prompts:
                if not prompt.is_notification:
                    self._echo(prompt)

    def _echo(self, prompt: Prompt) -> None:
        """Repeat a prompt to the host that asked for it."""
        content = prompt_content(prompt.content)
        json = {"type": "user", "message": {"role": "user", "content": content}}
        echo: User = convert(json, User)
        self.host.tell(
            msgspec.structs.replace(
                echo,
                session_id=self.id,
                parent_tool_use_id=None,
                uuid=prompt.uuid,
                timestamp=self.stamp.now(),
                isReplay=True,
            )
        )

    def report(self, prompt: Prompt, state: str) -> None:
        """Tell the life of a prompt whose uuid the client gave."""
        if prompt.named:
            self.tell(CommandLifecycle(command_uuid=prompt.uuid, state=state))

    def _tell_state(self, state: str) -> None:
        who = self.setup.state_events
        if who is not None:
            self.tell(SessionStateChanged(state=state, sdk_host_only=True if who == "sdk" else UNSET))


HANDLERS: dict[type[Message], Callable[[Session, Any], None]] = {
    User: Session._take_user,
    ControlRequest: Session._take_request,
    Refused: Session._refuse,
    Unknown: Session._note_unknown,
    KeepAlive: Session._ignore,
    UpdateEnvironment: Session._ignore,
    Control: Session._ignore,
    JsonRpc: Session._ignore,
}
