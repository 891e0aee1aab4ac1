/** The map beside a question: nodes are chosen on it, and after the answer it shows how full they are then. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { AnyDocument } from "../documents";
import { Button, Muted } from "../kit/basics";
import { type Cluster, type NodeFields, share } from "../live/cluster";
import { count, plural, visible } from "../text";
import { shifted, shiftsOf } from "./after";
import { CanvasMap } from "./canvas";
import { type Grouping, groupingLabels, groupsOf } from "./layout";
import { described, type Look, measured, secondOf } from "./look";
import { Key } from "./still";

/** Above the map so many groups can be chosen as a whole; with more, the nodes themselves. */
const MOST_GROUPS = 24;

interface PickMapProps {
  cluster: Cluster;
  /** The names that the question has, as its field holds them; undefined where it has no nodes. */
  picked: readonly string[] | undefined;
  set: (names: readonly string[]) => void;
  /** The answer, once there is one. */
  answer: AnyDocument | undefined;
}

export function PickMap({ cluster, picked, set, answer }: PickMapProps) {
  const [grouping, setGrouping] = useState<Grouping>("zone");
  const chosen = useMemo(() => new Set(picked), [picked?.join(" ")]);
  const groups = useMemo(() => groupsOf(cluster.nodes.values(), grouping), [cluster, grouping]);
  const labels = useMemo(() => groupingLabels(cluster.nodes.values()), [cluster]);
  const shifts = useMemo(() => answer && shiftsOf(answer, cluster), [answer, cluster]);
  const [after, setAfter] = useState(false);
  useEffect(() => setAfter(!!shifts), [shifts]);
  const part = useGlide(after && shifts ? 1 : 0);
  const lookOf = useMemo(() => (node: NodeFields) => look(shifted(node, shifts?.get(node.name), part), chosen), [shifts, part, chosen]);
  const describe = (node: NodeFields) => {
    const words = described(shifted(node, shifts?.get(node.name), after ? 1 : 0), cluster.nodes.get(node.name)?.pods.size ?? 0, "dominant");
    return chosen.has(node.name) ? `${words}, chosen` : words;
  };
  const toggle = (names: readonly string[]) => {
    const next = new Set(chosen);
    const all = names.every((name) => chosen.has(name));
    for (const name of names) all ? next.delete(name) : next.add(name);
    set([...next]);
  };
  return (
    <section class="pick" aria-label={picked ? "Choose nodes on the map" : "Map"}>
      <div class="pick-head">
        {picked && (
          <p role="status">
            <strong>{plural(chosen.size, "node")}</strong> chosen{" "}
            {chosen.size > 0 && (
              <Button quiet onClick={() => set([])}>
                Clear
              </Button>
            )}
          </p>
        )}
        {shifts && (
          <div class="switch" role="group" aria-label="Show the map">
            {[false, true].map((then) => (
              <Button aria-pressed={after === then} onClick={() => setAfter(then)}>
                {then ? "After" : "Before"}
              </Button>
            ))}
          </div>
        )}
        <label class="small">
          <span>Group by </span>
          <select value={grouping} onChange={(event) => setGrouping(event.currentTarget.value as Grouping)}>
            <option value="zone">zone</option>
            <option value="group">node group</option>
            <option value="none">nothing</option>
            {labels.map((label) => (
              <option value={`label:${label}`}>{visible(label)}</option>
            ))}
          </select>
        </label>
      </div>
      {picked && groups.length > 1 && (
        <div class="chips" role="group" aria-label="Choose all nodes of a group">
          {groups.slice(0, MOST_GROUPS).map(({ title, names }) => (
            <Button key={title} class="chip" aria-pressed={names.every((name) => chosen.has(name))} onClick={() => toggle(names)}>
              {visible(title) || "without"} <Muted>{count(names.length)}</Muted>
            </Button>
          ))}
        </div>
      )}
      <CanvasMap
        {...{ groups, lookOf }}
        nodeOf={(name) => cluster.nodes.get(name)}
        describe={describe}
        pick={(name) => picked && toggle([name])}
        {...(picked && { picked: chosen })}
      />
      <Key verdicts={undefined} />
    </section>
  );
}

const look = (node: NodeFields, chosen: ReadonlySet<string>): Look => ({
  share: measured(node, "dominant"),
  second: share(node, secondOf("dominant")),
  verdict: undefined,
  dim: false,
  picked: chosen.has(node.name),
});

const GLIDE_MS = 450;

/** Return a number that glides to `target`; it jumps where the reader wants less motion. */
function useGlide(target: number): number {
  const [now, setNow] = useState(target);
  const at = useRef(target);
  at.current = now;
  useEffect(() => {
    if (at.current === target) return;
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return setNow(target);
    const [from, began] = [at.current, performance.now()];
    let frame = 0;
    const step = (time: number) => {
      const done = Math.min(1, Math.max(0, (time - began) / GLIDE_MS));
      setNow(done === 1 ? target : from + (target - from) * done * (2 - done));
      if (done < 1) frame = requestAnimationFrame(step);
    };
    frame = requestAnimationFrame(step);
    return () => cancelAnimationFrame(frame);
  }, [target]);
  return now;
}
