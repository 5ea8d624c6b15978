"""The base URL and the key of each model backend, from the environment and the settings.

Which variables they are in is in the backend's row of `models/catalog.py`. A key is sent only to the server it belongs
to. A server on this machine needs no key. An invalid URL is reported at the start (`UsageError`), a missing key by the
first model call (`ModelError`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from parley.errors import ModelError, UsageError
from parley.models.catalog import BACKENDS, Server, get_backend
from parley.models.endpoint import ModelEndpoint, check_url, is_loopback
from parley.protocol.base import Json
from parley.settings import credentials
from parley.settings.env_vars import custom_headers, extra_body, is_truthy
from parley.version import how_to_install

CLOUDS = tuple(name for name, row in BACKENDS.items() if row.client_options)


def find_url(server: Server, environment: Mapping[str, str]) -> str:
    """Raises UsageError."""
    variable = f"{server.variables}_BASE_URL"
    return check_url(environment.get(variable) or server.url, variable)


def find_endpoint(adapter: str, sources: credentials.CredentialSources) -> ModelEndpoint:
    """The server of a backend and its key. Raises UsageError, or ModelError if a key is required and missing."""
    row, environment = get_backend(adapter), sources.environment
    server = row.server
    if server is None:
        raise UsageError(f"the model backend {adapter!r} has no server")
    base_url, name = find_url(server, environment), server.variables
    headers = custom_headers(environment.get(f"{name}_CUSTOM_HEADERS", ""))
    key = environment.get(f"{name}_API_KEY")
    if row.is_messages_api:
        found, missing = credentials.find_credential(sources), credentials.ADVICE
    else:
        found = credentials.Credential("authorization", key, f"{name}_API_KEY") if key else None
        missing = "" if headers else f"No API key: set {name}_API_KEY, or point {name}_BASE_URL at a local server."
    if found is None and missing and not is_loopback(base_url):
        raise ModelError(missing, kind="no_key")
    return ModelEndpoint(
        base_url=base_url,
        auth=found.pair() if found else None,
        headers=headers,
        extra_body=extra_body(environment.get("CLAUDE_CODE_EXTRA_BODY")),
        declared=declared_fields(server, environment),
        variables=name,
        key_source=found.source if found else f"{name}_CUSTOM_HEADERS" if headers else "",
    )


def find_key_source(adapter: str, sources: credentials.CredentialSources) -> str:
    """Where the key comes from, never the key itself; `none` if there is none."""
    row = get_backend(adapter)
    if row.is_messages_api:
        return credentials.find_source(sources)
    names = () if row.server is None else (f"{row.server.variables}_{what}" for what in ("API_KEY", "CUSTOM_HEADERS"))
    return next((name for name in names if sources.environment.get(name)), "none")


def declared_fields(server: Server, environment: Mapping[str, str]) -> frozenset[str]:
    """The optional fields that the server supports."""
    given = environment.get(server.fields_variable)
    if given is not None:
        return frozenset(name.strip() for name in given.split(",") if name.strip())
    is_own = find_url(server, environment).startswith(server.url.removesuffix("/v1"))
    return server.own_fields if is_own else frozenset()


def find_address(adapter: str, environment: Mapping[str, str]) -> tuple[str, str, str]:
    """The variable that sets the address of a backend, the address, and the provider's own."""
    row = get_backend(adapter)
    if row.server is not None:
        variable, standard = f"{row.server.variables}_BASE_URL", row.server.url
    else:
        variable, standard = next(iter(row.client_options.get("base_url", ())), ""), ""
    return variable, environment.get(variable, ""), standard


def check_backend(adapter: str, environment: Mapping[str, str]) -> None:
    """Raises UsageError if a backend can never be reached: its address is wrong, or a package is missing."""
    row = get_backend(adapter)
    if row.server is not None:
        find_url(row.server, environment)
    elif row.client_options:
        from importlib.util import find_spec

        if find_spec("anthropic") is None:
            variable = f"CLAUDE_CODE_USE_{adapter.upper()}"
            raise UsageError(f"{variable} requires an extra that is not installed: {how_to_install(adapter)}")


def selected_cloud(environment: Mapping[str, str]) -> str | None:
    """The cloud that serves the Messages API, if one is selected."""
    return next((name for name in CLOUDS if is_truthy(environment.get(f"CLAUDE_CODE_USE_{name.upper()}"))), None)


def cloud_options(
    name: str, environment: Mapping[str, str], settings: Json | None = None, folders: Iterable[str] = ()
) -> dict[str, str]:
    """The options of the cloud's client that are set. Raises ModelError if a helper fails."""
    row = BACKENDS[name]
    helper = (settings or {}).get(row.credential_helper)
    if helper:
        environment = {**environment, **credentials.export_aws(helper, environment, folders)}
    found = {
        option: next((environment[variable] for variable in variables if environment.get(variable)), None)
        for option, variables in row.client_options.items()
    }
    if found.get("api_key"):
        # A token replaces the signature; the client accepts only one of the two.
        found |= dict.fromkeys(("aws_access_key", "aws_secret_key", "aws_session_token", "aws_profile"))
    return {option: value for option, value in found.items() if value is not None}
