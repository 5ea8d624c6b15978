"""Many prompts at the same time, each in a session of its own.

    outcomes = await run_many(prompts, options, concurrency=20)            in the order of the prompts

    async for outcome in run_many(prompts, options, record="answers.jsonl"):
        ...                                                                as they finish

With a record, another call with the same file runs only what has not been answered. The record is a file of
`stores/records.py`: a header, then one line for each prompt that has ended.

See also: `run.py` for one prompt, `budget.py` for a limit in dollars or tokens.
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
import time
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic

import msgspec
from anyio import CancelScope, create_memory_object_stream, current_time, sleep

from parley.errors import UsageError
from parley.protocol.base import Json, Message, Struct, decode, encode_json
from parley.protocol.messages.system import ApiRetry
from parley.sdk.budget import BudgetMeter
from parley.sdk.client import Client
from parley.sdk.errors import (
    BudgetExceeded,
    CLIConnectionError,
    CLINotFoundError,
    NotConnected,
    OptionsError,
    ProcessError,
    ResultError,
    Unfit,
)
from parley.sdk.launch.validation import check_types
from parley.sdk.options import Options
from parley.sdk.runtime.background import start
from parley.sdk.runtime.message_parser import parse_message
from parley.sdk.runtime.prompts import Prompt, build_user
from parley.sdk.schema import parser_of
from parley.sdk.sync import LoopThread
from parley.sdk.types.generic import OutputT
from parley.sdk.types.messages import ResultMessage, RunResult
from parley.stores.records import BATCH, RecordWriter

REDRAW_SECONDS = 0.1
BAR_COLUMNS = 30
ENDING_SECONDS = 5.0
"""How long to wait for the record of a batch whose reader has just stopped."""
TEMPORARY = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
"""The states of a server that another attempt may find changed."""
BROKEN = frozenset({"connection_failed", "timeout_error", "bad_stream"})
HOPELESS = frozenset({401, 402, 403, 404})
"""A wrong key, an account without money, a wrong model or URL: all prompts fail in the same way."""
MISSING = frozenset({"no_key", "proxy", "certificates"})


@dataclass(frozen=True)
class RunOutcome(Generic[OutputT]):
    """What became of one prompt of `run_many`: a result or an error."""

    index: int
    """The position of the prompt."""
    prompt: Prompt
    result: RunResult[OutputT] | None = None
    error: Exception | None = None
    """Why there is no result: ResultError for a failed turn, BudgetExceeded for one that did not start, and others."""
    attempts: int = 1
    """How often the prompt was sent; 0 if the result is from the record, or the prompt cannot be sent."""

    def unwrap(self) -> RunResult[OutputT]:
        """Return the result, or raise the error."""
        if self.result is None:
            raise self.error or RuntimeError("the outcome has neither a result nor an error")
        return self.result


@dataclass(frozen=True)
class RunProgress(Generic[OutputT]):
    """How far `run_many` is, after one more prompt has ended."""

    done: int
    failed: int
    """How many of these have an error."""
    total: int
    latest: RunOutcome[OutputT]
    retries: int = 0
    """How many model calls and prompts were tried again so far."""
    cost_usd: float = 0.0
    """What the answers have cost, as far as prices are known."""


def run_many(
    prompts: Iterable[Prompt],
    options: Options[OutputT] | None = None,
    *,
    concurrency: int = 10,
    retries: int = 0,
    record: str | os.PathLike[str] | None = None,
    on_progress: Callable[[RunProgress[OutputT]], object] | None = None,
    progress: bool | None = None,
) -> Batch[OutputT]:
    """Send each prompt to an engine of its own, some at the same time.

        outcomes = await run_many(prompts, options, concurrency=20, on_progress=lambda p: print(p.done, "of", p.total))
        async for outcome in run_many(prompts, options, retries=2, record="answers.jsonl"): ...

    Awaiting it returns the outcomes in the order of the prompts; iterating yields them as they finish. A prompt that
    fails does not end the others: its outcome has the error. An error that every prompt would have, such as a missing
    key or an unknown model, ends all and is raised. Cancelling ends all engines.

    `retries` is how often a prompt is sent again after a temporary error, in a new session and after the others; its
    tools then run again, too. `record` is a file to which each outcome is written: answers that are already in it are
    not asked for again. With `Options(budget=...)` all prompts share one budget; those that are left when it is spent
    have BudgetExceeded. `engine="local"` saves a process per prompt. `progress` shows a bar on stderr; the default is
    to do so if that is a terminal and the batch is awaited without `on_progress`.

    Raises TypeError or ValueError for invalid arguments, also for a file of another kind, BlockingIOError if another
    process writes the record, and whatever `on_progress` raises.
    """
    for name, value, least in (("concurrency", concurrency, 1), ("retries", retries, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{name} must be a whole number, {least} or more, not {value!r}")
    if isinstance(prompts, str):
        raise TypeError("prompts must be a list of prompts, not one string")
    return Batch(list(prompts), check_types(options), concurrency, retries, record, on_progress, progress)


class Batch(Coroutine[Any, Any, list[RunOutcome[OutputT]]], Generic[OutputT]):
    """The prompts of one `run_many`. Await it or iterate over it, once."""

    def __init__(
        self,
        prompts: list[Prompt],
        options: Options[OutputT],
        concurrency: int,
        retries: int,
        record: str | os.PathLike[str] | None,
        on_progress: Callable[[RunProgress[OutputT]], object] | None,
        progress: bool | None,
    ) -> None:
        self.outcomes: dict[int, RunOutcome[OutputT]] = {}
        """The outcomes so far, by the positions of their prompts."""
        self.retries = 0
        """How many model calls and prompts were tried again so far."""
        self._prompts = prompts
        self._options = options
        self._concurrency = concurrency
        self._most_attempts = 1 + retries
        self._path = None if record is None else Path(record)
        self._on_progress = on_progress
        self._shows_bar = progress
        self._bar = ProgressBar(len(prompts), is_shown=progress is True)
        self._record: BatchRecord | None = None
        self._todo: deque[tuple[int, int]] = deque()
        """The positions of the prompts that are to be sent, and how often they were."""
        self._invalid: dict[int, Exception] = {}
        """What is wrong with the prompts that cannot be sent, by their positions."""
        self._error: Exception | None = None

    # As a coroutine it collects the outcomes, so that `asyncio.run` and `create_task` take it.

    @cached_property
    def _collecting(self) -> Coroutine[Any, Any, list[RunOutcome[OutputT]]]:
        return self._collect()

    def __await__(self) -> Generator[Any, None, list[RunOutcome[OutputT]]]:
        return self._collecting.__await__()

    def send(self, value: Any) -> Any:
        return self._collecting.send(value)

    def throw(self, *exc: Any) -> Any:
        return self._collecting.throw(*exc)

    def close(self) -> None:
        self._collecting.close()

    async def _collect(self) -> list[RunOutcome[OutputT]]:
        if self._shows_bar is None and self._on_progress is None:
            self._bar.is_shown = os.isatty(2)
        async with aclosing(self._run()) as outcomes:
            async for _ in outcomes:
                pass
        return [self.outcomes[index] for index in range(len(self._prompts))]

    def __aiter__(self) -> AsyncGenerator[RunOutcome[OutputT], None]:
        return self._run()

    async def _run(self) -> AsyncGenerator[RunOutcome[OutputT], None]:
        # No task group: the generator may be closed by another task than the one that started it.
        found = await self._open_record()
        push, pull = create_memory_object_stream[RunOutcome[OutputT]](math.inf)
        working = min(self._concurrency, len(self._todo))

        async def work() -> None:
            nonlocal working
            try:
                while self._todo and self._error is None:
                    index, attempts = self._todo.popleft()
                    outcome = await self._run_one(index, attempts + 1)
                    if outcome is not None:
                        self._note(outcome)
                        if self._error is None:
                            push.send_nowait(outcome)
            except Exception as exc:
                self._error = self._error or exc
            working -= 1
            if not working or self._error is not None:
                push.close()

        jobs = [start(work) for _ in range(working)]
        try:
            for outcome in found:
                yield outcome
            if not jobs:
                return
            with pull:
                async for outcome in pull:
                    yield outcome
            if self._error is not None:
                raise self._error
        finally:
            for job in jobs:
                job.cancel()
            with CancelScope(shield=True):
                for job in jobs:
                    await job.wait()
            push.close()
            pull.close()
            self._bar.finish()
            if self._record is not None:
                self._record.close()

    async def _open_record(self) -> list[RunOutcome[OutputT]]:
        """Find what is to be done. Returns the outcomes that are in the record."""
        deadline = current_time() + ENDING_SECONDS
        while self._path is not None and self._record is None:
            try:
                self._record = BatchRecord(self._path)
            except BlockingIOError:
                if current_time() > deadline:
                    raise
                await sleep(0.05)
        parser = None if self._options.output_type is None else parser_of(self._options.output_type)
        for index, prompt in enumerate(self._prompts):
            if (problem := find_problem(prompt)) is not None:
                self._invalid[index] = problem
            answer = None if self._record is None or problem is not None else self._record.take(prompt)
            if answer is None:
                self._todo.append((index, 0))
                continue
            wire = decode(msgspec.json.encode(answer.result))
            if self._options.budget is not None:
                BudgetMeter(self._options.budget, is_resumed=False)(wire)
            message = parse_message(wire)
            assert isinstance(message, ResultMessage)
            result: RunResult[OutputT] = RunResult(message, parser, answer.model)
            self.outcomes[index] = RunOutcome(index, prompt, result, attempts=0)
        return list(self.outcomes.values())

    async def _run_one(self, index: int, attempts: int) -> RunOutcome[OutputT] | None:
        """Send a prompt; None if it is to be sent again. Raises what ends the batch."""
        prompt, is_open = self._prompts[index], False
        if index in self._invalid:
            return RunOutcome(index, prompt, error=self._invalid[index], attempts=0)
        try:
            client = Client(self._options)
            client.watchers.append(self._count_retry)
            async with client:
                is_open = True
                return RunOutcome(index, prompt, result=await client.run(prompt), attempts=attempts)
        except Exception as exc:
            if fails_all(exc) or (not is_open and isinstance(exc, TypeError | ValueError)):  # of an invalid option
                raise
            if attempts < self._most_attempts and is_temporary(exc):
                self.retries += 1
                self._todo.append((index, attempts))
                return None
            return RunOutcome(index, prompt, error=exc, attempts=attempts)

    def _count_retry(self, message: Message) -> None:
        self.retries += isinstance(message, ApiRetry)

    def _note(self, outcome: RunOutcome[OutputT]) -> None:
        self.outcomes[outcome.index] = outcome
        if self._record is not None:
            self._record.append(outcome)
        failed = sum(one.error is not None for one in self.outcomes.values())
        cost = sum(one.result.cost_usd or 0.0 for one in self.outcomes.values() if one.result)
        done = RunProgress(len(self.outcomes), failed, len(self._prompts), outcome, self.retries, cost)
        self._bar.draw(done.done, f"{failed} failed, {self.retries} retries" + (f", ${cost:.2f}" if cost else ""))
        if self._on_progress is not None and self._error is None:
            self._on_progress(done)


def find_problem(prompt: Prompt) -> Exception | None:
    """Why a prompt cannot be sent."""
    try:
        encode_json(build_user(prompt, "", None, verbatim=False))
        hash_prompt(prompt)
    except Exception as exc:
        return exc
    return None


def fails_all(error: Exception) -> bool:
    """Whether an error is one of the configuration, so that every prompt has it."""
    if isinstance(error, ResultError):
        return error.api_error_status in HOPELESS or error.reason in MISSING
    return isinstance(error, OptionsError | CLINotFoundError | Unfit)


def is_temporary(error: Exception) -> bool:
    if isinstance(error, ResultError):
        return error.api_error_status in TEMPORARY or error.reason in BROKEN
    return isinstance(error, ProcessError | CLIConnectionError) and not isinstance(error, NotConnected)


class BatchHeader(Struct, frozen=True):
    """The header of a record."""

    prompts_by: str = "sha256"


class AnswerRecord(Struct, frozen=True, kw_only=True):
    """The end of one prompt."""

    prompt: str
    """The hash of the prompt, which the file does not contain."""
    result: Json | None = None
    model: str | None = None
    error: str = ""


class BatchRecord:
    """The answers that are in a file, and the file for the next ones."""

    def __init__(self, path: Path) -> None:
        """Raises ValueError for another kind of file, OSError, and BlockingIOError if another process writes it."""
        self._answers: defaultdict[str, deque[AnswerRecord]] = defaultdict(deque)
        self._started = time.monotonic()
        if not path.exists():
            self._writer = RecordWriter.create(path, BATCH, BatchHeader())
            return
        decoder = msgspec.json.Decoder(AnswerRecord)
        try:
            self._writer, found = RecordWriter.resume(path, BATCH)
            answers = [filed.decode(decoder) for filed in found.records]
        except UsageError as exc:
            raise ValueError(str(exc)) from None
        for answer in answers:
            if answer.result is not None:
                self._answers[answer.prompt].append(answer)

    def take(self, prompt: Prompt) -> AnswerRecord | None:
        """An answer to a prompt; each answer is for one."""
        found = self._answers[hash_prompt(prompt)]
        return found.popleft() if found else None

    def append(self, outcome: RunOutcome[Any]) -> None:
        """Record an outcome, unless the prompt was not sent: there was no money, or it is invalid. Raises OSError."""
        if isinstance(outcome.error, BudgetExceeded) or not outcome.attempts:
            return
        answer, digest = outcome.result, hash_prompt(outcome.prompt)
        kept = AnswerRecord(prompt=digest, error=str(outcome.error or ""))
        if answer is not None:
            kept = AnswerRecord(prompt=digest, result=answer.message.raw, model=answer.model)
        self._writer.append((time.monotonic() - self._started) * 1000, kept)

    def close(self) -> None:
        self._writer.close()


def hash_prompt(prompt: Prompt) -> str:
    return hashlib.sha256(msgspec.json.encode(prompt)).hexdigest()


class ProgressBar:
    """How far something is, in one line of a terminal on stderr."""

    def __init__(self, total: int, *, is_shown: bool) -> None:
        self.is_shown = is_shown
        self._total = total
        self._drawn_at = -math.inf
        self._last = ""

    def draw(self, done: int, text: str) -> None:
        filled = BAR_COLUMNS * done // max(1, self._total)
        self._last = f"\r[{'#' * filled}{'.' * (BAR_COLUMNS - filled)}] {done}/{self._total}: {text}\x1b[K"
        if time.monotonic() - self._drawn_at >= REDRAW_SECONDS:
            self._write(self._last)

    def finish(self) -> None:
        """Leave the last state on the screen."""
        if self._last:
            self._write(f"{self._last}\n")

    def _write(self, text: str) -> None:
        if self.is_shown:
            self._drawn_at = time.monotonic()
            sys.stderr.write(text)
            sys.stderr.flush()


def run_many_sync(
    prompts: Iterable[Prompt],
    options: Options[OutputT] | None = None,
    *,
    concurrency: int = 10,
    retries: int = 0,
    record: str | os.PathLike[str] | None = None,
    on_progress: Callable[[RunProgress[OutputT]], object] | None = None,
    progress: bool | None = None,
) -> list[RunOutcome[OutputT]]:
    """The same as awaiting `run_many`, without async. `on_progress` is called in another thread."""
    batch = run_many(
        prompts,
        options,
        concurrency=concurrency,
        retries=retries,
        record=record,
        on_progress=on_progress,
        progress=progress,
    )
    with LoopThread() as loop:
        return loop.run(batch)
