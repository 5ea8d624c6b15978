"""Which key a session would use, found without running a helper or sending a request."""

from __future__ import annotations

from parley.compose.launch_context import LaunchContext
from parley.compose.models import ModelFactory
from parley.errors import ModelError
from parley.models.catalog import get_backend, resolve
from parley.protocol.base import Struct
from parley.settings import credentials

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
