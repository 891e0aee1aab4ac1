"""Rules of custom kinds and selectors of devices that kube-apiserver v1.36.2 judged by their estimated cost.

``rule_costs.json`` holds a schema of a field ``v`` and the causes of kube-apiserver's refusal a line. Most of them say
by what factor a rule is too costly, so that the estimates must be equal.
"""

import json
import re
from pathlib import Path

import pytest

from moorage.api.cel import COST_LIMIT, CompileError, compile_selector, estimated_selector_cost
from moorage.api.cel.call_estimates import UNBOUNDED, FieldPath, scaled
from moorage.api.cel.list_attributes import Lists
from tests.cluster.apiserver.custom_kinds import DEFINITIONS, MERGE, ask, define, definition

RECORDED = json.loads((Path(__file__).parent / "rule_costs.json").read_text(encoding="utf-8"))
ADVICE = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
)
CUBIC = {
    "type": "array", "maxItems": 400, "items": {"type": "integer"},
    "x-kubernetes-validations": [{"rule": "self.all(a, self.all(b, self.all(c, a == b || b == c)))"}],
}  # fmt: skip


def masked(text):
    return re.sub(r"selfType\d+", "self", text)


def causes(answer):
    code, document = answer
    found = (document.get("details") or {}).get("causes", ())
    assert (code == 422) == bool(found), document.get("message")
    return sorted([one["field"], one["reason"], masked(one["message"])] for one in found)


def defined(schema):
    made = definition({"type": "object"})
    made["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {"type": "object", "properties": {"v": schema}}
    return made


@pytest.mark.parametrize(("schema", "expected"), RECORDED, ids=[str(i) for i in range(len(RECORDED))])
def test_a_definition_is_judged_as_kube_apiserver_judges_it(store, schema, expected):
    answer = ask(store, "POST", f"{DEFINITIONS}?dryRun=All", defined(schema))
    assert causes(answer) == sorted([field, reason, masked(text)] for field, reason, text in expected)


def test_a_schema_that_has_not_changed_is_only_refused_for_its_total_cost(store, monkeypatch):
    monkeypatch.setattr("moorage.rules.admission.rule_costs._PER_EXPRESSION", UNBOUNDED)
    monkeypatch.setattr("moorage.rules.admission.rule_costs._PER_SCHEMA", UNBOUNDED)
    define(store, defined(CUBIC))
    monkeypatch.undo()
    path, labelled = f"{DEFINITIONS}/widgets.example.com", {"metadata": {"labels": {"a": "b"}}}
    refused = causes(ask(store, "PATCH", path, labelled, form=MERGE))
    where = "spec.validation.openAPIV3Schema"
    what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of"
    assert [cause[0] for cause in refused] == [where, f"{where}.properties[v].x-kubernetes-validations[0].rule"]
    assert re.fullmatch(rf"Forbidden: {what} \d\.\dx {re.escape(ADVICE)}", refused[0][2])
    monkeypatch.setattr("moorage.rules.admission.rule_costs._PER_SCHEMA", UNBOUNDED)
    made = ask(store, "PATCH", path, labelled, form=MERGE)[1]
    made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["v"]["maxItems"] = 401
    assert "estimated rule cost exceeds budget" in str(causes(ask(store, "PUT", path, made)))


SELECTORS = {  # selector: is it too complex by the estimate of kube-apiserver?
    "device.driver.matches('^a+$')": False,
    "device.attributes['d'].all(k, k == 'x')": False,
    "device.attributes.all(d, device.attributes[d].all(k, device.attributes[d][k] == 'v'))": False,
    "device.attributes.all(d, device.attributes.all(e, device.attributes.all(f, d == e || e == f)))": False,
    "device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, device.attributes.all(d, a == b))))": True,
    "device.capacity['d'].m == quantity('1Gi')": False,
    "device.capacity['d'].m != quantity('1Gi')": True,
    "cel.bind(d, device.attributes['d'], d.x && d.y)": False,
    "lists.range(1000).all(x, lists.range(1000).all(y, x == y))": True,
    "lists.range(100000).all(x, x > 0)": False,
    "lists.range(1000000).all(x, x > 0)": True,
    "device.driver.split('').all(a, device.driver.split('').all(b, a == b))": True,
    "device.driver.split('').all(a, device.driver.split('').all(b, device.driver.split('').all(c, a == b && b == c)))": True,
    "device.attributes['d'].?x.orValue('a') == 'a'": False,
}


@pytest.mark.parametrize(("expression", "is_refused"), SELECTORS.items(), ids=SELECTORS)
def test_a_selector_is_judged_as_kube_apiserver_judges_it(store, expression, is_refused):
    found = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "c"}}
    found["spec"] = {"selectors": [{"cel": {"expression": expression}}]}
    answer = ask(store, "POST", "/apis/resource.k8s.io/v1/deviceclasses?dryRun=All", found)
    why = ["spec.selectors[0].cel.expression", "FieldValueForbidden", "Forbidden: too complex, exceeds cost limit"]
    assert causes(answer) == ([why] if is_refused else [])
    compile_selector(expression)  # a scheduler takes what a server has stored


def test_a_function_of_listed_attributes_needs_them():
    expression = "device.attributes['d'].x.includes('a')"
    assert estimated_selector_cost(expression, Lists.SUPPORTED) < COST_LIMIT
    with pytest.raises(CompileError, match="undeclared reference to 'includes'"):
        estimated_selector_cost(expression, Lists.UNKNOWN)


def test_paths_share_memory_as_slices_of_go_do():
    short = FieldPath.of("self").plus("a").plus("b")
    first, second = short.plus("c"), short.plus("d")
    assert (first.names, second.names) == (["self", "a", "b", "d"], ["self", "a", "b", "d"])
    third = first.plus("e")
    assert (third.names, first.plus("f").names) == (["self", "a", "b", "d", "e"], ["self", "a", "b", "d", "f"])


@pytest.mark.parametrize(
    ("number", "factor", "expected"), [(0, 0.1, 0), (1, 0.1, 1), (11, 0.1, 2), (UNBOUNDED, 2, UNBOUNDED), (3, 0, 0)]
)
def test_scaled_numbers_are_rounded_up_and_saturate(number, factor, expected):
    assert scaled(number, factor) == expected
