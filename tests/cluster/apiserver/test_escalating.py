"""No write grants rights that its writer lacks: attacks over HTTP, and a property over random sequences of writes."""

import asyncio
import contextlib
import json
import random
import time

import aiohttp
import pytest

from moorage.api.documents.http_messages import User
from moorage.api.documents.request_targets import Target
from moorage.api.documents.served_kinds import served
from moorage.api.documents.statuses import ApiError
from moorage.cluster.apiserver.access.authentication import Authenticator
from moorage.cluster.apiserver.access.rbac import Attributes, Authorizer
from moorage.cluster.apiserver.access.write_rights import check_escalation
from moorage.cluster.apiserver.http.serve import open_store, serving

RBAC = "rbac.authorization.k8s.io"
KINDS = {name: served(name, RBAC) for name in ("roles", "clusterroles", "rolebindings", "clusterrolebindings")}
AGGREGATE = f"{RBAC}/aggregate-to-view"
MALLORY, EVE = User("mallory"), User("eve")
JSON, JSON_PATCH = "application/json", "application/json-patch+json"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
WRITES = ["get", "list", "create", "update", "patch", "delete"]


def rule(verbs, resources, group="", names=()):
    made = {"verbs": list(verbs), "resources": list(resources), "apiGroups": [group]}
    return {**made, "resourceNames": list(names)} if names else made


def role(name, *rules, namespace="", labels=None, selects=None):
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **({"labels": labels} if labels else {})}
    made = {"apiVersion": f"{RBAC}/v1", "kind": "Role" if namespace else "ClusterRole", "metadata": metadata}
    more = {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": selects}]}} if selects else {}
    return {**made, "rules": list(rules), **more}


def binding(name, role_name, *users, kind="ClusterRole", namespace=""):
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": f"{RBAC}/v1", "kind": "RoleBinding" if namespace else "ClusterRoleBinding", "metadata": metadata,
        "subjects": [{"kind": "User", "name": user, "apiGroup": RBAC} for user in users],
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role_name},
    }  # fmt: skip


def place(resource, name="", namespace=""):
    home = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{RBAC}/v1{home}/{resource}" + (f"/{name}" if name else "")


def put_in(store, document):
    kind = KINDS[f"{document['kind'].lower()}s"]
    store.create(kind, document["metadata"].get("namespace", ""), json.loads(json.dumps(document)))


@pytest.fixture(scope="module")
def cluster():
    """Return a cluster where Mallory may write every role and binding, read pods, and has the role ``view``."""
    store = open_store(seed=1)
    for document in (
        role("writer", rule(WRITES, KINDS, RBAC), rule(["get"], ["pods"])), binding("writer", "writer", "mallory"),
        binding("viewer", "view", "mallory"), role("small", rule(["get"], ["pods"])),
        role("owned", rule(["get"], ["secrets"])), role("sum", rule(["get"], ["pods"]), selects={"to": "sum"}),
        role("sum-of-none", selects={"to": "sum-of-none"}), binding("admins", "cluster-admin", "root"),
        role("secrets", rule(["get"], ["secrets"]), namespace="default"),
        binding("readers", "secrets", "eve", kind="Role", namespace="default"),
    ):  # fmt: skip
        put_in(store, document)
    return store


ADMIN_RULES = [rule(["*"], ["*"], "*"), {"verbs": ["*"], "nonResourceURLs": ["*"]}]
LABELLED = {"metadata": {"labels": {AGGREGATE: "true"}}}
ESCALATES, AGGREGATES = "is attempting to grant RBAC permissions not currently held", "must have cluster-admin privileges"
ATTACKS = {  # method, path, body, form, what the refusal says
    "label cluster-admin, merge patch": ("PATCH", place("clusterroles", "cluster-admin"), LABELLED, MERGE, ESCALATES),
    "label cluster-admin, strategic merge patch": (
        "PATCH", place("clusterroles", "cluster-admin"), LABELLED, STRATEGIC, ESCALATES,
    ),
    "label cluster-admin, JSON patch": (
        "PATCH", place("clusterroles", "cluster-admin"),
        [{"op": "add", "path": f"/metadata/labels/{AGGREGATE.replace('/', '~1')}", "value": "true"}], JSON_PATCH, ESCALATES,
    ),
    "label cluster-admin, apply": (
        "PATCH", f"{place('clusterroles', 'cluster-admin')}?fieldManager=m&force=true",
        {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "cluster-admin", **LABELLED["metadata"]}},
        APPLY, ESCALATES,
    ),
    "label cluster-admin, replace": (
        "PUT", place("clusterroles", "cluster-admin"),
        role("cluster-admin", *ADMIN_RULES, labels={AGGREGATE: "true"}), JSON, ESCALATES,
    ),
    "label cluster-admin, with a change that garbage collection makes": (
        "PATCH", place("clusterroles", "cluster-admin"),
        {"metadata": {**LABELLED["metadata"], "finalizers": ["example.com/f"]}}, MERGE, ESCALATES,
    ),
    "annotate a role beyond one's rights": (
        "PATCH", place("clusterroles", "owned"), {"metadata": {"annotations": {"a": "b"}}}, MERGE, ESCALATES,
    ),
    "create a role": ("POST", place("clusterroles"), role("new", *ADMIN_RULES), JSON, ESCALATES),
    "create a role whose name is drawn": (
        "POST", place("clusterroles"), {**role("", *ADMIN_RULES), "metadata": {"generateName": "new-"}}, JSON, ESCALATES,
    ),
    "create a role by applying it": (
        "PATCH", f"{place('clusterroles', 'new')}?fieldManager=m", role("new", *ADMIN_RULES), APPLY, ESCALATES,
    ),
    "add a rule": ("PATCH", place("clusterroles", "small"), {"rules": ADMIN_RULES}, MERGE, ESCALATES),
    "add a rule to a role of a namespace": (
        "PATCH", place("roles", "secrets", "default"), {"rules": [rule(["*"], ["*"], "*")]}, MERGE, ESCALATES,
    ),
    "set an aggregation rule": (
        "PATCH", place("clusterroles", "small"), {"aggregationRule": {"clusterRoleSelectors": [{}]}}, MERGE, AGGREGATES,
    ),
    "create an aggregated role": ("POST", place("clusterroles"), role("new", selects={"a": "b"}), JSON, AGGREGATES),
    "change an aggregation rule": (
        "PATCH", place("clusterroles", "sum"),
        {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}]}},
        MERGE, AGGREGATES,
    ),
    "drop an aggregation rule and keep the rules": (
        "PATCH", place("clusterroles", "sum"), {"aggregationRule": None}, MERGE, AGGREGATES,
    ),
    "label an aggregated role": ("PATCH", place("clusterroles", "sum-of-none"), LABELLED, MERGE, AGGREGATES),
    "bind cluster-admin": (
        "POST", place("clusterrolebindings"), binding("new", "cluster-admin", "mallory"), JSON, ESCALATES,
    ),
    "bind cluster-admin in a namespace": (
        "POST", place("rolebindings", namespace="default"),
        binding("new", "cluster-admin", "mallory", namespace="default"), JSON, ESCALATES,
    ),
    "bind cluster-admin by applying it": (
        "PATCH", f"{place('clusterrolebindings', 'new')}?fieldManager=m", binding("new", "cluster-admin", "mallory"), APPLY,
        ESCALATES,
    ),
    "join the subjects of a binding": (
        "PATCH", place("clusterrolebindings", "admins"),
        [{"op": "add", "path": "/subjects/-", "value": {"kind": "User", "name": "mallory", "apiGroup": RBAC}}], JSON_PATCH,
        ESCALATES,
    ),
    "join the subjects of a binding of a namespace": (
        "PUT", place("rolebindings", "readers", "default"),
        binding("readers", "secrets", "mallory", kind="Role", namespace="default"), JSON, ESCALATES,
    ),
    "label a binding beyond one's rights": ("PATCH", place("clusterrolebindings", "admins"), LABELLED, MERGE, ESCALATES),
    "bind a role that is not there": (
        "POST", place("clusterrolebindings"), binding("new", "absent", "mallory"), JSON, f'clusterroles.{RBAC} "absent" not',
    ),
    "more combinations than can be compared": (
        "POST", place("clusterroles"),
        role("new", {name: [str(i) for i in range(200)] for name in ("verbs", "apiGroups", "resources")}), JSON,
        "too many combinations",
    ),
}  # fmt: skip

HARMLESS = {  # method, path, body, form
    "only what garbage collection changes": (
        "PATCH", place("clusterroles", "owned"),
        {"metadata": {
            "finalizers": ["example.com/f"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}],
        }}, MERGE,
    ),
    "only the finalizers of a binding": (
        "PATCH", place("clusterrolebindings", "admins"), {"metadata": {"finalizers": ["example.com/f"]}}, MERGE,
    ),
    "nothing": ("PATCH", place("clusterroles", "cluster-admin"), {}, MERGE),
    "label a role within one's rights": ("PATCH", place("clusterroles", "small"), LABELLED, MERGE),
    "create a role within one's rights": ("POST", place("clusterroles"), role("new", rule(["get"], ["pods"])), JSON),
    "bind a role within one's rights": ("POST", place("clusterrolebindings"), binding("new", "small", "eve"), JSON),
}  # fmt: skip


@contextlib.asynccontextmanager
async def asking(store):
    """Serve a store, and yield a function that sends Mallory's requests and returns code and body."""
    async with serving(store, Authenticator({"mallory": MALLORY})) as port, aiohttp.ClientSession() as session:

        async def ask(method, path, body, form):
            headers = {"Authorization": "Bearer mallory", "Content-Type": form}
            url = f"http://127.0.0.1:{port}{path}"
            async with session.request(method, url, data=json.dumps(body), headers=headers) as response:
                return response.status, await response.json()

        yield ask


def ask_all(store, *requests):
    async def run():
        async with asking(store) as ask:
            return [await ask(*one) for one in requests]

    return asyncio.run(run())


@pytest.mark.parametrize("dry", [False, True], ids=["for good", "dry run"])
@pytest.mark.parametrize(("method", "path", "body", "form", "why"), ATTACKS.values(), ids=ATTACKS)
def test_an_attack_is_rejected(cluster, method, path, body, form, why, dry):
    version = cluster.version
    path += ("&" if "?" in path else "?") + "dryRun=All" if dry else ""
    ((code, answer),) = ask_all(cluster, (method, path, body, form))
    assert (code, why in answer["message"]) == (404 if "not there" in why or "absent" in why else 403, True), answer
    assert cluster.version == version
    assert not Authorizer(cluster).judge(MALLORY, Attributes("get", "", "secrets", namespace="kube-system")).allowed


@pytest.mark.parametrize(("method", "path", "body", "form"), HARMLESS.values(), ids=HARMLESS)
def test_a_write_that_grants_nothing_new_is_accepted(cluster, method, path, body, form):
    ((code, answer),) = ask_all(cluster, (method, f"{path}?dryRun=All", body, form))
    assert code in {200, 201}, answer


def test_the_right_to_escalate_a_name_does_not_allow_its_creation():
    """The path of a create names no object, so a right restricted to names does not apply, as in Kubernetes."""
    store = open_store(seed=1)
    put_in(store, role("power", rule(["escalate", *WRITES], ["clusterroles"], RBAC, ["mine"]), rule(["create"], KINDS, RBAC)))
    put_in(store, binding("power", "power", "mallory"))
    put_in(store, role("mine"))
    wanted = role("mine", *ADMIN_RULES)
    found = ask_all(
        store, ("DELETE", place("clusterroles", "mine"), {}, JSON), ("POST", place("clusterroles"), wanted, JSON),
        ("PATCH", f"{place('clusterroles', 'mine')}?fieldManager=m", wanted, APPLY),
    )  # fmt: skip
    assert [code for code, _ in found] == [200, 403, 201]


def wide(verbs, groups, resources):
    return {
        "verbs": [f"v{i}" for i in range(verbs)], "apiGroups": [f"g{i}" for i in range(groups)],
        "resources": [f"r{i}" for i in range(resources)],
    }  # fmt: skip


HEAVY = {
    "as many combinations as are compared": [wide(22, 22, 95)],
    "as many rules as are compared": [rule(["get"], [f"s{i}"]) for i in range(2_000)],
    "more combinations": [wide(100, 100, 100)],
    "more rules": [rule(["get"], [f"s{i}"]) for i in range(10_000)],
}


@pytest.mark.parametrize("rules", HEAVY.values(), ids=HEAVY)
def test_comparing_rights_does_not_block_the_server(cluster, rules):
    """It takes at most about 100 ms."""
    authorizer = Authorizer(cluster)
    authorizer.judge(MALLORY, Attributes("get", "", "pods"))
    began = time.thread_time()
    with pytest.raises(ApiError):
        check_escalation(authorizer, MALLORY, Target(KINDS["clusterroles"], ""), None, role("new", *rules))
    assert time.thread_time() - began < 1


# -- any sequence of writes ---------------------------------------------------------------------------------------------

NAMES, LABELS = ["a", "b", "c"], [{}, {"to": "a"}, {"to": "b"}, {"to": "a", "view": "b"}]


class World:
    """Draws clusters with a few roles, some of them aggregated, and writes of every form."""

    def __init__(self, seed):
        self.draw = random.Random(seed)

    def one(self, *choices):
        return self.draw.choice(choices)

    def rules(self):
        return [
            rule(self.one(["get"], ["list", "get"], ["*"]), self.one(["pods"], ["secrets"], ["pods", "secrets"], ["*"]),
                 self.one("", "", "apps", "*"), self.one((), (), ["n"]))
            for _ in range(self.one(0, 1, 1, 2))
        ]  # fmt: skip

    def role(self, name=None, namespace=None):
        namespace = self.one("", "", "default") if namespace is None else namespace
        selects = self.one(None, None, None, {"to": "a"}, {"to": "b"}) if not namespace else None
        name = name or self.one(*NAMES)
        return role(name, *self.rules(), namespace=namespace, labels=self.one(*LABELS), selects=selects)

    def binding(self, *users):
        namespace = self.one("", "default")
        kind = self.one("Role", "ClusterRole") if namespace else "ClusterRole"
        users = users or self.one((), ("mallory",), ("eve",), ("eve", "mallory"))
        return binding(self.one(*NAMES), self.one(*NAMES), *users, kind=kind, namespace=namespace)

    def cluster(self):
        """Return roles and bindings; in most clusters a user holds the rules that a role aggregates."""
        selects = self.one(None, {"to": "a"}, {"to": "a"}, {"to": "b"})
        home = self.one("", "default")
        yield role("a", labels=self.one(*LABELS), selects=selects)
        yield from (self.role(name, "") for name in ("b", "c"))
        yield self.role(self.one(*NAMES), "default")
        yield binding("view", "a", self.one("mallory", "mallory", "eve"), namespace=home)
        yield self.binding("mallory")
        verbs = self.one(WRITES, WRITES, ["patch"], ["update"], ["create", "delete"])
        held = [one for one in self.rules() if "*" not in one["verbs"]]
        yield role("writer", rule(verbs, KINDS, RBAC), *held)
        yield binding("writer", "writer", "mallory", namespace=self.one("", "", "default"))

    def write(self):
        """Return a write of a role or binding, complete or partial."""
        document = self.one(self.role, self.role, self.binding)()
        name, namespace = document["metadata"]["name"], document["metadata"].get("namespace", "")
        resource = f"{document['kind'].lower()}s"
        way = self.one("POST", "PUT", "DELETE", APPLY, MERGE, MERGE, STRATEGIC, JSON_PATCH)
        if way == "POST":
            return "POST", place(resource, "", namespace), document, JSON
        if way in {"PUT", "DELETE"}:
            return way, place(resource, name, namespace), document if way == "PUT" else {}, JSON
        if way == APPLY:
            return "PATCH", f"{place(resource, name, namespace)}?fieldManager=m&force=true", document, APPLY
        kept = [one for one in ("rules", "subjects", "roleRef", "aggregationRule") if one in document and self.one(0, 0, 1)]
        metadata = {"labels": document["metadata"].get("labels") or {}}
        if way != JSON_PATCH:
            return (
                "PATCH",
                place(resource, name, namespace),
                {**{one: document[one] for one in kept}, "metadata": metadata},
                way,
            )
        body = [{"op": "add", "path": f"/{one}", "value": document[one]} for one in kept]
        body.append({"op": "add", "path": "/metadata/labels", "value": metadata["labels"]})
        return "PATCH", place(resource, name, namespace), body, way


ASKED = [
    Attributes(verb, group, resource, name=name, namespace=namespace)
    for verb in ("get", "list", "delete", "escalate", "bind") for group in ("", "apps", RBAC)
    for resource in ("pods", "secrets", "clusterroles") for name in ("", "n") for namespace in ("", "default", "kube-system")
]  # fmt: skip


def rights(authorizer, user):
    return {asked for asked in ASKED if authorizer.judge(user, asked).allowed}


def refill(store, documents):
    """Replace all roles and bindings except the bootstrap ones."""
    for kind in KINDS.values():
        for record in [*store.all(kind)]:
            if "kubernetes.io/bootstrapping" not in record.labels:
                store.delete(kind, record.namespace, record.name)
    for document in documents:
        kind, metadata = KINDS[f"{document['kind'].lower()}s"], document["metadata"]
        if store.find(kind, metadata.get("namespace", ""), metadata["name"]) is None:
            put_in(store, document)


@pytest.mark.slow
def test_no_sequence_of_writes_grants_a_right_that_its_writer_lacks():
    """Aggregated roles are updated within each write, so rights are compared after that."""
    store = open_store(seed=1)
    authorizer = Authorizer(store)

    async def run():
        carried_out = 0
        async with asking(store) as ask:
            for seed in range(30):
                world = World(seed)
                refill(store, world.cluster())
                mine, others = rights(authorizer, MALLORY), rights(authorizer, EVE)
                if any(asked.verb in {"bind", "escalate"} for asked in mine):
                    continue
                answers = [await ask(*world.write()) for _ in range(12)]
                carried_out += sum(code < 300 for code, _ in answers)
                assert rights(authorizer, MALLORY) <= mine, seed
                assert rights(authorizer, EVE) <= others | mine, seed
        return carried_out

    assert asyncio.run(run()) > 15  # else the model has gone lame
