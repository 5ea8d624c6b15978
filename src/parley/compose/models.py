"""The models of a session: which is asked, how it is reached, what is put around it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from parley.compose.launch_context import LaunchContext
from parley.compose.limits import make_deadlines
from parley.compose.registry import MODELS, load
from parley.errors import UsageError
from parley.models.base import Model
from parley.models.catalog import ModelInfo, ModelRef, model_info, resolve
from parley.models.endpoint import ModelEndpoint
from parley.models.prices import Prices
from parley.settings import backends, credentials

if TYPE_CHECKING:
    from parley.compose.certificates import Trust

CLOUDS = tuple(backends.CLOUDS)
BASE_URLS: dict[str, Callable[[dict[str, str]], str]] = {
    "anthropic": backends.anthropic_url,
    "openai": backends.openai_url,
}
"""Models over the network: where their servers are."""


class ModelFactory:
    def __init__(self, launch: LaunchContext) -> None:
        self.launch = launch

    def name(self) -> str:
        """The model that a session begins with."""
        asked = self.launch.options.model or self.launch.environment.get("ANTHROPIC_MODEL")
        return str(asked or self.launch.settings.merged.get("model") or "default")

    def small_name(self) -> str:
        """The model for errands."""
        return self.launch.environment.get("ANTHROPIC_SMALL_FAST_MODEL") or "haiku"

    def check_first(self, name: str | None = None) -> None:
        """What is wrong with a model, the session's by itself, is told at the start. Raises UsageError."""
        chosen = resolve(self.name() if name is None else name)
        self.check(chosen)
        if chosen.adapter not in BASE_URLS:
            self.open_unwrapped(chosen)  # reads the script or the tape

    def check(self, choice: ModelRef) -> None:
        """Raises UsageError if a model can never be asked."""
        if not choice.name:
            raise UsageError(f"the model {choice.adapter}: needs a name behind the colon")
        service = self.find_adapter(choice)
        if service in CLOUDS:
            backends.check_cloud(service)
        elif service in BASE_URLS:
            BASE_URLS[service](self.launch.environment)

    def find_adapter(self, choice: ModelRef) -> str:
        """The adapter that asks a model: the Messages API may stand in a cloud."""
        cloud = backends.selected_cloud(self.launch.environment) if choice.adapter == "anthropic" else None
        return cloud or choice.adapter

    def open(self, choice: ModelRef) -> Model:
        """A model with what was asked to be put around it. Raises UsageError or ModelError."""
        model = self.open_unwrapped(choice)
        return self.wrapping.wrap(model) if self.is_wrapped else model

    def open_unwrapped(self, choice: ModelRef) -> Model:
        """Raises UsageError or ModelError."""
        self.check(choice)
        adapter = self.find_adapter(choice)
        made: Model = OPENERS[adapter](self, load(MODELS, adapter, "model adapter"), choice)
        return made

    @property
    def is_wrapped(self) -> bool:
        return bool(self.launch.options.record or self.launch.options.faults)

    @cached_property
    def wrapping(self) -> Any:
        """Raises UsageError."""
        from parley.models.wrapping import ModelWrapper

        launch = self.launch
        return ModelWrapper(
            environment=launch.environment,
            secrets=credentials.known_secrets(launch.credentials()),
            places={
                "cwd": launch.cwd,
                "home": str(launch.home),
                "config": str(launch.config),
                "tmp": launch.environment.get("TMPDIR") or "/tmp",
            },
            record=Path(launch.cwd, launch.options.record) if launch.options.record else None,
            faults=launch.options.faults or (),
            deadlines=make_deadlines(launch),
            now=launch.clock.now,
            clock=launch.clock.monotonic,
            warn=launch.warn,
        )

    def resolve_endpoint(self, find: Callable[[], ModelEndpoint]) -> ModelEndpoint:
        """Raises ModelError if there must be a key and is none."""
        found = find()
        if found.auth is not None and self.launch.options.record:
            self.wrapping.redaction.add(found.auth[1].removeprefix("Bearer "))  # a helper's key is known only now
        return found

    def trust(self) -> Trust:
        from parley.compose.certificates import make_trust

        return make_trust(self.launch.environment, self.launch.warn)

    def open_in_cloud(self, name: str, cls: Any) -> Model:
        options = backends.cloud_options(name, self.launch.environment)
        from parley.compose.certificates import EXTRA

        # What the package trusts by itself follows SSL_CERT_FILE and SSL_CERT_DIR.
        names_more = bool(self.launch.environment.get(EXTRA))
        given = self.trust() if names_more else None
        made: Model = cls(options, deadlines=make_deadlines(self.launch), warn=self.launch.warn, trust=given)
        return made

    def key_source(self, adapter: str) -> str:
        """Where the key of a backend comes from, never the key itself."""
        if adapter == "openai":
            return backends.openai_key_source(self.launch.environment)
        return credentials.find_source(self.launch.credentials())

    def get_model_info(self, choice: ModelRef) -> ModelInfo:
        """What is known of a model; of the other API's servers some things are declared."""
        known = model_info(choice.name)
        if choice.adapter != "openai":
            return known
        fields = backends.declared_fields(self.launch.environment, backends.openai_url(self.launch.environment))
        return msgspec.structs.replace(
            known,
            supports_effort="reasoning_effort" in fields,
            supports_schemas="response_format" in fields,
        )

    def fallbacks(self) -> tuple[str, ...]:
        """Raises UsageError if one of them can never be asked."""
        asked = self.launch.options.fallback_model or self.launch.settings.merged.get("fallbackModel") or ""
        names = tuple(name.strip() for name in str(asked).split(",") if name.strip())
        for name in names:
            self.check(resolve(name))
        return names

    def prices(self) -> Prices:
        path = self.launch.environment.get("PARLEY_PRICES")
        prices = Prices(Path(path) if path else None)
        if path:
            prices.price("")  # a broken table is told at the start, not after the first answer
        return prices


OPENERS: dict[str, Callable[[ModelFactory, Any, ModelRef], Model]] = {
    "anthropic": lambda models, cls, choice: cls(
        lambda: models.resolve_endpoint(lambda: backends.anthropic_endpoint(models.launch.credentials())),
        deadlines=make_deadlines(models.launch),
        warn=models.launch.warn,
        trust=models.trust(),
    ),
    "bedrock": lambda models, cls, choice: models.open_in_cloud("bedrock", cls),
    "vertex": lambda models, cls, choice: models.open_in_cloud("vertex", cls),
    "openai": lambda models, cls, choice: cls(
        lambda: models.resolve_endpoint(lambda: backends.openai_endpoint(models.launch.environment)),
        choice.name,
        models.launch.short_id,
        deadlines=make_deadlines(models.launch),
        warn=models.launch.warn,
        trust=models.trust(),
    ),
    "scripted": lambda models, cls, choice: cls(
        Path(models.launch.cwd, choice.name), models.launch.short_id, lambda: make_deadlines(models.launch)
    ),
    "offline": lambda models, cls, choice: cls(models.launch.short_id),
    "replay": lambda models, cls, choice: models.wrapping.replay(Path(models.launch.cwd, choice.name)),
}
