"""Warnings about expressions that do not fit the objects of a policy, as kube-apiserver 1.37.2 answered them."""

from __future__ import annotations

import pytest

from moorage.api.documents.served_kinds import ALL_KINDS
from moorage.rules.admission.policy_typing import expression_warnings


def rule(group, resource, version="v1"):
    return {"apiGroups": [group], "apiVersions": [version], "operations": ["CREATE"], "resources": [resource]}


DEPLOYMENTS, PODS, CONFIG_MAPS = rule("apps", "deployments"), rule("", "pods"), rule("", "configmaps")
NO_OVERLOAD = "found no matching overload for '{}' applied to '({}, {})'"
WARNINGS = {  # rules, the rest of the spec → for each warning its place, its kind, its column and its text
    "wrong types": (
        [DEPLOYMENTS], {"validations": [{"expression": "object.spec.replicas > '1'"}]},
        [("validations[0].expression", "apps/v1, Kind=Deployment", 22, NO_OVERLOAD.format("_>_", "int", "string"))],
    ),
    "right types": (
        [DEPLOYMENTS],
        {"validations": [{"expression": "object.spec.replicas > 1 && object.metadata.namespace == 'a' && "
                           "object.metadata.creationTimestamp < timestamp('2020-01-01T00:00:00Z')"}]}, [],
    ),
    "an unknown field of a message": (
        [DEPLOYMENTS], {"validations": [{"expression": "true", "messageExpression": "'x' + string(object.spec.foo)"}]},
        [("validations[0].messageExpression", "apps/v1, Kind=Deployment", 25, "undefined field 'foo'")],
    ),
    "one of two kinds": (
        [DEPLOYMENTS, PODS], {"validations": [{"expression": "object.spec.replicas > 1"}]},
        [("validations[0].expression", "/v1, Kind=Pod", 12, "undefined field 'replicas'")],
    ),
    "wildcards": ([rule("*", "*", "*")], {"validations": [{"expression": "object.spec.nosuch == 1"}]}, []),
    "a subresource": ([rule("apps", "deployments/scale")], {"validations": [{"expression": "object.spec.nosuch == 1"}]}, []),
    "a variable": (
        [DEPLOYMENTS],
        {"variables": [{"name": "r", "expression": "object.spec.replicas"}],
         "validations": [{"expression": "variables.r == 'x'"}]},
        [("validations[0].expression", "apps/v1, Kind=Deployment", 13, NO_OVERLOAD.format("_==_", "int", "string"))],
    ),
    "quantities, which have no type": (
        [PODS], {"validations": [{"expression": "object.spec.containers.all(c, c.resources.limits['cpu'] == 1)"}]},
        [("validations[0].expression", "/v1, Kind=Pod", 42, "undefined field 'limits'")],
    ),
    "an integer or a string": (
        [PODS], {"validations": [{"expression": "object.spec.containers[0].livenessProbe.httpGet.port == 'x'"}]}, [],
    ),
    "parameters": (
        [DEPLOYMENTS],
        {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
         "validations": [{"expression": "params.nosuch == 1"}, {"expression": "params.data.x == object.spec.replicas"}]},
        [("validations[0].expression", "apps/v1, Kind=Deployment", 7, "undefined field 'nosuch'"),
         ("validations[1].expression", "apps/v1, Kind=Deployment", 15, NO_OVERLOAD.format("_==_", "string", "int"))],
    ),
    "a condition, which is not checked": (
        [DEPLOYMENTS],
        {"matchConditions": [{"name": "c", "expression": "object.nosuch == 1"}], "validations": [{"expression": "true"}]}, [],
    ),
    "the old object": (
        [DEPLOYMENTS], {"validations": [{"expression": "oldObject == null || oldObject.spec.foo == 1"}]},
        [("validations[0].expression", "apps/v1, Kind=Deployment", 36, "undefined field 'foo'")],
    ),
    "bytes": (
        [CONFIG_MAPS], {"validations": [{"expression": "object.binaryData['a'] == 'x'"}]},
        [("validations[0].expression", "/v1, Kind=ConfigMap", 24, NO_OVERLOAD.format("_==_", "bytes", "string"))],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rules", "spec", "found"), WARNINGS.values(), ids=WARNINGS)
def test_warnings(rules, spec, found):
    spec = {"matchConstraints": {"resourceRules": rules}, **spec}
    expected = []
    for place, kind, column, text in found:
        number, field = int(place[12]), place.rpartition(".")[2]
        source = spec["validations"][number][field]
        shown = f"{kind}: ERROR: <input>:1:{column}: {text}\n | {source}\n | {'.' * (column - 1)}^\n"
        expected.append({"fieldRef": f"spec.{place}", "warning": shown})
    assert expression_warnings(spec, ALL_KINDS) == expected


def test_every_kind_can_be_checked():
    for kind in ALL_KINDS.served:
        spec = {"matchConstraints": {"resourceRules": [rule(kind.group, kind.resource, kind.version)]},
                "validations": [{"expression": "object.metadata.name == 'a' && object.nosuch == 1"}]}  # fmt: skip
        (warning,) = expression_warnings(spec, ALL_KINDS)
        assert "undefined field 'nosuch'" in warning["warning"], kind.api_version
