/** The cluster as the page knows it: a snapshot, and the changes that followed. */

import { nameNodes } from "../text";

export type Amounts = Readonly<Record<string, number>>;
type Column<T> = readonly T[];
type Sparse = { readonly index: Column<number>; readonly value: Column<number> };
/** Texts that few pods have, or many share: `value` are places in `known`. */
type Texts = Sparse & { readonly known: Column<string> };

/** A workload that has fewer pods than it wants, or fewer that are ready; `key` is namespace/Kind/name. */
export interface Lacking {
  readonly key: string;
  readonly wanted: number;
  readonly existing: number;
  readonly ready: number;
  /** What its controller says of pods that it could not create. */
  readonly why: string;
}

export interface Snapshot {
  readonly id: string;
  readonly at: string;
  readonly release: string;
  readonly live: boolean;
  readonly writable: boolean;
  /** False where no questions are answered. */
  readonly asks?: boolean;
  readonly user: string;
  readonly notes: readonly string[];
  readonly resources: readonly string[];
  readonly unit: Readonly<Record<string, string>>;
  readonly nodes: {
    readonly name: Column<string>;
    readonly zone: Column<string>;
    readonly labels: Column<Readonly<Record<string, string>>>;
    readonly group: Column<string>;
    readonly ready: Column<boolean>;
    readonly cordoned: Column<boolean>;
    readonly taints: Column<readonly string[]>;
    readonly allocatable: Readonly<Record<string, Column<number>>>;
    readonly requested: Readonly<Record<string, Column<number>>>;
    readonly stranded: Column<number>;
    readonly unready?: Column<Unready>;
    readonly since?: Column<number>;
  };
  readonly lacking?: readonly Lacking[];
  readonly pods: {
    readonly key: Column<string>;
    readonly owner: Column<string>;
    readonly node: Column<number>;
    readonly state: Column<PodStateName>;
    readonly priority: Column<number>;
    readonly requests: Readonly<Record<string, Column<number> | Sparse>>;
    readonly cause: Column<string>;
    readonly recorded?: Texts;
    readonly requires?: Texts;
    readonly arrived: Column<number>;
    readonly attempts: Column<number>;
  };
}

export type PodStateName = "bound" | "pending" | "backoff" | "gated" | "nominated" | "terminating";

export type Unready = "" | "not ready" | "unreachable";

/** What a delta gives of a node. */
export interface NodeFields {
  readonly name: string;
  readonly zone: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly group: string;
  readonly ready: boolean;
  readonly cordoned: boolean;
  readonly taints: readonly string[];
  readonly allocatable: Amounts;
  readonly requested: Amounts;
  readonly stranded: number;
  readonly unready?: Unready;
  /** Since when it is not ready, in seconds since 1970; 0 if that is not known. */
  readonly since?: number;
}

/** What a delta gives of a pod. */
export interface PodFields {
  readonly key: string;
  readonly owner: string;
  readonly node: string | null;
  readonly state: PodStateName;
  readonly priority: number;
  readonly requests: Amounts;
  readonly cause: string;
  /** The cause that the cluster's scheduler recorded, if it is another one. */
  readonly recorded?: string;
  /** What it requires of its node, as JSON; `live/requires` reads it. */
  readonly requires?: string;
  readonly arrived: number;
  readonly attempts: number;
}

export interface Attempt {
  readonly pod: string;
  readonly at: number;
  readonly result: string;
  readonly node?: string | null;
}

export interface Delta {
  readonly id: string;
  readonly at: string;
  readonly nodes?: { readonly set?: readonly NodeFields[]; readonly gone?: readonly string[] };
  readonly pods?: { readonly set?: readonly PodFields[]; readonly gone?: readonly string[] };
  readonly attempts?: readonly Attempt[];
  readonly lacking?: readonly Lacking[];
}

export type PodRow = PodFields;

export interface NodeRow extends NodeFields {
  readonly pods: Set<string>;
}

/** What a delta changed on the map. */
export interface Touched {
  readonly nodes: ReadonlySet<string>;
  /** Nodes came or went, or moved to another group. */
  readonly layout: boolean;
  /** Pods that got a node: key and node. */
  readonly bound: readonly (readonly [string, string])[];
}

export class Cluster {
  readonly nodes = new Map<string, NodeRow>();
  readonly pods = new Map<string, PodRow>();
  readonly waiting = new Set<string>();
  readonly resources: readonly string[];
  readonly attempts: Attempt[] = [];
  lacking: readonly Lacking[];

  constructor(readonly head: Snapshot) {
    this.resources = head.resources;
    this.lacking = head.lacking ?? [];
    const columns = head.nodes;
    nameNodes(columns.name);
    columns.name.forEach((name, at) => {
      const of = (from: Readonly<Record<string, Column<number>>>) =>
        Object.fromEntries(head.resources.map((resource) => [resource, from[resource]?.[at] ?? 0]));
      this.nodes.set(name, {
        name,
        zone: columns.zone[at] ?? "",
        labels: columns.labels[at] ?? {},
        group: columns.group[at] ?? "",
        ready: columns.ready[at] ?? true,
        cordoned: columns.cordoned[at] ?? false,
        taints: columns.taints[at] ?? [],
        allocatable: of(columns.allocatable),
        requested: of(columns.requested),
        stranded: columns.stranded[at] ?? 0,
        unready: columns.unready?.[at] ?? "",
        since: columns.since?.[at] ?? 0,
        pods: new Set(),
      });
    });
    this.readPods(head);
  }

  private readPods({ pods, nodes }: Snapshot): void {
    const sparse = new Map<number, Record<string, number>>();
    const dense: [string, Column<number>][] = [];
    for (const [resource, column] of Object.entries(pods.requests)) {
      if (Array.isArray(column)) dense.push([resource, column as Column<number>]);
      else {
        const { index, value } = column as Sparse;
        index.forEach((at, place) => sparse.set(at, { ...sparse.get(at), [resource]: value[place]! }));
      }
    }
    const [recorded, requires] = [textsOf(pods.recorded), textsOf(pods.requires)];
    pods.key.forEach((key, at) => {
      const requests: Record<string, number> = { ...sparse.get(at) };
      for (const [resource, column] of dense) requests[resource] = column[at]!;
      const node = pods.node[at]! < 0 ? null : nodes.name[pods.node[at]!]!;
      this.put({
        key,
        owner: pods.owner[at] ?? "",
        node,
        state: pods.state[at] ?? "pending",
        priority: pods.priority[at] ?? 0,
        requests,
        cause: pods.cause[at] ?? "",
        recorded: recorded.get(at) ?? "",
        requires: requires.get(at) ?? "",
        arrived: pods.arrived[at] ?? 0,
        attempts: pods.attempts[at] ?? 0,
      });
    });
  }

  private put(pod: PodRow): void {
    this.pods.set(pod.key, pod);
    if (pod.node === null && pod.state !== "terminating") this.waiting.add(pod.key);
    else this.waiting.delete(pod.key);
    if (pod.node !== null) this.nodes.get(pod.node)?.pods.add(pod.key);
  }

  private drop(key: string): PodRow | undefined {
    const old = this.pods.get(key);
    if (old?.node) this.nodes.get(old.node)?.pods.delete(key);
    this.pods.delete(key);
    this.waiting.delete(key);
    return old;
  }

  apply(delta: Delta): Touched {
    const touched = new Set<string>();
    const bound: [string, string][] = [];
    let layout = false;
    for (const name of delta.nodes?.gone ?? []) layout = this.nodes.delete(name) || layout;
    for (const fields of delta.nodes?.set ?? []) {
      const old = this.nodes.get(fields.name);
      layout ||= !old || old.zone !== fields.zone || old.group !== fields.group || !sameLabels(old, fields);
      this.nodes.set(fields.name, { ...fields, pods: old?.pods ?? this.podsOn(fields.name) });
      touched.add(fields.name);
    }
    for (const key of delta.pods?.gone ?? []) {
      const old = this.drop(key);
      if (old?.node) touched.add(old.node);
    }
    for (const fields of delta.pods?.set ?? []) {
      const old = this.drop(fields.key);
      this.put(fields);
      if (old?.node) touched.add(old.node);
      if (fields.node) touched.add(fields.node);
      if (fields.node && !old?.node) bound.push([fields.key, fields.node]);
    }
    this.lacking = delta.lacking ?? this.lacking;
    this.attempts.push(...(delta.attempts ?? []));
    if (this.attempts.length > 5000) this.attempts.splice(0, this.attempts.length - 4000);
    return { nodes: touched, layout, bound };
  }

  /** The pods of a node that appears after them. */
  private podsOn(name: string): Set<string> {
    return new Set([...this.pods.values()].filter((pod) => pod.node === name).map((pod) => pod.key));
  }
}

const textsOf = (of: Texts | undefined) => new Map(of?.index.map((at, place) => [at, of.known[of.value[place]!]!]));

const sameLabels = (a: NodeFields, b: NodeFields) => JSON.stringify(a.labels) === JSON.stringify(b.labels);

/** Return the share of a resource that the node's pods request; 0 of nothing. */
export function share(node: NodeFields, resource: string): number {
  const allocatable = node.allocatable[resource] ?? 0;
  return allocatable > 0 ? (node.requested[resource] ?? 0) / allocatable : 0;
}

/** Return the largest share of any resource but the number of pods. */
export function dominantShare(node: NodeFields): number {
  let largest = 0;
  for (const resource of Object.keys(node.allocatable)) {
    if (resource !== "pods") largest = Math.max(largest, share(node, resource));
  }
  return largest;
}
