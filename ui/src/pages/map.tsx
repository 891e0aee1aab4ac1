/** The first page: is anything pending, and where is free capacity? */
import { signal } from "@preact/signals";
import { useCallback, useEffect, useMemo, useState } from "preact/hooks";
import { type Cluster, type NodeFields, type PodFields, share } from "../live/cluster";
import { nodeLink, place, setQuery } from "../live/router";
import { onChange, version } from "../live/state";
import { CanvasMap } from "../map/canvas";
import { CardMap } from "../map/cards";
import { chipsOf, fly } from "../map/flight";
import { type Grouping, groupingLabels, groupsOf, MOST_CARDS } from "../map/layout";
import { described, type Look, type Measure, measured, secondOf } from "../map/look";
import { Key, LARGEST } from "../map/still";
import { NodeTable } from "../map/table";
import { Tray } from "../map/tray";
import { useVerdicts, type Verdicts } from "../map/verdicts";
import { MapControls } from "../map/controls";
import { Meters } from "../map/meters";
import { count, plural, sharedEnding, visible } from "../text";
import { SmallText } from "../kit/basics";

/** Rises when nodes come, go or move between groups. */
const layoutVersion = signal(0);
onChange((touched) => {
  if (!touched || touched.layout) layoutVersion.value += 1;
});

export function MapPage({ cluster }: { cluster: Cluster }) {
  const query = place.value.query;
  const grouping = (query.get("by") ?? "zone") as Grouping;
  const measure: Measure = query.get("fill") ?? "dominant";
  const table = query.get("as") === "table";
  const [search, setSearch] = useState("");
  const [pod, setPod] = useState<string>();
  const verdicts = useVerdicts(pod);
  const groups = useMemo(() => groupsOf(cluster.nodes.values(), grouping), [cluster, grouping, layoutVersion.value]);
  const labels = useMemo(() => groupingLabels(cluster.nodes.values()), [cluster, layoutVersion.value]);
  const matched = useMemo(() => matching(cluster, search), [cluster, search, search && version.value]);
  const lookOf = useCallback((node: NodeFields) => look(node, measure, matched, verdicts), [measure, matched, verdicts]);
  const nodeOf = useCallback((name: string) => cluster.nodes.get(name), [cluster]);
  const podsOf = (name: string) => [...(cluster.nodes.get(name)?.pods ?? [])].flatMap((key) => cluster.pods.get(key) ?? []);
  const describe = (node: NodeFields) => described(node, cluster.nodes.get(node.name)?.pods.size ?? 0, measure, verdicts?.get(node.name));
  const set = (changes: Record<string, string>) => setQuery({ ...Object.fromEntries(query), ...changes });
  useEffect(flights, []);
  void version.value;
  const waiting = [...cluster.waiting].flatMap((key) => cluster.pods.get(key) ?? []);
  return (
    <main class="map-page">
      <header class="map-head">
        <div>
          <h1>{headline(cluster, waiting.length)}</h1>
          {sharedEnding() && <SmallText>{`Nodes are called …${visible(sharedEnding())}`}</SmallText>}
        </div>
        <Meters nodes={cluster.nodes.values()} resources={cluster.resources} />
      </header>
      <MapControls {...{ grouping, measure, table, search, labels, set, setSearch }} resources={cluster.resources} />
      {!table && (
        <div class="map-key" role="status">
          <Key verdicts={verdicts} measure={filled(measure)} />
        </div>
      )}
      {table ? (
        <NodeTable nodes={groups.flatMap((group) => group.names.flatMap((name) => cluster.nodes.get(name) ?? []))} matched={matched} measure={measure} />
      ) : cluster.nodes.size <= MOST_CARDS ? (
        <CardMap {...{ groups, nodeOf, podsOf, lookOf, describe, measure }} href={nodeLink} />
      ) : (
        <CanvasMap {...{ groups, nodeOf, lookOf, describe }} pick={(name) => (location.hash = nodeLink(name))} follow={onChange} />
      )}
      <Tray pods={waiting} subject={pod} show={setPod} matches={(one) => !search || podMatches(one, search.toLowerCase())} />
    </main>
  );
}

/** Follow the changes, and let each pod that is bound fly to its card. Deltas come before the page is drawn again. */
function flights(): () => void {
  return onChange((touched) => {
    for (const [pod, from] of chipsOf(touched?.bound ?? [])) {
      const name = touched!.bound.find(([key]) => key === pod)![1];
      const tile = document.querySelector(`[data-node="${CSS.escape(name)}"]`);
      if (tile) fly(from, tile.getBoundingClientRect());
    }
  });
}

function look(node: NodeFields, measure: Measure, matched: ReadonlySet<string> | undefined, verdicts: Verdicts | undefined): Look {
  return {
    share: measured(node, measure),
    second: share(node, secondOf(measure)),
    verdict: verdicts?.get(node.name),
    dim: matched !== undefined && !matched.has(node.name),
  };
}

function headline(cluster: Cluster, pending: number): string {
  let open = 0;
  for (const node of cluster.nodes.values()) if (node.ready && !node.cordoned) open += 1;
  const pods = pending ? `${plural(pending, "pod is", "pods are")} pending` : "No pod is pending";
  return `${pods}; ${open === cluster.nodes.size ? "all" : `${count(open)} of`} ${plural(cluster.nodes.size, "node")} take pods.`;
}

/** Return the nodes that match the search, by their own words or by a pod on them; undefined without a search. */
function matching(cluster: Cluster, search: string): ReadonlySet<string> | undefined {
  if (!search) return undefined;
  const words = search.toLowerCase();
  const found = new Set<string>();
  for (const node of cluster.nodes.values()) {
    const labels = () => Object.entries(node.labels).some(([key, value]) => `${key}=${value}`.toLowerCase().includes(words));
    if (node.name.toLowerCase().includes(words) || labels()) found.add(node.name);
  }
  for (const pod of cluster.pods.values()) if (pod.node && podMatches(pod, words)) found.add(pod.node);
  return found;
}

const podMatches = (pod: PodFields, words: string) => pod.key.toLowerCase().includes(words) || pod.owner.toLowerCase().includes(words);

function filled(measure: Measure): string {
  if (measure === "dominant") return LARGEST;
  return measure === "stranded" ? "share of typical pods that do not fit" : `${visible(measure)} requested`;
}
