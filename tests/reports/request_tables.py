"""The tables of requests: what a row may say, and how it is held against what the embedded API server answers."""

import asyncio
import io
import json
import re
import tomllib
from pathlib import Path
from typing import NamedTuple

import aiohttp
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from moorage.api.documents.served_kinds import parse_runtime_config
from moorage.api.feature_gates import FeatureGates
from moorage.api.releases import find_release
from moorage.cluster.apiserver.access.authentication import Authenticator, User
from moorage.cluster.apiserver.access.server_objects import publish_server
from moorage.cluster.apiserver.access.service_account_tokens import AccountTokens
from moorage.cluster.apiserver.http.serve import open_store, serving

__all__ = ["FOLDER", "load", "play"]

FOLDER = Path(__file__).parent
FIELDS = {
    "name", "requests", "send", "emulate", "gates", "runtime_config", "code", "says", "never", "warns", "never_warns", "json",
    "absent", "why", "source",
}  # fmt: skip
EXPECTED = {"code", "says", "never", "warns", "never_warns", "json", "absent"}
TOKEN = "a-token-for-tests"
NAMESPACE = "berth"
_PEM, _PLAIN = serialization.Encoding.PEM, serialization.NoEncryption()
_KEY = ec.generate_private_key(ec.SECP256R1()).private_bytes(_PEM, serialization.PrivateFormat.PKCS8, _PLAIN)
_HEAD = re.compile(r"# (?P<method>[A-Z]+) (?P<path>/\S*)(?: (?P<form>.+))?\n?")
_LETTERS = re.compile(r"@(\d+) LETTERS@")
PATCH = "application/merge-patch+json"


class Request(NamedTuple):
    """A request as a file tells it. ``form`` is the type of the body, or what a GET accepts."""

    method: str
    path: str
    form: str
    body: str


class Answer(NamedTuple):
    code: int
    text: str
    warnings: list[str]


def load(table):
    """Return the cases of one table; a row with an unknown or missing field, or a name that is taken, is an error."""
    cases = tomllib.loads(table.read_text()).get("case", [])
    names = [case.get("name") for case in cases]
    for case in cases:
        where = f"{table.relative_to(FOLDER)}: {case.get('name', 'a case without a name')}"
        assert case.keys() <= FIELDS, f"{where}: unknown fields {sorted(case.keys() - FIELDS)}"
        assert {"name", "code", "why"} <= case.keys(), f"{where}: name, code and why are required"
        assert len(case.keys() & {"requests", "send"}) == 1, f"{where}: either `requests`, a file, or `send`, is required"
        assert names.count(case["name"]) == 1, f"{where}: the name is used twice"
    return cases


def requests_of(case, table):
    """Return the requests of a case, in order."""
    text = case["send"] if "send" in case else (table.parent / case["requests"]).read_text()
    text = _LETTERS.sub(lambda found: "x" * int(found[1]), text)
    return [_request(part) for part in re.split(r"^---\n", text, flags=re.MULTILINE) if part.strip()]


def _request(text):
    head = _HEAD.match(text.lstrip("\n"))
    assert head is not None, f"a request begins with `# METHOD PATH`, this one with {text[:60]!r}"
    body = text.lstrip("\n")[head.end() :]
    form = head["form"] or {"GET": "application/json", "PATCH": PATCH}.get(head["method"], "application/json")
    return Request(head["method"], head["path"], form, body)


def play(case, table):
    """Make the requests of a case to a server of its own; fail where the last answer is not the right one."""
    asked = requests_of(case, table)
    gates = FeatureGates.parse(case.get("gates", ""), find_release(case.get("emulate", "1.37")).name)
    store = open_store(seed=1, gates=gates, runtime_config=parse_runtime_config(case.get("runtime_config", "")))
    guard = Authenticator({TOKEN: User("admin", ("system:masters",), uid="1")}, accounts=AccountTokens(store, _KEY))
    answers = asyncio.run(_answers(store, guard, asked))
    for before, answer in zip(asked[:-1], answers[:-1], strict=True):
        assert answer.code < 400, f"{before.method} {before.path}: {answer.code} {answer.text}"
    _hold(case, answers[-1])


async def _answers(store, guard, asked):
    made = Request("POST", "/api/v1/namespaces", "application/json", f"{{metadata: {{name: {NAMESPACE}}}}}")
    async with serving(store, guard) as port:
        publish_server(store, "127.0.0.1", port)
        return await _asked(port, (made, *asked))


async def _asked(port, asked):
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        return [await _answer(session, request) for request in asked][1:]


async def _answer(session, request):
    headers = {"Authorization": f"Bearer {TOKEN}"}
    headers["Accept" if request.method == "GET" else "Content-Type"] = request.form
    body = None
    if request.body.strip():
        body = request.body if request.form.endswith("yaml") else json.dumps(yaml.load(request.body, yaml.CSafeLoader))
    data = None if body is None else io.BytesIO(body.encode())  # large bodies of bytes block the loop
    async with session.request(request.method, request.path, data=data, headers=headers) as response:
        text = (await response.read()).decode()
        warnings = [re.sub(r'^299 - "(.*)"$', r"\1", one) for one in response.headers.getall("Warning", [])]
        return Answer(response.status, text, [one.replace(r"\"", '"') for one in warnings])


def _hold(case, answer):
    shown = f"{answer.code} {answer.text}\nwarnings: {answer.warnings}"
    assert answer.code == case["code"], shown
    for text in case.get("says", ()):
        assert text in _message(answer.text), f"{text!r} is not in:\n{shown}"
    for text in case.get("never", ()):
        assert text not in _message(answer.text), f"{text!r} is in:\n{shown}"
    for text in case.get("warns", ()):
        assert any(text in one for one in answer.warnings), f"no warning has {text!r}:\n{shown}"
    for text in case.get("never_warns", ()):
        assert not any(text in one for one in answer.warnings), f"a warning has {text!r}:\n{shown}"
    if case.get("json") or case.get("absent"):
        document = json.loads(answer.text)
        for path, value in case.get("json", {}).items():
            assert _at(document, path) == value, f"{path} is {_at(document, path)!r}, not {value!r}:\n{shown}"
        for path in case.get("absent", ()):
            assert _at(document, path) is None, f"{path} is {_at(document, path)!r}:\n{shown}"


def _message(text):
    """Return the message of a Status, or the whole text of another answer."""
    try:
        document = json.loads(text)
    except ValueError:
        return text
    is_status = isinstance(document, dict) and document.get("kind") == "Status"
    return str(document.get("message", "")) if is_status else text


def _at(value, path):
    """Return the value at a path, None where there is none; ``#`` is a length, ``~1`` stands for a slash in a name."""
    for step in path.split("/"):
        name = step.replace("~1", "/")
        if step == "#":
            value = len(value)
        elif isinstance(value, list):
            value = value[int(name)] if int(name) < len(value) else None
        else:
            value = value.get(name) if isinstance(value, dict) else None
    return value
