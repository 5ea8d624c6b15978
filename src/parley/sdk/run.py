"""A whole run in one call.

    result = await run("What is 2 + 2?", Options(model="sonnet"))
    print(result.text)

`run_sync` needs no event loop. A failed run raises ResultError.

See also: `batch.py` for many prompts, `query.py` for all messages of a run, `client.py` for conversations.
"""

from __future__ import annotations

from parley.sdk.client import Client
from parley.sdk.options import Options
from parley.sdk.runtime.prompts import Prompt
from parley.sdk.types.generic import OutputT
from parley.sdk.types.messages import RunResult


async def run(prompt: Prompt, options: Options[OutputT] | None = None, *, check: bool = True) -> RunResult[OutputT]:
    """Send one prompt to a new engine and return the result.

        result = await run("What is the capital of France?", Options(model="sonnet"))
        print(result.text, result.cost_usd)

    Raises ResultError if the turn failed, unless `check` is False; what `Client.connect` raises; and
    MessageParseError if there is an `output_type` that the output does not match.
    """
    async with Client(options) as client:
        return await client.run(prompt, check=check)


def run_sync(prompt: Prompt, options: Options[OutputT] | None = None, *, check: bool = True) -> RunResult[OutputT]:
    """The same as `run`, without async.

        print(run_sync("What is the capital of France?").text)

    It also works where an event loop runs, as in a notebook.
    """
    from parley.sdk.sync import LoopThread

    with LoopThread() as loop:
        return loop.run(run(prompt, options, check=check))
