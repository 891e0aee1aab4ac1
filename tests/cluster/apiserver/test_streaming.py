"""Logs, exec and port forwarding of simulated pods, and ephemeral containers."""

import pytest

from moorage.api.documents.served_kinds import served

PODS = "/api/v1/namespaces/default/pods"
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
            status, answer = await client.ask(method, f"{PODS}/web/{asked}")
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
