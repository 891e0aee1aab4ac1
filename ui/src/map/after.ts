/** The map after an answer: what the pods that it moves take from one node and bring to another. */
import type { AnyDocument, Comparison, DrainReport, Survival } from "../documents";
import type { Amounts, Cluster, NodeFields } from "../live/cluster";

interface Moved {
  readonly pod: string;
  readonly from: string;
  readonly to: string;
}

/** How much more a node is asked for, by node and resource; undefined if the answer moves no pod that the map knows. */
export function shiftsOf(document: AnyDocument, cluster: Cluster): ReadonlyMap<string, Amounts> | undefined {
  const shifts = new Map<string, Record<string, number>>();
  for (const { pod, from, to } of movesIn(document)) {
    const requests = cluster.pods.get(pod)?.requests;
    if (!requests || from === to) continue;
    for (const [node, sign] of [[from, -1], [to, 1]] as const) {
      if (!cluster.nodes.has(node)) continue;
      const shift = shifts.get(node) ?? {};
      for (const [resource, value] of Object.entries({ ...requests, pods: 1 })) shift[resource] = (shift[resource] ?? 0) + sign * value;
      shifts.set(node, shift);
    }
  }
  return shifts.size ? shifts : undefined;
}

function movesIn(document: AnyDocument): readonly Moved[] {
  if (document.kind === "DrainReport") {
    return (document as DrainReport).answer.pods
      .filter(({ outcome }) => outcome !== "stays" && outcome !== "never" && outcome !== "refused")
      .map(({ pod, origin, node, outcome }) => ({ pod, from: origin, to: outcome === "moves" || outcome === "waits" ? (node ?? "") : "" }));
  }
  if (document.kind === "Survival") {
    const { failures } = (document as Survival).answer;
    return failures.length === 1 ? (failures[0]!.moved ?? []).map(({ pod, source, to }) => ({ pod, from: source, to })) : [];
  }
  if (document.kind === "Comparison") return (document as Comparison).answer.moves.map(({ pod, a, b }) => ({ pod, from: a, to: b }));
  return [];
}

/** Return the node with a part of its shift, from 0 to 1. */
export function shifted(node: NodeFields, shift: Amounts | undefined, part: number): NodeFields {
  if (!shift || !part) return node;
  const requested: Record<string, number> = { ...node.requested };
  for (const [resource, value] of Object.entries(shift)) requested[resource] = Math.max(0, (requested[resource] ?? 0) + part * value);
  return { ...node, requested };
}
