"""Generate the page of messages, the JSON Schema and the TypeScript declarations, from the message classes."""

from __future__ import annotations

from collections.abc import Iterator, Set

import msgspec
from pages import fill, main, table

from parley.protocol.base import Json, Role
from parley.protocol.messages.requests import list_requests
from parley.protocol.schema import block_names, build_schema, list_messages, to_typescript, type_of

PAGE = "docs/protocol/messages.md"


def page() -> str:
    """Every message, control request, block and part."""
    defs = build_schema()["$defs"]
    lines = [*versions(build_schema()), "## Lines", ""]
    for (kind, subkind), cls in list_messages().items():
        sender = f"`{cls.__name__}`, sent by {who(cls.senders)}."
        lines += section(f"{kind}/{subkind}" if subkind else kind, sender, defs.pop(cls.__name__))
    lines += ["## Control requests", ""]
    for subtype, request in sorted(list_requests().items()):
        sender = f"`{request.__name__}`, sent by {who(request.senders)}."
        lines += section(subtype, sender, defs.pop(request.__name__))
    lines += ["## Content blocks", ""]
    for name in block_names():
        lines += section(name, "", defs.pop(name))
    lines += ["## Parts and replies", ""]
    for name, part in defs.items():
        if "properties" in part:
            lines += section(name, "", part)
    return "\n".join(lines).rstrip() + "\n"


def versions(document: Json) -> Iterator[str]:
    """The version of the schema, its capabilities and its output profiles."""
    yield "[schema.json](schema.json) has the same as JSON Schema, and [messages.d.ts](messages.d.ts) as TypeScript."
    yield from ("", f"## Version {document['version']}", "")
    yield "The part after the `+` is a digest of the definitions: it changes whenever one of them does."
    yield from ("", "### Capabilities", "", "The answer to `initialize` and `system/init` list these names.", "")
    yield from table(("name", "meaning"), ((f"`{name}`", text) for name, text in document["x-capabilities"].items()))
    yield from ("", "### Output profiles", "", "`parley schema --profile NAME` lists the messages of a profile.", "")
    rows = document["x-profiles"].items()
    yield from table(
        ("profile", "chosen by", ""), ((f"`{name}`", f"`{row['options']}`", row["help"]) for name, row in rows)
    )
    yield ""


NAMES = {Role.HOST: "the client", Role.ENGINE: "the engine"}


def who(roles: Set[Role]) -> str:
    return " and ".join(sorted(NAMES[role] for role in roles))


def section(title: str, sender: str, shape: Json) -> Iterator[str]:
    """The heading, the class's docstring and the fields of one class."""
    reply = f"The reply is {type_of(shape['x-answer'])}." if "x-answer" in shape else ""
    text = " ".join(filter(None, (sender, shape.get("description", ""), reply)))
    yield from (f"### {title}", "")
    yield from (text, "") if text else ()
    yield "```ts"
    for name, value in shape["properties"].items():
        yield f"{name}{'' if name in shape['required'] else '?'}: {type_of(value)}"
    yield from ("```", "")


def pages() -> dict[str, str]:
    pretty = msgspec.json.format(msgspec.json.encode(build_schema()), indent=2).decode()
    return {
        "docs/protocol/schema.json": pretty + "\n",
        PAGE: fill(PAGE, {"page": page()}),
        "docs/protocol/messages.d.ts": to_typescript(build_schema()),
    }


if __name__ == "__main__":
    raise SystemExit(main(pages()))
