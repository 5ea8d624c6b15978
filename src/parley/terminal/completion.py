"""Completion of /commands and @paths."""

from __future__ import annotations

from collections.abc import Iterable

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from parley.terminal.base import View


class PromptCompleter(Completer):
    def __init__(self, view: View) -> None:
        self._view = view

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        return ()
