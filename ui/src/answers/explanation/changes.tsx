/** The least changes that would place the pod: one card each, in the order of their costs, with the team that can make it. */
import type { ComponentChildren } from "preact";
import type { Remedy } from "../../documents";
import { Badge, Chips, Muted, Section, SmallText } from "../../kit/basics";
import { Command } from "../../kit/command";
import { count, plural, visible } from "../../text";

const TEAMS: Readonly<Record<string, string>> = {
  pod: "pod: who owns the workload",
  node: "node: who runs the nodes",
  cluster: "cluster: who may evict and add",
  config: "configuration: who owns the scheduler",
};

interface ChangesProps {
  changes: readonly Remedy[];
  nodes: readonly string[];
  /** What a card offers in the live page: to try the change in a fork. */
  offer?: ((change: Remedy) => ComponentChildren) | undefined;
}

export function Changes({ changes, nodes, offer }: ChangesProps) {
  if (!changes.length) return null;
  return (
    <Section title="Least change" aside="cheapest first; each was run and places the pod">
      <ol class="cards">
        {changes.map((change) => (
          <li>
            <Card change={change} nodes={nodes} offer={offer} />
          </li>
        ))}
      </ol>
    </Section>
  );
}

function Card({ change, nodes, offer }: { change: Remedy } & Omit<ChangesProps, "changes">) {
  const places = change.nodes.map((node) => nodes[node] ?? String(node));
  const words = change.atoms.filter((atom) => !change.commands.includes(atom.text)).map((atom) => atom.text);
  return (
    <article class="card change">
      <header>
        <span class="muted small">{change.owner.split("+").map((owner) => TEAMS[owner] ?? visible(owner)).join(" + ")}</span>
        <span class="cost small">cost {count(Number(change.cost.toFixed(1)))}</span>
      </header>
      {words.map((text) => (
        <p class="what">
          {visible(text)}
        </p>
      ))}
      {change.commands.map((command) => (
        <Command text={command} />
      ))}
      <p class="lead small">
        <Muted>places it on </Muted>
        <Chips names={places} first={4} to="node" label="Nodes where the pod could go then" />
      </p>
      {change.displaced.length > 0 && (
        <p class="small">
          <Badge tone="risk">evicts {plural(change.displaced.length, "pod")}</Badge> {visible(change.displaced.join(", "))}
        </p>
      )}
      {change.stranded.length > 0 && (
        <p class="small">
          <Badge tone="no">then pending</Badge> {visible(change.stranded.join(", "))}
        </p>
      )}
      {!change.minimal && <SmallText>A part of it may be enough.</SmallText>}
      {change.alike.length > 0 && (
        <details class="small">
          <summary>{plural(change.alike.length, "equal alternative")}</summary>
          <ul>
            {change.alike.map((text) => (
              <li>{visible(text)}</li>
            ))}
          </ul>
        </details>
      )}
      {offer?.(change)}
    </article>
  );
}
