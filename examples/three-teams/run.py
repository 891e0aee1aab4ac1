"""Three teams share the GPUs of the trace openb through Kueue's queues: who waits, and is fair sharing fairer?

    python examples/three-teams/run.py --traces FOLDER --load 1.3

The folder has openb_node_list_all_node.csv and openb_pod_list_default.csv of Alibaba's cluster-trace-gpu-v2023. Without it, a
small list of the same form is played. Research has half of the quota and asks for most; vision and speech have a quarter each.
All may borrow from each other, and take back what is theirs. Pods are copied and run so long that on average they would use
more GPUs than there are (--load), so that jobs wait.
"""

import argparse
from pathlib import Path

import moorage
from moorage.laboratory.compare.queue_runs import queue_metrics
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.kueue.batch_jobs import queued_cluster
from moorage.simulator.kueue.integrations import works_of_trace
from moorage.simulator.simulate import Options
from moorage.simulator.trace import capacity_of

HERE = Path(__file__).parent
API = "kueue.x-k8s.io/v1beta2"
#: Team → its part of the quota, and its part of the pods.
TEAMS = {"research": (0.5, 6), "vision": (0.25, 2), "speech": (0.25, 2)}


def queues(nodes, fair):
    """Return the objects of Kueue: all that the nodes have, divided among the teams."""
    whole = {
        "cpu": (capacity_of(nodes, "cpu"), "m"),
        "memory": (capacity_of(nodes, "memory"), ""),
        "alibabacloud.com/gpu-milli": (capacity_of(nodes, "gpu"), ""),
    }
    yield {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": "default"}}
    if fair:
        config = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "metadata": {"name": "kueue"}}
        yield {**config, "fairSharing": {}}
    for team, (part, share) in TEAMS.items():
        quotas = [{"name": name, "nominalQuota": f"{int(amount * part)}{unit}"} for name, (amount, unit) in whole.items()]
        group = {"coveredResources": list(whole), "flavors": [{"name": "default", "resources": quotas}]}
        spec = {"cohortName": "company", "namespaceSelector": {}, "resourceGroups": [group]}
        spec["preemption"] = {"reclaimWithinCohort": "Any"}
        spec["fairSharing"] = {"weight": str(part)}
        yield {"apiVersion": API, "kind": "ClusterQueue", "metadata": {"name": team}, "spec": spec}
        meta = {"name": "jobs", "namespace": team, "annotations": {"moorage.dev/trace-share": str(share)}}
        yield {"apiVersion": API, "kind": "LocalQueue", "metadata": meta, "spec": {"clusterQueue": team}}


def play(trace, documents):
    """Return the report on the queues after the trace."""
    cluster = ClusterInput(nodes=trace.nodes)
    queued = queued_cluster(cluster, documents, lambda objects: works_of_trace(trace, objects, documents))
    return queued.report(queued.run(Options())[1].ended_s)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=Path, help="the folder of the published lists")
    parser.add_argument("--load", type=float, default=1.3, help="what the pods would use at once, relative to the GPUs")
    given = parser.parse_args()
    if given.traces is None:
        folder = HERE.parent / "trace-openb"
        trace, turns = moorage.read_trace("openb", folder / "pods.csv", folder / "nodes.csv"), 10
    else:
        files = ("openb_pod_list_default.csv", "openb_node_list_all_node.csv")
        trace, turns = moorage.read_trace("openb", *(given.traces / name for name in files)), 2
    lifetime_s = (trace.arrivals.time_s[-1] - trace.arrivals.time_s[0]) / turns
    trace = trace.scale_to(gpu=given.load * turns).with_lifetimes(float(lifetime_s))
    print(f"{len(trace)} pods on {len(trace.nodes)} nodes")
    print(f"{'':20}{'finished':>9}{'evicted':>9}{'wait p50':>10}{'wait p90':>10}")
    for title, fair in (("by quota", False), ("with fair sharing", True)):
        report = play(trace, list(queues(trace.nodes, fair)))
        metrics = queue_metrics(report)
        lost = metrics["lostHours.alibabacloud.com/gpu-milli"] / 1000
        print(f"{title}: fairness {metrics['fairness']:.3f}, {lost:.1f} GPU hours lost to evictions")
        for queue in report.queues:
            waits = [f"{metrics[f'jobWait.{queue.name}.{name}']:.0f}s" for name in ("p50", "p90")]
            print(f"  {queue.name:<18}{queue.finished:>9}{queue.evictions:>9}{waits[0]:>10}{waits[1]:>10}")


main()
