/** The map as a table: the same nodes and amounts in words. */
import { Name } from "../kit/basics";
import { type Column, NUM, Table } from "../kit/table";
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
        ["Node", (node) => <Name of={node.name} to="node" />],
        ["Zone", (node) => visible(node.zone)],
        ["State", (node) => stateOf(node)],
        ...extra.map((one): Column<NodeRow> => [measureName(one), (node) => percent(measured(node, one), 0), NUM]),
        ["cpu", (node) => percent(share(node, "cpu"), 0), NUM],
        ["memory", (node) => percent(share(node, "memory"), 0), NUM],
        ["pods", (node) => node.pods.size, NUM],
      ]}
    />
  );
}

export const stateOf = (node: NodeRow): string =>
  [node.ready ? "ready" : "✗ not ready", node.cordoned ? "⊘ cordoned" : ""].filter(Boolean).join(", ");
