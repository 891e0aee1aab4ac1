"""The recorder's manifests: rights to read only, for exactly what it watches, and metrics that exist."""

import json
import re
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest

from moorage.api.kinds import KINDS
from moorage.basis.client.watched_resources import WATCHED
from moorage.basis.inputs.components import COMPANIONS, CONFIG_MAPS, RUNNERS
from moorage.interfaces.cli.live.record import record
from moorage.live.recording.companion_watches import BESIDE
from moorage.live.recording.decision_comparison import ComparedDecision, Match
from moorage.live.recording.status import _Metrics
from tests.live.recording.test_status import recording

FOLDER = Path(__file__).resolve().parents[2] / "deploy/recorder"
FILES = [*yaml.safe_load_all((FOLDER / "rbac.yaml").read_text()), *yaml.safe_load_all((FOLDER / "recorder.yaml").read_text())]


def of_kind(kind):
    (found,) = [one for one in FILES if one["kind"] == kind]
    return found


def test_it_may_read_what_it_watches_and_nothing_else():
    rules = of_kind("ClusterRole")["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "watch"}
    allowed = {(group, name) for rule in rules for group in rule["apiGroups"] for name in rule["resources"]}
    versions = [version for one in WATCHED for version in (one, *one.older)]
    watched = {(one.api_version.rpartition("/")[0], one.plural) for one in versions}
    beside = {(one.group, one.resource) for one in KINDS if one.name in BESIDE or one.resource in RUNNERS}
    companions = {(group, plural) for plural, group in COMPANIONS}
    assert allowed == watched | beside | companions | {("", "configmaps")}


def test_it_may_read_config_maps_by_name_only():
    """Their names are those that components read in any case, and those of the manifests of Kueue and the descheduler."""
    (rule,) = (one for one in of_kind("ClusterRole")["rules"] if "configmaps" in one["resources"])
    assert (rule["resources"], rule["verbs"]) == (["configmaps"], ["get"])
    assert set(rule["resourceNames"]) == {"kueue-manager-config", "descheduler", *(name for _, name in CONFIG_MAPS)}


def test_the_container_is_restricted_and_its_arguments_exist():
    deployment = of_kind("Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"]
    known = {name for option in record.params for name in option.opts}
    assert container["args"][0] == "record"
    assert {arg.partition("=")[0] for arg in container["args"][1:]} <= known


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Return the names of the metrics that a recorder serves after its first comparison."""
    with closing(recording(tmp_path_factory.mktemp("log"))) as loop:
        loop.shadow.agreement.count(ComparedDecision("a", "1", Match.SAME, "n1", "n1"), 1)
        return set(re.findall(r"^# TYPE (\w+)", generate_latest(_Metrics(loop)).decode(), re.MULTILINE))


@pytest.mark.parametrize("name", ["dashboard.json", "alerts.yaml"])
def test_dashboards_and_alerts_use_metrics_that_exist(name, served):
    text = (FOLDER / name).read_text()
    assert json.loads(text)["panels"] if name.endswith("json") else yaml.safe_load(text)["groups"]
    used = set(re.findall(r"moorage_record_\w+", text))
    assert used
    assert used <= served
