"""The models of a session: which is asked, how it is reached, what is put around it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from parley.compose.launch_context import Basis
from parley.compose.limits import deadlines
from parley.compose.registry import MODELS, variety
from parley.errors import UsageError
from parley.models.base import Model
from parley.models.catalog import Choice, Facts, facts, resolve
from parley.models.endpoint import Endpoint
from parley.models.prices import Prices
from parley.settings import backends, credentials

if TYPE_CHECKING:
    from parley.compose.certificates import Trust

CLOUDS = tuple(backends.CLOUDS)
ADDRESSES: dict[str, Callable[[dict[str, str]], str]] = {
    "anthropic": backends.anthropic_url,
    "openai": backends.openai_url,
}
"""Models over the network: where their servers are."""


class Models:
    def __init__(self, basis: Basis) -> None:
        self.basis = basis

    def name(self) -> str:
        """The model that a session begins with."""
        asked = self.basis.options.model or self.basis.environment.get("ANTHROPIC_MODEL")
        return str(asked or self.basis.settings.merged.get("model") or "default")

    def small(self) -> str:
        """The model for errands."""
        return self.basis.environment.get("ANTHROPIC_SMALL_FAST_MODEL") or "haiku"

    def check_first(self, name: str | None = None) -> None:
        """What is wrong with a model, the session's by itself, is told at the start. Raises UsageError."""
        chosen = resolve(self.name() if name is None else name)
        self.check(chosen)
        if chosen.adapter not in ADDRESSES:
            self.bare(chosen)  # reads the script or the tape

    def check(self, choice: Choice) -> None:
        """Raises UsageError if a model can never be asked."""
        if not choice.name:
            raise UsageError(f"the model {choice.adapter}: needs a name behind the colon")
        service = self.service(choice)
        if service in CLOUDS:
            backends.check_cloud(service)
        elif service in ADDRESSES:
            ADDRESSES[service](self.basis.environment)

    def service(self, choice: Choice) -> str:
        """The adapter that asks a model: the Messages API may stand in a cloud."""
        cloud = backends.cloud(self.basis.environment) if choice.adapter == "anthropic" else None
        return cloud or choice.adapter

    def open(self, choice: Choice) -> Model:
        """A model with what was asked to be put around it. Raises UsageError or ModelError."""
        model = self.bare(choice)
        return self.wraps.around(model) if self.is_wrapped else model

    def bare(self, choice: Choice) -> Model:
        """Raises UsageError or ModelError."""
        self.check(choice)
        adapter = self.service(choice)
        made: Model = OPENERS[adapter](self, variety(MODELS, adapter, "model adapter"), choice)
        return made

    @property
    def is_wrapped(self) -> bool:
        return bool(self.basis.options.record or self.basis.options.faults)

    @cached_property
    def wraps(self) -> Any:
        """Raises UsageError."""
        from parley.models.wrapping import Wraps

        basis = self.basis
        return Wraps(
            environment=basis.environment,
            secrets=credentials.known(basis.credentials()),
            places={
                "cwd": basis.cwd,
                "home": str(basis.home),
                "config": str(basis.config),
                "tmp": basis.environment.get("TMPDIR") or "/tmp",
            },
            record=Path(basis.cwd, basis.options.record) if basis.options.record else None,
            faults=basis.options.faults or (),
            deadlines=deadlines(basis),
            now=basis.stamp.now,
            clock=basis.stamp.monotonic,
            complain=basis.complain,
        )

    def endpoint(self, find: Callable[[], Endpoint]) -> Endpoint:
        """Raises ModelError if there must be a key and is none."""
        found = find()
        if found.auth is not None and self.basis.options.record:
            self.wraps.redaction.add(found.auth[1].removeprefix("Bearer "))  # a helper's key is known only now
        return found

    def trust(self) -> Trust:
        from parley.compose.certificates import trust

        return trust(self.basis.environment, self.basis.complain)

    def in_cloud(self, name: str, cls: Any) -> Model:
        options = backends.cloud_options(name, self.basis.environment)
        from parley.compose.certificates import EXTRA

        # What the package trusts by itself follows SSL_CERT_FILE and SSL_CERT_DIR.
        names_more = bool(self.basis.environment.get(EXTRA))
        given = self.trust() if names_more else None
        made: Model = cls(options, deadlines=deadlines(self.basis), warn=self.basis.complain, trust=given)
        return made

    def key_source(self, adapter: str) -> str:
        """Where the key of a backend comes from, never the key itself."""
        if adapter == "openai":
            return backends.openai_key_source(self.basis.environment)
        return credentials.source(self.basis.credentials())

    def facts_of(self, choice: Choice) -> Facts:
        """What is known of a model; of the other API's servers some things are declared."""
        known = facts(choice.name)
        if choice.adapter != "openai":
            return known
        fields = backends.declared(self.basis.environment, backends.openai_url(self.basis.environment))
        return msgspec.structs.replace(
            known,
            takes_effort="reasoning_effort" in fields,
            knows_schemas="response_format" in fields,
        )

    def fallbacks(self) -> tuple[str, ...]:
        """Raises UsageError if one of them can never be asked."""
        asked = self.basis.options.fallback_model or self.basis.settings.merged.get("fallbackModel") or ""
        names = tuple(name.strip() for name in str(asked).split(",") if name.strip())
        for name in names:
            self.check(resolve(name))
        return names

    def prices(self) -> Prices:
        path = self.basis.environment.get("PARLEY_PRICES")
        prices = Prices(Path(path) if path else None)
        if path:
            prices.price("")  # a broken table is told at the start, not after the first answer
        return prices


OPENERS: dict[str, Callable[[Models, Any, Choice], Model]] = {
    "anthropic": lambda models, cls, choice: cls(
        lambda: models.endpoint(lambda: backends.anthropic(models.basis.credentials())),
        deadlines=deadlines(models.basis),
        warn=models.basis.complain,
        trust=models.trust(),
    ),
    "bedrock": lambda models, cls, choice: models.in_cloud("bedrock", cls),
    "vertex": lambda models, cls, choice: models.in_cloud("vertex", cls),
    "openai": lambda models, cls, choice: cls(
        lambda: models.endpoint(lambda: backends.openai(models.basis.environment)),
        choice.name,
        models.basis.short_id,
        deadlines=deadlines(models.basis),
        warn=models.basis.complain,
        trust=models.trust(),
    ),
    "scripted": lambda models, cls, choice: cls(
        Path(models.basis.cwd, choice.name), models.basis.short_id, lambda: deadlines(models.basis)
    ),
    "offline": lambda models, cls, choice: cls(models.basis.short_id),
    "replay": lambda models, cls, choice: models.wraps.replay(Path(models.basis.cwd, choice.name)),
}
