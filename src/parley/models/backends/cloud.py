"""The Messages API on Amazon Bedrock and Google Vertex AI.

The `anthropic` package (extras `bedrock` and `vertex`) signs requests and decodes Bedrock's binary stream. It is
imported at the first call. The events are those of the Messages API, re-encoded by the package without loss.

`settings/credentials.py` chooses the cloud and reads its variables.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from parley.errors import ModelError
from parley.models.backends.anthropic import (
    BETA_HEADER,
    ThinkingForms,
    build_body,
    collect_betas,
    drop_fields,
    optional_fields,
    parse_error,
)
from parley.models.backends.base import UnsupportedFields, parse_event
from parley.models.base import Model, ModelEvent, ModelRequest, ModelSetup
from parley.models.http.call import LATE, Deadlines, Trust
from parley.models.http.timeouts import StreamTimeout
from parley.models.redaction import find_secrets, redact_error
from parley.protocol.base import Json

if TYPE_CHECKING:
    import anthropic

OURS = ("metadata",)
"""Fields that neither cloud supports."""
GIVEN = ("model", "max_tokens", "messages", "stream")
"""Fields that the package takes as arguments."""


ADVICE: dict[int | None, str] = {
    401: "Check the credentials for {cloud} (docs/models.md).",
    403: "Check the credentials for {cloud}, and whether they allow this model (docs/models.md).",
    404: "Use the names that models have on {cloud} (docs/models.md).",
}


class CloudModel:
    """A client of the `anthropic` package for one cloud."""

    cloud: ClassVar[str]
    """Its row in the catalog of backends."""
    client_class: ClassVar[str]
    """Of the package."""

    def __init__(
        self,
        options: Json,
        deadlines: Deadlines | None = None,
        warn: Callable[[str], None] = lambda text: None,
        trust: Trust | None = None,
        secrets: Collection[str] = (),
    ) -> None:
        self._options = options
        self._secrets = secrets
        """What the package may send: it finds keys and headers in the environment by itself."""
        self._trust = trust
        self._deadlines = deadlines or Deadlines()
        self._client: Any = None
        self._dropped = UnsupportedFields(warn, OURS)
        self._forms = ThinkingForms(warn)

    @classmethod
    def open(cls, setup: ModelSetup, name: str) -> Model:
        # The cloud's own client follows SSL_CERT_FILE and SSL_CERT_DIR; other certificates must be passed to it.
        options = setup.cloud_options(cls.cloud)
        return cls(
            options,
            deadlines=setup.deadlines(),
            warn=setup.warn,
            trust=setup.extra_trust(),
            secrets=find_secrets({**setup.environment, **options}),
        )

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Stream the events of one answer. Raises ModelError."""
        while True:
            request = self._forms.apply(request)
            dropped = self._dropped.names
            fields, betas = drop_fields(build_body(request, {}), dropped), collect_betas(request, dropped)
            try:
                async for event in self._events(fields, betas):
                    yield event
                return
            except ModelError as exc:
                redact_error(exc, self._secrets)
                exc.advice = ADVICE.get(exc.status, "").format(cloud=self.cloud)
                if not self._forms.switch(exc, request):
                    self._dropped.record(exc, optional_fields(fields, betas))

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _events(self, fields: Json, betas: list[str]) -> AsyncGenerator[ModelEvent, None]:
        """Raises ModelError."""
        limits, stream = self._deadlines, None
        await asyncio.to_thread(__import__, "anthropic")
        try:
            async with StreamTimeout(limits.request_seconds, limits.content_seconds) as timeout:
                call = self._call(await self._open_client(), fields, betas)
                stream = await timeout.wait_for(call, limits.first_byte_seconds, idle=True)
                answers = aiter(stream)
                while (answer := await timeout.wait_for(anext(answers, None), limits.silence_seconds)) is not None:
                    event = parse_event(answer.to_json(indent=None, exclude_unset=True).encode())
                    if event.type == "message_start":
                        event.request_id = stream.response.headers.get("request-id")
                    yield event
        except TimeoutError:
            raise ModelError(LATE, kind="timeout_error", retryable=True) from None
        except Exception as exc:
            # Signing a request can raise exceptions without a common base class.
            raise (exc if isinstance(exc, ModelError) else convert_error(exc)) from None
        finally:
            if stream is not None:
                await stream.close()

    def _call(self, client: Any, fields: Json, betas: list[str]) -> Any:
        rest = {name: value for name, value in fields.items() if name not in GIVEN}
        return client.messages.create(
            model=fields["model"],
            max_tokens=fields["max_tokens"],
            messages=fields["messages"],
            stream=True,
            extra_body=rest,
            extra_headers={BETA_HEADER: ",".join(betas)} if betas else None,
        )

    async def _open_client(self) -> Any:
        if self._client is None:
            self._client = await asyncio.to_thread(self._build_client)
        return self._client

    def _build_client(self) -> Any:
        import anthropic
        import httpx2

        more = {} if self._trust is None else {"http_client": anthropic.DefaultAsyncHttpxClient(verify=self._trust())}
        # The engine does its own retries and timeouts.
        times = httpx2.Timeout(None, connect=self._deadlines.connect_seconds)
        return getattr(anthropic, self.client_class)(**self._options, max_retries=0, timeout=times, **more)


class Bedrock(CloudModel):
    """Claude on Amazon Bedrock."""

    cloud: ClassVar[str] = "bedrock"
    client_class: ClassVar[str] = "AsyncAnthropicBedrock"


class Vertex(CloudModel):
    """Claude on Google Vertex AI."""

    cloud: ClassVar[str] = "vertex"
    client_class: ClassVar[str] = "AsyncAnthropicVertex"


def convert_error(exc: Exception) -> ModelError:
    """The ModelError for an exception of the package."""
    import anthropic

    if isinstance(exc, anthropic.APIStatusError):
        return parse_error(exc.status_code, exc.response.headers, error_content(exc))
    if isinstance(exc, RecursionError):
        return ModelError("the model sent an event that is nested too deeply", retryable=True)
    if isinstance(exc, anthropic.APITimeoutError):
        return ModelError(LATE, kind="timeout_error", retryable=True)
    if isinstance(exc, anthropic.APIConnectionError):
        return ModelError(
            f"no answer from the cloud service: {exc.__cause__ or exc}", kind="connection_failed", retryable=True
        )
    return ModelError(f"cannot call the cloud service: {exc}", kind="no_key")


def error_content(exc: anthropic.APIStatusError) -> bytes:
    """The body of an error response. The clouds' own errors have the message at the top level."""
    body = exc.body
    if isinstance(body, dict) and "error" not in body:
        text = body.get("message") or body.get("Message")
        return msgspec.json.encode({"error": {"message": str(text or body)}})
    return bytes(exc.response.content)
