/** What eviction could do: a verdict for each node, and why the chosen one was chosen. */
import type { Preemption, PreemptionNode } from "../../documents";
import { Badge, Facts, Name, Section, type Tone } from "../../kit/basics";
import { NUM, PROSE, Table } from "../../kit/table";
import { visible } from "../../text";

const VERDICTS: Readonly<Record<PreemptionNode["verdict"], readonly [Tone, string]>> = {
  candidate: ["ok", "candidate"],
  notEnough: ["no", "not enough"],
  noLowerPriority: ["no", "no lower priority"],
  notHelpful: ["no", "not helpful"],
  notEvaluated: ["idle", "not evaluated"],
};

const ORDER = Object.keys(VERDICTS);

export function PreemptionTable({ preemption, nodes }: { preemption: Preemption; nodes: readonly string[] }) {
  const rows = [...(preemption.nodes ?? [])].sort(
    (a, b) => Number(b.node === preemption.chosen) - Number(a.node === preemption.chosen) || rank(a) - rank(b),
  );
  return (
    <Section title="Preemption">
      <div class="cards">
        <p>{visible(preemption.summary)}</p>
        <Facts
          of={[
            ["Decided by", visible(preemption.decidedBy ?? "")],
            ["Not eligible", visible(preemption.notEligible ?? "")],
            ["Put back in this order", visible((preemption.reprieve ?? []).join(", "))],
            ["A candidate appears at priority", preemption.lowestPriority],
          ]}
        />
        {rows.length > 0 && (
          <details open={rows.some((row) => row.victims?.length)}>
            <summary>Each node</summary>
          <Table
            label="Preemption by node"
            rows={rows}
            first={12}
            strong={(row) => row.node === preemption.chosen}
            columns={[
              ["Node", (row) => <Name of={nodes[row.node] ?? String(row.node)} to="node" />],
              ["Verdict", (row) => <Verdict row={row} chosen={row.node === preemption.chosen} />],
              ["Victims", (row) => <Victims row={row} />, PROSE],
              ["Highest priority", (row) => row.highestPriority ?? "", NUM],
              ["Budgets broken", (row) => row.violations ?? "", NUM],
            ]}
          />
          </details>
        )}
      </div>
    </Section>
  );
}

const rank = (row: PreemptionNode) => ORDER.indexOf(row.verdict);

function Verdict({ row, chosen }: { row: PreemptionNode; chosen: boolean }) {
  const [tone, text] = VERDICTS[row.verdict];
  return (
    <>
      <Badge tone={chosen ? "subject" : tone}>{chosen ? "chosen" : text}</Badge>
      {!row.considered && <span class="small muted"> not considered by the decision</span>}
    </>
  );
}

function Victims({ row }: { row: PreemptionNode }) {
  if (!row.victims?.length)
    return <span class="small muted">{visible([row.plugin, row.reason].filter(Boolean).join(": "))}</span>;
  return (
    <ul>
      {row.victims.map((victim) => (
        <li>
          <Name of={victim.pod} to="pod" /> <span class="small muted">priority {victim.priority}</span>
          {victim.budgets?.length ? <span class="small muted"> · breaks {visible(victim.budgets.join(", "))}</span> : null}
          {victim.shortOf && <span class="small muted"> · {visible(victim.shortOf)}</span>}
        </li>
      ))}
    </ul>
  );
}
