"""Two days of a small cluster: services that stay, jobs that come and go with the day, and nodes that fail."""

import moorage
from moorage.laboratory.dynamics import (
    DAY,
    HOUR,
    Diurnal,
    Exponential,
    FailingNodes,
    LogNormal,
    PodArrivals,
    PodKind,
    StateRecorder,
)

NODE = {"cpu": "16", "memory": "64Gi", "pods": "110"}


def node(name):
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": NODE, "capacity": NODE}}


def pod(name, cpu, memory):
    container = {"name": "main", "image": "example.com/main:1", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


def service(name, replicas, cpu, memory):
    template = {"metadata": {"labels": {"app": name}}, "spec": pod(name, cpu, memory)["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


sim = moorage.Simulation.from_objects(
    [node(f"node-{at:02}") for at in range(20)], service("web", 30, "1", "2Gi"), service("search", 10, "4", "16Gi"), seed=7
)
small, large = PodKind(pod("small", "500m", "1Gi"), weight=4), PodKind(pod("large", "4", "8Gi"), weight=1)
sim.use(PodArrivals(Diurnal(100, amplitude=0.8), [small, large], lifetime=LogNormal(0.5 * HOUR, 0.8), name="job"))
failing = sim.use(FailingNodes(mtbf=Exponential(4 * DAY), mttr=Exponential(2 * HOUR)))
recorder = sim.use(StateRecorder(60, fragmentation=[small.pod, large.pod]))
sim.at(1 * DAY, "node/node-00 unschedulable=true")

totals = sim.run(until=2 * DAY)
print(f"{totals.arrived} pods came, {totals.finished} finished, {totals.deleted} lost their node, {totals.pending} wait")
print(f"{failing.count} failures; waits of half of the pods: {totals.wait_p50_s:.0f} s, of 1 in 100: {totals.wait_p99_s:.0f} s")

columns = recorder.columns()
print("\nhour  nodes  pods  pending  cpu used  fragmentation")
for hour in range(4, 48, 4):
    at = columns["time_s"] == hour * HOUR
    used, pieces = columns["utilisation.cpu"][at][0], columns["fragmentation"][at][0]
    nodes, pods, pending = (int(columns[name][at][0]) for name in ("nodes", "pods", "pending"))
    print(f"{hour:4}  {nodes:5}  {pods:4}  {pending:7}  {used:7.0%}   {pieces:12.1%}")
