"""Lazy modules: not loaded by a turn, and complete when they are used."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from parley.cli.lazy_imports import DEFERRED
from tests.helpers.environment import base_environment

YEAR = timedelta(days=365)
BEGIN = "import sys; from parley.cli.lazy_imports import DEFERRED, LazyModule, defer; defer(); "


def told_by(program: str, cwd: Path) -> str:
    return run_python(program, cwd).stdout


def run_python(program: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {"HOME": str(cwd), **base_environment()}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        cwd=cwd,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def certify(host: str, folder: Path) -> None:
    """A key and a self-signed certificate."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - YEAR, now + YEAR)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .sign(key, SHA256())
    )
    (folder / "cert.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    (folder / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def test_a_turn_of_the_offline_model_touches_none_of_them(tmp_path: Path) -> None:
    program = (
        "import sys; own = set(sys.modules)  # what Python itself has loaded for -c: linecache since 3.13\n"
        "from parley.cli.lazy_imports import DEFERRED, LazyModule; from parley.cli.main import main\n"
        "main(['--print', '--model', 'offline', 'say Hi'])\n"
        "named = DEFERRED & sys.modules.keys() - own\n"
        "touched = [name for name in named if type(sys.modules[name]) is not LazyModule]\n"
        "print(touched, {'ssl', 'inspect', 'subprocess'} <= named)\n"
    )
    assert told_by(program, tmp_path).splitlines() == ["Hi", "[] True"]


def test_each_is_the_module_it_stands_for_once_it_is_touched(tmp_path: Path) -> None:
    look = (
        "import importlib\n"
        "def names(module):\n"
        "    assert not hasattr(module, 'there is no such name')\n"
        "    return type(module).__name__, type(module.__loader__).__name__, sorted(vars(module))\n"
        f"print([names(importlib.import_module(name)) for name in {sorted(DEFERRED)}])\n"
    )
    assert told_by(BEGIN + look, tmp_path) == told_by("import msgspec; " + look, tmp_path)


def test_what_was_absent_for_a_moment_is_there_again(tmp_path: Path) -> None:
    program = (
        BEGIN + "assert 'typing_extensions' not in sys.modules\n"
        "import typing_extensions, uuid\n"
        "print(uuid._LINUX is (sys.platform == 'linux'), typing_extensions.TypedDict.__name__)\n"
    )
    assert told_by(program, tmp_path) == "True TypedDict\n"


def test_versions_are_reported_without_the_library_for_them(tmp_path: Path) -> None:
    program = (
        BEGIN + "from importlib.metadata import version\n"
        "import importlib.metadata as metadata\n"
        "told = version('httpx2'); assert type(metadata) is LazyModule\n"
        "try: version('there-is-no-such')\n"
        "except metadata.PackageNotFoundError: pass\n"
        "print(told == metadata.distribution('httpx2').version == metadata.version('httpx2'))\n"
        "print(version('parley-agent') == metadata.version('parley-agent'), metadata.version is version)\n"
    )
    assert told_by(program, tmp_path) == "True\nTrue False\n"


def test_threads_that_touch_one_together_all_get_the_whole_module(tmp_path: Path) -> None:
    program = (
        BEGIN
        + "import inspect, ssl; from concurrent.futures import ThreadPoolExecutor; from threading import Barrier\n"
        "sys.setswitchinterval(1e-6)\n"
        "start = Barrier(16)\n"
        "def touch(number):\n"
        "    start.wait()\n"
        "    return (inspect.unwrap, ssl.SSLContext) if number % 2 else (ssl.cert_time_to_seconds, inspect.signature)\n"
        "with ThreadPoolExecutor(16) as pool:\n"
        "    print(len([all(map(callable, found)) for found in pool.map(touch, range(16))]))\n"
    )
    for _ in range(5):
        assert told_by(program, tmp_path) == "16\n"


def test_no_one_sees_half_a_module_that_another_thread_loads(tmp_path: Path) -> None:
    (tmp_path / "gate.py").write_text("from threading import Event\nhalf, rest = Event(), Event()\n")
    (tmp_path / "slow.py").write_text(
        "import gate\ndef first(): return second()\ngate.half.set(); gate.rest.wait()\ndef second(): return 'whole'\n"
    )
    program = (
        "import sys; sys.path.insert(0, '.'); from parley.cli import lazy_imports; import gate\n"
        "lazy_imports.DEFERRED = ('slow',)\n"
        "lazy_imports.defer()\n"
        "import slow; from threading import Thread, Timer\n"
        "loader = Thread(target=lambda: slow.second); loader.start(); gate.half.wait()\n"
        "Timer(0.2, gate.rest.set).start()\n"
        "print(slow.first()); loader.join()\n"
    )
    assert told_by(program, tmp_path) == "whole\n"


def test_a_module_that_cannot_be_loaded_says_so_each_time(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise RuntimeError('this one is broken')")
    program = (
        "import sys; sys.path.insert(0, '.'); from parley.cli import lazy_imports\n"
        "lazy_imports.DEFERRED |= {'broken', 'missing'}\n"
        "lazy_imports.defer()\n"
        "import broken\n"
        "try: import missing\n"
        "except ModuleNotFoundError as flaw: print(flaw)\n"
        "for _ in range(2):\n"
        "    try: broken.anything\n"
        "    except RuntimeError as flaw: print(flaw)\n"
    )
    assert told_by(program, tmp_path) == "No module named 'missing'\n" + "this one is broken\n" * 2


def test_encrypted_connections_of_asyncio_work(tmp_path: Path) -> None:
    """asyncio's TLS uses a module that was deferred."""
    certify("localhost", tmp_path)
    program = (
        BEGIN + "import asyncio, ssl\n"
        "async def greet(reader, writer):\n"
        "    writer.write(b'hello'); writer.close(); await writer.wait_closed()\n"
        "async def main():\n"
        "    ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH); ours.load_cert_chain('cert.pem', 'key.pem')\n"
        "    theirs = ssl.create_default_context(cafile='cert.pem')\n"
        "    async with await asyncio.start_server(greet, '127.0.0.1', 0, ssl=ours) as server:\n"
        "        port = server.sockets[0].getsockname()[1]\n"
        "        reader, writer = await asyncio.open_connection('localhost', port, ssl=theirs)\n"
        "        print((await reader.read()).decode()); writer.close()\n"
        "asyncio.run(main())\n"
    )
    assert told_by(program, tmp_path) == "hello\n"


def test_what_the_standard_library_asks_on_the_way_is_what_the_modules_say(tmp_path: Path) -> None:
    program = (
        BEGIN + "import asyncio, pathlib, subprocess, urllib.parse\n"
        "asked = [subprocess.PIPE, subprocess.STDOUT, subprocess.DEVNULL]\n"
        "print(type(subprocess) is LazyModule, type(urllib.parse) is LazyModule or sys.version_info >= (3, 12))\n"
        "async def main():\n"
        "    child = await asyncio.create_subprocess_exec('echo', 'hi', stdout=asyncio.subprocess.PIPE)\n"
        "    return (await child.communicate())[0].decode()\n"
        "print(asyncio.run(main()), pathlib.Path('/a b/\u00e4').as_uri())\n"
        "print(type(subprocess) is LazyModule, asked == [subprocess.PIPE, subprocess.STDOUT, subprocess.DEVNULL])\n"
    )
    assert told_by(program, tmp_path) == "True True\nhi\n file:///a%20b/%C3%A4\nFalse True\n"


def test_loggers_of_the_standard_library_work_once_logging_is_used(tmp_path: Path) -> None:
    program = (
        BEGIN + "import asyncio\n"
        "from asyncio.log import logger; logger.debug('dropped')\n"
        "import logging; print(type(logging) is LazyModule)\n"
        "logger.warning('before %s', 'configuration')\n"
        "logging.basicConfig(level=logging.DEBUG, format='%(name)s %(message)s'); logger.debug('shown')\n"
        "from concurrent.futures import Future; future = Future()\n"
        "future.add_done_callback(lambda _: 1 / 0); future.set_result(None)\n"
        "print(type(logging) is LazyModule, asyncio.FIRST_COMPLETED, asyncio.futures.STACK_DEBUG)\n"
    )
    done = run_python(program, tmp_path)
    assert done.stdout == "True\nFalse FIRST_COMPLETED 9\n"
    lines = done.stderr.splitlines()
    assert lines[:2] == ["before configuration", "asyncio shown"]
    assert lines[2].startswith("concurrent.futures exception calling callback for <Future")
    assert lines[-1] == "ZeroDivisionError: division by zero"


def test_asyncio_says_where_a_task_was_created_in_debug_mode(tmp_path: Path) -> None:
    program = (
        BEGIN + "import asyncio\n"
        "async def main():\n"
        "    async def fail(): 1 / 0\n"
        "    task = asyncio.create_task(fail())\n"
        "    await asyncio.wait([task]); del task\n"
        "asyncio.run(main(), debug=True)\n"
    )
    told = run_python(program, tmp_path).stderr
    assert "source_traceback: Object created at (most recent call last):" in told
    assert "extract_stack" not in told


def test_a_program_that_imports_parley_keeps_its_modules(tmp_path: Path) -> None:
    program = (
        "import sys, parley; parley.ClaudeAgentOptions, parley.query\n"
        "import inspect; print(type(inspect).__name__, 'parley.cli.lazy_imports' in sys.modules)\n"
    )
    assert told_by(program, tmp_path) == "module False\n"
