/** What pods require of their nodes: the node selector and the required node affinity. */

type Expression = readonly [key: string, operator: string, values: readonly string[]];

export interface Requirement {
  readonly labels: Readonly<Record<string, string>>;
  /** One of these has to hold; none if there is no affinity. */
  readonly terms: readonly (readonly Expression[])[];
}

type Labels = Readonly<Record<string, string>>;

/** Return whether a node with these labels is what a pod requires. */
export const accepts = ({ labels, terms }: Requirement, node: Labels): boolean =>
  Object.entries(labels).every(([key, value]) => node[key] === value) && (!terms.length || terms.some((term) => term.every((one) => holds(one, node))));

function holds([key, operator, values]: Expression, node: Labels): boolean {
  const value = node[key];
  switch (operator) {
    case "In":
      return value !== undefined && values.includes(value);
    case "NotIn":
      return value === undefined || !values.includes(value);
    case "Exists":
      return value !== undefined;
    case "DoesNotExist":
      return value === undefined;
    case "Gt":
      return parseInt(value ?? "", 10) > parseInt(values[0] ?? "", 10);
    case "Lt":
      return parseInt(value ?? "", 10) < parseInt(values[0] ?? "", 10);
    default:
      return false;
  }
}

const WORDS: Readonly<Record<string, string>> = { In: "in", NotIn: "not in", Exists: "exists", DoesNotExist: "is absent", Gt: ">", Lt: "<" };

/** Say a requirement in words: `pool=general`, `zone in a, b or disk exists`. */
export function inWords({ labels, terms }: Requirement): string {
  const one = ([key, operator, values]: Expression) =>
    operator === "In" && values.length === 1 ? `${key}=${values[0]}` : [key, WORDS[operator] ?? operator, values.join(", ")].filter(Boolean).join(" ");
  const selector = Object.entries(labels).map(([key, value]) => `${key}=${value}`);
  const affinity = terms.map((term) => term.map(one).join(" and ")).join(" or ");
  return [...selector, ...(affinity ? [affinity] : [])].join(" and ");
}
