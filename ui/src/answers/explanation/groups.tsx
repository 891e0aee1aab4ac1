/** Nodes by what refuses them. */
import type { RefusedGroup, Refusal } from "../../documents";
import { Chips, Section, Sign } from "../../kit/basics";
import { count, plural, visible } from "../../text";

export function Groups({ groups, nodes }: { groups: readonly RefusedGroup[]; nodes: readonly string[] }) {
  if (!groups.length) return null;
  const refused = groups.reduce((sum, group) => sum + group.nodes.length, 0);
  return (
    <Section title="Nodes that refuse it" aside={`${count(refused)} of ${plural(nodes.length, "node")}, by what refuses them`}>
      <ul class="groups">
        {groups.map((group) => (
          <li class="keep">
            <div class="who">
              <Chips names={group.nodes.map((node) => nodes[node] ?? String(node))} first={6} to="node" />
              {group.cost !== undefined && <span class="small muted">opened at cost {count(Number(group.cost.toFixed(1)))}</span>}
            </div>
            <ul class="why">
              {merged(group.refusals).map((refusal) => (
                <RefusalLine refusal={refusal} />
              ))}
            </ul>
          </li>
        ))}
      </ul>
    </Section>
  );
}

const RefusalLine = ({ refusal }: { refusal: Refusal }) => (
  <li>
    <Sign tone="no" /> <strong>{visible(refusal.plugin || "PreFilter")}</strong>{" "}
    {refusal.detail && <span>{visible(refusal.detail)}</span>}
    <span class="reason small muted">
      {visible(refusal.reason)}
      {refusal.error ? " (the plugin failed)" : refusal.resolvable ? " · eviction might help" : ""}
    </span>
  </li>
);

/** Join the reasons of one plugin, which gives its detail only once. */
export function merged(refusals: readonly Refusal[]): Refusal[] {
  const joined: Refusal[] = [];
  for (const refusal of refusals) {
    const last = joined.at(-1);
    if (last && last.plugin === refusal.plugin && !refusal.detail) {
      joined[joined.length - 1] = { ...last, reason: `${last.reason}, ${refusal.reason}` };
    } else joined.push(refusal);
  }
  return joined;
}
