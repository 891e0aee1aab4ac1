"""Values of a request are data, on every route that is served: segments of paths, parameters, headers and bodies.

The routes are asked for: those of the page from the site, those of the API from its OpenAPI documents, those of MCP from its
lists. The names of parameters and headers are read from the sources, so that a new one takes part.
"""

import asyncio
import json
import os
import random
import re
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest

import moorage
from moorage.api.documents.served_kinds import KINDS
from moorage.api.documents.statuses import ApiError
from moorage.interfaces.cli import cluster_files
from moorage.interfaces.mcp.answers import AgentAnswers, ClusterView
from moorage.interfaces.web.pod_routes import ClusterSource
from moorage.interfaces.web.question_processes import Answering
from moorage.interfaces.web.report_server import serve_cluster
from moorage.interfaces.web.site import Site
from tests.hostile_fields import url_of
from tests.interfaces.web.test_requests_are_data import BASES, answer, asked, fields_of, input_words
from tests.interfaces.web.test_site import browse
from tests.watched_opens import WORD, hostile_names, marks_of, watching
from tools.attacks.objects import valid_object

SOURCES = Path(moorage.__file__).parent
SERVING = ("interfaces/web", "interfaces/mcp", "cluster/apiserver", "live/server", "basis/serving")
#: Kinds whose objects name an address that the server asks: that is what they are for, and only administrators write them.
CALLING = {"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "CustomResourceDefinition", "APIService"}
#: How many requests a run takes of each part; another seed takes others.
COUNT = int(os.environ.get("MOORAGE_ROUTE_REQUESTS", "250"))
pytestmark = pytest.mark.slow


def read_names(form):
    """Return the names that the sources of servers read in this form: ``query`` or ``headers``."""
    pattern = re.compile(rf'{form}(?:\.get\(|\[|\.getall\()"([\w-]+)"')
    texts = [path.read_text("utf-8") for folder in SERVING for path in sorted((SOURCES / folder).rglob("*.py"))]
    return sorted({name for text in texts for name in pattern.findall(text)})


QUERY = [*read_names("query"), "limit", "timeoutSeconds", "command", "path", "pretty", "propagationPolicy", "x"]
HEADERS = [
    *read_names("headers"), "Cookie", "Referer", "Origin", "Range", "X-Forwarded-For", "X-Remote-User", "Impersonate-User",
]  # fmt: skip


def test_the_names_are_found():
    assert {"at", "run", "after", "dryRun", "fieldManager", "labelSelector", "resourceVersion"} <= set(QUERY)
    assert {"Accept", "Authorization", "Content-Type", "Host"} <= set(HEADERS)


def test_the_watch_sees_what_is_opened(hostile, tmp_path):
    with watching(*marks_of(tmp_path)) as seen:
        Path(hostile[0]).read_text("utf-8")
        assert [event for event, _ in seen] == ["open"]


class Told(Answering):
    """Answers no question, and keeps what the process would get: the words, and the files in its folder."""

    def __init__(self):
        super().__init__(lambda *_: None)
        self.asked = []

    def prepare(self):
        """Begin nothing."""

    def ask(self, words, folder, stdin, limits):
        self.asked.append((tuple(words), {path.name: path.read_text("utf-8") for path in folder.iterdir()}))
        raise ApiError(503, "ServiceUnavailable", "not here")


@pytest.fixture
def turn():
    return random.Random(os.environ.get("MOORAGE_SEED", "routes"))


@pytest.fixture
def hostile(tmp_path):
    return list(hostile_names(tmp_path).values())


@pytest.fixture
def routes(monkeypatch):
    """Collect the routes of the sites that this test makes."""
    found = []
    kept = Site.route

    def noted(site, method, path, handler):
        found.append((method, path))
        kept(site, method, path, handler)

    monkeypatch.setattr(Site, "route", noted)
    return found


def bodies(value, turn):
    """Yield bodies that hide a name."""
    command = turn.choice([*BASES])
    inside = asked(command).get("inside")
    field = turn.choice(fields_of(command))
    question = {inside: {**BASES[command][inside], field: value}} if inside and field not in {inside, "changes"} else {
        **BASES[command], field: value
    }  # fmt: skip
    yield from (
        question,
        {**BASES[command], "changes": [value]},
        {"token": value},
        {"command": value},
        {"x": [value]},
        [value],
        value,
    )
    yield {"apiVersion": value, "kind": value, "metadata": {"name": value, "namespace": value}}


def requests_to(routes, hostile, turn):
    """Yield requests with a hostile value in one place: a segment, a parameter, a header or the body."""
    for _ in range(COUNT):
        method, path = turn.choice(routes)
        value = turn.choice(hostile)
        holes = re.findall(r"\{\w+\}", path)
        hidden = turn.choice(holes) if holes and turn.random() < 0.4 else ""
        for hole in holes:
            path = path.replace(hole, quote(value, safe="") if hole == hidden else "default")
        query, headers, body = {}, {}, None
        if not hidden and turn.random() < 0.4:
            query = {turn.choice(QUERY): value}
        elif not hidden and turn.random() < 0.3:
            headers = {turn.choice(HEADERS): value}
        if method in {"POST", "PUT", "PATCH", "DELETE"}:
            body = turn.choice(list(bodies(value if not (hidden or query or headers) else "x", turn)))
        yield method, path, query, headers, body


async def sent(http, base, request, own):
    """Send a request; return its answer, "" if the server refused to read it or streams."""
    method, path, query, headers, body = request
    with suppress(aiohttp.ClientError, TimeoutError, ValueError):
        async with (
            asyncio.timeout(0.5),
            http.request(
                method, base + path, params=query, headers={**own, **headers}, data=None if body is None else json.dumps(body)
            ) as response,
        ):
            return f"{response.headers} {await response.text(errors='replace')}"
    return ""


def test_no_route_of_a_served_report_opens_what_a_request_names(routes, hostile, turn, tmp_path):
    cluster = moorage.Cluster.read("examples/demo")
    cluster.run()
    told = Told()

    async def test():
        links = asyncio.Queue()
        serving = asyncio.create_task(serve_cluster(ClusterSource(cluster), 0, told, (), links.put_nowait))
        base, _, token = (await links.get()).partition("/ui/#token=")
        found = []
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
            assert (await http.post(f"{base}/lab/v1/session", json={"token": token})).status == 204
            served = [*(one for one in routes if one != ("DELETE", "/lab/v1/session")), ("GET", "/ui/{x}"), ("GET", "/{x}")]
            for request in requests_to(served, hostile, turn):
                with watching(*marks_of(tmp_path)) as seen:
                    text = await sent(http, base, request, {})
                if seen or WORD in text:
                    found.append((request, seen, text[:300]))
        serving.cancel()
        await asyncio.wait([serving])
        return found

    assert asyncio.run(test()) == []
    assert len(routes) > 10
    assert len(told.asked) > COUNT // 100


def test_no_route_of_up_opens_what_a_request_names(routes, hostile, turn, tmp_path):
    told = Told()

    async def test(browser, store):
        own = {"Authorization": "Bearer secret", "Content-Type": "application/json"}
        base = browser.base
        # The documents have the paths of each kind; the page's routes come from its site.
        paths = []
        async with browser.http.get(f"{base}/openapi/v3", headers=own) as index:
            for one in (await index.json())["paths"].values():
                async with browser.http.get(base + one["serverRelativeURL"], headers=own) as document:
                    for path, item in (await document.json())["paths"].items():
                        paths += [(method.upper(), path) for method in item if method != "parameters"]
        served = [*paths, *([one for one in routes if one != ("DELETE", "/lab/v1/session")] * (len(paths) // len(routes)))]
        assert len(paths) > 400
        found = []
        for request in requests_to(served, hostile, turn):
            with watching(*marks_of(tmp_path)) as seen:
                text = await sent(browser.http, base, request, own)
            if seen or (WORD in text and WORD not in str(request)):
                found.append((request, seen, text[:300]))
        for _ in range(COUNT // 2):
            kind = turn.choice([one for one in KINDS if "create" in one.verbs and one.kind not in CALLING])
            made = valid_object(kind, "default" if kind.namespaced else "", "x")
            _plant(made, turn.choice(hostile), turn)
            with watching(*marks_of(tmp_path)) as seen:
                await sent(browser.http, base, ("POST", url_of(kind), {}, {}, made), own)
            if seen:
                found.append((made, seen))
        assert found == []

    browse(test, answer=told, on_change=lambda line: None)
    assert told.asked


def _plant(made, value, turn):
    """Put a value in the place of a text of an object, at random."""
    places = []

    def walk(at):
        for key, inner in at.items() if isinstance(at, dict) else enumerate(at):
            if isinstance(inner, str):
                places.append((at, key))
            elif isinstance(inner, dict | list):
                walk(inner)

    walk(made)
    at, key = turn.choice(places)
    at[key] = value


def test_no_tool_and_no_resource_of_mcp_opens_what_an_agent_names(hostile, turn, tmp_path, monkeypatch, capfd):
    pytest.importorskip("mcp")
    from mcp import Client

    from moorage.interfaces.mcp.server import make_server

    cluster = moorage.Cluster.read("examples/demo")
    told = Told()
    folder = tmp_path / "questions"
    folder.mkdir()
    server = make_server(AgentAnswers(folder, told, (), 8000), ClusterView(lambda: cluster, live=False))

    async def test():
        found = []
        async with Client(server) as client:
            tools = (await client.list_tools()).tools
            templates = [one.uri_template for one in (await client.list_resource_templates()).resource_templates]
            for tool in tools:
                schema = tool.input_schema
                needed = dict.fromkeys(schema.get("required", ()), "x")
                for name in schema["properties"]:
                    for value in turn.sample(hostile, 4):
                        for given in (value, [value], {"x": value}, [{"name": "t", "node": value}], {"x": [value]}):
                            with watching(*marks_of(tmp_path)) as seen, suppress(Exception):
                                text = str(await client.call_tool(tool.name, {**needed, name: given}))
                                if WORD in text:
                                    found.append((tool.name, name, given, text[:300]))
                            if seen:
                                found.append((tool.name, name, given, seen))
            for template in templates:
                for hole in re.findall(r"\{\w+\}", template):
                    for value in hostile:
                        address = re.sub(r"\{\w+\}", "1", template.replace(hole, quote(value, safe="")))
                        with watching(*marks_of(tmp_path)) as seen, suppress(Exception):
                            text = str(await client.read_resource(address))
                            if WORD in text:
                                found.append((address, text[:300]))
                        if seen:
                            found.append((address, seen))
            return found, len(tools), len(templates)

    found, tools, templates = asyncio.run(test())
    assert found == []
    assert tools > 10
    assert templates > 4
    # What the tools pass on is asked as the process would be asked.
    monkeypatch.setattr(cluster_files, "_answers_a_request", True)
    assert len(told.asked) > 100
    for number, (words, files) in enumerate(turn.sample(told.asked, 25)):
        whole = (words[0], *input_words(words[0], Path("examples/demo").absolute()), *words[1:])
        with watching(*marks_of(tmp_path)) as seen:
            text = answer(whole, files, tmp_path / f"tool-{number}", capfd, monkeypatch)
        assert not seen, (words, seen)
        assert WORD not in text
        monkeypatch.chdir(Path(__file__).parents[3])
