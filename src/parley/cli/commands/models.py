"""`parley models`: list the configured models, and check whether they respond.

parley models                   list models and backends; sends no request
parley models --check           send a small request to the default model of this directory
parley models --check NAME...   send a small request to each of these models
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import aclosing

from parley.cli.stdio import warn
from parley.compose.launch_context import LaunchContext, working_directory
from parley.compose.models import ModelFactory
from parley.errors import ModelError, UsageError
from parley.models.accumulator import MessageAccumulator
from parley.models.base import ModelRequest
from parley.models.catalog import ALIASES, ModelRef, list_backends, model_info
from parley.models.endpoint import without_userinfo
from parley.models.prices import Prices
from parley.protocol.options import CliOptions

USAGE = "usage: parley models | parley models --check [NAME ...]"
CHECK_SECONDS = 60
CHECK_TOKENS = 2_048
"""Enough for a model that thinks before it answers."""


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    basis = LaunchContext(CliOptions(), dict(os.environ), working_directory())
    basis.warn = warn
    models = ModelFactory(basis)
    match argv:
        case ["--help" | "-h"]:
            lines, code = [USAGE], 0
        case []:
            lines, code = format_listing(models), 0
        case ["--check", *names] if not any(name.startswith("-") for name in names):
            lines, code = asyncio.run(check_models(models, names or [models.name()]))
        case _:
            raise UsageError(USAGE)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return code


def format_listing(models: ModelFactory) -> list[str]:
    """List models and backends. Raises UsageError for an invalid base URL."""
    prices, current = models.prices(), models.resolve(models.name())
    aliases = [(alias, *model_row(models.resolve(alias), prices)) for alias in ALIASES]
    return [
        f"default model: {current.display_name} (price {format_price(current, prices)})",
        "",
        *format_columns([("alias", "model", "window", "price"), *aliases]),
        "",
        *format_columns([("backend", "where", "key"), *(backend_row(models, name) for name in list_backends())]),
    ]


def model_row(choice: ModelRef, prices: Prices) -> tuple[str, str, str]:
    return choice.display_name, f"{model_info(choice.name).context_window:,}", format_price(choice, prices)


def format_price(choice: ModelRef, prices: Prices) -> str:
    return "known" if prices.price(choice.display_name) is not None else "unknown: costs are null"


def backend_row(models: ModelFactory, name: str) -> tuple[str, str, str]:
    row = ModelRef(name, "").backend
    if row.chosen_by == "environment":
        return name, f"CLAUDE_CODE_USE_{name.upper()}=1", "the cloud's own credentials"
    address, key_source = models.describe_server(name)
    if not address:
        return name, row.about, "none needed" if row.is_fake else "its own"
    return name, without_userinfo(address), key_source


def format_columns(rows: list[tuple[str, ...]]) -> list[str]:
    """Align the columns of rows."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


async def check_models(models: ModelFactory, names: list[str]) -> tuple[list[str], int]:
    """Send a small request to each model; returns the lines to print and the exit code."""
    rows: list[tuple[str, ...]] = []
    code = 0
    for name in names:
        started = time.monotonic()
        try:
            choice, reply = await check_model(models, name)
            text = f"answers ({reply.model or 'no name'}, {round((time.monotonic() - started) * 1000)} ms)"
            rows.append((choice.display_name, text))
        except (ModelError, UsageError) as exc:
            status = getattr(exc, "status", None)
            rows.append((name, f"fails: {f'{status} ' if status else ''}{exc}"))
            code = 1
    return format_columns(rows), code


async def check_model(models: ModelFactory, name: str) -> tuple[ModelRef, MessageAccumulator]:
    """Raises ModelError or UsageError."""
    choice, reply = models.resolve(name), MessageAccumulator()
    model = models.open(choice)
    request = ModelRequest(
        model=choice.request_name,
        system=[],
        messages=[{"role": "user", "content": [{"type": "text", "text": "say OK"}]}],
        max_tokens=CHECK_TOKENS,
    )
    try:
        async with asyncio.timeout(CHECK_SECONDS), aclosing(model.stream(request)) as events:
            async for event in events:
                reply.feed(event)
    except TimeoutError:
        raise ModelError(f"no response within {CHECK_SECONDS} s") from None
    finally:
        await model.close()
    if not reply.is_complete:
        raise ModelError("the model's response ended early")
    return choice, reply
