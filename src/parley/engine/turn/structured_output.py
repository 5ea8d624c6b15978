"""The form an answer must have: a JSON Schema, and the attempts of a turn to fill it.

A model that knows schemas is given it with the request and answers with JSON. Any other
gets a tool, StructuredOutput, whose input is the answer, as recorded from the original.
What comes is validated either way; a turn ends well only with an answer that fits.

Two mistakes that models make often are repaired, and the report says so: the answer inside
one field more than asked for, and the answer as a text that holds JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec

from parley.errors import ToolError, UsageError
from parley.protocol.base import UNSET, Json, Struct
from parley.tools.base import Context, Result
from parley.workspace.base import Reach

TOOL = "StructuredOutput"
DEFAULT_ATTEMPTS = 5
MOST_ERRORS = 10
LONGEST_ERROR_CHARS = 300
DATA = frozenset({"const", "default", "enum", "examples"})
"""Where a schema has values, which may look like schemas."""
WRAPPED = "output"
"""Where the answer is if its schema is not that of an object, which the input of a tool must be."""


class Form:
    name: ClassVar[str] = TOOL
    """The tool by which it is filled."""

    def __init__(self, schema: Json, most_attempts: int = DEFAULT_ATTEMPTS) -> None:
        """Raises UsageError if this is no schema."""
        self.schema = schema
        self._validator = validator(schema)
        self._most_attempts = max(1, most_attempts)
        self.begin()

    def begin(self) -> None:
        """A turn begins: what the one before it tried does not count."""
        self.output: Any = UNSET
        """The answer; unset until there is one that fits."""
        self.attempts = 0
        self.errors: list[str] = []
        self.repaired = False

    @property
    def is_filled(self) -> bool:
        return self.output is not UNSET

    @property
    def is_exhausted(self) -> bool:
        return not self.is_filled and self.attempts >= self._most_attempts

    @property
    def text(self) -> str:
        """The answer as `result` shows it."""
        return msgspec.json.encode(self.output).decode()

    def report(self) -> Json:
        return {"attempts": self.attempts, "repaired": self.repaired, "errors": self.errors}

    def fill(self, given: Any) -> bool:
        """Take an answer if it fits; `errors` say why not."""
        for repaired, candidate in enumerate(readings(given, self.schema.get("properties", {}))):
            if not (errors := self._flaws(candidate)):
                self.output, self.repaired, self.errors = candidate, repaired > 0, []
                return True
            if repaired == 0:
                self.errors = errors
        return False

    def fill_from_text(self, text: str) -> bool:
        """The same for an answer that came as text."""
        try:
            given = msgspec.json.decode(text)
        except msgspec.DecodeError as flaw:
            self.errors = [f"the answer is not JSON: {flaw}"]
            return False
        return self.fill(given)

    def tool(self) -> StructuredOutput:
        return StructuredOutput(self)

    def advice(self, *, by_tool: bool) -> str:
        """What a model hears that ended without an answer that fits."""
        how = f"Call the tool {TOOL} with your answer as its input."
        if not by_tool:  # the backend may have passed the schema over
            how = f"Answer with JSON alone that fits this schema: {msgspec.json.encode(self.schema).decode()}"
        return f"[An answer in the required form is missing: {'; '.join(self.errors) or 'none was given'}. {how}]"

    def _flaws(self, given: Any) -> list[str]:
        found = []
        for flaw in self._validator.iter_errors(given):
            where = "".join(f"/{step}" for step in flaw.absolute_path) or "/"
            found.append(f"{where}: {flaw.message}"[:LONGEST_ERROR_CHARS])
            if len(found) == MOST_ERRORS:
                break
        return found


class Anything(Struct, frozen=True):
    """The tool's input has a schema of its own."""


class StructuredOutput:
    """The way to give an answer for a model that knows no schemas but those of tools."""

    name: ClassVar[str] = TOOL
    reads_only: ClassVar[bool] = True
    input: ClassVar[type[Struct]] = Anything
    description: ClassVar[str] = (
        "Gives your final answer in the form that was asked for. Do the work first; then call this once, as your last "
        "step, with the whole answer as its input."
    )

    def __init__(self, form: Form) -> None:
        self._form = form
        self._wraps = form.schema.get("type") != "object"
        wrapped = {"type": "object", "properties": {WRAPPED: form.schema}, "required": [WRAPPED]}
        self.input_schema: Json = wrapped if self._wraps else form.schema

    async def run(self, call: Json, context: Context, reach: Reach) -> Result:
        given = call[WRAPPED] if self._wraps and WRAPPED in call else call
        if not self._form.fill(given):
            raise ToolError(f"Output does not match required schema: {'; '.join(self._form.errors)}")
        text = "Structured output provided successfully"
        return Result(content=text, detail=text)


def readings(given: Any, fields: Json) -> Iterator[Any]:
    """What an answer may mean, the plain sense first. A field that was asked for is no wrapper."""
    yield given
    if isinstance(given, dict) and len(given) == 1 and not given.keys() & fields.keys():
        [given] = given.values()
        if isinstance(given, dict | list):
            yield given
    if isinstance(given, str):
        try:
            inner = msgspec.json.decode(given)
        except msgspec.DecodeError:
            return
        if isinstance(inner, dict | list):
            yield inner


def read_form(text: str, most_attempts: int) -> Form:
    """The form of `--json-schema`. Raises UsageError."""
    try:
        schema = msgspec.json.decode(text)
    except msgspec.DecodeError as flaw:
        raise UsageError(f"option '--json-schema' is not JSON: {flaw}") from None
    return Form(schema, most_attempts)


def validator(schema: Any) -> Any:
    """Raises UsageError if this is no schema, or refers to what is not in it."""
    # Imported here because it costs more than the engine itself.
    from jsonschema import Draft202012Validator, SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry

    if not isinstance(schema, dict):
        raise UsageError(f"the JSON schema must be an object, not {msgspec.json.encode(schema).decode()[:80]}")
    cls = validator_for(schema, default=Draft202012Validator)
    try:
        cls.check_schema(schema)
    except SchemaError as flaw:
        where = "".join(f"/{step}" for step in flaw.absolute_path) or "/"
        raise UsageError(f"the JSON schema is not a schema: {where}: {flaw.message[:LONGEST_ERROR_CHARS]}") from None
    check_references(schema)
    # An empty registry: nothing is ever fetched.
    made = cls(schema, registry=Registry())
    try:
        list(made.iter_errors({}))
    except RecursionError:
        raise UsageError("the JSON schema refers to itself without end") from None
    return made


def check_references(schema: Json) -> None:
    """Raises UsageError."""
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    name = str(schema.get("$id", ""))
    resolver = Registry().with_resource(name, DRAFT202012.create_resource(schema)).resolver(name)
    for reference in references(schema):
        try:
            resolver.lookup(reference)
        except Unresolvable:
            raise UsageError(f"the JSON schema refers to {reference!r}, which is not in it") from None


def references(schema: Any) -> Iterator[str]:
    """Every reference in a schema. Parts with names of their own are left out: they resolve by other rules."""
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        for key, part in schema.items():
            if key not in DATA and not (isinstance(part, dict) and "$id" in part):
                yield from references(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from references(part)
