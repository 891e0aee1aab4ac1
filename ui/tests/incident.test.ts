import { describe, expect, it } from "vitest";
import type { Lacking, NodeRow } from "../src/live/cluster";
import { headline, wrongs, type Seen } from "../src/map/incident";

const SINCE = Date.UTC(2026, 10, 28, 18, 8) / 1000;
const NOW = SINCE + 120;

const node = (name: string, zone: string, more: Partial<NodeRow> = {}) =>
  ({ name, zone, ready: true, cordoned: false, unready: "", since: 0, pods: new Set(), ...more }) as unknown as NodeRow;
const lost = { ready: false, unready: "unreachable", since: SINCE } as const;

function seen(nodes: readonly NodeRow[], more: Partial<Seen> = {}): Seen {
  return { nodes: new Map(nodes.map((one) => [one.name, one])), lacking: [], ownerOf: () => "Deployment/web", waiting: 0, ...more };
}

const zone = (at: string, more: Partial<NodeRow> = {}) => Array.from({ length: 10 }, (_, nr) => node(`${at}${nr}`, at, more));
const lacks = (wanted: number, existing: number, key = "shop/Deployment/web"): Lacking => ({ key, wanted, existing, ready: existing, why: "" });

describe("the title", () => {
  it("is the zone that is down, with its pods and the time", () => {
    const down = zone("eu-west-1b", lost).map((one, at) => ({ ...one, pods: new Set(Array.from({ length: 8 }, (_, nr) => `d/p${at}-${nr}`)) }));
    const text = headline(seen([...zone("eu-west-1a"), ...down, ...zone("eu-west-1c")], { waiting: 19 }), NOW);
    expect(text).toBe("10 of 30 nodes unreachable (all of eu-west-1b) since 18:08 · 80 pods · 19 pods are pending; 20 of 30 nodes take pods.");
  });

  it("names a zone that is lost in part, one node, and a day that is past", () => {
    const [first, second, ...rest] = zone("a");
    const of = (gone: readonly NodeRow[], more: readonly NodeRow[], now = NOW) => wrongs(seen([...gone, ...more, ...zone("b")]), now)[0];
    expect(of([{ ...first!, ...lost }, { ...second!, ...lost }], rest)).toBe("2 of 20 nodes unreachable (in a) since 18:08");
    expect(of([{ ...first!, ...lost, unready: "not ready" }], [second!, ...rest])).toMatch(/^1 of 20 nodes not ready \(.*a0\) since 18:08$/);
    expect(of([{ ...first!, ...lost }, { ...second!, ...lost }], rest, SINCE + 90_000)).toContain("since 11-28 18:08");
    expect(of([{ ...first!, ...lost, since: 0 }, { ...second!, ...lost, since: 0 }], rest)).toBe("2 of 20 nodes unreachable (in a)");
  });

  it("counts no pods that stay on a lost node", () => {
    const gone = node("n", "a", { ...lost, pods: new Set(["d/one"]) });
    expect(wrongs(seen([gone, node("m", "b")], { ownerOf: () => "DaemonSet/proxy" }), NOW)).toHaveLength(1);
  });

  it("says which workloads lack pods, though none is pending", () => {
    const nodes = [node("n", "a")];
    expect(headline(seen(nodes, { lacking: [lacks(5, 1)] }), NOW)).toBe("shop/Deployment/web lacks 4 of 5 pods; all 1 node take pods.");
    expect(wrongs(seen(nodes, { lacking: [lacks(5, 1), lacks(3, 0, "d/StatefulSet/db")] }), NOW)).toEqual(["2 workloads lack 7 pods"]);
  });

  it("says that all is well only where nothing is wrong", () => {
    expect(wrongs(seen(zone("a")), NOW)).toEqual([]);
    expect(headline(seen(zone("a")), NOW)).toBe("No pod is pending; all 10 nodes take pods.");
    expect(headline(seen(zone("a", lost)), NOW)).toBe("10 of 10 nodes unreachable since 18:08; 0 of 10 nodes take pods.");
  });
});
