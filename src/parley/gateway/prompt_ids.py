"""The ids that the server gives to prompts without one.

They are of version 8, so that every process knows them as its own: clients that gave no id get no message about it.
"""

from __future__ import annotations

from uuid import UUID, uuid4


def make_own_uuid() -> str:
    value = uuid4().int & ~(0xF << 76) | 8 << 76
    return str(UUID(int=value))


def is_own_uuid(uuid: object) -> bool:
    return isinstance(uuid, str) and len(uuid) == 36 and uuid[14] == "8"
