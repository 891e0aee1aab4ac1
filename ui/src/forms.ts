/** The questions that forms ask: their fields, and the body that the server gets. The text of each field stands in the address. */
import type { Question } from "./live/questions";

export interface Field {
  readonly name: string;
  readonly label: string;
  /** Several lines, a tick, a number, or a line for which names are offered. */
  readonly as?: "lines" | "flag" | "number" | "nodes" | "workloads";
  readonly hint?: string;
  /** Folded away until it is wanted. */
  readonly extra?: boolean;
  /** A tick that is set unless its text is "no". */
  readonly on?: boolean;
}

export type Picture = "drain" | "fail" | "survive" | "capacity" | "scale" | "change" | "add";

type Texts = Readonly<Record<string, string>>;

export interface Form {
  readonly name: string;
  readonly label: string;
  /** What the question is about, in one sentence, and the picture beside it. */
  readonly says?: string;
  readonly picture?: Picture;
  readonly fields: readonly Field[];
  /** Return the question, or nothing while a field that it needs is empty. */
  readonly question: (of: Texts, nodes: readonly string[]) => Question["question"] | "" | undefined;
}

const NODES: Field = { name: "nodes", label: "Nodes", as: "nodes", hint: "worker-1 worker-2" };
const FIRST: Field = { name: "changes", label: "Changes to make first, one a line", as: "lines", hint: "node/worker-1 labels.disk=ssd", extra: true };
/** What `kubectl drain` is told; nobody drains a node of a cluster with DaemonSets without the first. */
const DRAIN = ["ignore_daemonsets", "delete_emptydir_data", "force", "together"];

const AUTOSCALERS = ["karpenter", "cluster-autoscaler"];
const TYPES = '{"currency": "USD", "types": [{"name": "m5.large", "resources": {…}, "offerings": […]}]}';

export const WHAT_IF: readonly Form[] = [
  {
    name: "drain",
    says: "Evict the pods of some nodes, and see where they go and what holds them up.",
    picture: "drain",
    label: "Drain nodes",
    fields: [NODES, FIRST, ...DRAIN.map((name, at): Field => ({ name, label: "--" + name.replaceAll("_", "-"), as: "flag", extra: true, on: !at }))],
    question: (of, nodes) => nodes[0] && { drain: nodes, ...Object.fromEntries(DRAIN.map((name, at) => [name, isTicked(of[name], !at)])) },
  },
  {
    name: "fail",
    says: "Some nodes are gone at once: what comes back, and where?",
    picture: "fail",
    label: "Lose nodes",
    fields: [NODES, FIRST, { name: "unreachable", label: "only unreachable", as: "flag", extra: true }],
    question: (of, nodes) => nodes[0] && { fail: nodes, mode: of.unreachable ? "unreachable" : "deleted" },
  },
  {
    name: "survive",
    says: "Which single loss would leave pods without a node?",
    picture: "survive",
    label: "Lose any one node or zone",
    fields: [{ name: "over", label: "Lose each node, zone, or value of a label", hint: "zone" }, FIRST],
    question: ({ over }) => over && { survive: over },
  },
  {
    name: "capacity",
    says: "How many more copies fit, and what stops the next one?",
    picture: "capacity",
    label: "Add copies of a workload",
    fields: [
      { name: "workload", label: "Workload in the cluster", as: "workloads", hint: "deployment/default/web" },
      { name: "template", label: "or a manifest", as: "lines" },
      FIRST,
    ],
    question: ({ template, workload }) => (template ? { template } : workload && { capacity: workload }),
  },
  {
    name: "scale",
    label: "Scale a workload",
    says: "Run more or fewer replicas: which pods come, where, and which go?",
    picture: "scale",
    fields: [
      { name: "workload", label: "Workload in the cluster", as: "workloads", hint: "deployment/default/web" },
      { name: "replicas", label: "Replicas", as: "number" },
      FIRST,
    ],
    question: ({ workload, replicas }) => workload && replicas && { compare: {}, changes: [`${workload} replicas=${replicas}`] },
  },
  {
    name: "change",
    says: "Requests, labels, taints …: before and after, side by side.",
    picture: "change",
    label: "Change something",
    fields: [{ ...FIRST, extra: false, label: "Changes as for --edit, one a line", hint: "pod/shop/web requests.cpu=500m" }],
    question: (of) => of.changes && { compare: {} },
  },
  {
    name: "add",
    says: "Give the cluster more nodes like one that it has.",
    picture: "add",
    label: "Add nodes",
    fields: [{ name: "count", label: "Number", as: "number", hint: "1" }, { ...NODES, label: "Like the node", hint: "worker-1" }, FIRST],
    question: ({ count }, nodes) => nodes[0] && { compare: {}, changes: [`add ${count || 1} nodes like ${nodes[0]}`] },
  },
  {
    name: "autoscale",
    says: "Let Karpenter or cluster-autoscaler run for a while: which nodes come and go, and what do they cost?",
    picture: "scale",
    label: "Run an autoscaler",
    fields: [
      { name: "autoscaler", label: "karpenter or cluster-autoscaler", hint: "karpenter" },
      { name: "hours", label: "Hours", as: "number", hint: "1" },
      { name: "types", label: "Instance types with prices, as JSON; empty: those of --instance-types", as: "lines", extra: true, hint: TYPES },
      { name: "spot", label: "Interruptions of a spot node in an hour", as: "number", extra: true, hint: "0" },
      { ...FIRST, hint: "deployment/shop/web replicas=40" },
    ],
    question: ({ autoscaler, hours, types, spot }) =>
      AUTOSCALERS.includes(autoscaler ?? "")
        ? { simulate: { autoscaler, until: 3600 * Number(hours || 1), ...(types && { instanceTypes: types }), ...(spot && { spotInterruptions: Number(spot) }) } }
        : undefined,
  },
  {
    name: "overview",
    label: "Look over all",
    says: "How full is the cluster, what is pending and why, and who waits in which of Kueue’s queues?",
    picture: "capacity",
    fields: [FIRST, { name: "all", label: "count nodes that are not ready as well", as: "flag", extra: true }],
    question: ({ all }) => ({ report: { allNodes: isTicked(all) } }),
  },
];

const CONFIGURATION = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: …";

export const COMPARE: readonly Form[] = [
  {
    name: "compare",
    label: "",
    says: "Which pods move or stay pending, and what becomes better or worse? A field that is left empty is as the scheduler is set up.",
    fields: [
      ...["A", "B"].map((side): Field => ({ name: side.toLowerCase(), label: `Configuration ${side}`, as: "lines", hint: CONFIGURATION })),
      ...["A", "B"].map((side): Field => ({ name: side.toLowerCase() + "Release", label: `Release ${side}`, hint: "1.36" })),
    ],
    question: ({ a, b, aRelease, bRelease }) => (a || b || aRelease || bRelease) && { compare: { a, b, aRelease, bRelease } },
  },
];

/** Return whether a tick is set; `on`: unless it was taken away. */
export const isTicked = (text: string | undefined, on = false): boolean => (text ? text !== "no" : on);

/** Return what the form asks, or nothing while it is incomplete. */
export function questionOf(form: Form, of: Texts): Question | "" | undefined {
  const question = form.question(of, (of.nodes ?? "").split(/[\s,]+/).filter(Boolean));
  return question && { question, changes: (of.changes ?? "").split("\n").filter((line) => line.trim()) };
}

/** Return the question in a few words, as lists of questions show it. */
export function titleOf(form: Form, of: Texts): string {
  const given = form.fields.filter(({ name, as }) => of[name] && as !== "flag").map(({ name, as }) => shortened(of[name]!, as === "lines" ? "\n" : " "));
  return [form.label || "Compare", given.join(", ")].filter(Boolean).join(": ");
}

function shortened(text: string, between: string): string {
  const parts = text.split(between).filter((part) => part.trim());
  return parts.length > 2 ? `${parts.slice(0, 2).join(between === " " ? " " : ", ")} and ${parts.length - 2} more` : parts.join(between === " " ? " " : ", ");
}
