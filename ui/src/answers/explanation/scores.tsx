/** Why this node among those that fit: the scores, the margin, and weights to play with. */
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Scores } from "../../documents";
import { Badge, Legend, Name, Section, SmallText } from "../../kit/basics";
import { Bar, type Part } from "../../kit/bar";
import { columnsOf, ranking, type ScoreColumns } from "../../ranking";
import { count, plural, visible } from "../../text";
import { fill } from "./fill";
import { Margin } from "./margin";
import { Weights } from "./weights";

const SHOWN = 10;

interface ScoreProps {
  scores: Scores;
  nodes: readonly string[];
  /** The scores of all nodes that fit, where the server gives them. */
  all?: ScoreColumns | undefined;
}

export function ScoreSection({ scores, nodes, all }: ScoreProps) {
  const columns = useMemo(() => all ?? columnsOf(scores, nodes), [scores, nodes, all]);
  const [weights, setWeights] = useState(columns.weights);
  useEffect(() => setWeights(columns.weights), [columns]);
  const winner = nodes[scores.winner] ?? "";
  const changed = weights.some((weight, plugin) => weight !== columns.weights[plugin]);
  const differing = columns.plugins.flatMap((_, plugin) => (varies(columns.normalised[plugin]!) ? [plugin] : []));
  const shared = { columns, weights, differing, winner, changed };
  return (
    <Section title="Scores" aside={`${plural(scores.feasible, "node")} of ${nodes.length} fit`}>
      <div class="columns">
        <div class="stack tight">
          <Ranked {...shared} />
          {scores.unscored > 0 && (
            <SmallText>
              <Badge tone="risk">sampled</Badge> {plural(scores.unscored, "node")} that may fit {scores.unscored === 1 ? "was" : "were"} never
              scored (percentageOfNodesToScore).
            </SmallText>
          )}
          <Margin scores={scores} nodes={nodes} />
        </div>
        <Weights
          {...shared}
          set={setWeights}
          complete={columns.nodes.length >= scores.feasible}
        />
      </div>
    </Section>
  );
}

interface RankedProps {
  columns: ScoreColumns;
  weights: readonly number[];
  differing: readonly number[];
  winner: string;
  changed: boolean;
}

function Ranked({ columns, weights, differing, winner, changed }: RankedProps) {
  const result = ranking(columns, weights);
  const order = result.order.slice(0, SHOWN);
  const highest = result.totals[order[0] ?? 0] ?? 0;
  const before = ranking(columns, columns.weights).totals;
  const rest = columns.plugins.map((_, plugin) => plugin).filter((plugin) => !differing.includes(plugin));
  const part = (plugin: number, node: number) => (weights[plugin] ?? 0) * (columns.normalised[plugin]![node] ?? 0);
  return (
    <div>
      <table class="ranked" aria-label="Nodes by total score">
        <thead>
          <tr>
            <th scope="col" class="num">
              #
            </th>
            <th scope="col">Node</th>
            <th scope="col" class="wide" aria-hidden />
            <th scope="col" class="num">total</th>
            {changed && (
              <th scope="col" class="num">
                before
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {order.map((node, index) => (
            <tr class={columns.nodes[node] === winner ? "strong" : ""}>
              <td class="num muted">{result.best.includes(node) ? 1 : index + 1}</td>
              <td>
                <Name of={columns.nodes[node]!} to="node" />
                {columns.nodes[node] === winner && <span class="chosen"> ● {changed ? "now" : "chosen"}</span>}
              </td>
              <td class="wide">
                <Bar
                  of={highest}
                  parts={[
                    [rest.reduce((sum, plugin) => sum + part(plugin, node), 0), "old"],
                    ...differing.map(
                      (plugin): Part => [part(plugin, node), fill(differing, plugin), `${columns.plugins[plugin]} ${part(plugin, node)}`],
                    ),
                  ]}
                />
              </td>
              <td class="num">{count(result.totals[node]!)}</td>
              {changed && <td class="num muted">{count(before[node]!)}</td>}
            </tr>
          ))}
        </tbody>
      </table>
      <Legend
        of={[
          ...differing.map((plugin) => [`fill-${fill(differing, plugin)}`, visible(columns.plugins[plugin]!)] as const),
          ...(rest.length ? [["fill-old", `${plural(rest.length, "plugin")} with equal scores`] as const] : []),
        ]}
      />
    </div>
  );
}

const varies = (column: readonly number[]) => column.some((score) => score !== column[0]);
