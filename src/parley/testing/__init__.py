"""Tools to test your own agents: scripted models, fake engines, recordings, assertions, a virtual clock.

Submodules are imported on first use. `parley.testing.plugin` has pytest fixtures. Fake engines are in parley-kit.
"""

from parley.version import how_to_install

TYPE_CHECKING = False

if TYPE_CHECKING:
    from parley.evals.pytest_items import EvalFile as EvalFile
    from parley.fake.in_process import engine_wire as engine_wire
    from parley.fake.in_process import replay_wire as replay_wire
    from parley.fake.in_process import scenario_wire as scenario_wire
    from parley.fake.scenario import load_scenario as load_scenario
    from parley.fake.scenario import read_scenario as read_scenario
    from parley.models.script import Script as Script
    from parley.models.script import ScriptedCall as ScriptedCall
    from parley.models.script import ScriptedError as ScriptedError
    from parley.models.script import ScriptedTurn as ScriptedTurn
    from parley.models.script import call as call
    from parley.models.script import read_script as read_script
    from parley.stores.wire_recording import read_wire_recording as read_wire_recording
    from parley.testing.assertions import expect as expect
    from parley.testing.model_server import running as running
    from parley.testing.session_store import run_session_store_conformance as run_session_store_conformance
    from parley.testing.virtual_time import make_virtual_clock as make_virtual_clock
    from parley.testing.virtual_time import run_in_virtual_time as run_in_virtual_time

NAMES = {
    **dict.fromkeys(("Script", "ScriptedCall", "ScriptedError", "ScriptedTurn", "call"), "parley.models.script"),
    "read_script": "parley.models.script",
    "running": "parley.testing.model_server",
    "run_session_store_conformance": "parley.testing.session_store",
    "expect": "parley.testing.assertions",
    **dict.fromkeys(("load_scenario", "read_scenario"), "parley.fake.scenario"),
    **dict.fromkeys(("engine_wire", "replay_wire", "scenario_wire"), "parley.fake.in_process"),
    "read_wire_recording": "parley.stores.wire_recording",
    "EvalFile": "parley.evals.pytest_items",
    **dict.fromkeys(("make_virtual_clock", "run_in_virtual_time"), "parley.testing.virtual_time"),
}


def __getattr__(name: str) -> object:
    if name not in NAMES:
        raise AttributeError(f"module 'parley.testing' has no attribute {name!r}")
    import importlib

    try:
        return getattr(importlib.import_module(NAMES[name]), name)
    except ModuleNotFoundError as exc:
        if not (exc.name or "").startswith("parley."):
            raise
        raise ImportError(f"{name} is in the package parley-kit: {how_to_install('kit')}") from None
