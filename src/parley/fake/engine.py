"""A fake engine: it plays a scenario to any client.

    code = await FakeEngine(scenario, transport).run()       # the exit code

One task reads: it answers control requests and wakes what waits for an answer. Turns run one after the other, so that
an interrupt ends the running turn. Ids and times are fixed: the same client gets the same bytes each time.

See also: the format in `scenario.py`; `serve.py` for stdin and stdout; `../in_process.py` for tests in one process.
"""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from parley.errors import ParleyError
from parley.fake.link import INITIALIZED, ClientLink, FakeMessages, FakeOptions, failure, success
from parley.fake.scenario import MAX_LINE_BYTES, Scenario, ScenarioTurn, Step
from parley.models.script import text_in
from parley.protocol.base import Json
from parley.protocol.framing import Framer
from parley.transports.base import Transport

MISMATCH_EXIT_CODE = 1
SHOWN_CHARS = 200


class ScenarioMismatch(ParleyError):
    """The client did something else than the scenario expects."""


class Exited(ParleyError):
    """A step ends the engine."""

    def __init__(self, code: int) -> None:
        """A negative code is the number of a signal."""
        super().__init__(f"exit code {code}")
        self.code = code


class FakeEngine:
    """Plays a scenario once."""

    def __init__(
        self,
        scenario: Scenario,
        transport: Transport,
        options: FakeOptions | None = None,
        stderr: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._scenario = scenario
        self._transport = transport
        self._options = options or FakeOptions()
        self._stderr = stderr
        self._session_id = self._options.session_id or scenario.session_id
        self._make = FakeMessages(scenario, self._options.cwd, self._session_id)
        self._link = ClientLink(transport, self._make, self._options)
        self._prompts: asyncio.Queue[str | None] = asyncio.Queue()
        self._heard: dict[str, asyncio.Event] = {}
        """The kinds of control requests that the client has sent."""
        self._turn: asyncio.Task[None] | None = None
        self._answers: set[asyncio.Task[None]] = set()
        self._waited_ms = 0.0
        self._last_is_error = False
        self._hanging = asyncio.Event()
        self._input_ended = asyncio.Event()

    async def run(self) -> int:
        """Play until the client closes its end or a step exits. Returns the exit code, negative for a signal."""
        tasks: list[asyncio.Task[None]] = []
        try:
            for step in self._scenario.start:
                await self._do(step, TurnProgress())
            tasks = [asyncio.create_task(self._play()), asyncio.create_task(self._read())]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        except Exited as exc:
            return exc.code
        except ScenarioMismatch as exc:
            self._stderr(str(exc))
            self._link.send(self._make.failure(str(exc)))
            return MISMATCH_EXIT_CODE
        except BrokenPipeError:
            return 1
        finally:
            await self._cancel(*tasks, self._turn, *self._answers)
            await self._transport.drain()
        code = self._scenario.exit_code
        return int(self._last_is_error) if code is None else code

    async def _cancel(self, *tasks: asyncio.Task[None] | None) -> None:
        running = [task for task in tasks if task is not None and not task.done()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    # Reading.

    async def _read(self) -> None:
        """Raises ScenarioMismatch for a line that is not a message."""
        framer = Framer(MAX_LINE_BYTES)
        async for chunk in self._transport.chunks():
            for line in framer.feed(chunk):
                if isinstance(line, bytes):
                    self._receive(line)
        self._prompts.put_nowait(None)
        self._input_ended.set()
        self._link.close()

    def _receive(self, data: bytes) -> None:
        if not data.strip():
            return
        try:
            message = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            shown = data[:SHOWN_CHARS].decode(errors="replace")
            raise ScenarioMismatch(f"found {shown!r} from the client, expected a JSON object") from None
        match message.get("type") if isinstance(message, dict) else None:
            case "user":
                self._prompts.put_nowait(text_in((message.get("message") or {}).get("content")))
            case "control_response":
                self._link.take_answer(message.get("response") or {})
            case "control_request":
                task = asyncio.create_task(self._answer(message.get("request_id"), message.get("request") or {}))
                self._answers.add(task)
                task.add_done_callback(self._answers.discard)

    async def _answer(self, request_id: Any, request: Json) -> None:
        """Answer a control request of the client."""
        subtype = str(request.get("subtype"))
        if subtype == "initialize":
            self._link.register(request)
        rule = self._scenario.on.get(subtype)
        if rule is not None and rule.delay_ms:
            await asyncio.sleep(rule.delay_ms / 1000)
        if self._hanging.is_set() or (rule is not None and rule.silent):
            return
        default = INITIALIZED if subtype == "initialize" else {"still_queued": []}
        body = default if subtype in ("initialize", "interrupt") else {}
        if rule is not None and rule.response is not None:
            body = rule.response
        request_id = request_id if rule is None or rule.id is None else rule.id
        error = None if rule is None else rule.error
        self._link.send(success(request_id, body) if error is None else failure(request_id, error))
        self._heard.setdefault(subtype, asyncio.Event()).set()
        if subtype == "interrupt" and self._turn is not None:
            self._turn.cancel("interrupt")

    # Turns.

    async def _play(self) -> None:
        turns = list(self._scenario.turn)
        while (prompt := await self._prompts.get()) is not None:
            if not turns:
                count = len(self._scenario.turn)
                raise ScenarioMismatch(
                    f"{self._scenario.name}: found prompt {prompt[:SHOWN_CHARS]!r}, expected no more prompts: the "
                    f'scenario has {count} turn(s) (`at_end = "repeat"` repeats the last one)'
                )
            turn = turns[0] if len(turns) == 1 and self._scenario.at_end == "repeat" else turns.pop(0)
            self._turn = asyncio.create_task(self._play_turn(turn, prompt))
            await self._turn

    async def _play_turn(self, turn: ScenarioTurn, prompt: str) -> None:
        if turn.prompt is not None and turn.prompt not in prompt:
            raise ScenarioMismatch(
                f"{self._scenario.name}:{turn.line}: found prompt {prompt[:SHOWN_CHARS]!r}, expected one that contains "
                f"{turn.prompt!r}"
            )
        progress = TurnProgress()
        try:
            await self._hooks("UserPromptSubmit", {"prompt": prompt})
            self._link.send(self._make.init())
            for step in turn.steps:
                await self._do(step, progress)
            await self._hooks("Stop", {"stop_hook_active": False})
        except asyncio.CancelledError as exc:
            if exc.args != ("interrupt",):
                raise
            self._end_interrupted(progress)
            return
        if turn.result is not False:
            self._send_result(progress.text, progress, **(turn.result if isinstance(turn.result, dict) else {}))

    def _end_interrupted(self, progress: TurnProgress) -> None:
        self._link.cancel_requests()
        if progress.open_call is not None:
            text = "The tool use was rejected: the turn was interrupted."
            self._link.send(self._make.tool_result(progress.open_call, text, is_error=True))
        self._link.send(self._make.user({"type": "text", "text": "[Request interrupted by user]"}))
        self._send_result(
            "", progress, subtype="error_during_execution", is_error=True, terminal_reason="aborted_streaming"
        )

    def _send_result(self, text: str, progress: TurnProgress, **more: Any) -> None:
        made = self._make.result(
            text, num_turns=progress.num_turns, duration_ms=self._waited_ms, denials=progress.denials, **more
        )
        self._last_is_error = made["is_error"] is True
        self._link.send(made)

    # Steps.

    async def _do(self, step: Step, progress: TurnProgress) -> None:
        match step.kind:
            case "say":
                progress.text = step.say + "x" * (step.pad_to_bytes - len(step.say.encode()))
                await self._link.send_block({"type": "text", "text": progress.text}, step)
            case "think":
                await self._link.send_block(
                    {"type": "thinking", "thinking": step.think, "signature": "c2NyaXB0ZWQ="}, step
                )
            case "call":
                await self._call(step, progress)
            case "hook":
                await self._run_hook(step)
            case "request":
                answer = await self._link.request(step.request, step.id)
                self._check(step, answer.get("response") or answer)
            case "send":
                await self._link.write(msgspec.json.encode(step.send), step)
            case "raw":
                self._transport.write(step.raw.encode() + (b"\n" if step.newline else b""))
            case "wait_ms":
                await asyncio.sleep(step.wait_ms / 1000)
                self._waited_ms += step.wait_ms
            case "wait_for":
                await self._wait_for(step)
            case "stderr":
                self._stderr(step.stderr)
            case "exit":
                raise Exited(step.exit)
            case "kill":
                raise Exited(-int(signal.Signals[str(step.kill)]))
            case "hang":
                self._hanging.set()
                await asyncio.Event().wait()

    async def _call(self, step: Step, progress: TurnProgress) -> None:
        """Call a tool: hooks, permission, the tool, hooks, its result."""
        id = step.id or self._make.new_id("toolu_")
        progress.num_turns += 1
        await self._link.send_block({"type": "tool_use", "id": id, "name": step.call, "input": step.input})
        progress.open_call = id
        about: Json = {"tool_name": step.call, "tool_input": step.input, "tool_use_id": id}
        denial = find_denial(await self._hooks("PreToolUse", about))
        if denial is None and step.ask:
            denial = await self._ask(step, id)
        if denial is not None:
            progress.denials.append(about)
            content, is_error = denial, True
        else:
            content, is_error = await self._run_tool(step)
            await self._hooks("PostToolUse", {**about, "tool_response": content})
        self._link.send(self._make.tool_result(step.result_id or id, content, is_error=is_error))
        progress.open_call = None

    async def _ask(self, step: Step, id: str) -> str | None:
        """Ask the client for permission; the reason if it denies."""
        request = {
            "subtype": "can_use_tool",
            "tool_name": step.call,
            "display_name": step.call,
            "input": step.input,
            "permission_suggestions": [],
            "tool_use_id": id,
        }
        answer = await self._link.request(request)
        body = answer.get("response") or {}
        self._check(step, body or answer)
        if answer.get("subtype") == "success" and body.get("behavior") == "allow":
            return None
        return str(body.get("message") or answer.get("error") or "the client denied the call")

    async def _run_tool(self, step: Step) -> tuple[Any, bool]:
        server = re.match(r"mcp__(.+?)__(.+)$", step.call)
        if step.error is not None:
            return step.error, True
        if step.result is None and server and self._link.has_sdk_server(server[1]):
            found = await self._link.call_sdk_tool(server[1], server[2], step.input)
            return found.get("content", found), found.get("isError") is True
        return step.result if step.result is not None else "done", False

    async def _run_hook(self, step: Step) -> None:
        replies = await self._hooks(step.hook, step.input, always=True)
        if step.expect is not None and not replies:
            raise self._mismatch(step, "no hook of the client", f"one for {step.hook}")
        for reply in replies:
            self._check(step, reply)

    async def _wait_for(self, step: Step) -> None:
        heard = self._heard.setdefault(step.wait_for, asyncio.Event())
        waits = [asyncio.ensure_future(event.wait()) for event in (heard, self._input_ended)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if not heard.is_set():
            raise self._mismatch(step, "the end of the input", f"the control request {step.wait_for}")

    async def _hooks(self, event: str, input: Json, *, always: bool = False) -> list[Json]:
        """Run the hooks of the client for an event; their replies."""
        if not (always or self._scenario.auto_hooks):
            return []
        about = {"session_id": self._session_id, "transcript_path": "", "cwd": self._options.cwd}
        return await self._link.run_hooks(
            event, {**about, "permission_mode": "default", "hook_event_name": event, **input}
        )

    def _check(self, step: Step, found: Json) -> None:
        """Raises ScenarioMismatch."""
        if step.expect is not None and not contains(found, step.expect):
            shown = [msgspec.json.encode(value).decode()[:SHOWN_CHARS] for value in (found, step.expect)]
            raise self._mismatch(step, f"the answer {shown[0]}", f"one that contains {shown[1]}")

    def _mismatch(self, step: Step, found: str, expected: str) -> ScenarioMismatch:
        return ScenarioMismatch(f"{self._scenario.name}:{step.line}: found {found}, expected {expected}")


class TurnProgress:
    """What has happened in a turn."""

    def __init__(self) -> None:
        self.text = ""
        self.num_turns = 1
        self.denials: list[Json] = []
        self.open_call: str | None = None


def find_denial(replies: Sequence[Json]) -> str | None:
    """The reason of the first hook that denies a call."""
    for reply in replies:
        specific = reply.get("hookSpecificOutput") or {}
        if specific.get("permissionDecision") == "deny" or reply.get("decision") == "block":
            return str(specific.get("permissionDecisionReason") or reply.get("reason") or "denied by a hook")
    return None


def contains(found: Any, expected: Any) -> bool:
    """Whether a value has everything that is expected. Objects may have more keys."""
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(contains(found.get(key), value) for key, value in expected.items())
    if isinstance(expected, list):
        return isinstance(found, list) and len(found) == len(expected) and all(map(contains, found, expected))
    return bool(found == expected)
