"""Which key and server a session would use, whether the server answers, and which models a server of the user offers.

Spends no tokens. The key is found without running a helper.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from parley.compose.launch_context import LaunchContext
from parley.compose.models import ModelFactory
from parley.errors import ModelError, UsageError
from parley.models.catalog import get_backend, resolve
from parley.models.endpoint import ModelEndpoint, is_loopback, without_userinfo
from parley.protocol.base import Json, Struct
from parley.settings import credentials

if TYPE_CHECKING:
    import httpx2


SECONDS = 5
"""How long a server may take to answer."""


SERVED_BY = "openai"
LIST_BYTES = 1 << 20
MAX_LISTED = 200
OK = 200
WINDOW_FIELDS = (
    *("loaded_context_length", "max_model_len", "context_length", "context_window", "max_context_length", "n_ctx"),
)
"""How servers name the context window of a model, the one that it was loaded with first."""
TOOL_FEATURES = ("tools", "tool_use", "function_calling", "supports_tools", "supports_tool_calls")
REASONING_FEATURES = ("thinking", "reasoning", "supports_reasoning")


class ModelServerStatus(Struct, frozen=True, kw_only=True):
    """What is known of the server of a model."""

    backend: str
    address: str = ""
    """Safe to show. Empty if the backend has none of its own."""
    variable: str = ""
    """The variable that names another server than the provider's own. Only such a server is contacted."""
    problem: str = ""
    """Why it does not answer: a sentence with the address."""


def probe_server(models: ModelFactory) -> ModelServerStatus:
    """Send a request that costs nothing, if the user configured the address. Raises UsageError."""
    backend = models.find_adapter(models.resolve(models.name()))
    server = get_backend(backend).server
    if server is None:
        return ModelServerStatus(backend=backend)
    url = credentials.find_url(server, models.environment)
    shown = without_userinfo(url)
    variable, address, standard = credentials.find_address(backend, models.environment)
    if not address or address.rstrip("/") == standard.rstrip("/"):
        return ModelServerStatus(backend=backend, address=shown)
    return ModelServerStatus(backend=backend, address=shown, variable=variable, problem=contact(url, models))


def contact(url: str, models: ModelFactory) -> str:
    """Any response is an answer; returns what went wrong, in the words of a run."""
    import httpx2

    try:
        verify = False if url.startswith("http:") else models.trust()()
        with httpx2.Client(verify=verify, timeout=SECONDS, trust_env=not is_loopback(url)) as client:
            client.head(without_userinfo(url))
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError, ImportError) as exc:
        from parley.models.failures import connection_error

        # Only the kind of other errors: their text may contain the URL of a proxy with a password.
        cause = find_os_error(exc) if isinstance(exc, httpx2.ConnectError) else None
        return connection_error(cause or OSError(type(exc).__name__), url).message
    return ""


def list_served(models: ModelFactory) -> list[Json]:
    """The models of the server that OPENAI_BASE_URL names, as rows for clients; none if it names none or is silent."""
    with reach_server(models) as server:
        rows = [] if server is None else read_rows(server.read("/models"))
        if server is None or not rows:
            return []
        about = f"served by {without_userinfo(server.endpoint.base_url)}"
    names = [f"{SERVED_BY}:{row['id']}" for row in rows if row["id"].isprintable()][:MAX_LISTED]
    return [{"value": name, "resolvedModel": name, "displayName": name, "description": about} for name in names]


class UserServer:
    """The server that OPENAI_BASE_URL names."""

    def __init__(self, client: httpx2.Client, endpoint: ModelEndpoint) -> None:
        self._client = client
        self.endpoint = endpoint
        self.root = endpoint.base_url.partition("?")[0].rstrip("/").removesuffix("/v1")
        """Where servers have APIs of their own."""

    def read(self, path: str, body: Json | None = None, *, at_root: bool = False) -> Any:
        """The JSON that it answers with; None if it does not."""
        import httpx2

        url = f"{self.root}{path}" if at_root else self.endpoint.url(path)
        headers = {**self.endpoint.headers, **dict([self.endpoint.auth] if self.endpoint.auth else [])}
        found = b""
        try:
            with self._client.stream("GET" if body is None else "POST", url, headers=headers, json=body) as answer:
                if answer.status_code != OK:
                    return None
                for chunk in answer.iter_bytes(LIST_BYTES):
                    found += chunk
                    if len(found) > LIST_BYTES:
                        return None
            return msgspec.json.decode(found)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError, RecursionError):
            return None


@contextmanager
def reach_server(models: ModelFactory) -> Iterator[UserServer | None]:
    """The server that OPENAI_BASE_URL names; None if it names none, or cannot be used, which a turn reports."""
    variable, address, standard = credentials.find_address(SERVED_BY, models.environment)
    if not variable or not address or address.rstrip("/") == standard.rstrip("/"):
        yield None
        return
    try:
        import httpx2

        endpoint = models.find_endpoint(SERVED_BY)
        verify = False if address.startswith("http:") else models.trust()()
    except (OSError, ValueError, ImportError, ModelError, UsageError):
        yield None
        return
    with httpx2.Client(verify=verify, timeout=SECONDS, trust_env=not is_loopback(address)) as client:
        yield UserServer(client, endpoint)


class ServedLimits(Struct, frozen=True, kw_only=True):
    """What a server says of a model; None for what it does not say."""

    context_window: int | None = None
    has_tools: bool | None = None
    has_reasoning: bool | None = None


def find_limits(models: ModelFactory, name: str) -> ServedLimits:
    """What the server that OPENAI_BASE_URL names says of a model."""
    with reach_server(models) as server:
        if server is None:
            return ServedLimits()
        row = next((row for row in read_rows(server.read("/models")) if row["id"] == name), {})
        window = first_count(row, WINDOW_FIELDS)
        features = collect_features(row)
        if window is None and server.root.startswith("http:"):
            window, more = ask_own_api(server, name)
            features |= more
        return ServedLimits(
            context_window=window,
            has_tools=find_feature(features, TOOL_FEATURES),
            has_reasoning=find_feature(features, REASONING_FEATURES),
        )


def ask_own_api(server: UserServer, name: str) -> tuple[int | None, dict[str, bool]]:
    """The window that a model was loaded with, and its features, from the APIs of Ollama, llama.cpp and LM Studio."""
    if isinstance(shown := server.read("/api/show", {"model": name}, at_root=True), dict):
        loaded = server.read("/api/ps", at_root=True)
        rows = loaded.get("models") if isinstance(loaded, dict) else None
        listed, names = rows if isinstance(rows, list) else [], (name, f"{name}:latest")
        row = next((row for row in listed if isinstance(row, dict) and row.get("name") in names), {})
        given = re.search(r"^num_ctx\s+(\d+)", str(shown.get("parameters") or ""), re.M)
        return first_count(row, WINDOW_FIELDS) or (int(given[1]) if given else None), collect_features(shown)
    if isinstance(properties := server.read("/props", at_root=True), dict):
        defaults = properties.get("default_generation_settings")
        window = first_count(defaults if isinstance(defaults, dict) else {}, WINDOW_FIELDS)
        return window, collect_features({"capabilities": properties.get("chat_template_caps")})
    rows = read_rows(server.read("/api/v0/models", at_root=True))
    row = next((row for row in rows if row["id"] == name), {})
    return first_count(row, WINDOW_FIELDS), collect_features(row)


def read_rows(answer: Any) -> list[Json]:
    """The models of an answer to `GET /models`."""
    rows = answer.get("data") if isinstance(answer, dict) else None
    listed = rows if isinstance(rows, list) else []
    return [row for row in listed if isinstance(row, dict) and isinstance(row.get("id"), str)]


def first_count(row: Json, names: Iterable[str]) -> int | None:
    return next((row[name] for name in names if type(row.get(name)) is int and row[name] > 0), None)


def collect_features(row: Json) -> dict[str, bool]:
    """What a row says that a model can do: a list of names, or names with true or false."""
    found: dict[str, bool] = {}
    for key in ("capabilities", "supported_parameters"):
        match row.get(key):
            case list() as names:
                complete = dict.fromkeys((*TOOL_FEATURES, *REASONING_FEATURES), False)
                found |= {**complete, **{str(name): True for name in names}}
            case dict() as named:
                found |= {str(name): has for name, has in named.items() if isinstance(has, bool)}
    return found


def find_feature(features: Mapping[str, bool], names: Iterable[str]) -> bool | None:
    said = [features[name] for name in names if name in features]
    return any(said) if said else None


def find_os_error(exc: BaseException | None) -> OSError | None:
    """The error of the system behind one of the HTTP client."""
    while exc is not None and not isinstance(exc, OSError):
        exc = exc.__cause__ or exc.__context__
    return exc


HELPER = "apiKeyHelper"


class KeyStatus(Struct, frozen=True, kw_only=True):
    """What is known of the key of the default model."""

    model: str
    backend: str
    source: str
    """The variable or setting it comes from; `none`."""
    is_usable: bool
    is_cloud: bool = False
    """Whether a cloud serves the model, with credentials of its own."""
    problem: str = ""


def find_status(launch: LaunchContext) -> KeyStatus:
    """Look for the key without running a helper or sending a request. Raises UsageError."""
    models = ModelFactory(launch)
    choice = resolve(models.name())
    backend = models.find_adapter(choice)
    if get_backend(backend).server is None:  # a cloud's own credentials, or no key at all
        source = "none needed" if choice.is_fake else "its own"
        is_cloud = backend in credentials.CLOUDS
        return KeyStatus(model=choice.display_name, backend=backend, source=source, is_usable=True, is_cloud=is_cloud)
    source, problem = credentials.find_key_source(backend, launch.credentials()), ""
    if source != HELPER:
        try:
            credentials.find_endpoint(backend, launch.credentials())
        except ModelError as exc:
            problem = str(exc)
    return KeyStatus(model=choice.display_name, backend=backend, source=source, is_usable=not problem, problem=problem)
