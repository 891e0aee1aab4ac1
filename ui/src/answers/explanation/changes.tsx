/** What to do so that the pod is placed: the first change of each kind as a card, then the others, and what no one should do. */
import type { ComponentChildren } from "preact";
import type { LeftOut, Remedy } from "../../documents";
import { Chips, Muted, Section, SmallText } from "../../kit/basics";
import { Command } from "../../kit/command";
import { briefly, count, plural, visible } from "../../text";

/** How many changes stand open, and how long a command may be that does. */
const SHOWN = 3;
const SHORT = 90;

interface ChangesProps {
  changes: readonly Remedy[];
  leftOut?: readonly LeftOut[] | undefined;
  nodes: readonly string[];
  /** What a card offers in the live page: to try the change in a fork. */
  offer?: ((change: Remedy, first: boolean) => ComponentChildren) | undefined;
}

export function Changes({ changes, leftOut = [], nodes, offer }: ChangesProps) {
  if (!changes.length) return null;
  const kinds = new Set<string>();
  const first = changes.filter((one) => !kinds.has(one.kind) && kinds.add(one.kind)).slice(0, SHOWN);
  const others = changes.filter((one) => !first.includes(one));
  const cards = (some: readonly Remedy[]) => (
    <ol class="cards side-by-side">
      {some.map((change) => (
        <li>
          <Card change={change} nodes={nodes} offer={offer && (() => offer(change, change === changes[0]))} />
        </li>
      ))}
    </ol>
  );
  return (
    <Section title="What to do" aside="each was tried">
      {cards(first)}
      {others.length > 0 && (
        <details class="small below">
          <summary>{plural(others.length, "more change")}</summary>
          {cards(others)}
        </details>
      )}
      {leftOut.length > 0 && (
        <details class="small below">
          <summary>{plural(leftOut.reduce((sum, one) => sum + one.changes, 0), "change")} not offered</summary>
          <ul>
            {leftOut.map((one) => (
              <li>{`${plural(one.changes, "change")}: ${visible(one.text)}`}</li>
            ))}
          </ul>
        </details>
      )}
    </Section>
  );
}

interface CardProps {
  change: Remedy;
  nodes: readonly string[];
  offer: (() => ComponentChildren) | undefined;
}

function Card({ change, nodes, offer }: CardProps) {
  const places = change.nodes.map((node) => nodes[node] ?? String(node));
  const words = change.atoms.filter((atom) => !change.commands.includes(atom.text)).map((atom) => briefly(atom.text));
  const who = change.who === "no one" ? "no action" : `by ${visible(change.who)}`;
  return (
    <article class="card change">
      <header>
        <span class="muted small">
          <strong>{change.kind}</strong> {who}
        </span>
        <span class="cost small">cost {count(Number(change.cost.toFixed(1)))}</span>
      </header>
      {words.map((text) => (
        <p class="what">
          {text}
        </p>
      ))}
      {change.commands.filter((command) => command.length <= SHORT).map((command) => (
        <Command text={command} />
      ))}
      {places.length > 0 && (
        <p class="lead small">
          <Muted>places it on </Muted>
          <Chips names={places} first={4} to="node" label="Where the pod could go" />
        </p>
      )}
      {change.effects.length > 0 && <p class="small">{briefly(change.effects.join("; "))}</p>}
      {change.commands.some((command) => command.length > SHORT) && (
        <details class="small">
          <summary>{change.commands.length > 1 ? "Commands" : "Command"}</summary>
          {change.commands.filter((command) => command.length > SHORT).map((command) => (
            <Command text={command} />
          ))}
        </details>
      )}
      {!change.minimal && <SmallText>A part of it may be enough.</SmallText>}
      {change.alike.length > 0 && (
        <details class="small">
          <summary>{plural(change.alike.length, "equal alternative")}</summary>
          <ul>
            {change.alike.map((text) => (
              <li>{briefly(text)}</li>
            ))}
          </ul>
        </details>
      )}
      {offer?.()}
    </article>
  );
}
