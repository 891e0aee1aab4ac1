/** What is wrong in a cluster, in one line: nodes that are lost, workloads that lack pods, pods that wait. */
import type { Lacking, NodeRow } from "../live/cluster";
import { clock, count, plural, shortNode, visible } from "../text";

export interface Seen {
  readonly nodes: ReadonlyMap<string, NodeRow>;
  readonly lacking: readonly Lacking[];
  readonly ownerOf: (pod: string) => string;
  readonly waiting: number;
}

const DAY_S = 86_400;
/** Pods of these stay on a lost node. */
const STAY = /^(DaemonSet|Node)\//;

/** Return what is wrong, the weightiest first; nothing if all is well. `now` is in seconds since 1970. */
export function wrongs({ nodes, lacking, ownerOf, waiting }: Seen, now: number): readonly string[] {
  const lost = [...nodes.values()].filter((node) => !node.ready);
  const short = lacking.filter((one) => one.existing < one.wanted);
  const pods = lost.reduce((sum, node) => sum + [...node.pods].filter((pod) => !STAY.test(ownerOf(pod))).length, 0);
  return [
    ...(lost.length ? [lostNodes(lost, [...nodes.values()], now)] : []),
    ...(pods ? [plural(pods, "pod")] : []),
    ...(short.length ? [lacks(short)] : []),
    ...(waiting ? [`${plural(waiting, "pod is", "pods are")} pending`] : []),
  ];
}

/** Return the title of the map. */
export function headline(seen: Seen, now: number): string {
  const wrong = wrongs(seen, now);
  const all = seen.nodes.size;
  const open = [...seen.nodes.values()].filter((node) => node.ready && !node.cordoned).length;
  return `${wrong.join(" · ") || "No pod is pending"}; ${open === all ? "all" : `${count(open)} of`} ${plural(all, "node")} take pods.`;
}

function lostNodes(lost: readonly NodeRow[], all: readonly NodeRow[], now: number): string {
  const how = lost.every((node) => node.unready === "unreachable") ? "unreachable" : "not ready";
  const times = lost.flatMap((node) => node.since || []);
  const since = times.length ? Math.min(...times) : 0;
  const when = since ? ` since ${now - since < DAY_S ? clock(since).slice(0, 5) : clock(since, 2 * DAY_S)}` : "";
  return `${count(lost.length)} of ${plural(all.length, "node")} ${how}${where(lost, all)}${when}`;
}

/** Return the place that the lost nodes have in common: whole zones, one zone, or the name of one node. */
function where(lost: readonly NodeRow[], all: readonly NodeRow[]): string {
  const zones = [...new Set(lost.map((node) => node.zone))];
  const whole = zones.every((zone) => zone && all.every((node) => node.zone !== zone || !node.ready));
  if (whole && lost.length < all.length) return ` (all of ${zones.length > 2 ? plural(zones.length, "zone") : zones.map(visible).join(" and ")})`;
  if (lost.length === 1) return ` (${shortNode(lost[0]!.name)})`;
  return zones.length === 1 && zones[0] && lost.length < all.length ? ` (in ${visible(zones[0])})` : "";
}

function lacks(short: readonly Lacking[]): string {
  const missing = short.reduce((sum, one) => sum + one.wanted - one.existing, 0);
  const [only] = short;
  if (short.length === 1) return `${visible(only!.key)} lacks ${count(missing)} of ${plural(only!.wanted, "pod")}`;
  return `${count(short.length)} workloads lack ${plural(missing, "pod")}`;
}
