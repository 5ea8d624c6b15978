"""Pages from real servers on loopback: what is fetched, what is reported, what is refused."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import ssl
import subprocess
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest

from parley.errors import ToolError
from parley.workspace.web import BodyDecoder, FetchLimits, FetchPolicy, Moved, Resolver, Web, WebPage
from tests.helpers.http_server import Answer, Loopback, endless, loopback, silence, whole
from tests.helpers.patience import PATIENCE_SECONDS

T = TypeVar("T")
PUBLIC = "93.184.216.34"


def at(**places: str) -> Resolver:
    """A resolver that knows these names alone; dots are written as underscores."""

    async def resolve(host: str, port: int) -> list[str]:
        if host.replace(".", "_") not in places:
            raise OSError(f"nobody knows {host}")
        return places[host.replace(".", "_")].split()

    return resolve


async def fetched(*answers: Answer, path: str = "/p", **more: Any) -> tuple[WebPage | Moved, Loopback]:
    """What a server with these answers gives, and what it heard."""

    async with loopback(*answers) as server:
        web = Web(FetchPolicy(allow_private=True), **more)
        return await web.fetch(server.url + path), server


async def refusal(*answers: Answer, **more: Any) -> str:
    with pytest.raises(ToolError) as exc:
        await fetched(*answers, **more)
    return str(exc.value)


def text(body: bytes, status: int = 200, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return whole(status, body, {"content-type": "text/plain", **named})


def redirect(to: str, status: int = 302) -> Answer:
    return whole(status, b"", {"location": to})


# Fetching.


async def test_a_page_is_fetched_with_what_the_server_says_of_it() -> None:
    page, server = await fetched(text(b"hello", 203, content_type="text/html; charset=latin-1"), path="/a/b?c=d")
    kind = "text/html; charset=latin-1"
    assert page == WebPage(url=server.url + "/a/b?c=d", code=203, reason="X", content_type=kind, body=b"hello")
    assert server.heard[0].line == "GET /a/b?c=d HTTP/1.1"
    assert "cookie" not in server.heard[0].headers


@pytest.mark.parametrize(("name", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_packed_content_is_unpacked(name: str, pack: Any) -> None:
    page, _ = await fetched(text(pack(b"hello " * 1000), content_encoding=name))
    assert isinstance(page, WebPage)
    assert page.body == b"hello " * 1000


@pytest.mark.parametrize(
    ("body", "encoding", "word"),
    [(b"hello", "gzip", "decompressed"), (b"hello", "br", "'br'"), (b"x", "snappy", "'snappy'")],
)
async def test_content_that_cannot_be_unpacked_is_refused(body: bytes, encoding: str, word: str) -> None:
    assert word in await refusal(text(body, content_encoding=encoding))


# Limits.


async def test_content_over_the_limit_is_refused() -> None:
    assert "larger than 0.001 MB" in await refusal(text(b"x" * 1001), limits=FetchLimits(max_bytes=1000))
    page, _ = await fetched(text(b"x" * 1000), limits=FetchLimits(max_bytes=1000))
    assert isinstance(page, WebPage)


async def test_a_stream_without_end_is_let_go_at_the_limit() -> None:
    assert "larger than 1 MB" in await refusal(endless(b"x" * 10_000), limits=FetchLimits(max_bytes=1_000_000))


async def test_a_small_answer_that_unpacks_to_a_huge_one_is_refused() -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)
    assert len(bomb) < 100_000
    assert "larger than 10 MB" in await refusal(text(bomb, content_encoding="gzip"))


def test_no_more_than_the_limit_is_ever_unpacked() -> None:
    content = BodyDecoder("gzip", max_bytes=1000)
    with pytest.raises(ToolError):
        content.add(gzip.compress(b"\0" * 50_000_000))
    assert len(content.content) == 1001


async def test_a_silent_server_is_not_waited_for() -> None:
    assert "within 0.2 seconds" in await refusal(silence(started=False), limits=FetchLimits(seconds=0.2))


async def test_a_server_that_falls_silent_is_not_waited_for() -> None:
    assert "within 0.2 seconds" in await refusal(silence(b"some"), limits=FetchLimits(seconds=0.2))


async def test_a_resolver_that_hangs_is_not_waited_for() -> None:
    async def hang(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        raise AssertionError

    assert "within 0.2 seconds" in await refusal(limits=FetchLimits(seconds=0.2), resolve=hang)


# Redirects.


async def test_a_redirect_on_the_same_host_is_followed() -> None:
    page, server = await fetched(redirect("/b", 301), redirect("c?d=e", 307), text(b"here"))
    assert page == WebPage(url=server.url + "/c?d=e", code=200, reason="X", content_type="text/plain", body=b"here")
    assert [request.line for request in server.heard] == ["GET /p HTTP/1.1", "GET /b HTTP/1.1", "GET /c?d=e HTTP/1.1"]


async def test_a_redirect_to_another_host_is_reported_and_not_followed() -> None:
    moved, server = await fetched(redirect("https://example.com/x", 308))
    assert moved == Moved(url=server.url + "/p", to="https://example.com/x", code=308, reason="X")
    assert server.connections == 1


async def test_a_redirect_to_what_cannot_be_fetched_is_refused() -> None:
    assert "http" in await refusal(redirect("file:///etc/passwd"))


async def test_a_sixth_redirect_is_too_many() -> None:
    assert "redirects more than 5 times" in await refusal(*[redirect("/p")] * 6)
    page, _ = await fetched(*[redirect("/p")] * 5, text(b"here"))
    assert isinstance(page, WebPage)


async def test_a_redirect_without_a_place_is_a_page() -> None:
    page, _ = await fetched(whole(304, b"", {}))
    assert isinstance(page, WebPage)
    assert page.code == 304


# Which addresses.


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "[::1]", "2130706433", "0177.0.0.1", "0x7f.1", "127.1", "0", "[::ffff:127.0.0.1]",
     "10.0.0.1", "169.254.169.254", "[fd00::1]", "localhost."],
)  # fmt: skip
async def test_this_machine_and_its_neighbours_are_refused_however_they_are_spelled(host: str) -> None:
    with pytest.raises(ToolError, match=r"is not public|was not found"):
        await Web().fetch(f"http://{host}:9/")


async def test_a_name_of_a_private_address_is_refused_and_nothing_is_sent() -> None:
    async with loopback(text(b"secret")) as server:
        port = server.url.rpartition(":")[2]
        with pytest.raises(ToolError, match=r"inside\.example was not fetched, because its address 127\.0\.0\.1"):
            await Web(resolve=at(inside_example="127.0.0.1")).fetch(f"http://inside.example:{port}/")
        result = server.connections

    assert result == 0


async def test_one_private_address_among_public_ones_is_enough_to_refuse() -> None:
    with pytest.raises(ToolError, match=r"its address 10\.0\.0\.7 is not public"):
        await Web(resolve=at(mixed_example=f"{PUBLIC} 10.0.0.7")).fetch("http://mixed.example/")


async def test_a_name_that_is_not_known_is_refused() -> None:
    with pytest.raises(ToolError, match=r"unknown\.example was not found"):
        await Web(resolve=at()).fetch("http://unknown.example/")


async def test_a_name_that_changes_its_address_is_judged_again_with_every_redirect() -> None:
    async with loopback(redirect("/again"), text(b"secret")) as server:
        looked_up = [["127.0.0.1"], ["127.0.0.2"]]

        async def resolve(host: str, port: int) -> list[str]:
            return looked_up.pop(0)

        # The network ends at this machine: one of its addresses plays the public's part.
        web = Web(FetchPolicy(is_public=lambda address: address == "127.0.0.1"), resolve=resolve)
        with pytest.raises(ToolError) as exc:
            await web.fetch(f"http://rebinding.example:{server.url.rpartition(':')[2]}/")
        words, requests = str(exc.value), len(server.heard)

    assert "its address 127.0.0.2 is not public" in words
    assert requests == 1


async def test_the_connection_goes_to_the_address_that_was_judged_and_the_name_to_the_server() -> None:
    """No resolver of the system knows the name: only the address that was looked up can have been used."""

    async def fetch() -> tuple[WebPage | Moved, Mapping[str, str], str]:
        async with loopback(text(b"here")) as server:
            port = server.url.rpartition(":")[2]
            looked_up: list[str] = []

            async def resolve(host: str, port: int) -> list[str]:
                looked_up.append(host)
                return ["127.0.0.1"]

            web = Web(FetchPolicy(allow_private=True), resolve=resolve)
            page = await web.fetch(f"http://pinned.example:{port}/")
            assert looked_up == ["pinned.example"]
            return page, server.heard[0].headers, port

    page, headers, port = await fetch()
    assert isinstance(page, WebPage)
    assert page.url == f"http://pinned.example:{port}/"
    assert headers["host"] == f"pinned.example:{port}"


async def test_the_next_address_is_tried_where_no_one_answers() -> None:
    async with loopback(text(b"here")) as server:
        port = server.url.rpartition(":")[2]
        # Nothing listens on the second address of loopback.
        web = Web(FetchPolicy(allow_private=True), resolve=at(two_example="127.0.0.2 127.0.0.1"))
        result = await web.fetch(f"http://two.example:{port}/")

    assert isinstance(result, WebPage)


async def test_a_port_where_no_one_listens_is_reported() -> None:
    with pytest.raises(ToolError, match="could not be fetched"):
        await Web(FetchPolicy(allow_private=True)).fetch("http://127.0.0.1:1/")


async def test_the_persons_own_address_may_be_private() -> None:
    async with loopback(text(b"here")) as server:
        result = await Web().fetch(server.url, own=True)

    assert isinstance(result, WebPage)


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    page, _ = await fetched(text(b"here"))
    assert isinstance(page, WebPage)


# TLS.


def certificate(folder: Path, name: str) -> tuple[Path, ssl.SSLContext]:
    """A certificate that a name signed for itself, and a server's side of it."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    key, path = folder / "key.pem", folder / "certificate.pem"
    subject = ["-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", *subject]
    command = [*make, "-keyout", str(key), "-out", str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_SECONDS)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path, key)
    return path, context


async def secure(
    folder: Path, signed_for: str, asked_for: str, *, trusted: bool = True
) -> tuple[WebPage | Moved, list[Any]]:
    path, context = certificate(folder, signed_for)
    greeted: list[str | None] = []

    def note(socket: Any, name: str | None, context: ssl.SSLContext) -> None:
        greeted.append(name)

    context.sni_callback = note

    async def fetch() -> WebPage | Moved:
        async with loopback(text(b"here"), tls=context) as server:
            port = server.url.rpartition(":")[2]
            resolve = at(**{asked_for.replace(".", "_"): "127.0.0.1"})
            web = Web(FetchPolicy(allow_private=True), resolve=resolve, ca_file=str(path) if trusted else None)
            return await web.fetch(f"https://{asked_for}:{port}/")

    return await fetch(), greeted


async def test_the_name_is_in_the_greeting_and_the_certificate_must_be_the_names(tmp_path: Path) -> None:
    page, greeted = await secure(tmp_path, "pinned.example", "pinned.example")
    assert isinstance(page, WebPage)
    assert greeted == ["pinned.example"]


async def test_a_certificate_of_another_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="certificate"):
        await secure(tmp_path, "other.example", "pinned.example")


async def test_a_certificate_no_one_vouches_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="certificate"):
        await secure(tmp_path, "pinned.example", "pinned.example", trusted=False)


async def test_certificates_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"missing\.pem"):
        await Web(FetchPolicy(allow_private=True), ca_file=str(tmp_path / "missing.pem")).fetch("https://127.0.0.1:1/")
