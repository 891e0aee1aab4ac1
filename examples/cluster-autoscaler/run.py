"""What does cluster-autoscaler do with this cluster: which nodes does it add, and why does each node stay?

python examples/cluster-autoscaler/run.py
"""

from pathlib import Path

import moorage
from moorage.laboratory.dynamics import HOUR, ClusterAutoscaler, Simulation
from moorage.laboratory.dynamics.cluster_pools import AUTOSCALER_KINDS, pools_of_cluster
from moorage.simulator.autoscalers import read_price_list

HERE = Path(__file__).parent

paths = [str(HERE / "cluster.yaml"), str(HERE / "pending.yaml")]
cluster = moorage.read(paths, custom=AUTOSCALER_KINDS)
prices = read_price_list(str(HERE.parent / "karpenter" / "types.json"))
found = pools_of_cluster((held.document for held in cluster.custom), cluster.nodes, prices)

simulation = Simulation.read(*paths, keep_records=True)
scaler = simulation.use(ClusterAutoscaler(found.pools, flags=found.flags, priorities=found.priorities))
print("Nodes at the beginning:")
for name, kept in scaler.reasons_kept(sorted(simulation.table.row_of)).items():
    print(f"  {name}: {f'{kept.reason}: {kept.text}' if kept is not None else 'may go'}")

simulation.run(until=HOUR)
print("In an hour:")
for event in scaler.events:
    print(f"  {event.time_s:5.0f} s  {event.action:5}  {event.pool}: {', '.join(event.nodes)}")
print(f"  cost {scaler.cost():.2f} {prices.currency}")

print("Pods that still wait:")
for queued in simulation.engine.scheduler.queue.ranked():
    print(f"  {queued.pod.key}: {scaler.why_not_added(queued.pod)}")
print("Not in the input:", *found.missing, sep="\n  ")
