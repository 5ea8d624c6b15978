"""What a person may change in a session: the permission mode, the model and its effort."""

from __future__ import annotations

from collections.abc import Sequence

from parley.protocol.base import Json
from parley.protocol.messages.system import Init, Status

MODES = {
    "default": ("Ask", "Ask before edits and commands that no rule allows"),
    "acceptEdits": ("Accept edits", "Edit files in the working directories without asking"),
    "plan": ("Plan", "Change nothing, and present a plan"),
    "auto": ("Auto", "Edit files and run harmless commands without asking"),
    "dontAsk": ("Do not ask", "Deny calls that no rule allows, without asking"),
    "bypassPermissions": ("Bypass permissions", "Allow everything that no rule denies"),
}


class ConfigState:
    """The options of a session and their values."""

    def __init__(self, *, may_bypass: bool) -> None:
        """`may_bypass`: whether the mode `bypassPermissions` is offered."""
        self.mode = "default"
        self.model = "default"
        self.effort = "default"
        self._models: list[Json] = []
        self._may_bypass = may_bypass

    def read_info(self, info: Json, settings: Json) -> None:
        """Take what the engine says of itself at the start."""
        self.mode = str(info.get("current_permission_mode", self.mode))
        self._models = [model for model in info.get("models", ()) if isinstance(model, dict)]
        applied = settings.get("applied", {})
        self.model = self._find_model(str(applied.get("model")))
        self.effort = applied.get("effort") or "default"

    def read(self, message: Init | Status) -> bool:
        """Take what the engine says later; returns whether something changed."""
        before = self.mode, self.model
        if isinstance(message.permissionMode, str):
            self.mode = message.permissionMode
        if isinstance(message, Init) and isinstance(message.model, str) and message.model != self._resolve(self.model):
            self.model = self._find_model(message.model)
        return before != (self.mode, self.model)

    # What an editor shows.

    def modes(self) -> Json:
        """The modes for editors that do not know config options."""
        modes = [{"id": each.pop("value"), **each} for each in self._mode_rows()]
        return {"currentModeId": self.mode, "availableModes": modes}

    def options(self) -> list[Json]:
        effort = [select("effort", "Effort", "thought_level", self.effort, self._effort_rows())]
        return [
            select("mode", "Mode", "mode", self.mode, self._mode_rows()),
            select("model", "Model", "model", self.model, self._model_rows()),
            *(effort if len(self._effort_rows()) > 1 else ()),
        ]

    def choices(self, id: str) -> list[str]:
        """The values of an option; none for an unknown one."""
        rows = {"mode": self._mode_rows, "model": self._model_rows, "effort": self._effort_rows}.get(id)
        return [] if rows is None else [row["value"] for row in rows()]

    def _mode_rows(self) -> list[Json]:
        hidden = set() if self._may_bypass or self.mode == "bypassPermissions" else {"bypassPermissions"}
        return [row(mode, *words) for mode, words in MODES.items() if mode not in hidden]

    def _model_rows(self) -> list[Json]:
        rows = [
            row(each["value"], str(each.get("displayName", each["value"])), str(each.get("description", "")))
            for each in self._models
        ]
        return rows if any(each["value"] == self.model for each in rows) else [*rows, row(self.model, self.model, "")]

    def _effort_rows(self) -> list[Json]:
        model = next((each for each in self._models if each["value"] == self.model), {})
        levels = model.get("supportedEffortLevels") or ()
        return [
            row("default", "Default", "The model's default effort"),
            *(row(level, level.title(), "") for level in levels),
        ]

    def _find_model(self, name: str) -> str:
        """The value under which a model is listed; its name if it is not."""
        names = ("value", "resolvedModel")
        return next((each["value"] for key in names for each in self._models if each.get(key) == name), name)

    def _resolve(self, value: str) -> str:
        return next((str(each.get("resolvedModel")) for each in self._models if each["value"] == value), value)


def row(value: str, name: str, description: str) -> Json:
    return {"value": value, "name": name, **({"description": description} if description else {})}


def select(id: str, name: str, category: str, value: str, rows: Sequence[Json]) -> Json:
    return {"id": id, "name": name, "category": category, "type": "select", "currentValue": value, "options": rows}
