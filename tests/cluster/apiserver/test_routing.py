"""Unserved paths and methods, and the server's own documents, with the responses of kube-apiserver v1.36.2."""

import pytest

NOWHERE = "the server could not find the requested resource"
NO_METHOD = "the server does not allow this method on the requested resource"
PAGE = "404 page not found\n"
POD = "/api/v1/namespaces/default/pods/x"

ROUTES = {  # request: code and message; pages are plain text
    "GET /nope": (404, PAGE),
    "GET /apis/nope": (404, PAGE),
    "GET /apis/nope/v1/x": (404, PAGE),
    "GET //api/v1/pods": (404, PAGE),
    "GET /metrics/nope": (404, PAGE),
    "GET /openapi": (404, PAGE),
    "GET /healthz/": (404, PAGE),
    "GET /healthz/nope": (404, PAGE),
    "GET /api/v2": (404, NOWHERE),
    "GET /apis/apps/v2": (404, NOWHERE),
    "GET /api//v1/pods": (404, NOWHERE),
    "GET /api/v1/nope": (404, NOWHERE),
    "GET /api/v1/namespaces/default/nodes": (404, NOWHERE),
    f"GET {POD}/nope": (404, NOWHERE),
    f"GET {POD}/status/more": (404, NOWHERE),
    "GET /api/v1/pods/x": (404, NOWHERE),
    "PUT /api/v1/namespaces/default/pods": (405, NO_METHOD),
    "DELETE /api/v1/pods": (405, NO_METHOD),
    "DELETE /api/v1/namespaces": (405, NO_METHOD),
    f"POST {POD}": (405, NO_METHOD),
    f"DELETE {POD}/status": (405, NO_METHOD),
    f"GET {POD}/binding": (405, NO_METHOD),
    f"PATCH {POD}/eviction": (405, NO_METHOD),
    f"POST {POD}/log": (405, NO_METHOD),
    "PATCH /api/v1/namespaces/x/finalize": (405, NO_METHOD),
    "GET /api/v1/namespaces/default/bindings": (405, NO_METHOD),
    "GET /apis/authentication.k8s.io/v1/tokenreviews": (405, NO_METHOD),
    "GET /api/v1/namespaces/default/serviceaccounts/default/token": (405, NO_METHOD),
    "POST /apis/apps/v1/namespaces/default/deployments/x/scale": (405, NO_METHOD),
    "POST /apis/metrics.k8s.io/v1beta1/nodes": (405, NO_METHOD),
    "POST /api": (405, NO_METHOD),
    "POST /apis/apps/v1": (405, NO_METHOD),
    "PUT /version": (405, NO_METHOD),
    "OPTIONS /api/v1/pods": (405, NO_METHOD),
    f"PATCH {POD}": (415, "415: Unsupported Media Type"),
}


def test_unserved_paths_have_a_general_message(against_a_server):
    async def test(client, _):
        found = {}
        for asked in ROUTES:
            method, path = asked.split(" ")
            code, answer = await client.ask(method, path)
            if isinstance(answer, dict):
                assert (answer["kind"], answer["code"], answer["details"]) == ("Status", code, {})
                answer = answer["message"]
            found[asked] = (code, answer)
        assert found == ROUTES

    against_a_server(test)


HEADS = {"/api": 405, "/api/v1/pods": 405, "/version": 405, "/apis": 200, "/healthz": 200, "/openapi/v2": 200}


@pytest.mark.parametrize(("path", "code"), HEADS.items())
def test_only_paths_outside_the_api_answer_head(against_a_server, path, code):
    async def test(client, _):
        assert (await client.ask("HEAD", path))[0] == code

    against_a_server(test)


HEALTH = {
    "/livez/ping": "ok",
    "/readyz?exclude=ping": "ok",
    "/livez?verbose": "[+]ping ok\nlivez check passed\n",
    "/livez?verbose&exclude=ping": "[+]ping excluded: ok\nlivez check passed\n",
    "/livez?verbose&exclude=nope": (
        '[+]ping ok\nwarn: some health checks cannot be excluded: no matches for "nope"\nlivez check passed\n'
    ),
}


def test_health_has_individual_checks(against_a_server):
    async def test(client, _):
        assert {path: (await client.ask("GET", path))[1] for path in HEALTH} == HEALTH
        assert (await client.ask("GET", "/livez/ping", token=""))[0] == 401

    against_a_server(test)


def test_discovery_is_sent_to_clients_without_the_current_tag(against_a_server):
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

    async def test(client, _):
        async def ask(**headers):
            headers |= {"Authorization": f"Bearer {client.token}", "Accept": accept}
            async with client.session.get(f"{client.base}/apis", headers=headers) as answer:
                return answer.status, answer.headers, await answer.read()

        code, headers, body = await ask()
        assert (code, headers["Cache-Control"], headers["Vary"]) == (200, "public", "Accept")
        code, _, nothing = await ask(**{"If-None-Match": headers["ETag"]})
        assert (code, nothing) == (304, b"")
        assert body

    against_a_server(test)


def test_discovery_of_the_core_group(against_a_server):
    async def test(client, _):
        _, api = await client.ask("GET", "/api")
        assert api["serverAddressByClientCIDRs"] == [{"clientCIDR": "0.0.0.0/0", "serverAddress": f"127.0.0.1:{client.port}"}]
        _, listed = await client.ask("GET", "/api/v1")
        assert "apiVersion" not in listed
        hashes = {one["name"]: one["storageVersionHash"] for one in listed["resources"] if "storageVersionHash" in one}
        assert (hashes["configmaps"], hashes["pods"]) == ("qFsyl6wFWjQ=", "xPOwRZ+Yhw8=")
        assert (await client.ask("GET", "/"))[1]["paths"][:3] == ["/api", "/api/v1", "/apis"]

    against_a_server(test)
