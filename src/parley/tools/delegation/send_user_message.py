"""SendUserMessage: a short message for the user, for clients that show nothing else (`--brief`).

The client shows the message of the call; the tool itself only confirms it.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from parley.protocol.base import Struct
from parley.tools.base import Context, ToolOutput
from parley.workspace.base import Scope


class SendUserMessageShown(Struct, frozen=True, kw_only=True):
    message: Annotated[str, Meta(min_length=1, description="Markdown")]


class SendUserMessageInput(SendUserMessageShown, frozen=True, kw_only=True, forbid_unknown_fields=True):
    status: Literal["normal", "proactive"] = "normal"


class SendUserMessage:
    name: ClassVar[str] = "SendUserMessage"
    reads_only: ClassVar[bool] = True
    input: ClassVar[type[Struct]] = SendUserMessageInput
    shown: ClassVar[type[Struct]] = SendUserMessageShown
    description: ClassVar[str] = (
        "Shows the user a message. The user sees only what you send with it: answers, questions, results, and word of "
        "what takes long. Be brief."
    )

    async def run(self, call: SendUserMessageInput, context: Context, reach: Scope) -> ToolOutput:
        return ToolOutput(content="The message was shown.", detail={"message": call.message, "status": call.status})
