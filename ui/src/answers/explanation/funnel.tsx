/** How many nodes each filter leaves, in running order. */
import type { FunnelStep } from "../../documents";
import { Legend, Section } from "../../kit/basics";
import { Bar } from "../../kit/bar";
import { count, plural, visible } from "../../text";

const STAGES: Readonly<Record<string, string>> = {
  preFilter: "before the filters",
  nominated: "with the pods nominated there",
  extender: "extender",
};

export function Funnel({ steps, nodes }: { steps: readonly FunnelStep[]; nodes: number }) {
  const asked = steps.filter((step) => !step.skipped);
  const skipped = steps.filter((step) => step.skipped);
  if (!asked.length) return null;
  return (
    <Section title="Filters" aside={`${plural(nodes, "node")}, in running order`}>
      <div class="table-box">
        <table class="funnel" aria-label="Nodes left after each filter">
          <thead>
            <tr>
              <th scope="col">Filter</th>
              <th scope="col" class="wide" aria-hidden />
              <th scope="col" class="num">left</th>
              <th scope="col" class="num">refused</th>
              <th scope="col" class="num" title="Nodes that only this filter refuses">alone</th>
            </tr>
          </thead>
          <tbody>
            {asked.map((step) => (
              <Step step={step} nodes={nodes} />
            ))}
          </tbody>
        </table>
      </div>
      <Legend
        of={[
          ["fill-rest", "left after this filter"],
          ["fill-no", "refused here first"],
        ]}
      />
      <p class="small muted after">
        “alone”: nodes that only this filter refuses; without it, the pod could go there.
        {skipped.length > 0 && ` Nothing to say about this pod: ${skipped.map((step) => visible(step.plugin)).join(", ")}.`}
      </p>
    </Section>
  );
}

function Step({ step, nodes }: { step: FunnelStep; nodes: number }) {
  const refused = step.before - step.after;
  return (
    <tr>
      <th scope="row" class="plugin">
        {visible(step.plugin || "–")}
        {STAGES[step.stage] && <span class="muted small"> {STAGES[step.stage]}</span>}
      </th>
      <td class="wide">
        <Bar
          of={nodes}
          parts={[
            [step.after, "rest"],
            [refused, "no"],
          ]}
        />
      </td>
      <td class="num">{count(step.after)}</td>
      <td class={refused ? "num refused" : "num none"}>{refused ? count(refused) : "–"}</td>
      <td class={step.alone ? "num" : "num none"}>{step.alone ? count(step.alone) : "–"}</td>
    </tr>
  );
}
