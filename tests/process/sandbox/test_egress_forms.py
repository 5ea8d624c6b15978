"""The egress proxy against hosts that are spelled to be read twice (T-19): only the approved address is contacted.

Every name but the approved one resolves to the canary, so whatever the proxy lets through by mistake is seen there.
"""

from __future__ import annotations

import pytest

from tests.helpers.egress import APPROVED, CANARY, open_network

SAME_HOST = [b"approved.test", b"APPROVED.test", b"approved.test."]

OTHER_HOSTS = [
    # Names that only resemble the approved one.
    b"evil.test",
    b"xapproved.test",
    b"approved.testx",
    b"approved.test.evil.test",
    b"sub.approved.test",
    b"*.approved.test",
    b".approved.test",
    b"approved..test",
    b"approved.test..",
    b"approved_test",
    b"_approved.test",
    b"approved.tes\xc5\xa7",
    b"xn--approved-.test",
    b"approved.test" + b".a" * 130,
    b"a" * 255,
    b"localhost",
    b"LOCALHOST.",
    b"localhost.localdomain",
    # Two hosts in one string.
    b"approved.test\0.evil.test",
    b"evil.test\0approved.test",
    b"evil.test\0.approved.test",
    b"approved.test%00.evil.test",
    b"approved.test@evil.test",
    b"evil.test@approved.test",
    b"approved.test:80@evil.test",
    b"approved.test#@evil.test",
    b"evil.test#approved.test",
    b"evil.test?approved.test",
    b"evil.test/approved.test",
    b"evil.test\\approved.test",
    b"evil.test\\@approved.test",
    b"approved.test;evil.test",
    b"approved.test,evil.test",
    b"approved.test evil.test",
    b"evil.test\tapproved.test",
    b"approved.test\r\nHost: evil.test",
    b"evil.test\r\n\r\n",
    b"approved.test\nHost: evil.test",
    b"approved.test\r",
    b"[approved.test]",
    b"[approved.test",
    b"approved.test]",
    b" approved.test",
    b"approved.test ",
    b"",
    b"-",
    b".",
    b"%61pproved.test",
    b"approved%2etest",
    # Unicode that some libraries fold into ASCII.
    "ａpproved.test".encode(),
    "approved。test".encode(),
    "approved․test".encode(),
    "approved.test\u00ad".encode(),
    "localho\u017ft".encode(),
    "①②⑦.0.0.2".encode(),
    # The canary's address, spelled in every way.
    b"127.0.0.2",
    b"127.2",
    b"127.0.2",
    b"2130706434",
    b"0x7f000002",
    b"0x7f.0.0.2",
    b"0177.0.0.2",
    b"0177.0.0.02",
    b"017700000002",
    b"127.0.0.2.",
    b"127.0.0.002",
    b"0",
    b"0.0.0.0",
    b"[::1]",
    b"[::]",
    b"[::ffff:127.0.0.2]",
    b"[::ffff:7f00:2]",
    b"[::127.0.0.2]",
    b"[64:ff9b::7f00:2]",
    b"[2002:7f00:2::]",
    b"[::1%lo]",
    b"[::1%25lo]",
    b"[fe80::1]",
    b"::1",
    b"169.254.169.254",
    b"metadata.google.internal",
    b"10.0.0.1",
    b"approved.test.127.0.0.2.nip.io",
]


async def test_every_spelling_of_the_approved_host_reaches_it() -> None:
    for host in SAME_HOST:
        async with open_network() as network:
            replies = [await network.get(host), await network.connect(host), await network.socks(host)]
        assert all(reply.endswith(b"hello") for reply in replies), host
        assert network.contacts == [APPROVED] * 3


async def test_no_other_spelling_contacts_anything() -> None:
    wrong = []
    async with open_network() as network:
        for host in OTHER_HOSTS:
            for send in (network.get, network.connect, network.socks):
                reply = await send(host)
                if network.contacts or b"hello" in reply or b"200" in reply[:20]:
                    wrong.append((send.__name__, host, reply, list(network.contacts)))
                    network.contacts.clear()
    assert not wrong
    assert not [name for name in network.dns.asked if name != "approved.test"], "a refused name was looked up"


async def test_the_canary_can_be_reached_when_it_is_allowed() -> None:
    """The control: without this, the test above could not fail."""
    async with open_network(allowed=("evil.test", CANARY)) as network:
        for send in (network.get, network.connect, network.socks):
            assert (await send(b"evil.test")).endswith(b"hello")
        assert (await network.get(b"127.0.0.2")).endswith(b"hello")
    assert network.contacts == [CANARY] * 4


@pytest.mark.parametrize("first", [[APPROVED], [APPROVED, APPROVED]])
async def test_a_name_that_is_rebound_after_its_check_contacts_only_the_checked_address(first: list[str]) -> None:
    async with open_network() as network:
        network.dns.answers["approved.test"] = [first, [CANARY]] * 20
        for _ in range(10):
            await network.get(b"approved.test")
            await network.connect(b"approved.test")
            await network.socks(b"approved.test")
    assert set(network.contacts) == {APPROVED}
    assert len(network.dns.asked) == 30, "a name is resolved once for each connection"


async def test_one_private_address_among_public_ones_refuses_the_name() -> None:
    async with open_network() as network:
        for answer in ([APPROVED, CANARY], [CANARY, APPROVED], [APPROVED, "169.254.169.254"], [APPROVED, "10.0.0.1"]):
            network.dns.answers["approved.test"] = [answer]
            assert b"403 Forbidden" in await network.get(b"approved.test")
    assert not network.contacts


async def test_a_redirect_is_a_new_request_and_judged_as_one() -> None:
    async with open_network() as network:
        target = b"http://evil.test:%d/" % network.port
        network.reply = b"HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % target
        assert target in await network.get(b"approved.test")
        assert b"403 Forbidden" in await network.get(b"evil.test")
    assert network.contacts == [APPROVED]


async def test_the_server_sees_the_judged_host_and_one_request() -> None:
    async with open_network() as network:
        second = b"GET http://approved.test/second HTTP/1.1\r\nHost: evil.test\r\n\r\n"
        body = b"POST http://approved.test:%d/first?q HTTP/1.1\r\nHost: evil.test\r\nContent-Length: 3\r\n\r\nabc"
        await network.exchange(body % network.port + second)
        chunked = b"POST http://approved.test:%d/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunked += b"3;x=y\r\nabc\r\n0\r\nA: b\r\n\r\n"
        await network.exchange(chunked % network.port + second)
    host = b"Host: approved.test:%d\r\n" % network.port
    assert network.requests == [
        b"POST /first?q HTTP/1.1\r\n" + host + b"Content-Length: 3\r\nConnection: close\r\n\r\n",
        b"abc",
        b"POST / HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
        b"3\r\nabc\r\n0\r\n\r\n",
    ]


@pytest.mark.parametrize(
    "headers",
    [
        [b"Content-Length: 1", b"Content-Length: 2"],
        [b"Content-Length: 1", b"Transfer-Encoding: chunked"],
        [b"Transfer-Encoding: chunked, identity"],
        [b"Transfer-Encoding: xchunked"],
        [b"Content-Length: -1"],
        [b"Content-Length: 0x10"],
        [b"Content-Length: 1_0"],
        [b"Content-Length : 1"],
        [b"A: b\nHost: evil.test"],
        [b"A: b\rHost: evil.test"],
        [b"A: b\0"],
        [b" folded"],
        [b"no colon"],
        [b": empty"],
        [b"A: " + b"x" * 70_000],
    ],
)
async def test_a_request_that_can_be_read_in_two_ways_is_refused(headers: list[bytes]) -> None:
    async with open_network() as network:
        reply = await network.get(b"approved.test", *headers)
    assert reply.startswith(b"HTTP/1.1 400 ")
    assert not network.contacts


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: approved.test\r\n\r\n",
        b"GET https://approved.test/ HTTP/1.1\r\n\r\n",
        b"GET ftp://approved.test/ HTTP/1.1\r\n\r\n",
        b"GET http:/approved.test/ HTTP/1.1\r\n\r\n",
        b"GET http://approved.test/ HTTP/2.0\r\n\r\n",
        b"GET http://approved.test/ HTTP/1.1 x\r\n\r\n",
        b"CONNECT approved.test HTTP/1.1\r\n\r\n",
        b"CONNECT approved.test:0 HTTP/1.1\r\n\r\n",
        b"CONNECT approved.test:65536 HTTP/1.1\r\n\r\n",
        b"CONNECT approved.test:80:80 HTTP/1.1\r\n\r\n",
        b"CONNECT http://approved.test:80 HTTP/1.1\r\n\r\n",
        b"\x04\x01\0\x50\x7f\0\0\1\0",
        b"\x05\x01\x02",
        b"\x05\x01\0\x05\x02\0\x01\x7f\0\0\1\0\x50",
        b"\x05\x01\0\x05\x03\0\x01\x7f\0\0\1\0\x50",
        b"\x05\x01\0\x05\x01\0\x09\x7f\0\0\1\0\x50",
        b"\x05\x01\0\x05\x01\0\x03\xffabc",
        b"\x16\x03\x01\0\x05hello",
        b"\0" * 100,
    ],
)
async def test_what_is_not_a_request_to_a_proxy_contacts_nothing(data: bytes) -> None:
    async with open_network() as network:
        reply = await network.exchange(data)
    assert not network.contacts
    assert b" 200 " not in reply
    assert b"\x05\0\0\x01" not in reply
