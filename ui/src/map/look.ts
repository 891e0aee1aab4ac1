/** What a tile shows of its node: shares, state, and its verdict on a pod. */
import { dominantShare, type NodeFields, share } from "../live/cluster";
import { percent, plural, shortNode, visible } from "../text";

/** What fills a tile: a resource, the largest share of any, or the share of typical pods that do not fit. */
export type Measure = "dominant" | "stranded" | (string & {});

/** A node's answer to the pod in question: it fits, or the plugin that refuses first. */
export interface NodeVerdict {
  readonly fits: boolean;
  readonly plugin: string;
  readonly text: string;
  /** Which of the colours for categories, 1-8. */
  readonly colour: number;
}

/** Plugins with a colour of their own on every map, 1-8 in this order. */
const OWN = ["NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodeResourcesFit", "InterPodAffinity", "PodTopologySpread", "VolumeBinding", "NodePorts"];

/** Return the colours of the plugins of one map: their own, or one that no other of them has. */
export function coloursOf(plugins: Iterable<string>): ReadonlyMap<string, number> {
  const found = new Map<string, number>();
  const [own, others] = [new Set<string>(), new Set<string>()];
  for (const plugin of plugins) (OWN.includes(plugin) ? own : others).add(plugin);
  for (const plugin of own) found.set(plugin, OWN.indexOf(plugin) + 1);
  const free = OWN.map((_, at) => at + 1).filter((colour) => ![...found.values()].includes(colour));
  [...others].forEach((plugin, at) => found.set(plugin, free[at % free.length] ?? (at % OWN.length) + 1));
  return found;
}

export interface Look {
  readonly share: number;
  readonly second: number;
  readonly verdict: NodeVerdict | undefined;
  readonly dim: boolean;
  /** Chosen for a question. */
  readonly picked?: boolean;
}

export function measured(node: NodeFields, measure: Measure): number {
  if (measure === "dominant") return dominantShare(node);
  if (measure === "stranded") return node.stranded;
  return share(node, measure);
}

/** The second bar: memory, or cpu where memory is the first. */
export const secondOf = (measure: Measure): string => (measure === "memory" ? "cpu" : "memory");

export const measureName = (measure: Measure): string =>
  measure === "dominant" ? "largest share" : measure === "stranded" ? "unusable" : measure;

/** The shade of a share, 1-6. */
export const shade = (value: number): number => 1 + [0.2, 0.4, 0.6, 0.8, 0.95].filter((limit) => value >= limit).length;

/** Say in words what the tile shows. */
export function described(node: NodeFields, pods: number, measure: Measure, verdict?: NodeVerdict): string {
  const parts = [
    measure === "dominant" || measure === "cpu" || measure === "memory" ? "" : `${measureName(measure)} ${percent(measured(node, measure), 0)}`,
    `cpu ${percent(share(node, "cpu"), 0)}`,
    `memory ${percent(share(node, "memory"), 0)}`,
    plural(pods, "pod"),
    node.ready ? "" : "not ready",
    node.cordoned ? "cordoned" : "",
    verdict ? (verdict.fits ? "the pod fits" : `refuses the pod: ${verdict.plugin}`) : "",
  ];
  return `${visible(shortNode(node.name))}: ${parts.filter(Boolean).join(", ")}`;
}
