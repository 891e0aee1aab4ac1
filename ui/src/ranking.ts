/**
 * The closed form of a choice: normalised scores do not depend on weights, so new weights re-rank nodes exactly.
 *
 * The total of a node is the sum over plugins of weight × normalised score. kube-scheduler picks one of the nodes with the highest
 * total at random; the engine draws it by its seed.
 */

export interface Columns {
  /** Rows of the nodes, in the engine's order. */
  readonly nodes: readonly string[];
  readonly plugins: readonly string[];
  readonly weights: readonly number[];
  /** By plugin, then by node: 0-100. */
  readonly normalised: readonly (readonly number[])[];
}

export interface Ranked {
  /** Positions in `nodes`, the highest total first; equal totals keep their order. */
  readonly order: readonly number[];
  readonly totals: readonly number[];
  /** The positions with the highest total; more than one is a draw. */
  readonly best: readonly number[];
}

export function ranked(scores: Columns, weights: readonly number[] = scores.weights): Ranked {
  const totals = new Array<number>(scores.nodes.length).fill(0);
  scores.normalised.forEach((column, plugin) => {
    const weight = weights[plugin] ?? 0;
    if (weight) column.forEach((score, node) => (totals[node]! += weight * score));
  });
  const order = totals.map((_, node) => node).sort((a, b) => totals[b]! - totals[a]! || a - b);
  const top = order.length ? totals[order[0]!]! : 0;
  return { order, totals, best: order.filter((node) => totals[node] === top) };
}

/** The weights of one plugin, 0-100, at which the set of best nodes changes; the current weight's set comes first. */
export function turningPoints(scores: Columns, weights: readonly number[], plugin: number): number[] {
  const points: number[] = [];
  let last: string | undefined;
  for (let weight = 0; weight <= 100; weight += 1) {
    const best = ranked(scores, weights.map((old, at) => (at === plugin ? weight : old))).best.join();
    if (last !== undefined && best !== last) points.push(weight);
    last = best;
  }
  return points;
}
