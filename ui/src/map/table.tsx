/** The map as a table: the same nodes and amounts in words. */
import { Name } from "../kit/basics";
import { Table } from "../kit/table";
import { type NodeRow, share } from "../live/cluster";
import { percent, visible } from "../text";
import { type Measure, measured, measureName } from "./look";

interface NodeTableProps {
  nodes: readonly NodeRow[];
  matched: ReadonlySet<string> | undefined;
  measure: Measure;
}

export function NodeTable({ nodes, matched, measure }: NodeTableProps) {
  const extra = ["cpu", "memory"].includes(measure) ? [] : [measure];
  return (
    <Table
      label="Nodes"
      rows={matched ? nodes.filter((node) => matched.has(node.name)) : nodes}
      first={100}
      columns={[
        { head: "Node", cell: (node) => <Name of={node.name} to="node" /> },
        { head: "Zone", cell: (node) => visible(node.zone) },
        { head: "State", cell: (node) => stateOf(node) },
        ...extra.map((one) => ({ head: measureName(one), num: true, cell: (node: NodeRow) => percent(measured(node, one), 0) })),
        { head: "cpu", num: true, cell: (node) => percent(share(node, "cpu"), 0) },
        { head: "memory", num: true, cell: (node) => percent(share(node, "memory"), 0) },
        { head: "pods", num: true, cell: (node) => node.pods.size },
      ]}
    />
  );
}

export const stateOf = (node: NodeRow): string =>
  [node.ready ? "ready" : "✗ not ready", node.cordoned ? "⊘ cordoned" : ""].filter(Boolean).join(", ");
