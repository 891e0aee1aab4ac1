"""Redaction keeps queues, node pools and settings: the same is admitted, and no name of them stays."""

import json

import pytest

from moorage.basis.inputs.components import COMPANION_KINDS
from moorage.laboratory.cluster_objects import read_given
from moorage.laboratory.redact.redaction import redact_cluster
from moorage.simulator.autoscalers.instance_types import read_price_list
from moorage.simulator.autoscalers.karpenter.judgement import Karpenter
from moorage.simulator.cluster_reader import read
from moorage.simulator.kueue.batch_jobs import queued_cluster, read_queues
from moorage.simulator.simulate import Options
from tests.reports.tables import FOLDER

KEY = b"0123456789abcdef0123456789abcdef"


def redacted(path):
    """Return a cluster, and what its redacted objects are read as."""
    before = read(path, custom=COMPANION_KINDS)
    objects = redact_cluster(before, KEY).objects
    return before, objects, read_given(objects, custom=COMPANION_KINDS)


def figures(cluster):
    queued = queued_cluster(cluster, read_queues(cluster, None))
    _, run = queued.run(Options())
    report = queued.report(run.ended_s)
    workloads = sorted((one.state, one.pods, one.admitted_pods, one.evictions, one.priority) for one in report.workloads)
    return workloads, sorted((one.admitted, one.waiting, one.share, bool(one.cohort), one.weight) for one in report.queues)


INPUTS = [
    "batch/03-fs-weight0-cm.yaml", "batch/11-podgroup.yaml", "batch/12d-job-scaleup.yaml", "batch/18-tas-podgroup.yaml",
    "batch/19-dump-reclaim.yaml", "batch/22b-manage.yaml", "batch/23-inactive.yaml", "batch/25g-check-inactive.yaml",
    "kueue/06-preempted-in-a-strict-queue.yaml", "kueue/07-next-flavor-after-no-longer-fits.yaml",
]  # fmt: skip


@pytest.mark.parametrize("name", INPUTS)
def test_queues_admit_the_same(name):
    before, objects, after = redacted(FOLDER / name)
    assert figures(after) == figures(before)
    texts = json.dumps(objects)
    names = {
        one.name for one in before.custom if len(one.name) > 4 and one.name != "default" and one.namespace != "kueue-system"
    }
    assert not [one for one in names - {"configuration"} if f'"{one}"' in texts]


def test_karpenter_judges_the_same():
    before, objects, after = redacted(FOLDER / "batch/30-spot-few-gate.yaml")
    [component] = [one for one in objects if one["kind"] == "Component"]
    assert component["environment"] == {"FEATURE_GATES": "ReservedCapacity=true,SpotToSpotConsolidation=true"}
    assert [one.version for one in after.components] == [(1, 6, 0)]
    assert after.custom[0].get("spec", "disruption", "consolidationPolicy") == "WhenEmptyOrUnderutilized"
    prices = read_price_list(str(FOLDER / "batch/types.json"))
    assert Karpenter(before, prices).settings == Karpenter(after, prices).settings
