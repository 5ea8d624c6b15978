"""The models of a session: which one is called, how it is reached, and what wraps it.

See also: `models/catalog.py` for the table of backends, `settings/backends.py` for addresses and keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from parley.compose.launch_context import LaunchContext
from parley.compose.limits import make_deadlines
from parley.compose.registry import load_backend
from parley.errors import UsageError
from parley.models.base import Model
from parley.models.catalog import ModelInfo, ModelRef, model_info, resolve
from parley.models.endpoint import ModelEndpoint
from parley.models.prices import Prices
from parley.settings import backends, credentials

if TYPE_CHECKING:
    from parley.compose.certificates import Trust
    from parley.models.http.call import Deadlines
    from parley.models.wrapping import ModelWrapper


class ModelFactory:
    """Opens models. It is the `ModelSetup` that backends are given."""

    def __init__(self, launch: LaunchContext) -> None:
        self.launch = launch

    def name(self) -> str:
        """The model that a session starts with."""
        asked = self.launch.options.model or self.launch.environment.get("ANTHROPIC_MODEL")
        return str(asked or self.launch.settings.merged.get("model") or "default")

    def small_name(self) -> str:
        """The model for side queries."""
        return self.launch.environment.get("ANTHROPIC_SMALL_FAST_MODEL") or "haiku"

    def check_first(self, name: str | None = None) -> None:
        """Report at the start what is wrong with a model, the session's if none is named. Raises UsageError."""
        choice = resolve(self.name() if name is None else name)
        self.check(choice)
        if choice.adapter not in backends.SERVICES:
            self.open_unwrapped(choice)  # reads the script or the recording

    def check(self, choice: ModelRef) -> None:
        """Raises UsageError if a model can never be called."""
        if not choice.name:
            raise UsageError(f"the model {choice.adapter}: needs a name after the colon")
        backends.check_service(self.find_adapter(choice), self.launch.environment)

    def find_adapter(self, choice: ModelRef) -> str:
        """The backend to call for a model: a cloud may serve the Messages API."""
        cloud = backends.selected_cloud(self.launch.environment) if choice.is_messages_api else None
        return cloud or choice.adapter

    def open(self, choice: ModelRef) -> Model:
        """A model, with faults and the recorder if they are requested. Raises UsageError or ModelError."""
        model = self.open_unwrapped(choice)
        return self.wrapping.wrap(model) if self.is_wrapped else model

    def open_unwrapped(self, choice: ModelRef) -> Model:
        """Raises UsageError or ModelError."""
        self.check(choice)
        return load_backend(self.find_adapter(choice))(self, choice.name)

    @property
    def is_wrapped(self) -> bool:
        return bool(self.launch.options.record or self.launch.options.faults)

    @cached_property
    def wrapping(self) -> ModelWrapper:
        """Raises UsageError."""
        from parley.models.redaction import find_secrets
        from parley.models.wrapping import ModelWrapper, RecordingTarget

        launch = self.launch
        record, clock = launch.options.record, launch.clock
        return ModelWrapper(
            secrets=[*find_secrets(launch.environment), *credentials.known_secrets(launch.credentials())],
            places={
                "cwd": launch.cwd,
                "home": str(launch.home),
                "config": str(launch.config),
                "tmp": launch.environment.get("TMPDIR") or "/tmp",
            },
            recording=RecordingTarget(Path(launch.cwd, record), clock.now, clock.monotonic) if record else None,
            faults=launch.options.faults or (),
            deadlines=make_deadlines(launch),
            warn=launch.warn,
        )

    # What backends are given.

    @property
    def environment(self) -> Mapping[str, str]:
        return self.launch.environment

    @property
    def cwd(self) -> str:
        return self.launch.cwd

    @property
    def warn(self) -> Callable[[str], None]:
        return self.launch.warn

    @property
    def new_id(self) -> Callable[[], str]:
        return self.launch.short_id

    def deadlines(self) -> Deadlines:
        """Raises UsageError."""
        return make_deadlines(self.launch)

    def trust(self) -> Trust:
        from parley.compose.certificates import make_trust

        return make_trust(self.launch.environment, self.launch.warn)

    def extra_trust(self) -> Trust | None:
        from parley.compose.certificates import EXTRA

        return self.trust() if self.launch.environment.get(EXTRA) else None

    def find_endpoint(self, service: str) -> ModelEndpoint:
        """Raises UsageError, or ModelError if a key is needed and missing."""
        found = backends.SERVICES[service].find_endpoint(self.launch.credentials())
        if found.auth is not None and self.launch.options.record:
            # The key of a helper command is known only now.
            self.wrapping.redaction.add(found.auth[1].removeprefix("Bearer "))
        return found

    def cloud_options(self, cloud: str) -> dict[str, str]:
        return backends.cloud_options(cloud, self.launch.environment)

    def replay(self, path: Path) -> Model:
        """Raises UsageError."""
        return self.wrapping.replay(path)

    # What is known of models.

    def describe_server(self, adapter: str) -> tuple[str, str]:
        """The address of a backend and where its key comes from; empty if settings know neither. Raises UsageError."""
        service = backends.SERVICES.get(adapter)
        if service is None:
            return "", ""
        return service.url(self.launch.environment), service.key_source(self.launch.credentials())

    def get_model_info(self, choice: ModelRef) -> ModelInfo:
        """What is known of a model. The environment may declare what its server accepts."""
        known, service = model_info(choice.name), backends.SERVICES.get(choice.adapter)
        if service is None or service.declared_fields is None:
            return known
        fields = service.declared_fields(self.launch.environment)
        return msgspec.structs.replace(
            known,
            supports_effort="reasoning_effort" in fields,
            supports_schemas="response_format" in fields,
        )

    def fallbacks(self) -> tuple[str, ...]:
        """Raises UsageError if one of them can never be called."""
        asked = self.launch.options.fallback_model or self.launch.settings.merged.get("fallbackModel") or ""
        names = tuple(name.strip() for name in str(asked).split(",") if name.strip())
        for name in names:
            self.check(resolve(name))
        return names

    def prices(self) -> Prices:
        path = self.launch.environment.get("PARLEY_PRICES")
        prices = Prices(Path(path) if path else None)
        if path:
            prices.price("")  # reports a broken table at the start, not after the first answer
        return prices
