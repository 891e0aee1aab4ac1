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
import { headline, wrongs } from "../map/incident";
import { NodeTable } from "../map/table";
import { Tray } from "../map/tray";
import { useVerdicts, type Verdicts } from "../map/verdicts";
import { MapControls } from "../map/controls";
import { Meters } from "../map/meters";
import { sharedEnding, visible } from "../text";
import { SmallText } from "../kit/basics";

const SEARCH_MS = 30;

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
  const [sought, setSought] = useState(""); // the same a moment later: a letter is shown before nodes are searched
  useEffect(() => {
    const timer = setTimeout(() => setSought(search), SEARCH_MS);
    return () => clearTimeout(timer);
  }, [search]);
  const [pod, setPod] = useState<string>();
  const verdicts = useVerdicts(pod);
  const groups = useMemo(() => groupsOf(cluster.nodes.values(), grouping), [cluster, grouping, layoutVersion.value]);
  const labels = useMemo(() => groupingLabels(cluster.nodes.values()), [cluster, layoutVersion.value]);
  const matched = useMemo(() => matching(cluster, sought), [cluster, sought, sought && version.value]);
  const lookOf = useCallback((node: NodeFields) => look(node, measure, matched, verdicts), [measure, matched, verdicts]);
  const nodeOf = useCallback((name: string) => cluster.nodes.get(name), [cluster]);
  const podsOf = (name: string) => [...(cluster.nodes.get(name)?.pods ?? [])].flatMap((key) => cluster.pods.get(key) ?? []);
  const describe = (node: NodeFields) => described(node, cluster.nodes.get(node.name)?.pods.size ?? 0, measure, verdicts?.get(node.name));
  const set = (changes: Record<string, string>) => setQuery({ ...Object.fromEntries(query), ...changes });
  useEffect(flights, []);
  void version.value;
  const waiting = [...cluster.waiting].flatMap((key) => cluster.pods.get(key) ?? []);
  const seen = { nodes: cluster.nodes, lacking: cluster.lacking, ownerOf: (key: string) => cluster.pods.get(key)?.owner ?? "", waiting: waiting.length };
  const now = cluster.head.live ? Date.now() / 1000 : Date.parse(cluster.head.at) / 1000;
  return (
    <main class="map-page">
      <header class="map-head">
        <div>
          <h1>{headline(seen, now)}</h1>
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
      <Tray wrong={wrongs(seen, now)} lacking={cluster.lacking} pods={waiting} subject={pod} show={setPod} matches={(one) => !sought || podMatches(one, sought.toLowerCase())} />
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

const kept = new WeakMap<NodeFields["labels"], string>();

/** Return labels as one text in small letters, one on a line; kept with them. */
function wordsOf(labels: NodeFields["labels"]): string {
  let words = kept.get(labels);
  if (words === undefined) {
    words = Object.entries(labels).map(([key, value]) => `${key}=${value}`).join("\n").toLowerCase();
    kept.set(labels, words);
  }
  return words;
}

/** Return the nodes that match the search, by their own words or by a pod on them; undefined without a search. */
function matching(cluster: Cluster, search: string): ReadonlySet<string> | undefined {
  if (!search) return undefined;
  const words = search.toLowerCase();
  const found = new Set<string>();
  for (const node of cluster.nodes.values()) {
    if (node.name.includes(words) || wordsOf(node.labels).includes(words)) found.add(node.name);
  }
  const owners = new Map<string, boolean>(); // many pods have one owner
  for (const { key, node, owner } of cluster.pods.values()) {
    if (!node || found.has(node)) continue;
    if (!owners.has(owner)) owners.set(owner, owner.toLowerCase().includes(words));
    if (owners.get(owner) || key.includes(words)) found.add(node);
  }
  return found;
}

/** The names of pods have small letters alone. */
const podMatches = (pod: PodFields, words: string) => pod.key.includes(words) || pod.owner.toLowerCase().includes(words);

function filled(measure: Measure): string {
  if (measure === "dominant") return LARGEST;
  return measure === "stranded" ? "share of typical pods that do not fit" : `${visible(measure)} requested`;
}
