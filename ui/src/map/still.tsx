/** A map under an answer: how full nodes are, or how they answer the pod of an explanation. */
import { createContext } from "preact";
import { useContext, useMemo } from "preact/hooks";
import type { AnyDocument, ExplanationAnswer, UnknownDocument } from "../documents";
import { Legend, Section } from "../kit/basics";
import { Links } from "../kit/links";
import { type Cluster, type NodeFields, share } from "../live/cluster";
import { plural } from "../text";
import { CanvasMap } from "./canvas";
import { CardMap } from "./cards";
import { groupsOf } from "./layout";
import { coloursOf, described, type Look, measured, type NodeVerdict, secondOf } from "./look";

/** The cluster that came with a report, or the live one. */
export const StillCluster = createContext<Cluster | undefined>(undefined);

export function StillMap({ document }: { document: AnyDocument | UnknownDocument }) {
  const cluster = useContext(StillCluster);
  const verdicts = useMemo(() => (document.kind === "Explanation" ? verdictsIn(document.answer as ExplanationAnswer) : undefined), [document]);
  const subjects = useMemo(() => subjectsOf(document), [document]);
  if (!cluster?.nodes.size) return null;
  return (
    <Section title="Map" aside={plural(cluster.nodes.size, "node") + (cluster.head.live ? "" : ", as the input has them")}>
      <div class="cards">
        <Key verdicts={verdicts} />
        <ClusterMap {...{ cluster, verdicts, subjects }} />
      </div>
    </Section>
  );
}

interface ClusterMapProps {
  cluster: Cluster;
  verdicts?: ReadonlyMap<string, NodeVerdict> | undefined;
  subjects?: ReadonlySet<string>;
}

/** A map of a cluster that does not change. */
export function ClusterMap({ cluster, verdicts, subjects }: ClusterMapProps) {
  const links = useContext(Links);
  const groups = useMemo(() => groupsOf(cluster.nodes.values(), "zone"), [cluster]);
  const lookOf = useMemo(() => (node: NodeFields) => look(node, verdicts), [verdicts, cluster]);
  const nodeOf = (name: string) => cluster.nodes.get(name);
  const podsOf = (name: string) => [...(cluster.nodes.get(name)?.pods ?? [])].flatMap((key) => cluster.pods.get(key) ?? []);
  const describe = (node: NodeFields) => described(node, cluster.nodes.get(node.name)!.pods.size, "dominant", verdicts?.get(node.name));
  // Above an answer a map must leave room for the answer.
  return cluster.nodes.size <= FEW ? (
    <CardMap {...{ groups, nodeOf, podsOf, lookOf, describe, ...(subjects && { subjects }) }} href={links.node} measure="dominant" />
  ) : (
    <CanvasMap {...{ groups, nodeOf, lookOf, describe }} pick={(name) => (location.hash = links.node(name) ?? location.hash)} />
  );
}

const FEW = 16;

const look = (node: NodeFields, verdicts: ReadonlyMap<string, NodeVerdict> | undefined): Look => ({
  share: measured(node, "dominant"),
  second: share(node, secondOf("dominant")),
  verdict: verdicts?.get(node.name),
  dim: false,
});

/** The first plugin that refuses each node, as the groups of an explanation say. */
export function verdictsIn(answer: ExplanationAnswer): ReadonlyMap<string, NodeVerdict> | undefined {
  if (!answer.funnel.length) return undefined;
  const colours = coloursOf(answer.groups.map((group) => group.refusals[0]?.plugin ?? ""));
  const fits: NodeVerdict = { fits: true, plugin: "", text: "fits", colour: 0 };
  const found = new Map(answer.nodes.map((name) => [name, fits]));
  for (const group of answer.groups) {
    const plugin = group.refusals[0]?.plugin ?? "";
    const verdict = { fits: false, plugin, text: group.refusals[0]?.reason ?? "", colour: colours.get(plugin)! };
    for (const node of group.nodes) found.set(answer.nodes[node]!, verdict);
  }
  return found;
}

function subjectsOf({ kind, answer }: AnyDocument | UnknownDocument): ReadonlySet<string> {
  if (kind === "Explanation") return new Set([(answer as ExplanationAnswer).pod]);
  if (kind === "DrainReport") return new Set((answer as { pods: readonly { pod: string }[] }).pods.map((one) => one.pod));
  return new Set();
}

export const LARGEST = "largest share of any resource requested";

/** What the colours of a map mean. */
export function Key({ verdicts, measure = LARGEST }: { verdicts: ReadonlyMap<string, NodeVerdict> | undefined; measure?: string }) {
  if (!verdicts) {
    return <Legend of={[["ramp", measure], ["second-bar", measure === "memory requested" ? "cpu" : "memory"], ["hatched", "cordoned"], ["red-frame", "not ready"]]} />;
  }
  const counts = new Map<string, { fill: string; nodes: number }>();
  for (const { fits, plugin, colour } of verdicts.values()) {
    const name = fits ? "✓ fits" : `refused by ${plugin}`;
    counts.set(name, { fill: fits ? "fill-ok" : `fill-${colour}`, nodes: (counts.get(name)?.nodes ?? 0) + 1 });
  }
  return <Legend of={[...counts].sort((a, b) => b[1].nodes - a[1].nodes).map(([name, { fill, nodes }]) => [fill, `${name}: ${plural(nodes, "node")}`] as const)} />;
}
