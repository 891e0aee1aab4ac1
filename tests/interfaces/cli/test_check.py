"""``moorage check``: rules over the cluster before and after a change."""

from __future__ import annotations

import json

import pytest
import yaml
from msgspec.structs import replace

from moorage import Cluster
from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.compare.policy import CheckPolicy, SurvivesRule, _Checks, _Side
from moorage.report.answer import AnswerRequest
from moorage.simulator.simulate import Options
from tests.interfaces.cli.conftest import ROOT
from tests.interfaces.cli.test_simulate_output import violations

SCHEMA = json.loads((ROOT / "docs/reference/check.schema.json").read_text())
ZONES = ("a", "b", "c")
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def node(zone, cpu="4"):
    return {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": f"n-{zone}", "labels": {ZONE: zone, HOST: f"n-{zone}"}},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "20"}},
    }  # fmt: skip


def app(name, replicas, cpu, **labels):
    template = {
        "metadata": {"labels": {"app": name, **labels}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]},
    }
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "shop"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
    }  # fmt: skip


def written(path, *objects):
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    return path


@pytest.fixture
def check(moorage, tmp_path):
    """Check rules for a cluster of three nodes and an app, and a change; return the run."""

    def run(rules, *change, output="json", types=(), options=(), **rest):
        policy = tmp_path / "policy.yaml"
        whole = {"apiVersion": "moorage.dev/v1", "kind": "CheckPolicy", "rules": rules, **rest}
        policy.write_text(yaml.safe_dump({**whole, **({"types": list(types)} if types else {})}))
        base = written(tmp_path / "cluster.json", *map(node, ZONES), app("web", 2, "1"))
        files = ["-f", written(tmp_path / "change.json", *change)] if change else []
        return moorage("check", "--policy", policy, "-f", base, *files, "-o", output, *options)

    return run


TYPES = [{"name": "small", "like": "n-a", "price": 1.0}]
RULES = {  # rule, change, does it hold, a part of its text or findings
    "no pod pending": ({"noPending": {}}, [app("new", 2, "1")], True, "0 pending pods"),
    "a pod that fits nowhere": ({"noPending": {}}, [app("new", 1, "9")], False, "shop/new-"),
    "a new pod that fits nowhere": ({"noPending": {"newOnly": True}}, [app("new", 1, "9")], False, "1 new pending pod"),
    "a workload not selected": (
        {"noPending": {"selector": "tier=db", "mayMatchNone": True}}, [app("new", 1, "9")], True, "0 pending pods",
    ),
    "a selected workload": ({"noPending": {"selector": "tier=db"}}, [app("new", 1, "9", tier="db")], False, "shop/new-"),
    "room for a lost zone": ({"survives": {"over": "zone"}}, [app("new", 1, "1")], True, "0 losses of 3"),
    "no room for a lost zone": ({"survives": {"over": "zone"}}, [app("new", 3, "3")], False, "a: 1 pod pending"),
    "no room for a lost node": ({"survives": {}}, [app("new", 3, "3")], False, "n-a: "),
    "a new single point of failure": ({"survives": {"newOnly": True}}, [app("new", 3, "3")], False, "3 losses of 3"),
    "spread over three": ({"spread": {"atLeast": 3, "selector": "t=x"}}, [app("new", 3, "1", t="x")], True, "0 of 1 workload"),
    "spread over two": ({"spread": {"atLeast": 3}}, [app("new", 3, "1")], False, "shop/Deployment/web: 2 ("),
    "spread of another kind": ({"spread": {"atLeast": 3, "kind": "Job"}}, [app("new", 3, "1")], True, "0 of 0 workloads"),
    "spread over nodes": ({"spread": {"atLeast": 2, "over": HOST}}, [app("new", 2, "1")], True, "0 of 2"),
    "cost as before": ({"cost": {"atMost": "+5%"}}, [app("new", 1, "1")], True, "3 before, 3 after, at most 3.15"),
    "cost of one node more": ({"cost": {"atMost": "+5%"}}, [app("new", 4, "3")], False, "3 before, 4 after"),
    "cost below an amount": ({"cost": {"atMost": 4}}, [app("new", 4, "3")], True, "4, at most 4"),
    "a metric": ({"metric": "nodesUsed > +0"}, [app("new", 3, "3")], False, "the gate is nodesUsed > +0"),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "change", "holds", "says"), RULES.values(), ids=RULES)
def test_a_rule(check, rule, change, holds, says):
    types = TYPES if "cost" in rule else ()
    ran = check([rule], *change, types=types)
    document = json.loads(ran.out)
    assert list(violations(document, SCHEMA, root=SCHEMA)) == []
    [found] = document["answer"]["rules"]
    assert (found["holds"], document["answer"]["holds"], ran.status) == (holds, holds, 0 if holds else 2)
    assert says in "; ".join([found["text"], *found["findings"]])


@pytest.mark.parametrize("rule", [{"cost": {"atMost": "+5%"}}, {"cost": {"atMost": 3}}, {"survives": {"newOnly": True}}])
def test_a_rule_is_open_if_the_time_is_over(check, rule):
    types = TYPES if "cost" in rule else ()
    ran = check([rule], app("new", 4, "3"), types=types, options=["--time-limit", "0.000001"])
    [found] = json.loads(ran.out)["answer"]["rules"]
    assert ("holds" in found, ran.status) == (False, 3), found


@pytest.mark.parametrize(("run_before", "holds"), [(True, True), (False, None)])
def test_a_loss_that_was_not_run_before_is_not_a_new_one(run_before, holds):
    """Losing a zone leaves a pod pending. It did before the change, or no one knows whether it did."""
    objects = [*map(node, ZONES), app("new", 3, "3")]
    sides = [_Side(Cluster.from_objects(*objects).input(), Options()) for _ in range(2)]
    checks = _Checks(CheckPolicy(()), *sides, AnswerRequest(release="1.36"), TimeBudget())
    if not run_before:
        now = sides[1].survival("zone", checks.request, TimeBudget())
        sides[1].survivals["zone"] = replace(now, failures=(), not_run=len(now.failures), survives=None)
    found, text, _ = checks.survives(SurvivesRule(over="zone", new_only=True))
    assert (found, "3 losses not run" in text) == (holds, holds is None)


@pytest.mark.parametrize(
    "rule", [{"noPending": {"newOnly": True}}, {"survives": {"newOnly": True}}, {"metric": "pending > +0"}]
)
def test_what_compares_holds_where_nothing_changes(check, rule):
    assert check([rule]).status == 0


def test_a_warning_does_not_decide(check):
    ran = check([{"noPending": {}, "level": "warning", "name": "all run"}], app("new", 1, "9"), output="text")
    assert ran.status == 0
    assert ran.out.startswith("No rule of level error is broken. 1 warning.\n")
    assert "  ✗ all run (warning): 1 pending pod\n" in ran.out


def test_pipelines_see_the_rule_and_the_manifest(check):
    change = app("new", 1, "9")
    github = check([{"noPending": {}}], change, output="github")
    assert github.status == 2
    assert "title=gate failed%3A no pending pod::1 pending pod; shop/new-" in github.out
    assert "title=pod pending%3A shop/new-" in github.out
    assert '<testcase classname="moorage.check" name="no pending pod"' in check([{"noPending": {}}], change, output="junit").out
    assert json.loads(check([{"noPending": {}}], change, output="sarif").out)["runs"][0]["results"]


def test_a_change_replaces_what_has_its_name(check):
    assert check([{"noPending": {"newOnly": True}}], app("web", 12, "1")).status == 0
    assert check([{"noPending": {"newOnly": True}}], app("web", 13, "1")).status == 2


WRONG = {  # policy fields, the error
    "no rules": ({"rules": []}, "rules: a policy needs at least one rule"),
    "no kind of rule": ({"rules": [{"name": "x"}]}, "quotas, metric; found none"),
    "two kinds": ({"rules": [{"noPending": {}, "survives": {}}]}, "quotas, metric; found noPending, survives"),
    "an unknown kind": ({"rules": [{"nopending": {}}]}, "unknown field `nopending`"),
    "no prices": ({"rules": [{"cost": {"atMost": "+5%"}}]}, "rules[0]: cost needs types: the node types with their prices"),
    "a wrong limit": ({"rules": [{"cost": {"atMost": "5"}}], "types": TYPES}, "cost.atMost: '5' is no limit; write +5%"),
    "a gate that cannot be read": ({"rules": [{"metric": "many"}]}, "rules[0]: 'many' is no gate"),
    "an unknown metric": ({"rules": [{"metric": "many > 1"}]}, "rules[0] (many > 1): gate 'many > 1': no metric many"),
    "a selector that cannot be read": ({"rules": [{"noPending": {}}, {"noPending": {"selector": "!"}}]}, "rules[1]: "),
    "a label of no node": ({"rules": [{"survives": {"over": "rack"}}]}, "rules[0] (survives any rack): "),
    "another kind of file": ({"kind": "Policy", "rules": [{"noPending": {}}]}, "Invalid enum value 'Policy' - at `$.kind`"),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "says"), WRONG.values(), ids=WRONG)
def test_a_policy_that_is_wrong(check, fields, says):
    ran = check(fields.pop("rules"), **fields)
    assert (ran.status, ran.out) == (1, "")
    assert says in ran.err


def test_the_usual_name_of_the_policy(moorage, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    cluster = written(tmp_path / "cluster.json", node("a"))
    assert moorage("check", "-f", cluster).err.startswith("error: no policy: there is no moorage-policy.yaml in this folder")
    (tmp_path / "moorage-policy.yaml").write_text("{apiVersion: moorage.dev/v1, kind: CheckPolicy, rules: [{noPending: {}}]}")
    assert moorage("check", "-f", cluster).out.startswith("The rule holds.\n")


PIPELINES = [ROOT / "deploy/pipelines/github/action.yml", ROOT / "deploy/pipelines/gitlab.yml", ROOT / ".pre-commit-hooks.yaml"]


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.name)
def test_the_files_for_pipelines_name_options_that_exist(path):
    from moorage.interfaces.cli.questions.check import check as command

    text = path.read_text()
    yaml.safe_load(text)
    assert "moorage check" in text
    known = {name for one in command.params for name in one.opts}
    given = {word for line in text.splitlines() if "moorage check" in line and "entry" not in line for word in line.split()
             if word.startswith("-") and word != "-"}  # fmt: skip
    assert given <= known


# -- budgets, quotas, removals -----------------------------------------------------------------------------------------


def budget(name="web", **spec):
    selector = {"matchLabels": {"app": "web"}}
    return {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name, "namespace": "shop"},
        "spec": {"selector": selector, **spec},
    }  # fmt: skip


def quota(cpu):
    return {
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "all", "namespace": "shop"},
        "spec": {"hard": {"requests.cpu": cpu}},
    }  # fmt: skip


LIMITS = {  # the rule, the cluster beside three nodes and web with 2 pods of one CPU, the change, what it removes, holds, says
    "a budget that stays": ({"budgets": {}}, [budget(minAvailable=1)], [app("new", 1, "1")], [], True, "0 of 1 budget"),
    "a budget that is removed": (
        {"budgets": {}}, [budget(minAvailable=1)], [], ["poddisruptionbudget/shop/web"], False, "lost; it covered 2 pods",
    ),
    "a budget that is removed with its pods": (
        {"budgets": {}}, [budget(minAvailable=1)], [], ["pdb/shop/web", "deploy/shop/web"], True, "0 of 1 budget",
    ),
    "a budget that becomes too tight": (
        {"budgets": {}}, [budget(minAvailable=1)], [budget(minAvailable=2)], [], False, "2 of 2 pods must stay, so none may go",
    ),
    "a share that is too tight": ({"budgets": {}}, [], [budget(maxUnavailable="0%")], [], False, "shop/web: 2 of 2 pods"),
    "a budget that was too tight": (
        {"budgets": {"newOnly": True}}, [budget(minAvailable=2)], [app("new", 1, "1")], [], True, "0 of 1 budget",
    ),
    "a quota with room": ({"quotas": {}}, [quota("4")], [], [], True, "0 of 1 limit"),
    "a quota below its use": ({"quotas": {}}, [quota("4")], [quota("1")], [], False, "shop/all requests.cpu: 2 of 1 used"),
    "a quota that workloads fill": (
        {"quotas": {"headroom": 25}}, [quota("4")], [app("new", 2, "1")], [], False, "shop/all requests.cpu: 4 of 4 used",
    ),
    "a quota that was full": (
        {"quotas": {"headroom": 75, "newOnly": True}}, [quota("4")], [app("other", 1, "10m")], [], True, "0 of 1 limit",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "there", "change", "removed", "holds", "says"), LIMITS.values(), ids=LIMITS)
def test_rules_on_budgets_and_quotas(rule, there, change, removed, holds, says, moorage, tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text(yaml.safe_dump({"apiVersion": "moorage.dev/v1", "kind": "CheckPolicy", "rules": [rule]}))
    base = written(tmp_path / "cluster.json", *map(node, ZONES), app("web", 2, "1"), *there)
    files = ["-f", written(tmp_path / "change.json", *change)] if change else []
    gone = [word for one in removed for word in ("--removed", one)]
    ran = moorage("check", "--policy", policy, "-f", base, *files, *gone, "-o", "json")
    [found] = json.loads(ran.out)["answer"]["rules"]
    assert (found["holds"], ran.status) == (holds, 0 if holds else 2), found
    assert says in found["text"] + " ".join(found["findings"])


def test_what_is_removed_must_be_there(moorage, tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text("{apiVersion: moorage.dev/v1, kind: CheckPolicy, rules: [{budgets: {}}]}")
    base = written(tmp_path / "cluster.json", *map(node, ZONES), app("web", 2, "1"))
    ran = moorage("check", "--policy", policy, "-f", base, "--removed", "pdb/shop/nope")
    assert (ran.status, "--removed pdb/shop/nope: there is no such object" in ran.err) == (1, True)
