"""S11 and S12: anonymous clients change nothing through any served path, and no reply or log has a secret.

The tests ask the server for its routes, as a client does: the embedded API server's are in its OpenAPI documents, those of
``moorage run`` in its index. Secrets are placed wherever one may be given, and must not be shown.
"""

import asyncio
import json

import aiohttp
import pytest

from moorage.cluster.apiserver.access.authentication import Authenticator, User
from moorage.cluster.apiserver.http.serve import open_store, serving
from tests.ports import reserve_port
from tests.regressions.leaking import TRACE, leaks
from tests.regressions.processes import START_S, in_place
from tests.regressions.test_process_faults import DEADLY, configured
from tools.simtest.recording import WriteRecord

TOKEN, WRONG, PASSWORD, ENV = "planted-token", "planted-wrong-token", "planted-password", "planted-env"
SECRETS = (TOKEN, WRONG, PASSWORD, ENV)
METHODS = ("POST", "PUT", "PATCH", "DELETE")
MINE = {"Authorization": f"Bearer {TOKEN}"}


def test_the_oracle_detects_leaked_secrets():
    said = {"a": "x planted-env y", "b": "nothing", "c": f"oh\n{TRACE}:"}
    assert leaks(SECRETS, said) == [("a", ENV), ("c", TRACE)]


# -- the embedded API server -------------------------------------------------------------------------------------------

STRANGERS = {
    "anonymous": {},
    "a wrong token": {"Authorization": f"Bearer {WRONG}"},
    "another origin": {**MINE, "Origin": "https://evil.example"},
    "another site": {**MINE, "Sec-Fetch-Site": "cross-site"},
    "another host": {**MINE, "Host": "evil.example"},
}


async def documented(session, base):
    """Return every path that the OpenAPI documents speak of, with names put in, and in which namespace."""
    async with session.get(f"{base}/openapi/v3", headers=MINE) as index:
        places = [one["serverRelativeURL"] for one in (await index.json())["paths"].values()]
    paths = set()
    for place in places:
        async with session.get(base + place, headers=MINE) as document:
            paths |= set((await document.json())["paths"])
    return sorted(path.replace("{namespace}", "default").replace("{name}", "x") for path in paths)


@pytest.mark.slow
def test_s12_anonymous_clients_change_nothing_through_any_documented_path():
    async def run():
        store = open_store(seed=1)
        async with (
            serving(store, Authenticator({TOKEN: User("admin", ("system:masters",))})) as port,
            aiohttp.ClientSession(auto_decompress=False) as session,
        ):
            base = f"http://127.0.0.1:{port}"
            paths = await documented(session, base)
            version, codes, said = store.version, {}, {}
            for path in paths:
                for method in METHODS:
                    for who, headers in STRANGERS.items():
                        async with session.request(method, base + path, json={"kind": ENV}, headers=headers) as answer:
                            codes[method, path, who] = answer.status
                            said[f"{method} {path} {who}"] = f"{answer.headers} {(await answer.read()).decode()}"
            changes = store.version - version
            async with session.post(f"{base}/api/v1/namespaces", json={"metadata": {"name": "n"}}, headers=MINE) as answer:
                assert answer.status == 201  # who is let in is let in by the same way
            return len(paths), codes, said, changes

    paths, codes, said, changes = asyncio.run(run())
    assert paths > 60
    assert {one: code for one, code in codes.items() if code not in {401, 403}} == {}
    assert changes == 0
    assert leaks(SECRETS, said) == []


# -- moorage run -------------------------------------------------------------------------------------------------------


#: As with kube-scheduler, a user with all verbs at /metrics may reset them; the flag below allows it to all.
RESET = ("DELETE", "/metrics")


async def answers(port):
    """Ask for everything that the index names in every way, anonymously and with a wrong token."""
    codes, said = {}, {}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session:
        base = f"https://127.0.0.1:{port}"
        async with session.get(f"{base}/") as index:
            paths = (await index.json())["paths"] if index.status == 200 else []
        paths = sorted({*paths, "/", "/metrics", "/configz", "/flagz", "/statusz", "/livez", "/debug/flags/v", "/debug/pprof/"})
        for path in paths:
            for method in ("GET", *METHODS):
                for token in ("", WRONG):
                    headers = {"Authorization": f"Bearer {token}"} if token else {}
                    address = f"{base}{path}?verbose=1&token={PASSWORD}"
                    async with session.request(method, address, data=b"9" if method != "GET" else None, headers=headers) as one:
                        codes[method, path, token] = one.status
                        said[f"{method} {path} {token}"] = f"{one.headers} {(await one.read()).decode(errors='replace')}"
    return codes, said


@pytest.mark.slow
def test_s11_s12_moorage_run_leaks_no_secret_and_anonymous_clients_change_nothing(tmp_path):
    async def main(place):
        (tmp_path / "deadly.py").write_text(DEADLY)
        port, closed = reserve_port(), reserve_port()
        extender = {
            "urlPrefix": f"http://user:{PASSWORD}@127.0.0.1:{closed}", "filterVerb": "filter", "ignorable": True,
            "httpTimeout": "1s",
        }  # fmt: skip
        flags = [
            f"--secure-port={port}", "--bind-address=127.0.0.1", "--v=10", "--leader-elect=false", "--profiling=true",
            "--authorization-always-allow-paths=/metrics,/configz,/flagz,/statusz,/livez,/",
        ]  # fmt: skip
        process = await place.scheduler(configured(place, extenders=[extender]), *flags)
        place.world.node("n1", cpu=4)
        for name, cpu in (("p", "1"), ("huge", "1000")):
            place.world.pod(name, cpu=cpu, container={"env": [{"name": "A", "value": ENV}]})
        await place.bound("p")
        await place.until(lambda: "FailedScheduling" in str(place.api.items("/apis/events.k8s.io/v1/events")), START_S)
        codes, said = await answers(port)
        refused = await place.scheduler("--v=10", "--leader-elect=false", token=WRONG)
        await place.until(lambda: "401" in refused.log.read_text() or "nauthorized" in refused.log.read_text(), START_S)
        changing = {one: code for one, code in codes.items() if one[0] != "GET" and one[:2] != RESET}
        assert {one: code for one, code in changing.items() if code not in {401, 403, 405}} == {}
        assert {200} < {code for one, code in codes.items() if one[0] == "GET"}
        told = [entry.document for entry in place.api.recording.entries if isinstance(entry, WriteRecord)]
        status = [one["status"] for one in told if one["kind"] == "Pod"]
        said |= {"log": process.log.read_text(), "log of who is refused": refused.log.read_text()}
        said |= {"status": json.dumps(status), "events": json.dumps(place.api.items("/apis/events.k8s.io/v1/events"))}
        assert leaks(SECRETS, said) == []
        assert len(said["log"]) > 5000

    in_place(main, tmp_path, token=TOKEN)
