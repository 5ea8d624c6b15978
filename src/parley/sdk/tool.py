"""Your functions as tools.

    @tool                                                   a plain function: its type hints are the schema
    def add(a: float, b: float) -> float:
        "Add two numbers."
        return a + b

    @tool("add", "Add two numbers.", {"a": float, "b": float})        as in the official SDK
    async def add(args): return {"content": [{"type": "text", "text": str(args["a"] + args["b"])}]}

    Options(tools=["Read", add])                                        the built-in Read and yours
    Options(mcp_servers={"calc": create_sdk_mcp_server("calc", tools=[add])})       under a name that you choose

The engine calls tools over the control channel; no process is started and no port is opened. A decorated
function can still be called as the function that it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from parley.sdk.runtime.mcp_tool import FunctionTool, SdkMcpTool

P = ParamSpec("P")
R = TypeVar("R")


@overload
def tool(name: Callable[P, R]) -> FunctionTool[P, R]: ...
@overload
def tool(
    name: str, description: str, input_schema: Any, annotations: Any = None
) -> Callable[[Callable[[Any], Awaitable[dict[str, Any]] | dict[str, Any]]], SdkMcpTool[Any]]: ...
@overload
def tool(
    name: str | None = None, description: str | None = None, input_schema: None = None, annotations: Any = None
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(
    name: str | Callable[..., Any] | None = None,
    description: str | None = None,
    input_schema: Any = None,
    annotations: Any = None,
) -> Any:
    """Make a function a tool. With `input_schema` it takes one dict, otherwise its own parameters.

        @tool
        def add(a: float, b: Annotated[float, "the number to add"]) -> float:
            "Add two numbers."
            return a + b

        Options(tools=[add])
        add(2, 3)                                   # still the function

    A plain `def` runs in a thread. If the function raises, the model gets the message as the tool's result.
    """
    # The schemas of tools need msgspec and inspect, which take longer to load than all that comes before a first tool.
    from parley.sdk.runtime.mcp_tool import FunctionTool, SdkMcpTool
    from parley.sdk.schema import schema_of_input

    if callable(name):
        return FunctionTool(name)
    if input_schema is None:
        return lambda function: FunctionTool(function, name, description, annotations)
    if name is None or description is None:
        raise TypeError("a tool with an input_schema needs a name and a description")
    schema_of_input(input_schema)  # raise for an invalid schema now, not at the first call
    return lambda handler: SdkMcpTool(name, description, input_schema, handler, annotations)
