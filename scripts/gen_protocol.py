"""The JSON Schema and the reference page of the protocol, made from the classes.

    python scripts/gen_protocol.py      writes docs/protocol/schema.json and docs/protocol/messages.md

A field is written down once, in its class; a test fails while the two files say something else.
What the schema cannot say: kinds, subtypes, blocks and fields that nobody knows are passed on, not refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

import msgspec
from pages import main

from parley.protocol.base import Json, Message, Struct, catalogue
from parley.protocol.blocks import KINDS, Block
from parley.protocol.messages.requests import SUBTYPES
from parley.protocol.rules import ASKERS, SPEAKERS, Role

TYPES = {str: "string", dict: "object", list: "array", bool: "boolean", type(None): "null"}


def schema() -> Json:
    """The schema of a line, draft 2020-12: a message each, and under `$defs` all that messages are made of."""
    lines = messages()
    questions = dict(sorted(SUBTYPES.items()))
    classes: list[type[Struct]] = [*lines.values(), *questions.values()]
    classes += [cls.answer for cls in questions.values() if cls.answer]
    found, defs = msgspec.json.schema_components(classes, schema_hook=carried, ref_template="#/$defs/{name}")
    refs = dict(zip(classes, found, strict=True))
    for (kind, subkind), cls in lines.items():
        if subkind or kind == "jsonrpc":
            # msgspec sees a default here; on a line it is what the class is found by.
            defs[cls.__name__]["required"].append("subtype" if subkind else "jsonrpc")
    for question in questions.values():
        if question.answer:
            defs[question.__name__]["x-answer"] = refs[question.answer]
    defs |= {f"{cls.__name__}Block": block_schema(cls) for cls in KINDS.values()}
    defs["Block"] = open_union("type", [{"$ref": f"#/$defs/{name}"} for name in block_names()], sorted(KINDS))
    defs["Payload"] = open_union("subtype", [refs[cls] for cls in questions.values()], list(questions))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of the agent wire protocol",
        "anyOf": [refs[cls] for cls in lines.values()],
        "$defs": dict(sorted(defs.items())),
    }


def messages() -> dict[tuple[str, str | None], type[Message]]:
    """The catalogue in alphabetical order."""
    return dict(sorted(catalogue().items(), key=lambda item: (item[0][0], item[0][1] or "")))


def carried(kind: type) -> Json:
    """msgspec's hook for the values that travel as objects."""
    return {"$ref": "#/$defs/Block" if issubclass(kind, Block) else "#/$defs/Payload"}


def open_union(tag: str, members: list[Json], known: list[str]) -> Json:
    """One of the members, or an object with a tag that none of them has."""
    other = {"type": "object", "properties": {tag: {"type": "string", "not": {"enum": known}}}, "required": [tag]}
    return {"anyOf": [*members, other]}


def block_names() -> list[str]:
    return sorted({f"{cls.__name__}Block" for cls in KINDS.values()})


def block_schema(cls: type[Block]) -> Json:
    kinds = sorted(kind for kind, known in KINDS.items() if known is cls)
    properties: Json = {"type": {"enum": kinds}}
    for key in cls.keys:
        types = [TYPES[kind] for kind in key.types]
        properties[key.name] = {"type": types[0] if len(types) == 1 else types}
    required = ["type", *(key.name for key in cls.keys if key.required)]
    about = {"description": cls.__doc__} if cls.__doc__ else {}
    return {"title": f"{cls.__name__}Block", **about, "type": "object", "properties": properties, "required": required}


def page() -> str:
    """The reference page: a table for each message, question, block and part."""
    defs = schema()["$defs"]
    lines = ["# Messages", "", "Made from the classes by `make docs`; do not edit.", ""]
    lines += ["## Lines", ""]
    for (kind, subkind), cls in messages().items():
        said = f"`{cls.__name__}`, said by {who(SPEAKERS.get(cls, {Role.ENGINE}))}."
        lines += section(f"{kind}/{subkind}" if subkind else kind, said, defs.pop(cls.__name__))
    lines += ["## Control requests", ""]
    for subtype, question in sorted(SUBTYPES.items()):
        asked = f"`{question.__name__}`, asked by {who(ASKERS.get(question, {Role.HOST}))}."
        lines += section(subtype, asked, defs.pop(question.__name__))
    lines += ["## Content blocks", ""]
    for name in block_names():
        lines += section(name, "", defs.pop(name))
    lines += ["## Parts and answers", ""]
    for name, part in defs.items():
        if "properties" in part:
            lines += section(name, "", part)
    return "\n".join(lines).rstrip() + "\n"


def who(roles: Set[Role]) -> str:
    return " and ".join(sorted(f"the {role.value}" for role in roles))


def section(title: str, about: str, shape: Json) -> Iterator[str]:
    """The heading, the class's own words and the table of one class."""
    answer = f"Answered by {words(shape['x-answer'])}." if "x-answer" in shape else ""
    yield from (f"### {title}", "")
    yield from (" ".join(filter(None, (about, shape.get("description", ""), answer))), "")
    yield from ("| field | type | required |", "|---|---|---|")
    for name, value in shape["properties"].items():
        yield f"| `{name}` | {words(value)} | {'yes' if name in shape['required'] else ''} |"
    yield ""


def words(shape: Json) -> str:
    """A schema in a table's cell."""
    match shape:
        case {"$ref": ref}:
            name = ref.rpartition("/")[2]
            return f"`{name}`" if name in ("Block", "Payload") else f"[{name}](#{name.lower()})"
        case {"enum": values}:
            return " or ".join(f"`{value}`" for value in values)
        case {"anyOf": [{"type": "integer"}, {"type": "number"}, *others]}:
            return " or ".join(["number", *map(words, others)])
        case {"anyOf": shapes}:
            return " or ".join(map(words, shapes))
        case {"type": "array", "items": item}:
            return f"array of {words(item)}"
        case {"type": "object", "additionalProperties": dict() as item}:
            return f"object of {words(item)}"
        case {"type": [*types]}:
            return " or ".join(types)
        case {"type": str() as kind}:
            return kind
    return "any"


def pages() -> dict[str, str]:
    pretty = msgspec.json.format(msgspec.json.encode(schema()), indent=2).decode()
    return {"docs/protocol/schema.json": pretty + "\n", "docs/protocol/messages.md": page()}


if __name__ == "__main__":
    raise SystemExit(main(pages()))
