/** A and B, metric by metric, with what chance explains. */
import type { Comparison, ComparisonAnswer, Metric } from "../documents";
import { Badge, Chips, Facts, Legend, Muted, Section } from "../kit/basics";
import { MoveMaps } from "../kit/moves";
import { NUM, Table } from "../kit/table";
import { count, plural, signed, visible } from "../text";
import { AnswerHead } from "./envelope";
import { inOrder, isMain, metricText } from "./metrics";

export function ComparisonPage({ document }: { document: Comparison }) {
  const answer = document.answer;
  const changed = !!document.question.changes?.length;
  const failed = answer.gates.filter((gate) => !gate.passed);
  const names = inOrder(Object.keys(answer.metrics));
  const [main, others] = [names.filter(isMain), names.filter((name) => !isMain(name))];
  return (
    <>
      <AnswerHead
        document={document}
        tone={failed.length ? "no" : answer.gates.length ? "ok" : "idle"}
        verdict={failed.length ? `${plural(failed.length, "gate")} failed` : answer.gates.length ? "gates passed" : "compared"}
      />
      <Facts
        of={[
          ["A", <strong class="name">{visible(answer.a.name)}</strong>],
          ["B", <strong class="name">{visible(answer.b.name)}</strong>],
          ...answer.a.notes.map((note) => ["Note on A", visible(note)] as const),
          ...answer.b.notes.map((note) => ["Note on B", visible(note)] as const),
        ]}
      />
      {answer.gates.length > 0 && (
        <Section title="Gates">
          <ul class="cards">
            {answer.gates.map((gate) => (
              <li>
                <Badge tone={gate.passed ? "ok" : "no"}>{gate.passed ? "passed" : "failed"}</Badge> <code>{visible(gate.gate)}</code>{" "}
                <Muted>{visible(gate.text)}</Muted>
              </li>
            ))}
          </ul>
        </Section>
      )}
      {changed && <Moved answer={answer} />}
      <Section title="Metrics" aside={document.seeds.length >= 5 ? "mean over the seeds; whiskers: 95% interval of B − A" : `mean over ${plural(document.seeds.length, "seed")}; 5 or more give intervals`}>
        <Metrics answer={answer} names={main} />
        <Legend of={[["dot-each", "B − A of one seed"], ["dot-mean", "mean, with its interval"]]} />
        <details class="after">
          <summary>{plural(others.length, "more metric")}</summary>
          <Metrics answer={answer} names={others} />
        </details>
      </Section>
      {!changed && <Moved answer={answer} />}
      {answer.newPending.length > 0 && (
        <Section title="Pending in B, not in A">
          <Chips names={answer.newPending} first={30} />
        </Section>
      )}
    </>
  );
}

const Metrics = ({ answer, names }: { answer: ComparisonAnswer; names: readonly string[] }) => (
  <Table
    label="Metrics"
    rows={names.map((name) => ({ name, metric: answer.metrics[name]! }))}
    first={100}
    columns={[
      ["Metric", (row) => row.name],
      ["A", (row) => metricText(row.name, row.metric.a), NUM],
      ["B", (row) => metricText(row.name, row.metric.b), NUM],
      ["B − A", (row) => (row.metric.difference ? <strong>{difference(row.name, row.metric.difference)}</strong> : <Muted>0</Muted>), NUM],
      ["", (row) => <Whisker metric={row.metric} each={differences(answer, row.name)} />],
      ["95% interval", (row) => <span class="small muted">{intervalText(row.name, row.metric)}</span>],
    ]}
  />
);

const difference = (name: string, value: number) => signed(value, (one) => metricText(name, one));

function intervalText(name: string, metric: Metric): string {
  if (metric.exact) return metric.difference ? "exact" : "equal";
  if (metric.mayBeZero) return "~ may be chance";
  if (!metric.interval) return metric.p === undefined ? "" : `p = ${metric.p.toFixed(2)}`;
  const [low, high] = metric.interval;
  return `${low === null ? "never" : difference(name, low)} … ${high === null ? "never" : difference(name, high)}`;
}

/** B − A of each pair of runs. */
function differences(answer: ComparisonAnswer, name: string): number[] {
  return answer.runs.b.flatMap((run, index) => {
    const [a, b] = [answer.runs.a[index]?.metrics[name], run.metrics[name]];
    return typeof a === "number" && typeof b === "number" ? [b - a] : [];
  });
}

/** The difference around zero: a dot for each seed, and the mean with its interval. */
function Whisker({ metric, each }: { metric: Metric; each: readonly number[] }) {
  const ends = [...each, metric.difference ?? 0, ...(metric.interval ?? []).map((end) => end ?? 0)];
  const widest = Math.max(...ends.map(Math.abs));
  if (!widest) return <svg class="whisker" viewBox="0 0 160 18" aria-hidden><line class="zero" x1="80" x2="80" y1="1" y2="17" /></svg>;
  const x = (value: number) => 80 + (72 * value) / widest;
  return (
    <svg class={`whisker ${metric.mayBeZero && !metric.exact ? "unsure" : ""}`} viewBox="0 0 160 18" aria-hidden>
      <line class="zero" x1="80" x2="80" y1="1" y2="17" />
      {each.slice(0, 200).map((value) => (
        <circle class="each" cx={x(value)} cy={9} r={2} />
      ))}
      {metric.interval && <line class="span" x1={x(metric.interval[0] ?? 0)} x2={x(metric.interval[1] ?? 0)} y1="9" y2="9" />}
      <circle class="mean" cx={x(metric.difference ?? 0)} cy={9} r={4} />
    </svg>
  );
}

function Moved({ answer }: { answer: ComparisonAnswer }) {
  const { moved, moves } = answer;
  if (!moved) return null;
  const chance = moved.byChance.length ? `${Math.min(...moved.byChance)} … ${Math.max(...moved.byChance)} of ${count(moved.of)}` : "";
  return (
    <Section title={moves.some((move) => !move.a || !move.b) ? "Pods that come, go or move" : "Pods that move"} aside={`${count(moved.pods)} of ${count(moved.of)}${chance ? `; by chance alone ${chance}` : ""}`}>
      {moved.pods > 0 && (
        <Facts
          of={[
            ["Within their node group", count(moved.withinGroup)],
            ["To another node group", count(moved.toAnotherGroup)],
            ["To another zone", count(moved.toAnotherZone)],
          ]}
        />
      )}
      {moves.length > 0 && (
        <div class="after">
          <MoveMaps before="A" after="B" moves={moves.map((move) => ({ pod: move.pod, from: move.a, to: move.b, start: "not here", end: "not here" }))} />
        </div>
      )}
    </Section>
  );
}
