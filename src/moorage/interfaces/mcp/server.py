"""The server of ``moorage mcp``: tools and resources over standard input and output, or over HTTP.

Source  modelcontextprotocol.io: specification 2025-11-25
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from typing import Annotated, Any, Final, Literal

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import Field

from moorage import __version__
from moorage.basis import table_of
from moorage.basis.printable import some
from moorage.errors import InputError, MoorageError
from moorage.interfaces.cli.help import help_pages
from moorage.interfaces.mcp.answers import AgentAnswers, ClusterView, as_data

# -- tools -------------------------------------------------------------------------------------------------------------
# The tools of ``moorage mcp``: one for each question, from ``tools.toml``, and a look-up of objects.

_TABLE: Final = table_of("moorage.interfaces.mcp", "tools.toml")
INSTRUCTIONS: Final[str] = _TABLE.pop("instructions")
_SHARED: Final[Mapping[str, Any]] = _TABLE.pop("shared")
#: Type of a parameter → what the SDK takes for it.
_TYPES: Final[Mapping[str, Any]] = {
    "text": str, "texts": Sequence[str], "flag": bool, "integer": int, "number": float,
    "objects": list[dict[str, Any]] | None, "texts by name": dict[str, str] | None,
    "lists by name": dict[str, list[Any]] | None,
}  # fmt: skip


class Tools:
    """Tools over one cluster. Each returns text for an agent, and raises InputError."""

    def __init__(self, answers: AgentAnswers, view: ClusterView) -> None:
        self._answers, self._view = answers, view

    def all(self) -> Sequence[Callable[..., Awaitable[str]]]:
        """Return the tools; the name and the docstring of each are its name and description."""
        return (*(self._asking(name, row) for name, row in _TABLE.items()), self.find)

    def _asking(self, name: str, row: Mapping[str, Any]) -> Callable[..., Awaitable[str]]:
        """Return the tool that asks the question of a row of the table."""
        parameters = {one: {**given, **_SHARED.get(given.get("use"), {})} for one, given in row["parameters"].items()}

        async def tool(**given: Any) -> str:
            needs = row.get("needs", ())
            if needs and not any(given.get(one) for one in needs):
                raise InputError(f"give {row.get('needed') or _either(needs)}")
            fields = {parameters[one].get("field", one): held for one, held in given.items() if one != "changes"}
            kept = {field: held for field, held in fields.items() if held or field == row.get("main")}
            question = {row["inside"]: kept} if "inside" in row else {**kept, **row.get("always", {})}
            return await self._ask(question, given.get("changes", ()))

        tool.__name__, tool.__doc__ = name, row["text"]
        shown = [_parameter(one, about) for one, about in parameters.items()]
        tool.__signature__ = inspect.Signature(shown, return_annotation=str)  # type: ignore[attr-defined]
        return tool

    async def _ask(self, question: Mapping[str, Any], changes: Sequence[str]) -> str:
        found = await self._answers.ask(question, changes)
        where = f"moorage://answers/{found.number}"
        rest = "" if found.is_whole else f"This is the first part; all of it: {where}/text\n"
        return f"{as_data(found.text)}\n{rest}In detail: {where}/wide; as a document: {where}/json"

    async def find(
        self,
        kind: Annotated[Literal["pods", "nodes"], Field(description="What to look for")],
        name: Annotated[str, Field(description="Part of a name, or a pattern such as web-*")] = "",
        namespace: str = "",
        selector: Annotated[str, Field(description="A label selector such as app=web,tier!=db")] = "",
        only_pending: Annotated[bool, Field(description="Only pods that have no node")] = False,
        limit: Annotated[int, Field(ge=1, le=500)] = 50,
    ) -> str:
        """List pods or nodes with the fields that matter for scheduling, one a line."""
        lines = await self._view.find(kind, name, namespace, selector, only_pending=only_pending)
        left = len(lines) - limit
        return as_data("\n".join(lines[:limit]) or "none") + (
            f"\n{left} more; give a narrower name or selector" if left > 0 else ""
        )


def _parameter(name: str, about: Mapping[str, Any]) -> inspect.Parameter:
    """Return a parameter of a tool as the SDK reads it."""
    form = _TYPES[about["type"]]
    bounds = {"description": about.get("help"), "ge": about.get("least"), "le": about.get("most")}
    default = about.get("default", None if form not in {str, Sequence[str]} else inspect.Parameter.empty)
    shown = Annotated[form, Field(**{field: held for field, held in bounds.items() if held is not None})]  # type: ignore[valid-type]
    held = tuple(default) if isinstance(default, list) else default
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=held, annotation=shown)


def _either(names: Sequence[str]) -> str:
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


_READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)


class _Server(MCPServer[None]):
    """A server that refuses arguments that a tool does not have: without them, another question would be answered."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[None, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        known = {tool.name: tool.input_schema.get("properties", {}) for tool in await self.list_tools()}
        wrong = sorted(arguments.keys() - known.get(name, arguments).keys())
        if wrong:
            raise ToolError(f"{name} has no argument {some(wrong)}; it has {', '.join(known[name])}")
        return await super().call_tool(name, arguments, context)


def make_server(answers: AgentAnswers, view: ClusterView) -> MCPServer[None]:
    """Return a server with all tools, and the resources that their answers name."""
    server = _Server("moorage", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING")
    for tool in Tools(answers, view).all():
        server.add_tool(_with_clear_errors(tool), annotations=_READS, structured_output=False)

    @server.resource("moorage://answers/{number}/{form}", description="An earlier answer: text, wide or json.")
    async def answer(number: str, form: str) -> str:
        if not number.isdecimal():
            raise ResourceNotFoundError(f"{number!r} is not the number of an answer")
        return as_data(await _found(answers.read(int(number), form)))

    @server.resource("moorage://cluster", description="How full the cluster is.")
    async def cluster() -> str:
        return as_data(await _found(answers.text_of({"report": {}})))

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


def own_pages(port: int) -> TransportSecuritySettings:
    """Return the settings of a server on a port of this machine: pages of other origins, other ports included, are refused."""
    hosts = [f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")]
    return TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=[f"http://{host}" for host in hosts])


async def _found(reading: Awaitable[str]) -> str:
    try:
        return await reading
    except MoorageError as error:
        raise ResourceNotFoundError(as_data(str(error))) from None


def _with_clear_errors(tool: Callable[..., Awaitable[str]]) -> Callable[..., Awaitable[str]]:
    """Return a tool whose expected errors reach the agent as their text."""

    @wraps(tool)
    async def call(**given: object) -> str:
        try:
            return await tool(**given)
        except MoorageError as error:
            raise ToolError(as_data(str(error))) from None

    call.__signature__ = inspect.signature(tool, eval_str=True)  # type: ignore[attr-defined]
    return call
