"""The server of ``moorage mcp``: tools and resources over standard input and output, or over HTTP.

Source  modelcontextprotocol.io: specification 2025-11-25
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import wraps

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp.types import ToolAnnotations

from moorage import __version__
from moorage.errors import MoorageError
from moorage.interfaces.cli.help import help_pages
from moorage.interfaces.mcp.answers import AgentAnswers, as_data
from moorage.interfaces.mcp.cluster_view import ClusterView
from moorage.interfaces.mcp.tools import INSTRUCTIONS, Tools

__all__ = ["make_server"]

_READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)


def make_server(answers: AgentAnswers, view: ClusterView) -> MCPServer[None]:
    """Return a server with all tools, and the resources that their answers name."""
    server: MCPServer[None] = MCPServer("moorage", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING")
    for tool in Tools(answers, view).all():
        server.add_tool(_with_clear_errors(tool), annotations=_READS, structured_output=False)

    @server.resource("moorage://answers/{number}/{form}", description="An earlier answer: text, wide or json.")
    async def answer(number: str, form: str) -> str:
        if not number.isdecimal():
            raise ResourceNotFoundError(f"{number!r} is not the number of an answer")
        text = await _found(answers.read(int(number), form))
        return text if form == "json" else as_data(text)

    @server.resource("moorage://pods/{namespace}/{name}", description="A pod as scheduling sees it.")
    async def pod(namespace: str, name: str) -> str:
        return as_data(await _found(view.document(f"pod/{namespace}/{name}")))

    @server.resource("moorage://nodes/{name}", description="A node as scheduling sees it.")
    async def node(name: str) -> str:
        return as_data(await _found(view.document(f"node/{name}")))

    @server.resource("moorage://pages/{name}", description="A page of the documentation, or the schema of a document.")
    async def page(name: str) -> str:
        pages = help_pages()
        if name not in pages:
            raise ResourceNotFoundError(f"no page {name!r}; there are {', '.join(sorted(pages))}")
        return pages[name].read_text("utf-8")

    return server


async def _found(reading: Awaitable[str]) -> str:
    try:
        return await reading
    except MoorageError as error:
        raise ResourceNotFoundError(str(error)) from None


def _with_clear_errors(tool: Callable[..., Awaitable[str]]) -> Callable[..., Awaitable[str]]:
    """Return a tool whose expected errors reach the agent as their text."""

    @wraps(tool)
    async def call(**given: object) -> str:
        try:
            return await tool(**given)
        except MoorageError as error:
            raise ToolError(str(error)) from None

    call.__signature__ = inspect.signature(tool, eval_str=True)  # type: ignore[attr-defined]
    return call
