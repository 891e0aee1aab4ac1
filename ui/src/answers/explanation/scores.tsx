/** Why this node among those that fit: the scores, the margin, and weights to play with. */
import type { Scores } from "../../documents";
import { Section } from "../../kit/basics";
import { plural } from "../../text";

export function ScoreSection({ scores, nodes }: { scores: Scores; nodes: readonly string[] }) {
  return (
    <Section title="Scores" aside={`${plural(scores.feasible, "node")} of ${nodes.length} fit`}>
      <p>to do</p>
    </Section>
  );
}
