import { describe, expect, it } from "vitest";
import { byCause, byWorkload, reasonsOf } from "../src/map/causes";
import { groupingLabels, groupsOf, neighbour, tileSize } from "../src/map/layout";
import type { NodeFields, PodFields } from "../src/live/cluster";

const node = (name: string, zone: string, labels: Record<string, string> = {}) => ({ name, zone, labels, group: "" }) as unknown as NodeFields;

describe("groups", () => {
  const nodes = [node("n10", "b", { disk: "ssd" }), node("n9", "b"), node("n1", "a"), node("n2", "")];

  it("sort names as numbers, and put nodes without a value last", () => {
    expect(groupsOf(nodes, "zone")).toEqual([
      { title: "a", names: ["n1"] },
      { title: "b", names: ["n9", "n10"] },
      { title: "", names: ["n2"] },
    ]);
    expect(groupsOf(nodes, "label:disk").map((group) => group.title)).toEqual(["ssd", ""]);
    expect(groupsOf(nodes, "none")).toHaveLength(1);
  });

  it("are few, whatever the label", () => {
    const many = Array.from({ length: 1000 }, (_, at) => node(`n${at}`, "", { host: `h${at}`, pool: `p${at % 3}` }));
    expect(groupsOf(many, "label:host")).toHaveLength(200);
    expect(groupsOf(many, "label:host").flatMap((group) => group.names)).toHaveLength(1000);
    expect(groupingLabels(many)).toEqual(["pool"]);
  });
});

describe("tiles", () => {
  it("are as large as a page allows", () => {
    expect(tileSize(200, 1200)).toBe(30);
    expect(tileSize(5000, 1200)).toBe(12);
  });

  it("are neighbours across groups", () => {
    // Columns of three: group one has 0-3, group two 4-5.
    expect(neighbour([4, 2], 3, 0, "ArrowRight")).toBe(1);
    expect(neighbour([4, 2], 3, 0, "ArrowLeft")).toBe(0);
    expect(neighbour([4, 2], 3, 2, "ArrowDown")).toBe(3);
    expect(neighbour([4, 2], 3, 3, "ArrowDown")).toBe(4);
    expect(neighbour([4, 2], 3, 5, "ArrowUp")).toBe(3);
    expect(neighbour([4, 2], 3, 5, "ArrowDown")).toBe(5);
    expect(neighbour([4, 2], 3, 1, "End")).toBe(5);
    expect(neighbour([4, 2], 3, 5, "Home")).toBe(0);
  });
});

describe("causes", () => {
  it("are the reasons of the event, the most nodes first", () => {
    const message = "0/8 nodes are available: 1 node(s) were unschedulable, 5 Insufficient cpu. no new claims to deallocate, preemption: 0/8 …";
    expect(reasonsOf(message)).toEqual(["5 Insufficient cpu", "1 node(s) were unschedulable"]);
    expect(reasonsOf("waiting for a gate")).toEqual([]);
  });

  it("sort pods, the most pods first", () => {
    const pods = [{ key: "a", cause: "x" }, { key: "b", cause: "y" }, { key: "c", cause: "y" }] as PodFields[];
    expect(byCause(pods).map(([cause, members]) => [cause, members.length])).toEqual([["y", 2], ["x", 1]]);
  });

  it("put the pods of a workload together", () => {
    const pods = [{ key: "a/x-1", owner: "ReplicaSet/x" }, { key: "a/y", owner: "" }, { key: "a/x-2", owner: "ReplicaSet/x" }] as PodFields[];
    expect(byWorkload(pods).map(([name, members]) => [name, members.length])).toEqual([["a/ReplicaSet/x", 2], ["a/y", 1]]);
  });
});
