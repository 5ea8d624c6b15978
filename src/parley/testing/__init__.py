"""What users need to test their own agents. Nothing is loaded before it is used."""

TYPE_CHECKING = False

if TYPE_CHECKING:
    from parley.testing.session_store import run_session_store_conformance as run_session_store_conformance


def __getattr__(name: str) -> object:
    if name != "run_session_store_conformance":
        raise AttributeError(f"module 'parley.testing' has no attribute {name!r}")
    from parley.testing.session_store import run_session_store_conformance

    return run_session_store_conformance
