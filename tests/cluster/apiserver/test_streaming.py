"""Logs, exec and port forwarding of simulated pods, and ephemeral containers."""

import pytest

from moorage.api.documents.served_kinds import served

PODS = "/api/v1/namespaces/default/pods"
UPGRADE = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}
PRETENDED = "is only pretended to run in this cluster"


def add_pod(store, name, containers=("c",), inits=(), phase="Running", node="n1"):
    spec = {"containers": [{"name": one, "image": "i"} for one in containers]}
    if inits:
        spec["initContainers"] = [{"name": one, "image": "i"} for one in inits]
    if node:
        spec["nodeName"] = node
    kind = served("pods")
    store.create(kind, "default", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    store.change(kind, "default", name, lambda pod: {**pod, "status": {"phase": phase}}, subresource="status")


MANY = {"containers": ("a", "b"), "inits": ("x",)}
ASKED = {  # the pod, what is asked, the code, part of the answer
    "the log": ({}, "log", 501, f'container "c" of pod "web" {PRETENDED}: it has no log'),
    "the log of one of many": (MANY, "log?container=b", 501, f'container "b" of pod "web" {PRETENDED}'),
    "the log of an init container": (MANY, "log?container=x", 501, 'container "x"'),
    "the log of which": (
        MANY, "log", 400,
        "a container name must be specified for pod web, choose one of: [a b] or one of the init containers: [x]",
    ),
    "the log of none": ({}, "log?container=z", 400, "container z is not valid for pod web"),
    "the log before there is a node": ({"node": ""}, "log", 204, ""),
    "the log before it has started": (
        {"phase": "Pending"}, "log", 400, 'container "c" in pod "web" is waiting to start: ContainerCreating',
    ),
    "the log of one that has ended": ({"phase": "Succeeded"}, "log", 501, "it has no log"),
    "a program": ({}, "exec?command=ls", 501, "no program can be run in it"),
    "a program before there is a node": ({"node": ""}, "exec?command=ls", 400, "pod web does not have a host assigned"),
    "a program in one that has ended": (
        {"phase": "Failed"}, "exec", 400, "cannot exec into a container in a completed pod; current phase is Failed",
    ),
    "to attach": ({}, "attach", 501, "there is nothing to attach to"),
    "a port": (MANY, "portforward?ports=80", 501, f'pod "web" {PRETENDED}: it listens on no port'),
}  # fmt: skip


@pytest.mark.parametrize(("pod", "asked", "code", "text"), ASKED.values(), ids=ASKED)
def test_simulated_pods_return_501(against_a_server, pod, asked, code, text):
    async def test(client, store):
        add_pod(store, "web", **pod)
        for method in ("GET",) if asked.startswith("log") else ("GET", "POST"):
            status, answer = await client.ask(method, f"{PODS}/web/{asked}", **UPGRADE)
            assert status == code
            assert text in (answer["message"] if code >= 400 else answer or "")

    against_a_server(test)


def test_methods_and_rights_of_streaming_requests(against_a_server):
    async def test(client, store):
        add_pod(store, "web")
        assert (await client.ask("GET", f"{PODS}/nope/log"))[0] == 404
        assert (await client.ask("GET", f"{PODS}/web/log", token="weak"))[0] == 403
        for method, path in (("POST", "log"), ("PUT", "exec"), ("DELETE", "attach")):
            assert (await client.ask(method, f"{PODS}/web/{path}", {}))[0] == 405
        status, text = await client.ask("GET", f"{PODS}/web/log", Accept="application/yaml")
        assert (status, "it has no log" in text) == (501, True)

    against_a_server(test)


# -- containers that look into a pod ------------------------------------------------------------------------------------


def look(name="look", **more):
    return {"name": name, "image": "busybox", **more}


async def add(client, *containers, form="application/strategic-merge-patch+json"):
    patch = {"spec": {"ephemeralContainers": list(containers)}}
    return await client.ask("PATCH", f"{PODS}/web/ephemeralcontainers", patch, form=form)


def test_ephemeral_containers_can_be_added(against_a_server):
    async def test(client, store):
        add_pod(store, "web")
        status, pod = await add(client, look(targetContainerName="c", stdin=True))
        assert status == 200
        assert pod["spec"]["ephemeralContainers"][0]["imagePullPolicy"] == "Always"
        assert pod["metadata"]["generation"] == 2
        status, pod = await add(client, look("other"))
        assert [one["name"] for one in pod["spec"]["ephemeralContainers"]] == ["other", "look"]
        # Nothing else goes through this path, and they do not go through any other.
        pod["spec"]["containers"][0]["image"] = "changed"
        pod["metadata"]["labels"] = {"a": "b"}
        status, pod = await client.ask("PUT", f"{PODS}/web/ephemeralcontainers", pod)
        assert (status, pod["spec"]["containers"][0]["image"], pod["metadata"].get("labels")) == (200, "i", None)
        assert (await client.ask("GET", f"{PODS}/web/ephemeralcontainers"))[1]["kind"] == "Pod"
        del pod["spec"]["ephemeralContainers"]
        assert (await client.ask("PUT", f"{PODS}/web", pod))[0] == 422

    against_a_server(test)


REFUSED = {  # what is added, what is said about it
    "a name that is taken": (look("c"), 'spec.ephemeralContainers[0].name: Duplicate value: "c"'),
    "no image": ({"name": "x"}, "spec.ephemeralContainers[0].image: Required value"),
    "nothing to look at": (
        look("x", targetContainerName="z"), 'spec.ephemeralContainers[0].targetContainerName: Not found: "z"',
    ),
    "a port": (
        look("x", ports=[{"containerPort": 80}]),
        "spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container",
    ),
    "requests": (
        look("x", resources={"requests": {"cpu": "1"}}),
        "spec.ephemeralContainers[0].resources: Forbidden: cannot be set for an Ephemeral Container",
    ),
    "another image": (look(image="other"), 'existing ephemeral containers "look" may not be changed'),
}  # fmt: skip


@pytest.mark.parametrize(("container", "text"), REFUSED.values(), ids=REFUSED)
def test_rejected_ephemeral_containers(against_a_server, container, text):
    async def test(client, store):
        add_pod(store, "web")
        await add(client, look())
        status, answer = await add(client, container)
        assert status == 422
        assert text in answer["message"]

    against_a_server(test)


def test_ephemeral_containers_cannot_be_changed_or_removed(against_a_server):
    async def test(client, store):
        add_pod(store, "web")
        await add(client, look())
        status, answer = await add(client, look("other"), form="application/merge-patch+json")
        assert status == 422
        assert 'existing ephemeral containers "look" may not be removed' in answer["message"]

    against_a_server(test)


# -- who does not answer ------------------------------------------------------------------------------------------------

SPACE = "/api/v1/namespaces/default"
PROXIED = {  # the path, the code of kube-apiserver 1.37.2 (501 where it would try to connect), and its text
    "a pod without an address": (f"{SPACE}/pods/web/proxy/", 400, "address not allowed"),
    "a pod that runs": (f"{SPACE}/pods/up/proxy/", 501, 'pod "up" is only pretended to run in this cluster'),
    "a port of it": (f"{SPACE}/pods/https:up:99/proxy/", 501, 'pod "up" is only pretended to run in this cluster'),
    "no pod": (f"{SPACE}/pods/nope:80/proxy/", 404, 'pods "nope" not found'),
    "a wrong pod": (f"{SPACE}/pods/ftp:up:80/proxy/", 400, 'invalid pod request "ftp:up:80"'),
    "no service": (f"{SPACE}/services/nope/proxy/", 503, 'no endpoints available for service "nope"'),
    "a port of none": (f"{SPACE}/services/nope:80/proxy/", 404, 'services "nope" not found'),
    "a service": (f"{SPACE}/services/s/proxy/", 503, 'no endpoints available for service "s"'),
    "a port of it by name": (f"{SPACE}/services/https:s:x/proxy/", 503, 'no endpoints available for service "s"'),
    "no port of it": (f"{SPACE}/services/s:99/proxy/", 503, 'no service port 99 found for service "s"'),
    "a wrong service": (f"{SPACE}/services/foo:s:80/proxy/", 400, 'invalid service request "foo:s:80"'),
    "a service with an endpoint": (f"{SPACE}/services/t/proxy/", 501, 'service "t" is only pretended'),
    "no node": ("/api/v1/nodes/nope:10250/proxy/", 404, 'nodes "nope" not found'),
    "a wrong node": ("/api/v1/nodes/a:b:c:d/proxy/", 400, 'invalid node request "a:b:c:d"'),
}  # fmt: skip


@pytest.mark.parametrize(("path", "code", "text"), PROXIED.values(), ids=PROXIED)
def test_who_does_not_answer_is_told_as_by_kube_apiserver(against_a_server, path, code, text):
    async def test(client, store):
        add_pod(store, "web", node="")
        add_pod(store, "up")
        status = {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}
        store.change(served("pods"), "default", "up", lambda pod: {**pod, "status": status}, subresource="status")
        for name in ("s", "t"):
            spec = {"selector": {"a": "b"}, "ports": [{"port": 80}]}
            made = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
            store.create(served("services"), "default", made)
        store.create(served("endpointslices", "discovery.k8s.io"), "default", {
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "t-1", "labels": {"kubernetes.io/service-name": "t"}}, "ports": [{"port": 80}],
            "endpoints": [{"addresses": ["10.0.0.1"], "targetRef": {"kind": "Pod", "namespace": "default", "name": "up"}}],
        })  # fmt: skip
        answered, answer = await client.ask("GET", path)
        assert (answered, text in answer["message"]) == (code, True), answer

    against_a_server(test)


@pytest.mark.parametrize("asked", ["exec?command=ls", "attach", "portforward?ports=80"])
def test_a_stream_needs_another_protocol(against_a_server, asked):
    async def test(client, store):
        add_pod(store, "web")
        status, answer = await client.ask("POST", f"{PODS}/web/{asked}")
        assert (status, answer["message"]) == (400, "Upgrade request required")

    against_a_server(test)
