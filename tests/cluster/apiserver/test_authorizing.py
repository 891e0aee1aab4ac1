"""Authorization: rules, roles and bindings, the bootstrap roles, and protection against escalation."""

import asyncio
import copy
import json
from itertools import product

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from moorage.api.documents.http_messages import User
from moorage.api.documents.request_targets import Target
from moorage.api.documents.served_kinds import served
from moorage.api.documents.statuses import ApiError
from moorage.api.rbac import PolicyRule
from moorage.cluster.apiserver.access.authentication import Authenticator, impersonated
from moorage.cluster.apiserver.access.rbac import Attributes, Authorizer, allows, denied, merged, missing, shown
from moorage.cluster.apiserver.access.write_rights import check_escalation
from moorage.cluster.apiserver.http.serve import open_store, serving

RBAC = "rbac.authorization.k8s.io"
ROLES, CLUSTER_ROLES = served("roles", RBAC), served("clusterroles", RBAC)
BINDINGS, CLUSTER_BINDINGS = served("rolebindings", RBAC), served("clusterrolebindings", RBAC)
TO_ROLES, TO_BINDINGS = Target(CLUSTER_ROLES, ""), Target(CLUSTER_BINDINGS, "")
JANE = User("jane", ("devs", "system:authenticated"))


@pytest.fixture
def cluster():
    return open_store(seed=1)


def role(name, *rules, namespace="", **more):
    kind = "Role" if namespace else "ClusterRole"
    metadata = {"name": name, **more.pop("metadata", {})}
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, "rules": list(rules), **more}


def rule(verbs, resources, groups="", names=""):
    made = {"verbs": verbs.split(), "resources": resources.split(), "apiGroups": groups.split(",")}
    return {**made, "resourceNames": names.split()} if names else made


def binding(name, role_name, *subjects, kind="ClusterRole", namespace=""):
    named = [dict(zip(("kind", "name", "namespace"), one.split("/"), strict=False)) for one in subjects]
    return {
        "apiVersion": f"{RBAC}/v1", "kind": "RoleBinding" if namespace else "ClusterRoleBinding", "metadata": {"name": name},
        "subjects": named, "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role_name},
    }  # fmt: skip


# -- rules --------------------------------------------------------------------------------------------------------------

RULES = {  # the rule, what is asked, allowed?
    "the verb and the resource": (rule("get", "pods"), Attributes("get", "", "pods"), True),
    "another verb": (rule("get", "pods"), Attributes("list", "", "pods"), False),
    "another group": (rule("get", "pods"), Attributes("get", "apps", "pods"), False),
    "every group": (rule("get", "pods", "*"), Attributes("get", "apps", "pods"), True),
    "a subresource is another resource": (rule("get", "pods"), Attributes("get", "", "pods", "log"), False),
    "the subresource": (rule("get", "pods/log"), Attributes("get", "", "pods", "log"), True),
    "the subresource of anything": (rule("update", "*/status"), Attributes("update", "", "pods", "status"), True),
    "of anything, but not the thing": (rule("update", "*/status"), Attributes("update", "", "pods"), False),
    "everything includes subresources": (rule("*", "*", "*"), Attributes("update", "x", "pods", "status"), True),
    "the name": (rule("get", "pods", names="a b"), Attributes("get", "", "pods", name="b"), True),
    "another name": (rule("get", "pods", names="a b"), Attributes("get", "", "pods", name="c"), False),
    "a list has no name": (rule("list", "pods", names="a"), Attributes("list", "", "pods"), False),
    "the path": ({"verbs": ["get"], "nonResourceURLs": ["/metrics"]}, Attributes("get", path="/metrics"), True),
    "below the path": ({"verbs": ["get"], "nonResourceURLs": ["/api/*"]}, Attributes("get", path="/api/v1"), True),
    "beside the path": ({"verbs": ["get"], "nonResourceURLs": ["/api/*"]}, Attributes("get", path="/apis"), False),
    "resources are no paths": (rule("*", "*", "*"), Attributes("get", path="/metrics"), False),
}  # fmt: skip


def parsed(document):
    names = {"apiGroups": "api_groups", "resourceNames": "resource_names", "nonResourceURLs": "paths"}
    return PolicyRule(**{names.get(key, key): tuple(value) for key, value in document.items()})


@pytest.mark.parametrize(("held", "asked", "allowed"), RULES.values(), ids=RULES)
def test_a_rule_allows(held, asked, allowed):
    assert allows(parsed(held), asked) is allowed


words = st.lists(st.sampled_from(["a", "b", "*", "a/s", "*/s"]), min_size=1, max_size=3).map(tuple)
rules = st.builds(
    PolicyRule, verbs=words, api_groups=words, resources=words, resource_names=st.just(()) | st.just(("n",))
)  # fmt: skip


@settings(max_examples=30)
@given(held=st.lists(rules, max_size=3), wanted=rules)
def test_covered_rules_are_allowed_already(held, wanted):
    asked = [
        Attributes(verb, group, resource, subresource, name)
        for verb in "ab" for group in "ab" for resource in "ab" for subresource in ("", "s") for name in ("", "n", "m")
    ]  # fmt: skip
    if not missing(held, [wanted]):
        assert [one for one in asked if allows(wanted, one) and not any(allows(rule, one) for rule in held)] == []
    assert missing([wanted], [wanted]) == []
    assert missing([*held, *missing(held, [wanted])], [wanted]) == []


def in_parts(rule):
    """Yield a rule as rules of one verb, group, resource and name each."""
    for group, resource, verb in product(rule.api_groups, rule.resources, rule.verbs):
        part = PolicyRule(verbs=(verb,), api_groups=(group,), resources=(resource,))
        yield from (structs.replace(part, resource_names=(name,)) for name in rule.resource_names)
        if not rule.resource_names:
            yield part
    yield from (PolicyRule(verbs=(verb,), paths=(path,)) for path, verb in product(rule.paths, rule.verbs))


def covers(held, part):
    """Return whether one held rule covers one part, value by value."""
    if not {"*", *part.verbs} & {*held.verbs}:
        return False
    if part.paths:
        return any(one in {"*", *part.paths} or (one[-1:] == "*" and part.paths[0].startswith(one[:-1])) for one in held.paths)
    below = {f"*/{one.partition('/')[2]}" for one in part.resources if "/" in one}
    if not {"*", *part.api_groups} & {*held.api_groups} or not {"*", *part.resources, *below} & {*held.resources}:
        return False
    return not held.resource_names or bool({*part.resource_names} & {*held.resource_names})


paths = st.lists(st.sampled_from(["*", "/a", "/a/*", "/a/b", "/b", "/*"]), max_size=3).map(tuple)
names = st.lists(st.sampled_from(["n", "m", "*", "/", ""]), max_size=2).map(tuple)
any_rules = st.builds(PolicyRule, verbs=words, api_groups=words, resources=words, resource_names=names, paths=paths)


@settings(max_examples=75)
@given(held=st.lists(any_rules, max_size=4), wanted=st.lists(any_rules, max_size=2))
def test_missing_returns_what_no_rule_covers(held, wanted):
    parts = [part for rule in wanted for part in in_parts(rule) if not any(covers(one, part) for one in held)]
    assert {*missing(held, wanted)} == {*parts}


def test_rules_are_formatted_like_kube_apiserver():
    lacking = missing([parsed(rule("get", "pods"))], [parsed(rule("get list watch", "pods secrets"))])
    assert sorted(shown(one) for one in merged(lacking)) == [
        '{APIGroups:[""], Resources:["pods"], Verbs:["list" "watch"]}',
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list" "watch"]}',
    ]


# -- bindings -----------------------------------------------------------------------------------------------------------

WHO = {
    "the user": ("User/jane", JANE, True),
    "another user": ("User/joe", JANE, False),
    "a group": ("Group/devs", JANE, True),
    "another group": ("Group/ops", JANE, False),
    "a user is no group": ("Group/jane", JANE, False),
    "a service account": ("ServiceAccount/robot/shop", User("system:serviceaccount:shop:robot"), True),
    "one of another namespace": ("ServiceAccount/robot/shop", User("system:serviceaccount:other:robot"), False),
}


@pytest.mark.parametrize(("subject", "user", "allowed"), WHO.values(), ids=WHO)
def test_a_cluster_role_binding_applies_everywhere(cluster, subject, user, allowed):
    authorizer = Authorizer(cluster)
    cluster.create(CLUSTER_ROLES, "", role("r", rule("get", "pods")))
    cluster.create(CLUSTER_BINDINGS, "", binding("b", "r", subject))
    assert authorizer.judge(user, Attributes("get", "", "pods", namespace="default")).allowed is allowed
    assert authorizer.judge(user, Attributes("get", "", "pods")).allowed is allowed


def test_a_role_binding_applies_in_its_namespace_until_it_is_deleted(cluster):
    authorizer = Authorizer(cluster)
    asked = Attributes("get", "", "pods", namespace="default")
    assert not authorizer.judge(JANE, asked).allowed
    cluster.create(ROLES, "default", role("r", rule("get", "pods"), namespace="default"))
    cluster.create(BINDINGS, "default", binding("b", "r", "User/jane", kind="Role", namespace="default"))
    verdict = authorizer.judge(JANE, asked)
    assert verdict == (True, 'RBAC: allowed by RoleBinding "b/default" of Role "r" to User "jane"')
    assert not authorizer.judge(JANE, asked._replace(namespace="kube-system")).allowed
    assert not authorizer.judge(JANE, asked._replace(namespace="")).allowed
    cluster.delete(ROLES, "default", "r")
    assert authorizer.judge(JANE, asked) == (False, f'RBAC: role.{RBAC} "r" not found')


DENIED = {
    "in a namespace": (
        Attributes("list", "", "pods", namespace="a"),
        'pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "a"',
    ),
    "a subresource": (
        Attributes("create", "", "pods", "binding", "x", "a"),
        'pods "x" is forbidden: User "jane" cannot create resource "pods/binding" in API group "" in the namespace "a"',
    ),
    "at the cluster scope": (
        Attributes("get", "apps", "deployments"),
        'deployments.apps is forbidden: User "jane" cannot get resource "deployments" in API group "apps" at the cluster scope',
    ),
    "a path": (Attributes("get", path="/metrics"), 'forbidden: User "jane" cannot get path "/metrics"'),
    "a path with a page in it": (Attributes("get", path="/<b>"), 'forbidden: User "jane" cannot get path "/&lt;b&gt;"'),
}


@pytest.mark.parametrize(("asked", "text"), DENIED.values(), ids=DENIED)
def test_denials_have_kube_apiservers_message(asked, text):
    refusal = denied(JANE, asked)
    assert (refusal.code, refusal.reason, refusal.message) == (403, "Forbidden", text)


# -- what a cluster is born with ----------------------------------------------------------------------------------------

READ = ("get", "list", "watch")


def on(groups, resources, verbs, name=""):
    return {
        Attributes(verb, group, *resource.partition("/")[::2], name)
        for group in groups.split(",") for resource in resources.split() for verb in verbs
    }  # fmt: skip


#: What kube-scheduler 1.36 may do, and nothing else (with what system:volume-scheduler adds).
SCHEDULER = (
    on(",events.k8s.io", "events", ("create", "patch", "update"))
    | on("coordination.k8s.io", "leases", ("create",), "kube-scheduler")
    | on("coordination.k8s.io", "leases", (*READ, "update"), "kube-scheduler")
    | on("coordination.k8s.io", "leasecandidates", (*READ, "create", "delete", "deletecollection", "patch", "update"))
    | on("", "nodes services replicationcontrollers namespaces persistentvolumes persistentvolumeclaims", READ)
    | on("", "persistentvolumes persistentvolumeclaims", ("patch", "update"))
    | on("", "pods", (*READ, "delete"))
    | on("", "bindings pods/binding", ("create",))
    | on("", "pods/status", ("patch", "update"))
    | on("", "pods/finalizers", ("update",))
    | on("apps", "replicasets statefulsets", READ)
    | on("extensions", "replicasets", READ)
    | on("policy", "poddisruptionbudgets", READ)
    | on("storage.k8s.io", "csinodes csidrivers csistoragecapacities volumeattachments storageclasses", READ)
    | on("authentication.k8s.io", "tokenreviews", ("create",))
    | on("authorization.k8s.io", "subjectaccessreviews", ("create",))
    | on("resource.k8s.io", "deviceclasses resourceslices devicetaintrules", READ)
    | on("resource.k8s.io", "resourceclaims resourceclaims/status", (*READ, "patch", "update"))
    | on("resource.k8s.io", "resourceclaims", ("create", "delete"))
    | on("resource.k8s.io", "resourceclaims/binding", ("patch", "update"))
)


def test_the_scheduler_has_exactly_its_rights(cluster):
    authorizer = Authorizer(cluster)
    user = User("system:kube-scheduler")
    granted = authorizer.rules_for(user, "")
    verbs = (*READ, "create", "delete", "deletecollection", "patch", "update")
    every = {
        Attributes(verb, group, *resource.partition("/")[::2], name)
        for held in granted for group in held.api_groups for resource in held.resources for verb in verbs
        for name in ("", *held.resource_names)
    }  # fmt: skip
    allowed = {asked for asked in every if authorizer.judge(user, asked).allowed}
    without_names = {asked._replace(name="") for asked in SCHEDULER}
    assert {asked for asked in allowed if not asked.name} | on(
        "coordination.k8s.io", "leases", (*READ, "update")
    ) == without_names
    assert not authorizer.judge(user, Attributes("update", "coordination.k8s.io", "leases", name="other")).allowed
    assert authorizer.judge(user, Attributes("update", "coordination.k8s.io", "leases", name="kube-scheduler")).allowed


LADDER = {  # role, verb, group, resource, allowed?
    "a viewer looks": ("view", "list", "", "pods", True),
    "a viewer sees no secrets": ("view", "list", "", "secrets", False),
    "a viewer changes nothing": ("view", "create", "", "pods", False),
    "an editor looks": ("edit", "watch", "apps", "deployments", True),
    "an editor changes": ("edit", "create", "apps", "deployments", True),
    "an editor gives no rights": ("edit", "create", RBAC, "roles", False),
    "an admin looks": ("admin", "list", "batch", "jobs", True),
    "an admin changes": ("admin", "delete", "", "pods", True),
    "an admin gives rights": ("admin", "create", RBAC, "rolebindings", True),
    "an admin adds no nodes": ("admin", "create", "", "nodes", False),
    "a cluster admin does": ("cluster-admin", "create", "", "nodes", True),
}


@pytest.mark.parametrize(("name", "verb", "group", "resource", "allowed"), LADDER.values(), ids=LADDER)
def test_the_user_facing_roles_include_each_other(cluster, name, verb, group, resource, allowed):
    cluster.create(BINDINGS, "default", binding("b", name, "User/jane", namespace="default"))
    asked = Attributes(verb, group, resource, namespace="default")
    assert Authorizer(cluster).judge(JANE, asked).allowed is allowed


def test_a_node_has_its_rights_and_reads_no_secrets(cluster):
    authorizer, node = Authorizer(cluster), User("system:node:n1", ("system:nodes",))
    for verb, resource, subresource, allowed in (
        ("patch", "nodes", "status", True), ("watch", "pods", "", True), ("patch", "pods", "status", True),
        ("get", "secrets", "", False), ("create", "serviceaccounts", "token", False), ("create", "pods", "binding", False),
    ):  # fmt: skip
        assert authorizer.judge(node, Attributes(verb, "", resource, subresource, namespace="x")).allowed is allowed


def test_a_role_with_the_label_adds_to_the_aggregated_roles(cluster):
    label = {f"{RBAC}/aggregate-to-view": "true"}
    cluster.create(CLUSTER_ROLES, "", role("more", rule("get", "boats", "sea"), metadata={"labels": label}))
    for name in ("view", "edit", "admin"):
        assert "boats" in str(cluster.get(CLUSTER_ROLES, "", name).document()["rules"])
    cluster.delete(CLUSTER_ROLES, "", "more")
    for name in ("view", "edit", "admin"):
        assert "boats" not in str(cluster.get(CLUSTER_ROLES, "", name).document()["rules"])


@pytest.mark.slow
def test_rules_propagate_through_long_chains_and_cycles_of_roles(cluster):
    def summed(name, source):
        selectors = [{"matchLabels": {"feeds": source}}]
        metadata = {"labels": {"feeds": name}}
        return role(name, metadata=metadata, aggregationRule={"clusterRoleSelectors": selectors})

    for i in range(150):
        cluster.create(CLUSTER_ROLES, "", summed(f"r{i}", f"r{i + 1}"))
    for i in range(3):
        cluster.create(CLUSTER_ROLES, "", summed(f"c{i}", f"c{(i + 1) % 3}"))
    for name in ("r150", "c0"):
        boats = role(f"of-{name}", rule("get", "boats", "sea"), metadata={"labels": {"feeds": name}})
        cluster.create(CLUSTER_ROLES, "", boats)
    for name in ("r0", "r149", "c0", "c1", "c2"):
        assert "boats" in str(cluster.get(CLUSTER_ROLES, "", name).document()["rules"])


def test_every_namespace_has_its_default_account(cluster):
    accounts, namespaces = served("serviceaccounts"), served("namespaces")
    cluster.create(namespaces, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    assert cluster.find(accounts, "shop", "default") is not None
    cluster.delete(accounts, "shop", "default")
    assert cluster.find(accounts, "shop", "default") is not None
    cluster.delete(namespaces, "", "shop")
    assert cluster.find(namespaces, "", "shop") is None
    assert cluster.find(accounts, "shop", "default") is None


# -- giving rights ------------------------------------------------------------------------------------------------------


def test_users_cannot_grant_more_than_they_have(cluster):
    authorizer = Authorizer(cluster)
    cluster.create(CLUSTER_ROLES, "", role("mine", rule("get", "pods")))
    cluster.create(CLUSTER_BINDINGS, "", binding("mine", "mine", "User/jane"))
    check_escalation(authorizer, JANE, TO_ROLES, None, role("new", rule("get", "pods", names="x")))
    more = role("new", rule("get list", "pods"))
    with pytest.raises(ApiError) as caught:
        check_escalation(authorizer, JANE, TO_ROLES, None, more)
    assert caught.value.message == (
        f'clusterroles.{RBAC} "new" is forbidden: user "jane" (groups=["devs" "system:authenticated"]) is attempting to grant '
        'RBAC permissions not currently held:\n{APIGroups:[""], Resources:["pods"], Verbs:["list"]}'
    )
    with pytest.raises(ApiError, match="attempting to grant"):  # a label may add it to an aggregated role
        check_escalation(authorizer, JANE, TO_ROLES, more, {**more, "metadata": {"name": "new", "labels": {"a": "b"}}})
    check_escalation(authorizer, JANE, TO_BINDINGS, None, binding("b", "mine", "User/joe"))
    for refused, code in (("cluster-admin", 403), ("absent", 404)):
        with pytest.raises(ApiError) as caught:
            check_escalation(authorizer, JANE, TO_BINDINGS, None, binding("b", refused, "User/joe"))
        assert caught.value.code == code
    aggregated = role("sum", aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]})
    with pytest.raises(ApiError, match="must have cluster-admin privileges"):
        check_escalation(authorizer, JANE, TO_ROLES, None, aggregated)
    check_escalation(authorizer, User("root", ("system:masters",)), TO_ROLES, None, aggregated)


def test_the_rights_to_escalate_and_to_bind_are_honored(cluster):
    authorizer = Authorizer(cluster)
    power = role("power", rule("escalate", "clusterroles", RBAC), rule("bind", "clusterroles", RBAC, "view"))
    cluster.create(CLUSTER_ROLES, "", power)
    cluster.create(CLUSTER_BINDINGS, "", binding("power", "power", "User/jane"))
    check_escalation(authorizer, JANE, TO_ROLES, None, role("new", rule("*", "*", "*")))
    check_escalation(authorizer, JANE, TO_BINDINGS, None, binding("b", "view", "User/joe"))
    with pytest.raises(ApiError):
        check_escalation(authorizer, JANE, TO_BINDINGS, None, binding("b", "edit", "User/joe"))


MALFORMED = {
    "no verbs": (CLUSTER_ROLES, role("r", {"resources": ["pods"], "apiGroups": [""]}), "rules[0].verbs"),
    "no groups": (CLUSTER_ROLES, role("r", {"verbs": ["get"], "resources": ["pods"]}), "rules[0].apiGroups"),
    "paths and resources": (
        CLUSTER_ROLES, role("r", {**rule("get", "pods"), "nonResourceURLs": ["/"]}), "rules[0].nonResourceURLs",
    ),
    "paths in a namespace": (
        ROLES, role("r", {"verbs": ["get"], "nonResourceURLs": ["/"]}, namespace="default"), "rules[0].nonResourceURLs",
    ),
    "a name that is no part of a path": (CLUSTER_ROLES, role("a/b"), "metadata.name"),
    "a role of all for a binding of all": (CLUSTER_BINDINGS, binding("b", "r", kind="Role"), "roleRef.kind"),
    "an account without a home": (CLUSTER_BINDINGS, binding("b", "r", "ServiceAccount/x"), "subjects[0].namespace"),
    "a subject of no kind": (CLUSTER_BINDINGS, binding("b", "r", "Robot/x"), "subjects[0].kind"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "document", "field"), MALFORMED.values(), ids=MALFORMED)
def test_rejected_roles_and_bindings(cluster, kind, document, field):
    with pytest.raises(ApiError) as caught:
        cluster.create(kind, "default" if kind.namespaced else "", json.loads(json.dumps(document)))
    assert (caught.value.code, [cause.field for cause in caught.value.causes]) == (422, [field])


def test_the_role_of_a_binding_is_immutable(cluster):
    cluster.create(CLUSTER_BINDINGS, "", binding("b", "view", "User/x"))
    with pytest.raises(ApiError, match=r'roleRef: Invalid value: {.*"Name":"edit"}: field is immutable'):
        cluster.change(CLUSTER_BINDINGS, "", "b", lambda held: {**held, "roleRef": {**held["roleRef"], "name": "edit"}})


# -- impersonation ------------------------------------------------------------------------------------------------------

ADMIN = User("root", ("system:masters",))
AS = {
    "a user": ([("Impersonate-User", "joe")], ("joe", ("system:authenticated",))),
    "a user of groups": (
        [("impersonate-user", "joe"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b")],
        ("joe", ("a", "b", "system:authenticated")),
    ),
    "an account": (
        [("Impersonate-User", "system:serviceaccount:shop:robot")],
        (
            "system:serviceaccount:shop:robot",
            ("system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"),
        ),
    ),
    "anonymous": ([("Impersonate-User", "system:anonymous")], ("system:anonymous", ("system:unauthenticated",))),
    "no header": ([("Accept", "x")], ("root", ("system:masters",))),
}


@pytest.mark.parametrize(("headers", "seen"), AS.values(), ids=AS)
def test_an_admin_may_impersonate(cluster, headers, seen):
    user = impersonated(ADMIN, headers, Authorizer(cluster))
    assert (user.name, user.groups) == seen


def test_an_extra_is_kept_and_needs_a_user(cluster):
    authorizer = Authorizer(cluster)
    headers = [("Impersonate-User", "joe"), ("Impersonate-Extra-acme.com%2Fproject", "x"), ("Impersonate-Uid", "u")]
    user = impersonated(ADMIN, headers, authorizer)
    assert (user.uid, dict(user.extra)) == ("u", {"acme.com/project": ("x",)})
    with pytest.raises(ApiError) as caught:
        impersonated(ADMIN, [("Impersonate-Group", "system:masters")], authorizer)
    assert caught.value.code == 400


def test_others_may_impersonate_what_their_rights_allow(cluster):
    authorizer = Authorizer(cluster)
    cluster.create(CLUSTER_ROLES, "", role("actor", rule("impersonate", "users", names="joe")))
    cluster.create(CLUSTER_BINDINGS, "", binding("actor", "actor", "User/jane"))
    assert impersonated(JANE, [("Impersonate-User", "joe")], authorizer).name == "joe"
    for headers in ([("Impersonate-User", "root")], [("Impersonate-User", "joe"), ("Impersonate-Group", "system:masters")]):
        with pytest.raises(ApiError, match="cannot impersonate resource"):
            impersonated(JANE, headers, authorizer)


LIST = Attributes("list", "", "pods", namespace="shop")
GETS_PODS = rule("impersonate-on:user-info:list", "pods")
AUTHN = "authentication.k8s.io"


def bind_actor(cluster, *rules):
    cluster.create(CLUSTER_ROLES, "", role("actor", *rules))
    cluster.create(CLUSTER_BINDINGS, "", binding("actor", "actor", "User/jane"))


def test_a_user_may_be_limited_to_requests_that_they_may_make_as_another(cluster):
    bind_actor(cluster, GETS_PODS, rule("impersonate:user-info", "users", AUTHN, names="joe"))
    authorizer, as_joe = Authorizer(cluster), [("Impersonate-User", "joe")]
    assert impersonated(JANE, as_joe, authorizer, lambda: LIST).groups == ("system:authenticated",)
    with pytest.raises(ApiError) as caught:
        impersonated(JANE, as_joe, authorizer, lambda: LIST._replace(verb="get"))
    what = 'cannot impersonate-on:user-info:get resource "pods" in API group "" in the namespace "shop"'
    assert caught.value.message == f'pods is forbidden: User "jane" {what}'
    with pytest.raises(ApiError, match="cannot impersonate:user-info resource"):
        impersonated(JANE, [("Impersonate-User", "root")], authorizer, lambda: LIST)


def test_a_limited_user_gets_no_groups_beyond_their_rights(cluster):
    bind_actor(cluster, GETS_PODS, rule("impersonate:user-info", "users groups", AUTHN))
    authorizer, as_joe = Authorizer(cluster), [("Impersonate-User", "joe")]
    many = [("Impersonate-Group", f"g{i}") for i in range(5)]
    assert impersonated(JANE, [*as_joe, *many], authorizer, lambda: LIST).groups[:2] == ("g0", "g1")
    with pytest.raises(ApiError, match="impersonating the system:masters group is not allowed"):
        impersonated(JANE, [*as_joe, ("Impersonate-Group", "system:masters")], authorizer, lambda: LIST)


def test_nodes_and_accounts_have_modes_of_their_own(cluster):
    verbs = "impersonate-on:arbitrary-node:list impersonate-on:serviceaccount:list"
    bind_actor(
        cluster, rule(verbs, "pods"), rule("impersonate:arbitrary-node", "nodes", AUTHN, names="n1"),
        rule("impersonate:serviceaccount", "serviceaccounts", AUTHN, names="robot"),
    )  # fmt: skip
    authorizer = Authorizer(cluster)
    node = impersonated(JANE, [("Impersonate-User", "system:node:n1")], authorizer, lambda: LIST)
    assert node.groups == ("system:nodes", "system:authenticated")
    account = impersonated(JANE, [("Impersonate-User", "system:serviceaccount:shop:robot")], authorizer, lambda: LIST)
    assert account.groups[0] == "system:serviceaccounts"
    with pytest.raises(ApiError, match='users "system:node:n1" is forbidden'):
        impersonated(JANE, [("Impersonate-User", "system:node:n1"), ("Impersonate-Uid", "u")], authorizer, lambda: LIST)


# -- over the wire ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_authorization_covers_the_result_of_a_request(cluster):
    """A patch may grant more than its writer has, and an apply may create what its writer may only change."""
    some = role("some", rule("get", "pods"))
    cluster.create(CLUSTER_ROLES, "", copy.deepcopy(some))
    cluster.create(CLUSTER_ROLES, "", role("writer", rule("patch update", "clusterroles", RBAC), rule("get", "pods")))
    cluster.create(CLUSTER_BINDINGS, "", binding("writer", "writer", "User/jane"))
    place = f"/apis/{RBAC}/v1/clusterroles"
    more = {"rules": [rule("get delete", "pods")]}
    merge, apply = "application/merge-patch+json", "application/apply-patch+yaml"
    asked = {  # method and path, body, form: code, part of the message
        ("PATCH", f"{place}/some", json.dumps(more), merge): (403, "attempting to grant RBAC permissions"),
        ("PATCH", f"{place}/some", json.dumps({"rules": some["rules"] * 2}), merge): (200, None),
        ("PUT", f"{place}/some", json.dumps({**some, **more}), "application/json"): (403, "attempting to grant"),
        ("PATCH", f"{place}/new?fieldManager=m", json.dumps({**some, "metadata": {"name": "new"}}), apply): (
            403, 'User "jane" cannot create resource "clusterroles"',
        ),
        ("POST", place, json.dumps({**some, "metadata": {"name": "new"}}), "application/json"): (403, "cannot create"),
        ("DELETE", f"{place}/some", "", "application/json"): (403, "cannot delete"),
    }  # fmt: skip

    async def run():
        found = {}
        async with serving(cluster, Authenticator({"t": JANE})) as port, aiohttp.ClientSession() as session:
            for method, path, body, form in asked:
                headers = {"Authorization": "Bearer t", "Content-Type": form}
                async with session.request(
                    method, f"http://127.0.0.1:{port}{path}", data=body or None, headers=headers
                ) as response:
                    found[method, path, body, form] = response.status, (await response.json()).get("message")
        return found

    found = asyncio.run(run())
    for one, (code, text) in asked.items():
        assert found[one][0] == code, (one, found[one])
        assert text is None or text in found[one][1]
    assert "delete" not in str(cluster.get(CLUSTER_ROLES, "", "some").document()["rules"])
    assert cluster.find(CLUSTER_ROLES, "", "new") is None
