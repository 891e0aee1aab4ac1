"""Changes from the web interface: kubectl's commands with the rights of the session's user, and none without ``--ui-write``."""

import pytest
from click.testing import CliRunner

from moorage.api.documents.http_messages import User
from moorage.api.documents.served_kinds import served
from moorage.framework.changes import Change
from moorage.interfaces.cli.main import cli
from moorage.laboratory.change.change_requests import ChangeRequests
from moorage.laboratory.surroundings import NOTHING_AROUND
from tests.interfaces.web.test_site import ADMIN, NODES, PODS, a_store, bind, browse

EVICT = (
    "kubectl create --raw /api/v1/namespaces/default/pods/a/eviction -f - <<< "
    """'{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"a","namespace":"default"}}'"""
)
GROUP = "rbac.authorization.k8s.io"


def spec(store, name="n0"):
    return store.get(NODES, "", name).document().get("spec", {})


async def run(browser, command, **more):
    status, found = await browser.ask("POST", "/lab/v1/commands", {"command": command, **more})
    return status, found["message"]


def test_commands_do_what_kubectl_does():
    said = []

    async def test(browser, store):
        bind(store, "a", "n0")
        await browser.enter()
        assert (await browser.get("/lab/v1/snapshot"))[1]["writable"] is True
        for command, message in (
            ("kubectl cordon n0", "node/n0 cordoned"),
            ("kubectl cordon n0", "node/n0 already cordoned"),
            ("kubectl uncordon n0", "node/n0 uncordoned"),
            ("kubectl label node n0 tier=gold", "node/n0 labeled"),
            ("kubectl label node n0 'tier=gold'", "node/n0 not labeled"),
            ("kubectl label node n0 tier=tin --overwrite", "node/n0 labeled"),
            ("kubectl taint nodes n0 dedicated=db:NoSchedule", "node/n0 tainted"),
            ("kubectl taint nodes n0 gpu:NoExecute", "node/n0 tainted"),
            ("kubectl taint nodes n0 dedicated:NoSchedule-", "node/n0 untainted"),
            (EVICT, "pod/a evicted"),
            ("kubectl delete pod b", 'pod "b" deleted from default namespace'),
            ("kubectl delete pod b c -n default --ignore-not-found", 'pod "c" deleted from default namespace'),
            ("""kubectl patch deployment web --type=json -p='[{"op":"replace","path":"/spec/replicas","value":3}]'""",
             "deployment.apps/web patched"),
        ):  # fmt: skip
            assert await run(browser, command) == (200, message)
        assert (await run(browser, "kubectl label node n0 tier=gold"))[0] == 409
        assert (await run(browser, "kubectl taint nodes n0 gpu:NoExecute"))[0] == 409
        assert (await run(browser, "kubectl taint nodes n0 x:NoExecute-")) == (404, 'taint "x:NoExecute" not found')
        assert (await run(browser, "kubectl delete pod --all b"))[0] == 400
        assert (await run(browser, "kubectl delete pod b"))[0] == 404

    store = a_store(pods=("a", "b", "c"))
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    web = {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
    store.create(served("deployments", "apps"), "default", {"apiVersion": "apps/v1", "kind": "Deployment", **web})
    browse(test, store, on_change=said.append)
    assert spec(store)["taints"] == [{"key": "gpu", "effect": "NoExecute"}]
    assert not spec(store).get("unschedulable")
    assert store.get(NODES, "", "n0").document()["metadata"]["labels"]["tier"] == "tin"
    assert store.get(served("deployments", "apps"), "default", "web").document()["spec"]["replicas"] == 3
    assert store.find(PODS, "default", "b") is None
    assert said[0] == "web interface: admin: kubectl cordon n0: node/n0 cordoned"
    assert said[-1].startswith("web interface: admin: kubectl delete pod b: refused: ")


@pytest.mark.parametrize(
    "change",
    [
        Change("node", "cordon", "node/n0"),
        Change("node", "uncordon", "node/n0"),
        Change("node", "label", "node/n0", "labels.a/b", None, "it's"),
        Change("node", "label", "node/n0", "labels.a", "old", "new"),
        Change("node", "label", "node/n0", "labels.a", "old", None),
        Change("node", "taint", "node/n0", "", None, "k=v:NoSchedule"),
        Change("node", "untaint", "node/n0", "", "k=v:NoSchedule", None),
        Change("node", "evict", "pod/team/a", "", "n0", None),
    ],
    ids=lambda change: f"{change.verb} {change.new}",
)
def test_every_command_of_a_change_is_known(change):
    async def test(browser, store):
        await browser.enter()
        status, message = await run(browser, ChangeRequests(NOTHING_AROUND).commands([change])[0], dryRun=True)
        assert "does not run this command" not in message
        assert status in {200, 404, 422}  # the request was made

    said = []
    browse(test, on_change=said.append)
    assert said == []  # a dry run changes nothing


def test_without_the_option_nothing_is_written():
    async def test(browser, store):
        await browser.enter()
        assert (await browser.get("/lab/v1/snapshot"))[1]["writable"] is False
        status, message = await run(browser, "kubectl cordon n0")
        assert (status, message) == (403, "the web interface changes nothing: start moorage up with --ui-write")

    store = a_store()
    browse(test, store)
    assert not spec(store).get("unschedulable")


def test_a_user_does_what_their_rights_allow_and_no_more():
    store = a_store(pods=("a",))
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "patch"]}]
    store.create(served("clusterroles", GROUP), "", {"metadata": {"name": "keeper"}, "rules": rules})
    subjects = [{"kind": "User", "name": "kim", "apiGroup": GROUP}]
    role = {"apiGroup": GROUP, "kind": "ClusterRole", "name": "keeper"}
    binding = {"metadata": {"name": "keeper"}, "subjects": subjects, "roleRef": role}
    store.create(served("clusterrolebindings", GROUP), "", binding)
    said = []

    async def test(browser, store):
        await browser.enter(User("tim"))
        for dry in (True, False):
            status, message = await run(browser, "kubectl cordon n0", dryRun=dry)
            assert (status, message) == (
                403, 'nodes "n0" is forbidden: User "tim" cannot get resource "nodes" in API group "" at the cluster scope'
            )  # fmt: skip
        await browser.enter(User("kim"))
        assert await run(browser, "kubectl cordon n0", dryRun=True) == (200, "node/n0 cordoned (server dry run)")
        assert not spec(store).get("unschedulable")
        assert (await run(browser, "kubectl cordon n0"))[0] == 200
        assert (await run(browser, EVICT))[0] == 403
        assert (await run(browser, "kubectl delete pod a"))[0] == 403
        assert (await browser.ask("POST", "/lab/v1/commands", {"command": "kubectl uncordon n0"}, Origin="http://x"))[0] == 403

    browse(test, store, {"secret": ADMIN}, on_change=said.append)
    assert spec(store)["unschedulable"] is True
    assert store.find(PODS, "default", "a") is not None
    assert [line.split(": ")[1] for line in said] == ["tim", "kim", "kim", "kim"]


@pytest.mark.parametrize(
    "command",
    [
        "",
        "rm -rf /",
        "kubectl cordon n0; kubectl delete node n0",
        "kubectl cordon -l a=b",
        "kubectl cordon n0 n1",
        "kubectl cordon ../pods",
        "kubectl delete node n0",
        "kubectl delete pod a --grace-period=0",
        "kubectl delete pod a -n --all",
        "kubectl patch secret s --type=json -p=[]",
        "kubectl patch pod a --type=json -p=" + "[" * 40_000,
        "kubectl create --raw /api/v1/namespaces/default/pods/a/../b/eviction -f - <<< {}",
        "kubectl create --raw /api/v1/nodes -f - <<< {}",
        "kubectl create --raw /api/v1/namespaces/default/pods/a/eviction?dryRun=All -f - <<< {}",
        "kubectl label node n0 nothing",
        "kubectl taint nodes n0 nothing",
        "kubectl cordon 'n0",
        "kubectl cordon n0\n",
        "kubectl cordon " + "n" * 70_000,
    ],
)
def test_other_commands_are_refused(command):
    async def test(browser, store):
        before = store.version
        await browser.enter()
        assert (await run(browser, command))[0] in {400, 404}
        assert store.version == before

    browse(test, on_change=lambda line: None)


def test_writing_needs_the_interface():
    ran = CliRunner().invoke(cli, ["up", "--no-ui", "--ui-write"])
    assert ran.exit_code != 0
    assert "--ui-write needs the web interface" in ran.output + str(ran.exception)
