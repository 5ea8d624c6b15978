"""`parley models`: list the configured models, and check whether they respond.

parley models [--json]          list models and backends; sends no request
parley models --check           send a small request to the default model of this directory
parley models --check NAME...   send a small request to each of these models
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import aclosing

from parley.cli.commands.subcommand import SWITCH, parse_words, write_json, write_lines
from parley.cli.stdio import warn
from parley.compose.launch_context import LaunchContext, working_directory
from parley.compose.models import ModelFactory
from parley.errors import ModelError, UsageError
from parley.models.accumulator import MessageAccumulator
from parley.models.base import ModelRequest
from parley.models.catalog import ALIASES, ModelRef, list_backends
from parley.models.endpoint import without_userinfo
from parley.models.prices import BUILT_IN, Price, read_table
from parley.protocol.base import Json
from parley.protocol.options import CliOptions

USAGE = "usage: parley models [--json] | parley models --check [NAME ...]"
CHECK_SECONDS = 60
CHECK_TOKENS = 2_048
"""Enough for a model that thinks before it answers."""


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    if "--help" in argv or "-h" in argv:
        return write_lines([USAGE])
    given = parse_words(argv, {"--check": SWITCH, "--json": SWITCH})
    is_check, as_json = given.has("--check"), given.has("--json")
    if (given.words and not is_check) or (is_check and as_json):
        raise UsageError(USAGE)
    basis = LaunchContext(CliOptions(), dict(os.environ), working_directory())
    basis.warn = warn
    models = ModelFactory(basis)
    if is_check:
        return write_lines(*asyncio.run(check_models(models, list(given.words) or [models.name()])))
    listing = build_listing(models)
    return write_json(listing) if as_json else write_lines(format_listing(listing))


def build_listing(models: ModelFactory) -> Json:
    """The models and backends. Raises UsageError for an invalid base URL, price file or setting."""
    named = {alias: models.resolve(alias) for alias in ALIASES}
    listed = {choice.display_name for choice in named.values()}
    others = [name for name in read_table(BUILT_IN) if not name.endswith(":") and name not in listed]
    return {
        "default": describe_model(models, models.resolve(models.name())),
        "models": [
            *({"alias": alias, **describe_model(models, choice)} for alias, choice in named.items()),
            *({"alias": None, **describe_model(models, models.resolve(name))} for name in others),
        ],
        "configured": [*describe_entries(models)],
        "backends": [describe_backend(models, name) for name in list_backends()],
    }


def describe_model(models: ModelFactory, choice: ModelRef) -> Json:
    known, found = models.get_model_info(choice), models.prices().find(choice.display_name)
    return {
        "model": choice.display_name,
        "contextWindow": known.context_window,
        "maxOutputTokens": known.max_output_tokens,
        "price": None if found is None else describe_price(found.price),
        "sources": {
            "contextWindow": models.find_limit_source(choice, "contextWindow"),
            "maxOutputTokens": models.find_limit_source(choice, "maxOutputTokens"),
            "price": None if found is None else found.source,
        },
    }


def describe_entries(models: ModelFactory) -> Iterator[Json]:
    """What the user says of models, by how their names begin."""
    for prefix, model in models.configured.items():
        entry, price = model.entry, model.entry.price
        yield {
            "prefix": prefix,
            "contextWindow": entry.contextWindow,
            "maxOutputTokens": entry.maxOutputTokens,
            "price": None if price is None else describe_price(price.to_price()),
            "source": model.source,
        }
    for prefix, known in models.prices().read_file().items():
        limits = {"contextWindow": None, "maxOutputTokens": None}
        yield {"prefix": prefix, **limits, "price": describe_price(known.price), "source": known.source}


def describe_price(price: Price) -> Json:
    """Dollars per million tokens. Cached tokens have their usual share of the price unless it is set."""
    named = {
        "input": price.input,
        "output": price.output,
        "cacheRead": price.cache_read,
        "cacheWrite5m": price.cache_write_5m,
        "cacheWrite1h": price.cache_write_1h,
    }
    return {name: dollars for name, dollars in named.items() if dollars is not None}


def describe_backend(models: ModelFactory, name: str) -> Json:
    row = ModelRef(name, "").backend
    if row.chosen_by == "environment":
        return {"backend": name, "where": f"CLAUDE_CODE_USE_{name.upper()}=1", "key": "the cloud's own credentials"}
    address, key_source = models.describe_server(name)
    if not address:
        return {"backend": name, "where": row.about, "key": "none needed" if row.is_fake else "its own"}
    return {"backend": name, "where": without_userinfo(address), "key": key_source}


def format_listing(listing: Json) -> list[str]:
    default = listing["default"]
    titles = ("model", "window", "output", "$ per million in/out", "from")
    known = [(row["alias"] or "", *format_model(row, format_sources(row["sources"]))) for row in listing["models"]]
    own = [format_model({"model": f"{row['prefix']}…", **row}, row["source"]) for row in listing["configured"]]
    backends = [tuple(row.values()) for row in listing["backends"]]
    return [
        f"default model: {default['model']} ({format_price(default['price'])})",
        "",
        *format_columns([("alias", *titles), *known]),
        "",
        *(["your settings and price file:", *format_columns([titles, *own]), ""] if own else []),
        *format_columns([("backend", "where", "key"), *backends]),
    ]


def format_model(row: Json, source: str) -> tuple[str, ...]:
    window, output = (f"{row[key]:,}" if row[key] else "" for key in ("contextWindow", "maxOutputTokens"))
    price = "" if "prefix" in row and row["price"] is None else format_price(row["price"])
    return row["model"], window, output, price, source


def format_sources(sources: Json) -> str:
    """One word if all values are from the same place."""
    found = {key: source for key, source in sources.items() if source is not None}
    if len(set(found.values())) == 1:
        return str(sources["contextWindow"])
    names = {"contextWindow": "window", "maxOutputTokens": "output", "price": "price"}
    return ", ".join(f"{names[key]}: {source}" for key, source in found.items())


def format_price(price: Json | None) -> str:
    return "no known price" if price is None else f"{price['input']:g} / {price['output']:g}"


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
