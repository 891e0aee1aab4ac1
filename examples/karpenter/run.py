"""What will Karpenter do with this cluster: which nodes does it add, and why does each node stay or go?

python examples/karpenter/run.py
"""

from pathlib import Path

import moorage
from moorage.simulator.autoscalers import KINDS, Karpenter, read_price_list

HERE = Path(__file__).parent

prices = read_price_list(str(HERE / "types.json"))
cluster, pending = HERE / "cluster.yaml", HERE / "pending.yaml"

print("Pods that wait:")
karpenter = Karpenter(moorage.read([cluster, pending], custom=KINDS), prices)
for claim in karpenter.plan.claims:
    price = claim.cheapest(prices.well_known)
    pods = ", ".join(pod.name for pod in claim.pods)
    print(f"  a node of {claim.pool.name}, {claim.types[0].name} for {price:g} {prices.currency} an hour: {pods}")
for node, pods in karpenter.plan.placed.items():
    print(f"  {node} has room: {', '.join(pod.name for pod in pods)}")
for uid, why in karpenter.plan.errors.items():
    print(f"  {uid}: {why.split(', requirements=')[0]}")

print("Nodes, when no pod waits:")
karpenter = Karpenter(moorage.read(cluster, custom=KINDS), prices)
for verdict in karpenter.verdicts():
    if verdict.decision == "keep":
        print(f"  {verdict.node} stays: {verdict.why}")
    else:
        by = f" by {verdict.types[0]}" if verdict.types else ""
        print(f"  {verdict.node}: {verdict.decision}{by}, saves {verdict.saves:.3f} {prices.currency} an hour")

print("Not in the input:", *karpenter.missing, sep="\n  ")
