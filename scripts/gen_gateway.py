"""Generate docs/gateway/openapi.json and asyncapi.json, from the routes of the gateway and the message classes."""

from __future__ import annotations

from pages import main

from parley.gateway.http.documents import build_asyncapi, build_openapi, encode


def pages() -> dict[str, str]:
    return {
        "docs/gateway/openapi.json": encode(build_openapi).decode(),
        "docs/gateway/asyncapi.json": encode(build_asyncapi).decode(),
    }


if __name__ == "__main__":
    raise SystemExit(main(pages()))
