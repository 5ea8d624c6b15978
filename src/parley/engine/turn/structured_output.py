"""Structured output: a JSON Schema for the answer, and the attempts of a turn to match it.

A model that supports schemas gets it with the request and answers with JSON. Any other model gets a tool,
StructuredOutput, whose input is the answer, as in Claude Code. The answer is validated in both cases; a turn succeeds
only with one that matches.

Two frequent mistakes of models are repaired, and the report says so: an answer wrapped in one extra field, and an
answer given as a string of JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from parley.errors import ToolError, UsageError
from parley.protocol.base import UNSET, Json
from parley.tools.base import Context, Tool, ToolOutput
from parley.workspace.base import Scope

TOOL = "StructuredOutput"
MOST_ERRORS = 10
LONGEST_ERROR_CHARS = 300
DATA = frozenset({"const", "default", "enum", "examples"})
"""Keywords whose values are data, even if they look like schemas."""
WRAPPED = "output"
"""The field that holds an answer which is not an object. The input of a tool must be an object."""


class OutputSchema(Tool):
    name = TOOL
    """The name of the tool that takes the answer."""

    def __init__(self, schema: Json, max_attempts: int) -> None:
        """Raises UsageError if the schema is invalid."""
        self.schema = schema
        self._validator = make_validator(schema)
        self._max_attempts = max(1, max_attempts)
        self.reset()

    def reset(self) -> None:
        """Forget the attempts of the last turn."""
        self.output: Any = UNSET
        """The answer; unset until one matches."""
        self.attempts = 0
        self.errors: list[str] = []
        self.repaired = False

    @property
    def is_satisfied(self) -> bool:
        return self.output is not UNSET

    @property
    def is_exhausted(self) -> bool:
        return not self.is_satisfied and self.attempts >= self._max_attempts

    @property
    def text(self) -> str:
        """The answer as `result` shows it."""
        return msgspec.json.encode(self.output).decode()

    def report(self) -> Json:
        return {"attempts": self.attempts, "repaired": self.repaired, "errors": self.errors}

    def accept(self, answer: Any) -> bool:
        """Whether an answer matches. If not, `errors` says why."""
        for repaired, candidate in enumerate(interpret(answer, self.schema.get("properties", {}))):
            if not (errors := self._find_errors(candidate)):
                self.output, self.repaired, self.errors = candidate, repaired > 0, []
                return True
            if repaired == 0:
                self.errors = errors
        return False

    def accept_text(self, text: str) -> bool:
        """The same for an answer as text."""
        try:
            given = msgspec.json.decode(text)
        except msgspec.DecodeError as exc:
            self.errors = [f"the answer is not JSON: {exc}"]
            return False
        return self.accept(given)

    def tool(self) -> StructuredOutput:
        return StructuredOutput(self)

    def advice(self, *, by_tool: bool) -> str:
        """The text for a model that ended without a matching answer."""
        how = f"Call the tool {TOOL} with your answer as its input."
        if not by_tool:  # the backend may have ignored the schema
            how = f"Answer with JSON alone that fits this schema: {msgspec.json.encode(self.schema).decode()}"
        return f"[An answer in the required form is missing: {'; '.join(self.errors) or 'none was given'}. {how}]"

    def _find_errors(self, answer: Any) -> list[str]:
        found = []
        for error in self._validator.iter_errors(answer):
            where = "".join(f"/{step}" for step in error.absolute_path) or "/"
            found.append(f"{where}: {error.message}"[:LONGEST_ERROR_CHARS])
            if len(found) == MOST_ERRORS:
                break
        return found


class StructuredOutput(Tool):
    """The tool that takes the answer of a model without schema support."""

    name = TOOL
    reads_only = True
    description = (
        "Gives your final answer in the form that was asked for. Do the work first; then call this once, as your last "
        "step, with the whole answer as its input."
    )

    def __init__(self, schema: OutputSchema) -> None:
        self._schema = schema
        self._wraps = schema.schema.get("type") != "object"
        wrapped = {"type": "object", "properties": {WRAPPED: schema.schema}, "required": [WRAPPED]}
        self.input_schema: Json = wrapped if self._wraps else schema.schema

    async def run(self, call: Json, context: Context, reach: Scope) -> ToolOutput:
        given = call[WRAPPED] if self._wraps and WRAPPED in call else call
        if not self._schema.accept(given):
            raise ToolError(f"Output does not match required schema: {'; '.join(self._schema.errors)}")
        text = "Structured output provided successfully"
        return ToolOutput(content=text, detail=text)


def interpret(answer: Any, fields: Json) -> Iterator[Any]:
    """The possible meanings of an answer, the literal one first. A field of the schema is never unwrapped."""
    yield answer
    if isinstance(answer, dict) and len(answer) == 1 and not answer.keys() & fields.keys():
        [answer] = answer.values()
        if isinstance(answer, dict | list):
            yield answer
    if isinstance(answer, str):
        try:
            inner = msgspec.json.decode(answer)
        except msgspec.DecodeError:
            return
        if isinstance(inner, dict | list):
            yield inner


def parse_output_schema(text: str, max_attempts: int) -> OutputSchema:
    """The schema of `--json-schema`. Raises UsageError."""
    try:
        schema = msgspec.json.decode(text)
    except msgspec.DecodeError as exc:
        raise UsageError(
            f"option '--json-schema' is not JSON: {exc}; give the text of a JSON Schema, not the name of a file"
        ) from None
    return OutputSchema(schema, max_attempts)


def make_validator(schema: Any) -> Any:
    """Raises UsageError if the schema is invalid, or has an unresolvable reference."""
    # Imported here because it takes longer than the engine itself.
    from jsonschema import Draft202012Validator, SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry

    if not isinstance(schema, dict):
        raise UsageError(f"the JSON schema must be an object, not {msgspec.json.encode(schema).decode()[:80]}")
    cls = validator_for(schema, default=Draft202012Validator)
    try:
        cls.check_schema(schema)
    except SchemaError as exc:
        where = "".join(f"/{step}" for step in exc.absolute_path) or "/"
        raise UsageError(f"the JSON schema is invalid at {where}: {exc.message[:LONGEST_ERROR_CHARS]}") from None
    check_references(schema)
    # An empty registry: nothing is ever fetched.
    made = cls(schema, registry=Registry())
    try:
        list(made.iter_errors({}))
    except RecursionError:
        raise UsageError("the JSON schema contains references that form an endless loop") from None
    return made


def check_references(schema: Json) -> None:
    """Raises UsageError."""
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    name = str(schema.get("$id", ""))
    resolver = Registry().with_resource(name, DRAFT202012.create_resource(schema)).resolver(name)
    for reference in find_references(schema):
        try:
            resolver.lookup(reference)
        except Unresolvable:
            raise UsageError(f"the JSON schema has a reference to {reference!r}, which it does not contain") from None


def find_references(schema: Any) -> Iterator[str]:
    """Every reference in a schema. Parts with an `$id` are left out: they resolve by other rules."""
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        for key, part in schema.items():
            if key not in DATA and not (isinstance(part, dict) and "$id" in part):
                yield from find_references(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from find_references(part)
