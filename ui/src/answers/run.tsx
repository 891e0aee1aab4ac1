/** What an autoscaler did in a run: how its pools grew and shrank, and the way to see the run on Time. */
import type { SimulationReport } from "../documents";
import { Badge, Section } from "../kit/basics";
import { linkTo } from "../live/router";
import { TimePage } from "../pages/time";
import { plural, seconds, visible } from "../text";

const AUTOSCALER = "autoscaler: ";

export function RunPage({ document: { run, notes, summary } }: { document: SimulationReport }) {
  const told = notes.filter(({ text }) => text.startsWith(AUTOSCALER)).map(({ text }) => text.slice(AUTOSCALER.length));
  const { pending } = summary.pods;
  return (
    <>
      <header class="answer">
        <p class="kind">
          <Badge tone={pending ? "risk" : "ok"}>ran {seconds(summary.endedSeconds)}</Badge> What does the autoscaler do?
        </p>
        <h1>
          At the end {plural(summary.nodes, "node")}, and {pending ? `${plural(pending, "pod")} pending` : "no pod pending"}.
        </h1>
        {run && (
          <p>
            <a href={linkTo(["time"], { run })}>Show the run on Time</a>
          </p>
        )}
      </header>
      <Section title="What it did">
        <ul>
          {told.map((text) => (
            <li>{visible(text)}</li>
          ))}
        </ul>
      </Section>
      {run && <TimePage run={run} brief />}
    </>
  );
}
