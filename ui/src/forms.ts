/** The questions that forms ask: their fields, and the body that the server gets. The text of each field stands in the address. */
import type { Question } from "./live/questions";

export interface Field {
  readonly name: string;
  readonly label: string;
  /** Several lines, a tick, or a line for which names are offered. */
  readonly as?: "lines" | "flag" | "nodes" | "workloads";
  readonly hint?: string;
}

type Texts = Readonly<Record<string, string>>;

export interface Form {
  readonly name: string;
  readonly label: string;
  readonly fields: readonly Field[];
  /** Return the question, or nothing while a field that it needs is empty. */
  readonly question: (of: Texts, nodes: readonly string[]) => Question["question"] | "" | undefined;
}

const NODES: Field = { name: "nodes", label: "Nodes", as: "nodes", hint: "worker-1 worker-2" };
const FIRST: Field = { name: "changes", label: "Changes to make first, one a line", as: "lines", hint: "node/worker-1 labels.disk=ssd" };
const DRAIN = ["ignore_daemonsets", "delete_emptydir_data", "force", "together"];

export const WHAT_IF: readonly Form[] = [
  {
    name: "drain",
    label: "Drain nodes",
    fields: [NODES, FIRST, ...DRAIN.map((name): Field => ({ name, label: "--" + name.replaceAll("_", "-"), as: "flag" }))],
    question: (of, nodes) => nodes[0] && { drain: nodes, ...Object.fromEntries(DRAIN.map((name) => [name, !!of[name]])) },
  },
  {
    name: "fail",
    label: "Lose nodes",
    fields: [NODES, FIRST, { name: "unreachable", label: "only unreachable", as: "flag" }],
    question: (of, nodes) => nodes[0] && { fail: nodes, mode: of.unreachable ? "unreachable" : "deleted" },
  },
  {
    name: "survive",
    label: "Lose any one node or zone",
    fields: [{ name: "over", label: "Lose each node, zone, or value of a label", hint: "zone" }, FIRST],
    question: ({ over }) => over && { survive: over },
  },
  {
    name: "capacity",
    label: "Add copies of a workload",
    fields: [
      { name: "workload", label: "Workload in the cluster", as: "workloads", hint: "deployment/default/web" },
      { name: "template", label: "or a manifest", as: "lines" },
      FIRST,
    ],
    question: ({ template, workload }) => (template ? { template } : workload && { capacity: workload }),
  },
  {
    name: "change",
    label: "Change requests, labels, taints …",
    fields: [{ ...FIRST, label: "Changes as for --edit, one a line", hint: "pod/shop/web requests.cpu=500m" }],
    question: (of) => of.changes && { compare: {} },
  },
  {
    name: "add",
    label: "Add nodes",
    fields: [{ name: "count", label: "Number", hint: "1" }, { ...NODES, label: "Like the node", hint: "worker-1" }, FIRST],
    question: ({ count }, nodes) => nodes[0] && { compare: {}, changes: [`add ${count || 1} nodes like ${nodes[0]}`] },
  },
];

export const COMPARE: readonly Form[] = [
  {
    name: "compare",
    label: "",
    fields: ["A", "B"].flatMap((side): Field[] => [
      { name: side.toLowerCase(), label: `Configuration ${side}`, as: "lines" },
      { name: side.toLowerCase() + "Release", label: `Release ${side}`, hint: "1.36" },
    ]),
    question: ({ a, b, aRelease, bRelease }) => (a || b || aRelease || bRelease) && { compare: { a, b, aRelease, bRelease } },
  },
];

/** Return what the form asks, or nothing while it is incomplete. */
export function questionOf(form: Form, of: Texts): Question | "" | undefined {
  const question = form.question(of, (of.nodes ?? "").split(/[\s,]+/).filter(Boolean));
  return question && { question, changes: (of.changes ?? "").split("\n").filter((line) => line.trim()) };
}
