"""Spans of a session, from the executable and in a program, with the real OpenTelemetry SDK."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from parley.models.script import read_script
from parley.telemetry.otel import OpenTelemetry
from parley.testing.model_server import running
from tests.helpers.environment import base_environment

ENGINE = Path(sys.executable).with_name("parley")
TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
LINE = (str(ENGINE), "--print", "--model", "offline", "--allowedTools=Bash,Agent")


def run(folder: Path, *argv: str, **environment: str) -> tuple[str, list[Any], str]:
    """stdout, the spans, and the rest of stderr."""
    base = {"HOME": str(folder), **base_environment(), "OTEL_TRACES_EXPORTER": "console", **environment}
    done = subprocess.run(argv, env=base, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    lines = done.stderr.splitlines()
    spans = [json.loads(line) for line in lines if line.startswith("{")]
    return done.stdout, spans, "\n".join(line for line in lines if not line.startswith("{"))


def tree(spans: list[Any]) -> dict[str, str | None]:
    """The name of each span with that of its parent."""
    names = {span["context"]["span_id"]: span["name"] for span in spans}
    return {span["name"]: names.get(span["parent_id"], span["parent_id"]) for span in spans}


def named(spans: list[Any], name: str) -> Any:
    return next(span for span in spans if span["name"] == name)


def test_a_turn_is_a_tree_of_spans_with_the_names_of_the_conventions(tmp_path: Path) -> None:
    prompt = 'call Bash {"command": "echo $TRACEPARENT"}\nshow'
    stdout, spans, rest = run(tmp_path, *LINE, prompt, TRACEPARENT=f"00-{TRACE}-{CALLER}-01")

    assert rest == ""
    assert tree(spans) == {
        "chat offline": "invoke_agent parley",
        "execute_tool Bash": "invoke_agent parley",
        "invoke_agent parley": f"0x{CALLER}",
    }
    turn, chat, tool = (named(spans, name) for name in ("invoke_agent parley", "chat offline", "execute_tool Bash"))
    assert {span["context"]["trace_id"] for span in spans} == {f"0x{TRACE}"}
    assert stdout.strip() == f"00-{TRACE}-{tool['context']['span_id'][2:]}-01"  # the command received its own span
    assert turn["attributes"]["gen_ai.operation.name"] == "invoke_agent"
    assert turn["attributes"]["parley.result"] == "success"
    assert turn["attributes"]["parley.model_calls"] == 2
    assert chat["kind"] == "SpanKind.CLIENT"
    assert chat["attributes"]["gen_ai.request.model"] == "offline"
    assert chat["attributes"]["gen_ai.usage.output_tokens"] > 0
    assert chat["attributes"]["gen_ai.response.finish_reasons"] == ["tool_use"]
    assert tool["attributes"]["gen_ai.tool.name"] == "Bash"
    assert tool["attributes"]["gen_ai.tool.call.id"].startswith("toolu_")
    assert turn["resource"]["attributes"]["service.name"] == "parley"


def test_nothing_that_was_said_is_in_a_span(tmp_path: Path) -> None:
    prompt = 'think a secret thought\ncall Bash {"command": "echo hidden"}\nsay a secret word'
    _, spans, _ = run(tmp_path, *LINE, prompt)

    assert spans
    assert "secret" not in json.dumps(spans)
    assert "hidden" not in json.dumps(spans)


def test_a_subagents_turn_is_in_the_call_that_started_it(tmp_path: Path) -> None:
    prompt = 'call Agent {"description": "d", "prompt": "say I am one.", "run_in_background": false}\nsay Done.'
    _, spans, _ = run(tmp_path, *LINE, prompt)

    found = tree(spans)
    assert found["invoke_agent general-purpose"] == "execute_tool Agent"
    assert found["execute_tool Agent"] == "invoke_agent parley"
    assert found["invoke_agent parley"] is None


def test_a_call_that_is_denied_and_a_model_that_fails_are_errors(tmp_path: Path) -> None:
    _, denied, _ = run(tmp_path, *LINE[:4], 'call Bash {"command": "touch x"}\nsay Done.')
    _, failed, _ = run(tmp_path, *LINE, "fail 400 no such thing")

    assert named(denied, "execute_tool Bash")["attributes"]["error.type"] == "denied"
    assert named(failed, "chat offline")["status"]["status_code"] == "ERROR"
    assert named(failed, "chat offline")["attributes"]["error.type"]
    assert named(failed, "invoke_agent parley")["attributes"]["parley.terminal_reason"] == "api_error"


@pytest.mark.parametrize("wish", ["1", "0"])
def test_a_models_server_is_notified_of_the_span_if_that_is_wanted(tmp_path: Path, wish: str) -> None:
    with running(read_script('[[turn]]\ntext = "Hello."', "s")) as server:
        given = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "k", "PARLEY_TRACE_REQUESTS": wish}
        _, spans, _ = run(tmp_path, str(ENGINE), "--print", "--model", "sonnet", "Hi", **given)
        [exchange] = server.exchanges

    [chat] = [span for span in spans if span["name"].startswith("chat ")]
    ids = chat["context"]
    told = exchange.headers.get("traceparent", "").rpartition("-")[0]
    assert told == (f"00-{ids['trace_id'][2:]}-{ids['span_id'][2:]}" if wish == "1" else "")


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"OTEL_TRACES_EXPORTER": "no-such"}, "no installed package provides the exporter"),
        ({"OTEL_TRACES_EXPORTER": "none"}, ""),
        ({"OTEL_SDK_DISABLED": "true"}, ""),
        ({"TRACEPARENT": "not one"}, ""),
    ],
)
def test_what_the_environment_wants_wrongly_costs_spans_and_nothing_else(
    tmp_path: Path, environment: dict[str, str], words: str
) -> None:
    stdout, spans, rest = run(tmp_path, *LINE, "say Hello.", **environment)

    assert stdout == "Hello.\n"
    assert (words in rest, bool(rest)) == (True, bool(words))
    assert bool(spans) == ("TRACEPARENT" in environment)


EXPORTER = """
import sys
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

class Grpc(SpanExporter):
    def export(self, spans):
        sys.stderr.write(f"{type(self).__name__} got {len(spans)}\\n")
        return SpanExportResult.SUCCESS

class Http(Grpc): pass
"""
ENTRY_POINTS = (
    "[opentelemetry_traces_exporter]\notlp_proto_grpc = otlp_double:Grpc\notlp_proto_http = otlp_double:Http\n"
)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "Http got 2"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "Grpc got 2"),
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"},
            "Http got 2",
        ),
        ({}, "Http got 2"),
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "carrier-pigeon"},
            (
                "OTEL_EXPORTER_OTLP_PROTOCOL: unknown protocol 'carrier-pigeon' "
                "(choose from grpc, http/protobuf, http/json); no spans are exported"
            ),
        ),
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
            "OTEL_TRACES_EXPORTER: no installed package provides the exporter 'otlp_json_http'",
        ),
    ],
)
def test_otlp_is_exported_by_the_protocol_of_the_environment(
    tmp_path: Path, environment: dict[str, str], words: str
) -> None:
    installed = tmp_path / "packages"
    about = installed / "otlp_double-1.dist-info"
    about.mkdir(parents=True)
    (installed / "otlp_double.py").write_text(EXPORTER)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: otlp-double\nVersion: 1\n")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)

    given = {"OTEL_TRACES_EXPORTER": "otlp", "PYTHONPATH": str(installed), **environment}
    stdout, _, rest = run(tmp_path, *LINE, "say Hello.", **given)

    assert (stdout, rest) == ("Hello.\n", words)


def test_the_input_tokens_of_a_span_include_cached_ones(tmp_path: Path) -> None:
    script = tmp_path / "script.toml"
    script.write_text(
        '[[turn]]\ntext = "Hello."\n'
        "usage = { input_tokens = 5, cache_read_input_tokens = 20, cache_creation_input_tokens = 300 }\n"
    )
    _, spans, _ = run(tmp_path, str(ENGINE), "--print", "--model", f"scripted:{script}", "Hi")

    [chat] = [span["attributes"] for span in spans if span["name"].startswith("chat ")]
    assert chat["gen_ai.usage.input_tokens"] == 325
    assert chat["gen_ai.usage.cache_read.input_tokens"] == 20
    assert chat["gen_ai.usage.cache_creation.input_tokens"] == 300


PROGRAM = """
import asyncio, json, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from parley import Client, HookMatcher, Options, PermissionResultAllow

kept = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(kept))
trace.set_tracer_provider(provider)

async def may(*asked): return PermissionResultAllow()
async def hook(*told): return {}

async def main(engine):
    with trace.get_tracer("mine").start_as_current_span("my work"):
        hooks = {"PreToolUse": [HookMatcher(hooks=[hook])]}
        async with Client(Options(model="offline", engine=engine, can_use_tool=may, hooks=hooks)) as client:
            await (await client.ask('call Bash {"command": "touch x"}\\nsay Done.'))

asyncio.run(main(sys.argv[1]))
for span in kept.get_finished_spans():
    sys.stderr.write(span.to_json(indent=None) + "\\n")
"""


def test_an_engine_in_a_program_uses_the_programs_own_provider(tmp_path: Path) -> None:
    _, spans, rest = run(tmp_path, sys.executable, "-c", PROGRAM, "local", OTEL_TRACES_EXPORTER="none")

    assert rest == ""
    assert tree(spans) == {
        "my work": None,
        "invoke_agent parley": "my work",
        "chat offline": "invoke_agent parley",
        "execute_tool Bash": "invoke_agent parley",
        "hook PreToolUse": "execute_tool Bash",
        "permission Bash": "execute_tool Bash",
    }
    assert named(spans, "permission Bash")["attributes"]["parley.permission.decision"] == "allow"
    assert named(spans, "hook PreToolUse")["attributes"]["parley.hook.outcome"] == "success"


def test_an_engine_that_a_program_starts_continues_the_programs_span(tmp_path: Path) -> None:
    _, spans, rest = run(tmp_path, sys.executable, "-c", PROGRAM, "process")

    assert rest == ""
    assert tree(spans)["invoke_agent parley"] == "my work"


LONG_LIVED = PROGRAM.replace(
    "            await (await client.ask(",
    """            with trace.get_tracer("mine").start_as_current_span("a request"):
                await (await client.ask("say One."))
            with trace.get_tracer("mine").start_as_current_span("another"):
                await client.query("say Two.")
                async for message in client.receive_response(): pass
            await (await client.ask(""",
)


@pytest.mark.parametrize("engine", ["local", "process"])
def test_each_turn_is_within_the_span_that_asked_for_it(tmp_path: Path, engine: str) -> None:
    exporter = "none" if engine == "local" else "console"
    _, spans, rest = run(tmp_path, sys.executable, "-c", LONG_LIVED, engine, OTEL_TRACES_EXPORTER=exporter)

    names = {span["context"]["span_id"]: span["name"] for span in spans}
    turns = [span for span in spans if span["name"] == "invoke_agent parley"]
    turns.sort(key=lambda span: str(span["start_time"]))
    assert rest == ""
    assert [names[turn["parent_id"]] for turn in turns] == ["a request", "another", "my work"]


def test_an_exporter_that_never_answers_does_not_hold_up_the_end() -> None:
    gone = threading.Event()
    observer = OpenTelemetry(TracerProvider(), {}, gone.wait, close_seconds=0.01)  # type: ignore[arg-type]  # its answer is of no interest

    observer.close()

    assert not gone.is_set()
    gone.set()
