"""The server of ``moorage mcp``: tools and resources over standard input and output, or over HTTP.

Source  modelcontextprotocol.io: specification 2025-11-25
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from itertools import count
from socket import socket
from typing import Annotated, Any, Final, Literal

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import Field

from moorage import __version__
from moorage.basis import text_of
from moorage.basis.printable import some
from moorage.errors import InputError, MoorageError
from moorage.interfaces.cli.help import help_pages
from moorage.interfaces.mcp.answers import SHOW, AgentAnswers, ClusterView, as_data, clipped, part_of, without_options
from moorage.interfaces.questions.question_tables import ToolParameter, question_table, tool_parameters, tools

#: What an agent reads first.
INSTRUCTIONS: Final = text_of("moorage.interfaces.mcp", "instructions.txt").rstrip("\n")
#: Type of a parameter → what the SDK takes for it.
_TYPES: Final[Mapping[str, Any]] = {
    "text": str, "texts": Sequence[str], "flag": bool, "integer": int, "number": float,
    "objects": list[dict[str, Any]] | None, "texts by name": dict[str, str] | None,
    "lists by name": dict[str, list[Any]] | None,
}  # fmt: skip


#: The parameters of all tools, which are no fields of their question.
_OF_ALL: Final = (
    ToolParameter("changes", "changes", "texts", (), False, None, None, None),
    ToolParameter("at", "at", "text", "", False, None, None, None),
)
#: How many times as long as the first part of an answer a part of a resource may be.
_RESOURCE: Final = 5


class Tools:
    """Tools over one cluster. Each returns text for an agent, and raises InputError. ``usage``: what pods use, if known."""

    def __init__(self, answers: AgentAnswers, view: ClusterView, usage: str = "") -> None:
        self._answers, self._view, self._usage = answers, view, usage

    def all(self) -> Sequence[Callable[..., Awaitable[str]]]:
        """Return the tools; the name and the docstring of each are its name and description."""
        return (*(self._asking(*tool) for tool in tools()), self.find)

    def _asking(self, name: str, question: str, about: Mapping[str, Any]) -> Callable[..., Awaitable[str]]:
        """Return the tool that asks a question. ``about``: what its table says of the tool."""
        parameters, inside = tool_parameters(question), question_table(question)["asked"].get("inside")

        async def tool(**given: Any) -> str:
            if "usage" in given and not given["usage"]:
                given["usage"] = self._usage
            needs = about.get("needs", ())
            if needs and not any(given.get(one) for one in needs):
                raise InputError(f"give {about.get('needed') or _either(needs)}")
            fields = {one.field: given[one.name] for one in parameters if one.name in given}
            kept = {field: held for field, held in fields.items() if held or field == about.get("main")}
            asked = {inside: kept} if inside else {**kept, **about.get("always", {})}
            return await self._ask(asked, given.get("changes", ()), given.get("at", ""))

        tool.__name__, tool.__doc__ = name, about["text"]
        shown = [_parameter(one) for one in (*parameters, *_OF_ALL)]
        tool.__signature__ = inspect.Signature(shown, return_annotation=str)  # type: ignore[attr-defined]
        return tool

    async def _ask(self, question: Mapping[str, Any], changes: Sequence[str], at: str) -> str:
        found = await self._answers.ask(question, changes, at)
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
        node: Annotated[str, Field(description="Only pods of this node")] = "",
        by: Annotated[Literal["", "namespace", "owner", "node"], Field(description="Sums of pods instead")] = "",
        limit: Annotated[int, Field(ge=1, le=500)] = 50,
    ) -> str:
        """List pods or nodes with the fields that matter for scheduling, one a line; or sums of pods and their requests."""
        lines = await self._view.find(kind, name, namespace, selector, only_pending=only_pending, node=node, by=by)
        shown = clipped("\n".join(lines[:limit]), self._answers.most) or "none"
        left = len(lines) - (shown.count("\n") + 1 if lines else 0)
        return as_data(shown) + (f"\n{left} more; give a narrower name or selector" if left > 0 else "")


def _parameter(one: ToolParameter) -> inspect.Parameter:
    """Return a parameter of a tool as the SDK reads it."""
    bounds = {"description": one.help, "ge": one.least, "le": one.most}
    form = _TYPES[one.type]
    shown = Annotated[form, Field(**{field: held for field, held in bounds.items() if held is not None})]  # type: ignore[valid-type]
    default = inspect.Parameter.empty if one.required else one.default
    return inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=shown)


def _either(names: Sequence[str]) -> str:
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


_READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)


def _short(schema: Any) -> Any:
    """Return a schema without titles and without defaults that say nothing: agents pay for each word of it."""
    if isinstance(schema, list):
        return [_short(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: one for name, one in schema.items() if not (name == "title" and isinstance(one, str))}
    return {name: _short(one) for name, one in kept.items() if name != "default" or one not in ("", [], False, None, 0)}


class _Server(MCPServer[None]):
    """A server that refuses arguments that a tool does not have: without them, another question would be answered."""

    async def list_tools(self) -> list[Any]:
        """Return the tools, with short schemas."""
        return [tool.model_copy(update={"input_schema": _short(tool.input_schema)}) for tool in await super().list_tools()]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[None, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        known = {tool.name: tool.input_schema.get("properties", {}) for tool in await self.list_tools()}
        wrong = sorted(arguments.keys() - known.get(name, arguments).keys())
        if wrong:
            raise ToolError(f"{name} has no argument {some(wrong)}; it has {', '.join(known[name])}")
        before = SHOW.set(_telling(context)) if context is not None else None
        try:
            return await super().call_tool(name, arguments, context)
        finally:
            if before is not None:
                SHOW.reset(before)


def _telling(context: Context[None, Any]) -> Callable[[str], None]:
    """Return what sends texts about the progress of a call as notifications, if its client asked for them."""
    steps, sending = count(1), set[asyncio.Task[None]]()

    async def send(text: str) -> None:
        with suppress(Exception):  # the client is gone, or the call has ended
            await context.report_progress(next(steps), message=without_options(text))

    def show(text: str) -> None:
        task = asyncio.ensure_future(send(text))
        sending.add(task)
        task.add_done_callback(sending.discard)

    return show


def make_server(answers: AgentAnswers, view: ClusterView, usage: str = "") -> MCPServer[None]:
    """Return a server with all tools, and the resources that their answers name. ``usage``: what pods use, if it is known."""
    server = _Server("moorage", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING")
    for tool in Tools(answers, view, usage).all():
        server.add_tool(_with_clear_errors(tool), annotations=_READS, structured_output=False)

    @server.resource("moorage://answers/{number}/{form}", description="An earlier answer: text, wide or json, in parts.")
    async def answer(number: str, form: str) -> str:
        return await answer_part(number, form, "1")

    @server.resource("moorage://answers/{number}/{form}/{part}", description="A further part of an earlier answer.")
    async def answer_part(number: str, form: str, part: str) -> str:
        if not number.isdecimal() or not part.isdecimal():
            raise ResourceNotFoundError(f"{number!r} and {part!r} are not the numbers of an answer and a part")
        text = await _found(answers.read(int(number), form))
        return _part(text, part, answers, f"moorage://answers/{number}/{form}")

    @server.resource("moorage://cluster", description="How full the cluster is.")
    async def cluster() -> str:
        return as_data(await _found(answers.text_of({"report": {}})))

    @server.resource("moorage://pods/{namespace}/{name}", description="A pod as scheduling sees it.")
    async def pod(namespace: str, name: str) -> str:
        return _part(await _found(view.document(f"pod/{namespace}/{name}")), "1", answers)

    @server.resource("moorage://nodes/{name}", description="A node as scheduling sees it.")
    async def node(name: str) -> str:
        return _part(await _found(view.document(f"node/{name}")), "1", answers)

    @server.resource("moorage://pages/{name}", description="A page of the documentation, or the schema of a document.")
    async def page(name: str) -> str:
        return await page_part(name, "1")

    @server.resource("moorage://pages/{name}/{part}", description="A further part of a page.")
    async def page_part(name: str, part: str) -> str:
        pages = help_pages()
        if name not in pages or not part.isdecimal():
            raise ResourceNotFoundError(f"no page {name!r}; there are {', '.join(sorted(pages))}")
        return _part(pages[name].read_text("utf-8"), part, answers, f"moorage://pages/{name}", is_data=False)

    return server


def serve_http(server: MCPServer[None], opened: socket) -> None:
    """Serve on a listening socket of this machine until Ctrl-C or SIGTERM."""
    import uvicorn  # only a server needs it

    port = opened.getsockname()[1]
    app = server.streamable_http_app(transport_security=_own_pages(port))
    serving = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
    asyncio.run(serving.serve(sockets=[opened]))


def _own_pages(port: int) -> TransportSecuritySettings:
    """Return the settings of a server on a port of this machine: pages of other origins, other ports included, are refused."""
    hosts = [f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")]
    return TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=[f"http://{host}" for host in hosts])


def _part(text: str, part: str, answers: AgentAnswers, address: str = "", *, is_data: bool = True) -> str:
    """Return a part of a resource; that of one without further parts says that there is more."""
    try:
        return part_of(text, int(part), answers.most * _RESOURCE, address, is_data=is_data)
    except InputError as error:
        raise ResourceNotFoundError(str(error)) from None


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
