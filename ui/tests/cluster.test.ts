import { describe, expect, it } from "vitest";
import { Cluster, dominantShare, share, type NodeFields, type PodFields, type Snapshot } from "../src/live/cluster";

const node = (name: string, more: Partial<NodeFields> = {}): NodeFields => ({
  name,
  zone: "a",
  labels: {},
  group: "general",
  ready: true,
  cordoned: false,
  taints: [],
  allocatable: { cpu: 4000, memory: 8, pods: 10 },
  requested: { cpu: 1000, memory: 6, pods: 9 },
  stranded: 0,
  ...more,
});

const pod = (key: string, at: string | null, more: Partial<PodFields> = {}): PodFields => ({
  key,
  owner: "",
  node: at,
  state: at ? "bound" : "pending",
  priority: 0,
  requests: { cpu: 500 },
  cause: "",
  arrived: 0,
  attempts: 1,
  ...more,
});

const snapshot: Snapshot = {
  id: "1",
  at: "",
  release: "1.36",
  live: true,
  writable: false,
  user: "",
  notes: [],
  resources: ["cpu", "memory", "nvidia.com/gpu"],
  unit: {},
  nodes: {
    name: ["n1", "n2"],
    zone: ["a", "b"],
    labels: [{}, { disk: "ssd" }],
    group: ["", ""],
    ready: [true, false],
    cordoned: [false, true],
    taints: [[], ["k=v:NoSchedule"]],
    allocatable: { cpu: [1000, 2000], memory: [8, 8], "nvidia.com/gpu": [0, 2] },
    requested: { cpu: [500, 0], memory: [8, 0], "nvidia.com/gpu": [0, 2] },
    stranded: [0, 0],
  },
  pods: {
    key: ["d/a", "d/b", "d/c"],
    owner: ["", "", ""],
    node: [0, 1, -1],
    state: ["bound", "bound", "pending"],
    priority: [0, 0, 5],
    requests: { cpu: [500, 0, 100], memory: [8, 0, 0], "nvidia.com/gpu": { index: [1], value: [2] } },
    cause: ["", "", "0/2 nodes are available"],
    arrived: [0, 0, 0],
    attempts: [1, 1, 2],
  },
};

describe("a snapshot", () => {
  const cluster = new Cluster(snapshot);

  it("becomes rows, with sparse requests in their places", () => {
    expect(cluster.pods.get("d/b")).toMatchObject({ node: "n2", requests: { cpu: 0, memory: 0, "nvidia.com/gpu": 2 } });
    expect([...cluster.nodes.get("n1")!.pods]).toEqual(["d/a"]);
    expect([...cluster.waiting]).toEqual(["d/c"]);
    expect(cluster.nodes.get("n2")).toMatchObject({ cordoned: true, ready: false, taints: ["k=v:NoSchedule"] });
  });

  it("gives shares", () => {
    expect(share(cluster.nodes.get("n1")!, "cpu")).toBe(0.5);
    expect(share(cluster.nodes.get("n1")!, "nvidia.com/gpu")).toBe(0);
    expect(dominantShare(cluster.nodes.get("n2")!)).toBe(1);
    expect(dominantShare(node("x"))).toBe(0.75);
  });
});

describe("a delta", () => {
  const cluster = () => new Cluster(snapshot);

  it("moves a pod from the tray to its node", () => {
    const now = cluster();
    const touched = now.apply({ id: "2", at: "", pods: { set: [pod("d/c", "n1")] } });
    expect(touched).toEqual({ nodes: new Set(["n1"]), layout: false, bound: [["d/c", "n1"]] });
    expect(now.waiting.size).toBe(0);
    expect(now.nodes.get("n1")!.pods).toEqual(new Set(["d/a", "d/c"]));
  });

  it("touches both nodes of a pod that moves, and the node of one that goes", () => {
    const now = cluster();
    expect(now.apply({ id: "2", at: "", pods: { set: [pod("d/a", "n2")] } }).nodes).toEqual(new Set(["n1", "n2"]));
    expect(now.apply({ id: "3", at: "", pods: { gone: ["d/a"] } }).nodes).toEqual(new Set(["n2"]));
    expect(now.pods.has("d/a")).toBe(false);
  });

  it("keeps the pods of a node that changes, and lays out again only if its place may change", () => {
    const now = cluster();
    const same = node("n1", { zone: "a", group: "" });
    expect(now.apply({ id: "2", at: "", nodes: { set: [same] } }).layout).toBe(false);
    expect(now.nodes.get("n1")!.pods).toEqual(new Set(["d/a"]));
    expect(now.apply({ id: "3", at: "", nodes: { set: [{ ...same, zone: "z" }] } }).layout).toBe(true);
    expect(now.apply({ id: "4", at: "", nodes: { gone: ["n2"] } }).layout).toBe(true);
  });

  it("finds the pods of a node that comes after them", () => {
    const now = cluster();
    now.apply({ id: "2", at: "", pods: { set: [pod("d/x", "n3")] } });
    now.apply({ id: "3", at: "", nodes: { set: [node("n3")] } });
    expect(now.nodes.get("n3")!.pods).toEqual(new Set(["d/x"]));
  });
});
