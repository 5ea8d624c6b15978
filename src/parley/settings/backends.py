"""The base URL and the key of each model backend, from the environment and the settings.

A key is sent only to the server it belongs to. A server on this machine needs no key. An invalid URL
is reported at the start (`UsageError`), a missing key by the first model call (`ModelError`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from parley.errors import ModelError, UsageError
from parley.models.catalog import EFFORTS, ModelInfo
from parley.models.endpoint import ModelEndpoint, check_url, is_loopback
from parley.protocol.base import Json, Struct
from parley.settings import credentials
from parley.settings.env_vars import custom_headers, extra_body, is_truthy
from parley.version import how_to_install

ANTHROPIC_URL = "https://api.anthropic.com"
OPENAI_URL = "https://api.openai.com/v1"
OPENAI_DEFAULTS = frozenset({"max_completion_tokens", "reasoning_effort", "response_format"})
"""Optional fields that OpenAI's own service supports."""
NOT_REASONING = ("gpt-3", "gpt-4", "chatgpt-4")
"""How the names of OpenAI's models begin that reject the fields for reasoning."""
NO_OPENAI_KEY = "No API key: set OPENAI_API_KEY, or point OPENAI_BASE_URL at a local server."


def anthropic_url(environment: Mapping[str, str]) -> str:
    """Raises UsageError."""
    return check_url(environment.get("ANTHROPIC_BASE_URL") or ANTHROPIC_URL, "ANTHROPIC_BASE_URL")


def openai_url(environment: Mapping[str, str]) -> str:
    """Raises UsageError."""
    return check_url(environment.get("OPENAI_BASE_URL") or OPENAI_URL, "OPENAI_BASE_URL")


def anthropic_endpoint(sources: credentials.CredentialSources) -> ModelEndpoint:
    """The Messages API and its key. Raises UsageError, or ModelError if a key is required and missing."""
    environment = sources.environment
    base_url = anthropic_url(environment)
    found = credentials.find_credential(sources)
    if found is None and not is_loopback(base_url):
        raise ModelError(credentials.ADVICE, kind="no_key")
    headers = custom_headers(environment.get("ANTHROPIC_CUSTOM_HEADERS", ""))
    return ModelEndpoint(
        base_url=base_url,
        auth=found.pair() if found else None,
        headers=headers,
        extra_body=extra_body(environment.get("CLAUDE_CODE_EXTRA_BODY")),
        key_source=found.source if found else "ANTHROPIC_CUSTOM_HEADERS" if headers else "",
    )


def openai_endpoint(environment: Mapping[str, str]) -> ModelEndpoint:
    """OpenAI's APIs and their key. Raises UsageError, or ModelError if a key is required and missing."""
    base_url = openai_url(environment)
    headers = custom_headers(environment.get("OPENAI_CUSTOM_HEADERS", ""))
    key = environment.get("OPENAI_API_KEY")
    found = credentials.Credential("authorization", key, "OPENAI_API_KEY") if key else None
    if found is None and not headers and not is_loopback(base_url):
        raise ModelError(NO_OPENAI_KEY, kind="no_key")
    return ModelEndpoint(
        base_url=base_url,
        auth=found.pair() if found else None,
        headers=headers,
        extra_body=extra_body(environment.get("CLAUDE_CODE_EXTRA_BODY")),
        declared=declared_fields(environment, base_url),
        variables="OPENAI",
        key_source=openai_key_source(environment),
    )


def openai_key_source(environment: Mapping[str, str]) -> str:
    given = (name for name in ("OPENAI_API_KEY", "OPENAI_CUSTOM_HEADERS") if environment.get(name))
    return next(given, "")


class Service(Struct, frozen=True):
    """A server with an address and a key: which variables and settings say what they are."""

    url: Callable[[Mapping[str, str]], str]
    """Raises UsageError."""
    find_endpoint: Callable[[credentials.CredentialSources], ModelEndpoint]
    """Raises UsageError or ModelError."""
    key_source: Callable[[credentials.CredentialSources], str]
    """Where the key comes from, never the key itself."""
    adapt_info: Callable[[ModelInfo, str, Mapping[str, str]], ModelInfo] | None = None
    """What is known of a model (its name is given) on this server; None if that depends on the model alone."""


def chat_info(known: ModelInfo, name: str, environment: Mapping[str, str]) -> ModelInfo:
    """What a chat completions server supports is declared."""
    fields = declared_fields(environment, openai_url(environment))
    efforts = EFFORTS if "reasoning_effort" in fields else ()
    return replace(known, efforts=efforts, supports_schemas="response_format" in fields)


def responses_info(known: ModelInfo, name: str, environment: Mapping[str, str]) -> ModelInfo:
    """Effort and reasoning are part of the Responses API. Whether a server enforces schemas is declared."""
    has_schemas = "response_format" in declared_fields(environment, openai_url(environment))
    if name.startswith(NOT_REASONING):
        return replace(known, thinking="never", efforts=(), supports_schemas=has_schemas)
    return replace(known, thinking="effort", thinking_off="disabled", efforts=EFFORTS, supports_schemas=has_schemas)


SERVICES = {
    "anthropic": Service(anthropic_url, anthropic_endpoint, credentials.find_source),
    "openai": Service(
        openai_url,
        lambda sources: openai_endpoint(sources.environment),
        lambda sources: openai_key_source(sources.environment) or "none",
        chat_info,
    ),
    "openai-responses": Service(
        openai_url,
        lambda sources: openai_endpoint(sources.environment),
        lambda sources: openai_key_source(sources.environment) or "none",
        responses_info,
    ),
}
"""The services that settings know, by their backends."""


def check_service(name: str, environment: Mapping[str, str]) -> None:
    """Raises UsageError if a backend can never be reached: its address is wrong, or a package is missing."""
    if name in CLOUDS:
        check_cloud(name)
    elif name in SERVICES:
        SERVICES[name].url(environment)


CLOUDS = {
    "bedrock": {
        "aws_region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
        "aws_access_key": ("AWS_ACCESS_KEY_ID",),
        "aws_secret_key": ("AWS_SECRET_ACCESS_KEY",),
        "aws_session_token": ("AWS_SESSION_TOKEN",),
        "aws_profile": ("AWS_PROFILE",),
        "api_key": ("AWS_BEARER_TOKEN_BEDROCK",),
        "base_url": ("ANTHROPIC_BEDROCK_BASE_URL",),
    },
    "vertex": {
        "region": ("CLOUD_ML_REGION",),
        "project_id": ("ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_CLOUD_PROJECT"),
        "base_url": ("ANTHROPIC_VERTEX_BASE_URL",),
    },
}
"""The options of each cloud's client, and the variables they are read from; the first that is set is used."""


CREDENTIAL_HELPERS = {"bedrock": "awsCredentialExport"}
"""The setting that names a command which prints the credentials of a cloud."""


def selected_cloud(environment: Mapping[str, str]) -> str | None:
    """Return the cloud that serves the Messages API, if one is selected."""
    return next((name for name in CLOUDS if is_truthy(environment.get(f"CLAUDE_CODE_USE_{name.upper()}"))), None)


ADDRESSES = {
    "anthropic": ("ANTHROPIC_BASE_URL", ANTHROPIC_URL),
    "openai": ("OPENAI_BASE_URL", OPENAI_URL),
    "openai-responses": ("OPENAI_BASE_URL", OPENAI_URL),
    "bedrock": ("ANTHROPIC_BEDROCK_BASE_URL", ""),
    "vertex": ("ANTHROPIC_VERTEX_BASE_URL", ""),
}
"""The variable that sets a service's address, and the provider's own address."""


def find_address(adapter: str, environment: Mapping[str, str]) -> tuple[str, str, str]:
    """Return the variable that sets the address of a service, the address, and the provider's own."""
    variable, standard = ADDRESSES.get(adapter, ("", ""))
    return variable, environment.get(variable, ""), standard


def check_cloud(name: str) -> None:
    """Raises UsageError if the package that signs requests for a cloud is not installed."""
    from importlib.util import find_spec

    if find_spec("anthropic") is None:
        raise UsageError(
            f"CLAUDE_CODE_USE_{name.upper()} requires an extra that is not installed: {how_to_install(name)}"
        )


def cloud_options(
    name: str, environment: Mapping[str, str], settings: Json | None = None, folders: Iterable[str] = ()
) -> dict[str, str]:
    """Return the options of the cloud's client that are set. Raises ModelError if a helper fails."""
    helper = (settings or {}).get(CREDENTIAL_HELPERS.get(name, ""))
    if helper:
        environment = {**environment, **credentials.export_aws(helper, environment, folders)}
    found = {
        option: next((environment[variable] for variable in variables if environment.get(variable)), None)
        for option, variables in CLOUDS[name].items()
    }
    if found.get("api_key"):
        # A token replaces the signature; the client accepts only one of the two.
        found |= dict.fromkeys(("aws_access_key", "aws_secret_key", "aws_session_token", "aws_profile"))
    return {option: value for option, value in found.items() if value is not None}


def declared_fields(environment: Mapping[str, str], base_url: str) -> frozenset[str]:
    """Return the optional fields that the server supports."""
    given = environment.get("PARLEY_OPENAI_FIELDS")
    if given is None:
        return OPENAI_DEFAULTS if base_url.startswith(OPENAI_URL.removesuffix("/v1")) else frozenset()
    return frozenset(name.strip() for name in given.split(",") if name.strip())
