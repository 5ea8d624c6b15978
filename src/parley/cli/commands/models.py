"""`parley models`: list the configured models, and check whether they respond.

parley models                   list models and backends; sends no request
parley models --check           send a small request to the default model of this directory
parley models --check NAME...   send a small request to each of these models
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing

from parley.cli.commands.catalog import COMMANDS
from parley.cli.commands.launch import open_launch
from parley.cli.commands.subcommand import GivenArgs, run_command, write_json, write_lines
from parley.cli.style import choose_style, format_table
from parley.compose.models import ModelFactory
from parley.errors import InvalidArguments, ModelError, UsageError
from parley.models.accumulator import MessageAccumulator
from parley.models.base import ModelRequest
from parley.models.catalog import ALIASES, ModelRef, list_backends, model_info
from parley.models.endpoint import without_userinfo
from parley.models.prices import Prices
from parley.protocol.base import Json

CHECK_SECONDS = 60
CHECK_TOKENS = 2_048
"""Enough for a model that thinks before it answers."""


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    return run_command(COMMANDS["models"], argv, {"": show_models})


def show_models(given: GivenArgs) -> int:
    models = ModelFactory(open_launch())
    if given.has("check"):
        results = asyncio.run(check_models(models, given.words or (models.name(),)))
        code = 0 if all(row["ok"] for row in results) else 1
        if given.has("json"):
            return write_json(results, code)
        return write_lines(format_table(("", ""), [(row["model"], describe(row)) for row in results])[1:], code)
    if given.words:
        raise InvalidArguments(f"unexpected argument {given.words[0]!r} (to test a model: parley models --check NAME)")
    listing = list_models(models)
    return write_json(listing) if given.has("json") else write_lines(format_listing(listing))


def list_models(models: ModelFactory) -> Json:
    """Models and backends. Raises UsageError for an invalid base URL."""
    prices, current = models.prices(), models.resolve(models.name())
    return {
        "default": model_row(current, prices),
        "models": [{"alias": alias, **model_row(models.resolve(alias), prices)} for alias in ALIASES],
        "backends": [backend_row(models, name) for name in list_backends()],
    }


def model_row(choice: ModelRef, prices: Prices) -> Json:
    return {
        "model": choice.display_name,
        "context_window": model_info(choice.name).context_window,
        "has_price": prices.price(choice.display_name) is not None,
    }


def format_listing(listing: Json) -> list[str]:
    default = listing["default"]
    aliases = [
        (row["alias"], row["model"], f"{row['context_window']:,}", format_price(row)) for row in listing["models"]
    ]
    backends = [(row["backend"], row["address"], row["key"]) for row in listing["backends"]]
    style = choose_style()
    return [
        f"default model: {style.bold(default['model'])} (price {format_price(default)})",
        "",
        *format_table(("alias", "model", "window", "price"), aliases, right=("window",)),
        "",
        *format_table(("backend", "where", "key"), backends),
    ]


def format_price(row: Json) -> str:
    return "known" if row["has_price"] else "unknown: costs are null"


def backend_row(models: ModelFactory, name: str) -> Json:
    row = ModelRef(name, "").backend
    if row.chosen_by == "environment":
        return {"backend": name, "address": f"CLAUDE_CODE_USE_{name.upper()}=1", "key": "the cloud's own credentials"}
    address, key_source = models.describe_server(name)
    if not address:
        return {"backend": name, "address": row.about, "key": "none needed" if row.is_fake else "its own"}
    return {"backend": name, "address": without_userinfo(address), "key": key_source}


async def check_models(models: ModelFactory, names: Sequence[str]) -> list[Json]:
    """Send a small request to each model."""
    results: list[Json] = []
    for name in names:
        started = time.monotonic()
        try:
            choice, reply = await check_model(models, name)
            seconds = time.monotonic() - started
            results.append({"model": choice.display_name, "ok": True, "answered_as": reply.model, "seconds": seconds})
        except (ModelError, UsageError) as exc:
            results.append({"model": name, "ok": False, "status": getattr(exc, "status", None), "error": str(exc)})
    return results


def describe(row: Json) -> str:
    if row["ok"]:
        return f"answers ({row['answered_as'] or 'no name'}, {round(row['seconds'] * 1000)} ms)"
    status = f"{row['status']} " if row["status"] else ""
    return f"fails: {status}{row['error']}"


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
