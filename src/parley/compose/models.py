"""The models of a session: which one is called, how it is reached, and what wraps it.

See also: `models/catalog.py` for the table of backends, `settings/credentials.py` for addresses and keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from parley.compose.launch_context import LaunchContext, make_deadlines, option_values
from parley.compose.registry import import_object, load_backend
from parley.errors import ModelError, ModelForbidden, UsageError
from parley.models.base import Model
from parley.models.catalog import (
    BACKENDS,
    BUILT_IN_SOURCE,
    DEFAULT_BACKEND,
    OPENAI,
    UNKNOWN_MODEL,
    ModelInfo,
    ModelRef,
    Prices,
    aliases_from,
    get_backend,
    model_info,
    resolve,
    without_long_context,
)
from parley.models.endpoint import ModelEndpoint, without_userinfo
from parley.settings import credentials
from parley.settings.base import printable

if TYPE_CHECKING:
    from parley.compose.certificates import Trust
    from parley.models.entries import ConfiguredModel
    from parley.models.http.call import Deadlines
    from parley.models.wrapping import ModelWrapper
    from parley.protocol.base import Json
    from parley.settings.policy import ModelRules

NOT_LISTED = "provider_not_allowed"
ANSWER_PART = 4
"""An answer may take this part of a window that a server reports."""
LOCAL_SERVER = "http://localhost:11434/v1"
"""Of Ollama, as an example."""
NEAR_MISS = 0.75
"""How similar a word must be to a known name to be taken for a mistake."""
NO_PRICE = (
    "the model {name} has no known price, so a budget of ${budget:g} cannot be enforced: set its price "
    "(`models` in the settings, or a file in PARLEY_PRICES), or limit tokens with --max-budget-tokens"
)


class ModelFactory:
    """Opens models. It is the `ModelSetup` that backends are given."""

    def __init__(self, launch: LaunchContext) -> None:
        self.launch = launch
        self._windows: dict[ModelRef, int] = {}
        """The context windows that servers report."""

    @property
    def aliases(self) -> dict[str, str]:
        """The short names that the environment redefines."""
        return aliases_from(self.launch.environment)

    def resolve(self, name: str) -> ModelRef:
        """What the name of a model stands for."""
        return resolve(name, self.aliases)

    def requested_name(self) -> str:
        """The model that the user asks for."""
        asked = self.launch.options.model or self.launch.environment.get("ANTHROPIC_MODEL")
        return str(asked or self.launch.settings.merged.get("model") or "default")

    def name(self) -> str:
        """The model that a session starts with: the requested one, or the default if settings forbid it.

        Raises ModelForbidden if they leave none.
        """
        asked = self.requested_name()
        rules = self._model_rules
        if rules is None or rules.find_obstacle(self.resolve(asked)) is None:
            return asked
        chosen = rules.find_default(self.resolve)
        if chosen is None:
            text = "the settings deniedModels and availableModels allow no model"
            raise ModelForbidden(text, "managed_settings_invalid")
        return chosen

    def is_allowed(self, choice: ModelRef) -> bool:
        """Whether the settings permit a model."""
        rules = self._model_rules
        return rules is None or rules.find_obstacle(choice) is None

    def list_served(self) -> list[Json]:
        """The models of the user's own server that the settings permit. Waits for the server."""
        from parley.compose.setup.model_server import list_served

        return [row for row in list_served(self) if self.is_allowed(self.resolve(row["value"]))]

    def restrictions(self) -> list[str]:
        """What users are told of models that settings forbid."""
        asked, chosen = self.requested_name(), self.name()
        if asked == chosen or asked == "default":
            return []
        name = self.resolve(chosen).display_name
        return [f'Model "{asked}" is restricted by your organization\'s settings. Using {name} instead.']

    def small_name(self) -> str:
        """The model for side queries; the session's own if settings forbid it."""
        found = self.launch.environment.get("ANTHROPIC_SMALL_FAST_MODEL") or "haiku"
        return found if self.is_allowed(self.resolve(found)) else self.name()

    @property
    def _model_rules(self) -> ModelRules | None:
        """The models that settings permit; None if they permit all."""
        merged = self.launch.settings.merged
        if not any(key in merged.values for key in ("availableModels", "deniedModels")):
            return None
        from parley.settings.policy import ModelRules

        return ModelRules.from_settings(merged, self.aliases)

    def check_first(self, name: str | None = None) -> None:
        """Report at the start what is wrong with a model, the session's if none is named. Raises UsageError."""
        choice = self.resolve(self.name() if name is None else name)
        self.check(choice)
        if get_backend(choice.adapter).server is None:
            self.open_unwrapped(choice)  # reads the script or the recording

    def check(self, choice: ModelRef) -> None:
        """Raises UsageError if a model can never be called."""
        if not choice.name:
            raise UsageError(f"the model '{choice.adapter}:' needs a name after the colon")
        self._check_spelling(choice)
        self._check_server(choice)
        self._check_policy(choice)
        credentials.check_backend(self.find_adapter(choice), self.launch.environment)
        if self._budget_usd is not None and self.prices().find(choice.display_name) is None:
            raise UsageError(NO_PRICE.format(name=choice.display_name, budget=self._budget_usd))

    @cached_property
    def _budget_usd(self) -> float | None:
        """The dollar budget of the session. Raises UsageError."""
        budget: float | None = option_values(self.launch).get("max_budget_usd")
        return budget

    def _check_spelling(self, choice: ModelRef) -> None:
        """Refuse a word that is almost a short name, and BACKEND/NAME on Anthropic's own servers. Raises UsageError.

        Other names are left to the server, whose models are not known here.
        """
        name, is_unchanged = without_long_context(choice.name), self._replace(choice) == choice
        if not (choice.is_messages_api and is_unchanged and (name.isalpha() or ("/" in name and self.is_first_party))):
            return
        from parley.models.failures import LISTING, find_similar_model

        if (near := find_similar_model(name, cutoff=NEAR_MISS)) is not None:
            raise UsageError(f"unknown model {name!r}. Did you mean {near}? {LISTING}")

    def _check_server(self, choice: ModelRef) -> None:
        """Refuse the name of another server's model on Anthropic's own servers. Raises UsageError."""
        adapter, colon, rest = choice.name.partition(":")
        environment, own = self.launch.environment, f"{OPENAI.variables}_BASE_URL"
        is_other = colon and adapter.isalpha() and rest
        if not (choice.is_messages_api and (is_other or environment.get(own))) or not self.is_first_party:
            return
        if "claude" in choice.name or self._replace(choice) != choice:
            return
        raise UsageError(self._advise_on_server(choice.name, rest if is_other else choice.name))

    def _advise_on_server(self, name: str, meant: str) -> str:
        """How to reach a model that is not one of Anthropic's."""
        own = f"{OPENAI.variables}_BASE_URL"
        if url := self.launch.environment.get(own):
            advice = f"For the server in {own} ({without_userinfo(url)}), use openai:{meant}."
        else:
            advice = f"For a server with chat completions, use openai:{meant} and set {own}, such as {LOCAL_SERVER}."
        return f"{name!r:.200} is not a model of Anthropic. {advice}"

    def _check_policy(self, choice: ModelRef) -> None:
        """Raises ModelForbidden."""
        rules, merged = self._model_rules, self.launch.settings.merged
        if rules is not None and (key := rules.find_obstacle(choice)) is not None:
            text = f"the model {choice.display_name} is not allowed by the settings ({key})"
            raise ModelForbidden(text, "managed_settings_invalid")
        replaced = self._replace(choice)
        if rules is not None and replaced != choice:
            by_policy = merged.values["modelOverrides"].source == "managed"
            if not by_policy and (key := rules.find_obstacle(replaced)) is not None:
                text = f"modelOverrides names the model {replaced.name}, which is not allowed by the settings ({key})"
                raise ModelForbidden(text, "managed_settings_invalid")
        if "allowedProviders" in merged.values and not choice.is_fake:
            from parley.settings.policy import ProviderRules

            adapter = self.find_adapter(choice)
            address = credentials.find_address(adapter, self.launch.environment)
            obstacle = ProviderRules.from_settings(merged).find_obstacle(adapter, *address)
            if obstacle is not None:
                raise ModelForbidden(f"the model {choice.display_name} cannot be used: {obstacle}", NOT_LISTED)

    def _replace(self, choice: ModelRef) -> ModelRef:
        """The name under which the server knows a model (`modelOverrides`)."""
        overrides = self.launch.settings.merged.get("modelOverrides", {})
        base = without_long_context(choice.name) if choice.is_messages_api else choice.name
        if base not in overrides:
            return choice
        return ModelRef(choice.adapter, f"{overrides[base]}{choice.name[len(base) :]}")

    def find_adapter(self, choice: ModelRef) -> str:
        """The backend to call for a model: a cloud may serve the Messages API."""
        cloud = credentials.selected_cloud(self.launch.environment) if choice.is_messages_api else None
        return cloud or choice.adapter

    @property
    def uses_cloud(self) -> bool:
        """Whether a cloud serves the Messages API."""
        return credentials.selected_cloud(self.launch.environment) is not None

    @property
    def is_first_party(self) -> bool:
        """Whether Anthropic's own servers serve the Messages API. Raises UsageError."""
        server = BACKENDS[DEFAULT_BACKEND].server
        assert server is not None
        url = credentials.find_url(server, self.launch.environment)
        return url.rstrip("/") == server.url and not self.uses_cloud

    def open(self, choice: ModelRef) -> Model:
        """A model, with faults and the recorder if they are requested. Raises UsageError or ModelError."""
        model = self.open_unwrapped(choice)
        return self.wrapping.wrap(model) if self.is_wrapped else model

    def open_unwrapped(self, choice: ModelRef) -> Model:
        """Raises UsageError or ModelError."""
        self.check(choice)
        replaced = self._replace(choice)
        model = load_backend(self.find_adapter(choice))(self, replaced.name)
        if replaced == choice:
            return model
        from parley.models.wrapping import RenamedModel

        return RenamedModel(model, replaced.request_name)

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
            recording=RecordingTarget(Path(launch.host_folder, record), clock.now, clock.monotonic) if record else None,
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
        return self.launch.started_in

    @property
    def warn(self) -> Callable[[str], None]:
        return self.launch.warn

    @property
    def new_id(self) -> Callable[[], str]:
        return self.launch.clock.new_short_id

    def deadlines(self) -> Deadlines:
        """Raises UsageError."""
        return make_deadlines(self.launch)

    def trust(self) -> Trust:
        from parley.compose.certificates import make_trust

        return make_trust(self.launch.environment, self.launch.warn)

    def extra_trust(self) -> Trust | None:
        from parley.compose.certificates import EXTRA

        return self.trust() if self.launch.environment.get(EXTRA) else None

    def find_endpoint(self, service: str, name: str = "") -> ModelEndpoint:
        """`name`: the model to call. Raises UsageError, or ModelError if a key is needed and missing."""
        try:
            found = credentials.find_endpoint(service, self.launch.credentials())
        except ModelError as exc:
            if name and "claude" not in name and get_backend(service).is_messages_api and self.is_first_party:
                exc.advice = self._advise_on_server(name, name)
            raise
        if found.auth is not None and self.launch.options.record:
            # The key of a helper command is known only now.
            self.wrapping.redaction.add(found.auth[1].removeprefix("Bearer "))
        return found

    def cloud_options(self, cloud: str) -> dict[str, str]:
        """Raises ModelError if a helper fails."""
        launch = self.launch
        folders = launch.credentials().folders
        return credentials.cloud_options(cloud, launch.environment, launch.settings.merged.to_json(), folders)

    def replay(self, path: Path) -> Model:
        """Raises UsageError."""
        return self.wrapping.replay(path)

    # What is known of models.

    def describe_server(self, adapter: str) -> tuple[str, str]:
        """The address of a backend and where its key comes from; empty if settings know neither. Raises UsageError."""
        server = get_backend(adapter).server
        if server is None:
            return "", ""
        url = credentials.find_url(server, self.launch.environment)
        return url, credentials.find_key_source(adapter, self.launch.credentials())

    @cached_property
    def configured(self) -> dict[str, ConfiguredModel]:
        """The entries of the setting `models`. Raises UsageError."""
        given = self.launch.settings.merged.models
        if not given:
            return {}
        from parley.models.entries import parse_entry

        return {name: parse_entry(name, found.value, printable(found.path)) for name, found in given.items()}

    def discover(self, choice: ModelRef) -> None:
        """Ask a server of the user for the limits of a model. Waits for the server."""
        from parley.compose.setup.model_server import find_limits
        from parley.models.failures import NO_TOOLS

        found = find_limits(self, self._replace(choice).name)
        if found.context_window is not None:
            self._windows[choice] = found.context_window
        if found.has_tools is False:
            self.warn(f"warning: the server of {choice.display_name} says that it has no tools. {NO_TOOLS}")

    def get_model_info(self, choice: ModelRef) -> ModelInfo:
        """What is known of a model. The user may declare its limits, and what its server accepts."""
        known, row = model_info(choice.name), choice.backend
        if (window := self._windows.get(choice)) is not None and known is UNKNOWN_MODEL:
            most = min(known.max_output_tokens, window // ANSWER_PART)
            known = replace(known, context_window=window, max_output_tokens=most)
        if self.configured:
            from parley.models.entries import apply_entries

            known = apply_entries(known, choice.display_name, self.configured)
        if row.server is None or not row.adapts_info:
            return known
        try:
            declared = credentials.declared_fields(row.server, self.launch.environment)
        except UsageError:  # an invalid address, which opening the model reports
            return known
        adapted: ModelInfo = import_object(row.cls).adapt_info(known, choice.name, declared)
        return adapted

    def find_limit_source(self, choice: ModelRef, key: str) -> str:
        """Where a limit of a model comes from: a settings file, the built-in table, or an assumption."""
        from parley.models.entries import find_entry

        found = find_entry(choice.display_name, key, self.configured)
        if found is not None:
            return found.source
        if key == "contextWindow" and choice in self._windows:
            return "server"
        return "assumed" if model_info(choice.name) is UNKNOWN_MODEL else BUILT_IN_SOURCE

    def fallbacks(self) -> tuple[str, ...]:
        """Raises UsageError if one of them can never be called."""
        asked = self.launch.options.fallback_model or self.launch.settings.merged.get("fallbackModel") or ""
        if not asked and self.requested_name() == "best":
            asked = "opus"  # not every account has the best model
        parts = asked if isinstance(asked, list) else str(asked).split(",")
        names = [name.strip() for name in parts if name.strip()]
        found: list[str] = []
        for name in names:
            try:
                self.check(self.resolve(name))
            except ModelForbidden as exc:
                self.launch.warn(f"the fallback model {name} is skipped: {exc}")
            else:
                found.append(name)
        return tuple(found)

    def prices(self) -> Prices:
        """Raises UsageError if a table of the user is invalid."""
        return self._prices

    @cached_property
    def _prices(self) -> Prices:
        path = self.launch.environment.get("PARLEY_PRICES")
        pricing = self.launch.settings.merged.get("modelPricing", {})
        settings = {}
        if self.configured:
            from parley.models.entries import known_prices

            settings = known_prices(self.configured)
        prices = Prices(Path(path) if path else None, pricing.get("overrides"), pricing.get("multiplier", 1), settings)
        prices.read_file()  # reports an invalid file at the start, not after the first answer
        return prices
