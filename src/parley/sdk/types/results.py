"""The result of a whole run."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Generic

from parley.sdk.types.generic import OutputT
from parley.sdk.types.messages import ResultMessage


class RunResult(Generic[OutputT]):
    """What `run`, `run_sync` and `Client.run` return: the answer, and what it took.

    result = await client.run("Describe Ulm.")
    print(result.text, result.output, result.cost_usd)
    """

    def __init__(self, message: ResultMessage, parser: Callable[[Any], Any] | None = None) -> None:
        self.message = message
        """The whole result."""
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
        from parley.sdk.structured import parse

        found: OutputT = parse(self.message, self._parser)
        return found

    @property
    def is_error(self) -> bool:
        """Whether the turn failed. Only with `check=False`; otherwise ResultError was raised."""
        return self.message.is_error

    @property
    def cost_usd(self) -> float | None:
        """What the session has cost so far; None if the price of a model is not known."""
        return self.message.total_cost_usd

    @property
    def session_id(self) -> str:
        """The session, for `Options.resume`."""
        return self.message.session_id
