"""A provider of another package: a class and a row."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from parley.models import catalog
from parley.models.backends.base import HttpModel
from parley.models.base import ModelRequest
from parley.models.catalog import Backend, Server
from parley.models.encoding import Pieces
from parley.models.endpoint import ModelEndpoint
from parley.protocol.base import Json
from parley.settings import credentials
from parley.settings.credentials import CredentialSources
from tests.helpers.http_server import loopback, whole
from tests.helpers.models import asking, heard, user

ANSWER: Json = {"type": "message", "content": [{"type": "text", "text": "Hi"}], "usage": {}}
REFUSED: Json = {"error": {"message": "the field 'mood' is not supported"}}


class House(HttpModel):
    service: ClassVar[str] = "house"
    path: ClassVar[str] = "/answers"
    headers: ClassVar[dict[str, str]] = {"house-version": "7"}

    def encode_body(self, request: ModelRequest, endpoint: ModelEndpoint, dropped: Collection[str]) -> Pieces:
        fields = {"model": self.name, "mood": "calm", "said": request.messages}
        return [msgspec.json.encode({name: value for name, value in fields.items() if name not in dropped})]

    def list_optional(self, request: ModelRequest, endpoint: ModelEndpoint) -> Iterator[str]:
        return iter(("mood",))


async def test_a_provider_is_a_class_and_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Backend(cls=f"{__name__}:House", server=Server("HOUSE", "https://house.test"))
    monkeypatch.setitem(catalog.BACKENDS, "house", row)
    warnings: list[str] = []
    answers = [whole(400, msgspec.json.encode(REFUSED)), whole(200, msgspec.json.encode(ANSWER))]
    async with loopback(*answers) as server:
        environment = {"HOUSE_BASE_URL": server.url, "HOUSE_API_KEY": "k", "HOUSE_CUSTOM_HEADERS": "x-team: a"}
        sources = CredentialSources(flag=None, environment=environment, settings={}, home=Path("/nowhere"))
        model = House(lambda: credentials.find_endpoint("house", sources), "large", warn=warnings.append)
        events = await heard(model, asking(user("Hello")))
        await model.close()
        first, second = server.heard

    assert [event.delta.text for event in events if event.delta is not None and event.delta.text] == ["Hi"]
    assert first.line.startswith("POST /answers ")
    assert (first.headers["authorization"], first.headers["x-team"]) == ("Bearer k", "a")
    assert first.headers["house-version"] == "7"
    assert msgspec.json.decode(second.body) == {"model": "large", "said": [user("Hello")]}
    assert len(warnings) == 1
