"""The result of a whole run."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Generic

from parley.protocol.base import Json
from parley.protocol.messages.result import Result
from parley.sdk.structured import parse
from parley.sdk.types.generic import OutputT
from parley.sdk.types.messages import ResultMessage


class RunResult(Generic[OutputT]):
    """What `run`, `run_sync` and `Client.run` return: the answer, and what it took.

    result = await client.run("Describe Ulm.")
    print(result.text, result.output, result.model, result.usage["output_tokens"], result.cost_usd)
    """

    def __init__(
        self, message: ResultMessage, parser: Callable[[Any], Any] | None = None, model: str | None = None
    ) -> None:
        self.message = message
        """The whole result."""
        self.model = model
        """The model that gave the answer; None if none did."""
        self._parser = parser

    def __repr__(self) -> str:
        return f"RunResult({self.text!r:.200})"

    @property
    def text(self) -> str:
        """The answer as text; of a failed turn (`check=False`), the error."""
        return self.message.result or ""

    @cached_property
    def output(self) -> OutputT:
        """The structured output, as `Options.output_type` if that is set. Raises MessageParseError if there is none."""
        found: OutputT = parse(self.message, self._parser)
        return found

    @property
    def is_error(self) -> bool:
        """Whether the turn failed. Only with `check=False`; otherwise ResultError was raised."""
        return self.message.is_error

    @property
    def cost_usd(self) -> float | None:
        """What the session has cost so far; None if the price of a model is not known."""
        wire = self.message.wire
        known = wire.total_cost_usd if isinstance(wire, Result) else self.message.total_cost_usd
        return known if isinstance(known, int | float) else None

    @property
    def usage(self) -> Json:
        """The tokens of the turn: `input_tokens`, `output_tokens` and others. Empty if no model was called."""
        return self.message.usage or {}

    @property
    def denials(self) -> list[Json]:
        """The calls of the turn that were denied: `tool_name`, `tool_input`, `tool_use_id`."""
        return self.message.permission_denials or []

    @property
    def session_id(self) -> str:
        """The session, for `Options.resume`."""
        return self.message.session_id
