/** How every node answers one pod: asked for when the reader points at it, and kept while the cluster is the same. */
import { useEffect, useState } from "preact/hooks";
import { get, podPath } from "../live/api";
import { cluster, version } from "../live/state";
import { coloursOf, type NodeVerdict } from "./look";

interface Answer {
  readonly pod: string;
  /** The nodes that the verdicts are of; the order of the snapshot if absent. */
  readonly nodes?: readonly string[];
  /** By node: a position in `reasons`, or -1 where the pod fits. */
  readonly verdicts: readonly number[];
  readonly reasons: readonly { readonly plugin: string; readonly text: string }[];
}

export type Verdicts = ReadonlyMap<string, NodeVerdict>;

const WAIT_MS = 90;
const FITS: NodeVerdict = { fits: true, plugin: "", text: "fits", colour: 0 };
const kept = new Map<string, readonly [number, Verdicts]>();

export function verdictsOf(answer: Answer, order: readonly string[]): Verdicts {
  const colours = coloursOf(answer.reasons.map((reason) => reason.plugin));
  const names = answer.nodes ?? order;
  const refusals = answer.reasons.map((reason): NodeVerdict => ({ fits: false, ...reason, colour: colours.get(reason.plugin)! }));
  const found = new Map<string, NodeVerdict>();
  answer.verdicts.forEach((position, node) => {
    const name = names[node];
    if (name !== undefined) found.set(name, refusals[position] ?? FITS);
  });
  return found;
}

/** The verdicts on a pod, undefined until the server gives them or if there is no pod. */
export function useVerdicts(pod: string | undefined): Verdicts | undefined {
  const [shown, setShown] = useState<readonly [string, Verdicts]>();
  useEffect(() => {
    if (!pod) return;
    const known = kept.get(pod);
    if (known && known[0] === version.value) return setShown([pod, known[1]]);
    const control = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const answer = await get<Answer>(podPath("verdicts", pod), control.signal);
        const found = verdictsOf(answer, [...(cluster.value?.nodes.keys() ?? [])]);
        if (kept.size > 50) kept.clear();
        kept.set(pod, [version.value, found]);
        setShown([pod, found]);
      } catch {
        // The pod is gone, or the reader pointed elsewhere: the map stays as it is.
      }
    }, WAIT_MS);
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [pod]);
  return pod && shown?.[0] === pod ? shown[1] : undefined;
}
