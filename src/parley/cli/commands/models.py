"""`parley models`: which models can be asked from here, where they are, and whether they answer.

parley models                   what is configured; nothing is asked
parley models --check           one tiny request to the model of a session here
parley models --check NAME...   one tiny request to each of these
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import aclosing

from parley.cli.stdio import complain
from parley.compose.launch_context import Basis, working_directory
from parley.compose.models import ADDRESSES, CLOUDS, Models
from parley.compose.registry import MODELS
from parley.errors import ModelError, UsageError
from parley.models.accumulator import Growing
from parley.models.base import ModelRequest
from parley.models.catalog import ALIASES, Choice, facts, resolve
from parley.models.endpoint import without_userinfo
from parley.models.prices import Prices
from parley.protocol.options import Options

USAGE = "usage: parley models | parley models --check [NAME ...]"
CHECK_SECONDS = 60
CHECK_TOKENS = 2_048
"""Enough for a model that thinks before it says a word."""
WITHOUT_SERVER = {
    "offline": "the built-in puppet: no key, no network",
    "scripted": "scripted:FILE plays a script",
    "replay": "replay:FILE plays a tape",
}


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    basis = Basis(Options(), dict(os.environ), working_directory())
    basis.complain = complain
    models = Models(basis)
    match argv:
        case ["--help" | "-h"]:
            lines, code = [USAGE], 0
        case []:
            lines, code = listing(models), 0
        case ["--check", *names] if not any(name.startswith("-") for name in names):
            lines, code = asyncio.run(checked(models, names or [models.name()]))
        case _:
            raise UsageError(USAGE)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return code


def listing(models: Models) -> list[str]:
    """What is configured. Raises UsageError for an address that is none."""
    prices, current = models.prices(), resolve(models.name())
    aliases = [(alias, *model_row(Choice("anthropic", name), prices)) for alias, name in ALIASES.items()]
    return [
        f"model of a session here: {current.shown} (price {price(current, prices)})",
        "",
        *columns([("alias", "model", "window", "price"), *aliases]),
        "",
        *columns([("backend", "where", "key"), *(backend_row(models, name) for name in MODELS)]),
    ]


def model_row(choice: Choice, prices: Prices) -> tuple[str, str, str]:
    return choice.shown, f"{facts(choice.name).context_window:,}", price(choice, prices)


def price(choice: Choice, prices: Prices) -> str:
    return "known" if prices.price(choice.shown) is not None else "not known: costs are null"


def backend_row(models: Models, name: str) -> tuple[str, str, str]:
    if name in CLOUDS:
        return name, f"CLAUDE_CODE_USE_{name.upper()}=1", "the cloud's own credentials"
    if name not in ADDRESSES:
        return name, WITHOUT_SERVER[name], "none needed"
    return name, without_userinfo(ADDRESSES[name](models.basis.environment)), models.key_source(name)


def columns(rows: list[tuple[str, ...]]) -> list[str]:
    """The rows with their columns under each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


async def checked(models: Models, names: list[str]) -> tuple[list[str], int]:
    """What each model answers to one small question, and the exit code."""
    rows: list[tuple[str, ...]] = []
    code = 0
    for name in names:
        begun = time.monotonic()
        try:
            choice, growing = await asked(models, name)
            text = f"answers ({growing.model or 'no name'}, {round((time.monotonic() - begun) * 1000)} ms)"
            rows.append((choice.shown, text))
        except (ModelError, UsageError) as flaw:
            status = getattr(flaw, "status", None)
            rows.append((name, f"fails: {f'{status} ' if status else ''}{flaw}"))
            code = 1
    return columns(rows), code


async def asked(models: Models, name: str) -> tuple[Choice, Growing]:
    """Raises ModelError or UsageError."""
    choice, growing = resolve(name), Growing()
    model = models.open(choice)
    request = ModelRequest(
        model=choice.name if choice.adapter == "anthropic" else choice.shown,
        system=[],
        messages=[{"role": "user", "content": [{"type": "text", "text": "say OK"}]}],
        max_tokens=CHECK_TOKENS,
    )
    try:
        async with asyncio.timeout(CHECK_SECONDS), aclosing(model.stream(request)) as events:
            async for event in events:
                growing.feed(event)
    except TimeoutError:
        raise ModelError(f"no answer within {CHECK_SECONDS} s") from None
    finally:
        await model.close()
    if not growing.complete:
        raise ModelError("the model's stream broke off")
    return choice, growing
