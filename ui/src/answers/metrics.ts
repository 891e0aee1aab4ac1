/** Metrics of a run: their order, names and units. */
import { count, percent, seconds } from "../text";

const FIRST = [/^pending/, /^wait\./, /^nodesUsed$/, /^cost$/, /^notCreated$/, /^preemptions\./, /^utilisation\.[^.]+$/, /^balance\.[^.]+$/, /^fragmentation$/];
const SHARES = /^(utilisation|balance|fragmented|stranded|fragmentation|dominantShare|skew|jain)/;

/** Whether a metric is among those that a reader looks at first. */
export const isMain = (name: string): boolean => rank(name) < FIRST.length && !name.endsWith(".mean");

export function inOrder(names: readonly string[]): string[] {
  return [...names].sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
}

/** Return the value of a metric with its unit; null is a wait that never ends. */
export function metricText(name: string, value: number | null): string {
  if (value === null) return "never";
  if (name.startsWith("wait")) return seconds(value);
  if (SHARES.test(name)) return percent(value);
  return count(Number(value.toPrecision(6)));
}

function rank(name: string): number {
  const found = FIRST.findIndex((pattern) => pattern.test(name));
  return found < 0 ? FIRST.length : found;
}
