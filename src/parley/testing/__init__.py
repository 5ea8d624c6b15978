"""Tools to test your own agents: scripted models, model servers and checks for session stores.

Submodules are imported on first use. `parley.testing.plugin` has pytest fixtures.
"""

TYPE_CHECKING = False

if TYPE_CHECKING:
    from parley.models.fake.script import Script as Script
    from parley.models.fake.script import ScriptedCall as ScriptedCall
    from parley.models.fake.script import ScriptedError as ScriptedError
    from parley.models.fake.script import ScriptedTurn as ScriptedTurn
    from parley.models.fake.script import call as call
    from parley.models.fake.script import read_script as read_script
    from parley.testing.model_server import running as running
    from parley.testing.session_store import run_session_store_conformance as run_session_store_conformance

NAMES = {
    **dict.fromkeys(("Script", "ScriptedCall", "ScriptedError", "ScriptedTurn", "call"), "parley.models.fake.script"),
    "read_script": "parley.models.fake.script",
    "running": "parley.testing.model_server",
    "run_session_store_conformance": "parley.testing.session_store",
}


def __getattr__(name: str) -> object:
    if name not in NAMES:
        raise AttributeError(f"module 'parley.testing' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(NAMES[name]), name)
