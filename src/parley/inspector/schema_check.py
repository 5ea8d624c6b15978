"""Find what the schema of the protocol does not name: messages, subtypes, blocks and fields.

    SchemaCheck(build_schema()).find_unknown({"type": "result", "mood": "good"})    -> ["mood"]

A value that fits no choice is named with its tag: `type="hologram"`. `src/parley/console/wire.js` does the same in a
browser. Types of values are not checked: a message that was read at all has the right ones.
"""

from __future__ import annotations

from typing import Any

from parley.protocol.base import Json

MOST_FIELDS = 20
"""How many are found in one line at most."""
TAGS = ("type", "subtype")
DEEPEST = 60


class SchemaCheck:
    def __init__(self, document: Json) -> None:
        self._defs: Json = document["$defs"]
        self._lines: dict[str, list[Json]] = {}
        """The schemas of lines by their type; those without a type under an empty text."""
        for choice in document["anyOf"]:
            shape = self._resolve(choice)
            for kind in shape["properties"].get("type", {}).get("enum", [""]):
                self._lines.setdefault(kind, []).append(shape)
        self._answers = {
            shape["properties"]["subtype"]["enum"][0]: shape["x-answer"]
            for shape in self._defs.values()
            if "x-answer" in shape
        }

    def find_unknown(self, line: Any, request: Any = None) -> list[str]:
        """The paths of what is unknown. `request`: the line that this one answers."""
        if not isinstance(line, dict):
            return []
        kind = line.get("type")
        candidates = self._lines.get(kind if isinstance(kind, str) else "", [])
        found: list[str] = []
        self._check_choices(line, candidates, "", found)
        if (answer := self._find_answer(line, request)) is not None:
            self._check(line["response"].get("response"), answer, "response.response", found)
        return found[:MOST_FIELDS]

    def _find_answer(self, line: Json, request: Any) -> Json | None:
        """The schema of the body of a control response, which depends on the request."""
        if line.get("type") != "control_response" or not isinstance(line.get("response"), dict):
            return None
        asked = request.get("request") if isinstance(request, dict) else None
        subtype = asked.get("subtype") if isinstance(asked, dict) else None
        return self._answers.get(subtype) if isinstance(subtype, str) else None

    def _resolve(self, shape: Json) -> Json:
        while "$ref" in shape:
            shape = self._defs[shape["$ref"].rpartition("/")[2]]
        return shape

    def _check(self, value: Any, shape: Json, path: str, found: list[str]) -> None:
        shape = self._resolve(shape)
        if not isinstance(value, dict | list) or len(found) >= MOST_FIELDS or path.count(".") > DEEPEST:
            return
        if choices := shape.get("anyOf"):
            self._check_choices(value, choices, path, found)
        elif isinstance(value, list):
            for index, item in enumerate(value if "items" in shape else ()):
                self._check(item, shape["items"], f"{path}[{index}]", found)
        elif "properties" in shape and not shape.get("additionalProperties"):
            self._check_fields(value, shape["properties"], path, found)

    def _check_fields(self, value: Json, properties: Json, path: str, found: list[str]) -> None:
        for name, item in value.items():
            place = f"{path}.{name}" if path else name
            if name not in properties:
                found.append(place)
            elif "not" in properties[name]:  # the tag of a kind that the schema does not have: its fields are unknown
                found.append(f"{place}={show(item)}")
                return
            else:
                self._check(item, properties[name], place, found)

    def _check_choices(self, value: Any, choices: list[Json], path: str, found: list[str]) -> None:
        """By the choice that fits best: its tags agree, and it leaves the fewest fields without a name."""
        best: list[str] | None = None
        for choice in choices:
            shape = self._resolve(choice)
            if not fits(value, shape):
                continue
            unknown: list[str] = []
            self._check(value, shape, path, unknown)
            if best is None or len(unknown) < len(best):
                best = unknown
            if not unknown:
                break
        if best is None and isinstance(value, dict):
            best = [f"{path}.{name}".lstrip(".") + f"={show(value[name])}" for name in TAGS if name in value][-1:]
            best = best or [f"{path}.type".lstrip(".")]
        found += best or []


def fits(value: Any, shape: Json) -> bool:
    """Whether the kind of a value and its tags are those of the schema."""
    if "anyOf" in shape or "type" not in shape:
        return True
    types = shape["type"] if isinstance(shape["type"], list) else [shape["type"]]
    if isinstance(value, list):
        return "array" in types
    if "object" not in types or not isinstance(value, dict):
        return False
    return all(agrees(value, name, item, shape) for name, item in shape.get("properties", {}).items())


def agrees(value: Json, name: str, item: Json, shape: Json) -> bool:
    if name not in value:
        return "enum" not in item or name not in shape.get("required", ())
    if "enum" in item:
        return value[name] in item["enum"]
    return "not" not in item or value[name] not in item["not"]["enum"]


def show(value: Any) -> str:
    return f'"{value[:40]}"' if isinstance(value, str) else type(value).__name__
