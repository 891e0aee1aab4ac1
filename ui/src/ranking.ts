/**
 * The closed form of a choice: normalised scores do not depend on weights, so new weights re-rank nodes exactly.
 *
 * The total of a node is the sum over plugins of weight × normalised score. kube-scheduler picks one of the nodes with the highest
 * total at random; the engine draws it by its seed.
 */
import type { Scores } from "./documents";

export interface ScoreColumns {
  /** The nodes that fit, in the engine's order. */
  readonly nodes: readonly string[];
  readonly plugins: readonly string[];
  readonly weights: readonly number[];
  /** By plugin, then by node: 0-100. */
  readonly normalised: readonly (readonly number[])[];
}

export interface Ranking {
  /** Positions in `nodes`, the highest total first; equal totals keep their order. */
  readonly order: readonly number[];
  readonly totals: readonly number[];
  /** The positions with the highest total; more than one is a draw. */
  readonly best: readonly number[];
}

export function ranking(scores: ScoreColumns, weights: readonly number[]): Ranking {
  const totals = totalsOf(scores, weights);
  const order = totals.map((_, node) => node).sort((a, b) => totals[b]! - totals[a]! || a - b);
  const highest = order.length ? totals[order[0]!]! : 0;
  return { order, totals, best: order.filter((node) => totals[node] === highest) };
}

/** The nearest weights of a plugin, below and above its own, at which other nodes are best. */
export interface Turns {
  readonly below?: number;
  readonly above?: number;
}

/** Find where the choice turns when one weight moves between 0 and 100 and the others stay. */
export function turns(scores: ScoreColumns, weights: readonly number[], plugin: number): Turns {
  const without = totalsOf(scores, weights.map((weight, at) => (at === plugin ? 0 : weight)));
  const column = scores.normalised[plugin]!;
  const now = weights[plugin]!;
  const best = bestOf(without, column, now);
  const first = (step: number, end: number): number | undefined => {
    for (let weight = now + step; weight !== end + step; weight += step) {
      if (bestOf(without, column, weight) !== best) return weight;
    }
    return undefined;
  };
  const [below, above] = [now > 0 ? first(-1, 0) : undefined, now < 100 ? first(1, 100) : undefined];
  return { ...(below !== undefined && { below }), ...(above !== undefined && { above }) };
}

/** Return the columns that an Explanation holds: those of its best nodes, which are all nodes that fit only if they are few. */
export function columnsOf(scores: Scores, names: readonly string[]): ScoreColumns {
  const plugins = scores.nodes[0]?.shares.map((share) => share.plugin) ?? [];
  const rows = scores.nodes.map((row) => new Map(row.shares.map((share) => [share.plugin, share])));
  return {
    nodes: scores.nodes.map((row) => names[row.node] ?? String(row.node)),
    plugins,
    weights: plugins.map((plugin) => rows[0]?.get(plugin)?.weight ?? 0),
    normalised: plugins.map((plugin) => rows.map((row) => row.get(plugin)?.normalised ?? 0)),
  };
}

function totalsOf(scores: ScoreColumns, weights: readonly number[]): number[] {
  const totals = new Array<number>(scores.nodes.length).fill(0);
  scores.normalised.forEach((column, plugin) => {
    const weight = weights[plugin] ?? 0;
    if (weight) column.forEach((score, node) => (totals[node]! += weight * score));
  });
  return totals;
}

function bestOf(without: readonly number[], column: readonly number[], weight: number): string {
  let highest = -1;
  let best: number[] = [];
  without.forEach((rest, node) => {
    const total = rest + weight * column[node]!;
    if (total > highest) [highest, best] = [total, [node]];
    else if (total === highest) best.push(node);
  });
  return best.join();
}
