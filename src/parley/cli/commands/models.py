"""`parley models`: list the configured models, and check whether they respond.

parley models                   list models and backends; sends no request
parley models --check           send a small request to the default model of this directory
parley models --check NAME...   send a small request to each of these models
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import aclosing

from msgspec import to_builtins

from parley.cli.commands.subcommand import GivenArgs, choose_style, open_launch, write_result
from parley.compose.models import ModelFactory
from parley.compose.setup.model_server import find_limits
from parley.errors import InvalidArguments, ModelError, UsageError
from parley.models.accumulator import MessageAccumulator
from parley.models.base import ModelRequest
from parley.models.catalog import ALIASES, BUILT_IN, CHECKED, OPUSPLAN, ModelRef, Price, list_backends, read_table
from parley.models.endpoint import without_userinfo
from parley.protocol.base import Json
from parley.terminal.rendering.text import format_table

CHECK_SECONDS = 60
CHECK_TOKENS = 2_048
"""Enough for a model that thinks before it answers."""


def show_models(given: GivenArgs) -> int:
    models = ModelFactory(open_launch())
    if given.has("check"):
        results = asyncio.run(check_models(models, given.words or (models.name(),)))
        code = 0 if all(row["ok"] for row in results) else 1
        _, *lines = format_table(("", ""), [(row["model"], describe(row)) for row in results])
        return write_result(given, results, lines, code)
    if given.words:
        raise InvalidArguments(f"unexpected argument {given.words[0]!r} (to test a model: parley models --check NAME)")
    # Models and backends.
    named = {alias: models.resolve(alias) for alias in (*ALIASES, OPUSPLAN)}
    listed = {choice.display_name for choice in named.values()}
    others = [name for name in read_table(BUILT_IN) if not name.endswith(":") and name not in listed]
    listing = {
        "checked": CHECKED,
        "default": model_row(models, models.resolve(models.name())),
        "models": [
            *({"alias": alias, **model_row(models, choice)} for alias, choice in named.items()),
            *({"alias": None, **model_row(models, models.resolve(name))} for name in others),
        ],
        "configured": list(configured_rows(models)),
        "backends": [backend_row(models, name) for name in list_backends()],
    }
    return write_result(given, listing, format_listing(listing))


def model_row(models: ModelFactory, choice: ModelRef) -> Json:
    known, found = models.get_model_info(choice), models.prices().find(choice.display_name)
    return {
        "model": choice.display_name,
        "context_window": known.context_window,
        "max_output_tokens": known.max_output_tokens,
        "thinking": known.thinking,
        "efforts": list(known.efforts),
        "price": None if found is None else price_row(found.price),
        "sources": {
            "context_window": models.find_limit_source(choice, "contextWindow"),
            "max_output_tokens": models.find_limit_source(choice, "maxOutputTokens"),
            "price": None if found is None else found.source,
        },
    }


def configured_rows(models: ModelFactory) -> Iterator[Json]:
    """What the user says of models, by how their names begin."""
    for prefix, model in models.configured.items():
        entry, price = model.entry, model.entry.price
        yield {
            "prefix": prefix,
            "context_window": entry.contextWindow,
            "max_output_tokens": entry.maxOutputTokens,
            "thinking": entry.thinking,
            "efforts": entry.efforts,
            "price": None if price is None else price_row(price.to_price()),
            "source": model.source,
        }
    for prefix, known in models.prices().read_file().items():
        limits = dict.fromkeys(("context_window", "max_output_tokens", "thinking", "efforts"))
        yield {"prefix": prefix, **limits, "price": price_row(known.price), "source": known.source}


def price_row(price: Price) -> Json:
    """Dollars per million tokens. Cached tokens have their usual share of the price unless it is set."""
    rows: Json = to_builtins(price)
    return {name: dollars for name, dollars in rows.items() if dollars is not None and name != "web_search"}


def format_listing(listing: Json) -> list[str]:
    style, default = choose_style(), listing["default"]
    titles = ("model", "window", "output", "thinking", "$ per million in/out", "from")
    known = [(row["alias"] or "", *format_model(row, format_sources(row["sources"]))) for row in listing["models"]]
    own = [format_model({"model": f"{row['prefix']}…", **row}, row["source"]) for row in listing["configured"]]
    backends = [(row["backend"], row["address"], row["key"]) for row in listing["backends"]]
    return [
        f"default model: {style.bold(default['model'])} ({format_price(default['price'])})",
        f"the built-in values were last checked on {listing['checked']}",
        "",
        *format_table(("alias", *titles), known, right=("window", "output")),
        "",
        *(["your settings and price file:", *format_table(titles, own, right=("window", "output")), ""] if own else []),
        *format_table(("backend", "where", "key"), backends),
    ]


def format_model(row: Json, source: str) -> tuple[str, ...]:
    window, output = (f"{row[key]:,}" if row[key] else "" for key in ("context_window", "max_output_tokens"))
    price = "" if "prefix" in row and row["price"] is None else format_price(row["price"])
    return row["model"], window, output, row["thinking"] or "", price, source


def format_sources(sources: Json) -> str:
    """One word if all values are from the same place."""
    found = {key: source for key, source in sources.items() if source is not None}
    if len(set(found.values())) == 1:
        return str(sources["context_window"])
    names = {"context_window": "window", "max_output_tokens": "output", "price": "price"}
    return ", ".join(f"{names[key]}: {source}" for key, source in found.items())


def format_price(price: Json | None) -> str:
    return "no known price" if price is None else f"{price['input']:g} / {price['output']:g}"


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
            served = await asyncio.to_thread(find_limits, models, choice.name) if choice.backend.adapts_info else None
            results.append(
                {
                    "model": choice.display_name,
                    "ok": True,
                    "answered_as": reply.model,
                    "seconds": seconds,
                    **({} if served is None else {"served": to_builtins(served)}),
                }
            )
        except (ModelError, UsageError) as exc:
            results.append({"model": name, "ok": False, "status": getattr(exc, "status", None), "error": str(exc)})
    return results


def describe(row: Json) -> str:
    if row["ok"]:
        served = row.get("served") or {}
        window = served.get("context_window")
        facts = [f"window {window:,}"] if window else []
        for name, has in (("tools", served.get("has_tools")), ("reasoning", served.get("has_reasoning"))):
            facts += [] if has is None else [name if has else f"no {name}"]
        about = ", ".join([row["answered_as"] or "no name", f"{round(row['seconds'] * 1000)} ms", *facts])
        return f"answers ({about})"
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
