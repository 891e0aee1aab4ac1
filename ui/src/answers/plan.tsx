/** Which nodes to buy, or which can be removed. */
import type { NodePlan, PlanAnswer } from "../documents";
import { Badge, chips, Chips, Facts, Figure, Name, Section, type Tone } from "../kit/basics";
import { Bar } from "../kit/bar";
import { BeforeAfter } from "../kit/moves";
import { NUM, PROSE, Table, TableSection } from "../kit/table";
import { amount, count, percent, plural, visible } from "../text";
import { AnswerHead } from "./envelope";

const STATUS: Readonly<Record<PlanAnswer["status"], readonly [Tone, string]>> = {
  optimal: ["ok", "no cheaper set works"],
  gap: ["ok", "verified"],
  partial: ["risk", "partial"],
  impossible: ["no", "impossible"],
  undecided: ["risk", "undecided"],
};

const ORDERS: Readonly<Record<string, string>> = {
  asGiven: "verified as given",
  largestFirst: "also largest first",
  smallestFirst: "also smallest first",
};

export function PlanPage({ document }: { document: NodePlan }) {
  const answer = document.answer;
  const [tone, verdict] = STATUS[answer.status] ?? ["idle", answer.status];
  return (
    <>
      <AnswerHead document={document} tone={tone} verdict={verdict} />
      <div class="figures">
        {answer.cost !== null && <Figure value={price(answer.cost)} label={answer.remove.length ? "remaining cost" : "cost"} />}
        {answer.saved ? <Figure value={price(answer.saved)} label="saved" /> : null}
        {answer.lowerBound !== null && !answer.left?.length && <Figure value={price(answer.lowerBound)} label="lower bound for any scheduler" />}
        {answer.gap !== null && <Figure value={percent(answer.gap)} label="above the bound" />}
        {answer.pods ? <Figure value={count(answer.pods)} label="pods to place" /> : null}
      </div>
      {answer.remove.length > 0 && (
        <Section title="Remove" aside={plural(answer.remove.length, "node")}>
          <div class="cards">
            <Chips names={answer.remove} first={30} to="node" />
            <Facts of={[["Lost for good", chips(answer.lost)]]} />
          </div>
        </Section>
      )}
      {answer.moved.length > 0 && (
        <BeforeAfter
          mark="removed"
          marked={new Set(answer.remove)}
          moves={answer.moved.map((move) => ({ pod: move.pod, from: move.source, to: move.to }))}
        />
      )}
      {!answer.left?.length && <Ladder answer={answer} />}
      <Used answer={answer} />
      <Pending answer={answer} />
      <Blocked blocked={answer.blocked} />
    </>
  );
}

/** The bound, the packing and the verified sets, as bars of their cost. */
function Ladder({ answer }: { answer: PlanAnswer }) {
  const rows: { name: string; cost: number; nodes: string; pending: string }[] = [];
  if (answer.lowerBound !== null) rows.push({ name: "lower bound", cost: answer.lowerBound, nodes: "", pending: "" });
  if (answer.packing) rows.push({ name: `cheapest packing${answer.packing.proven ? ", proven" : ""}`, ...setOf(answer.packing) });
  for (const [order, set] of Object.entries(answer.sets ?? {})) rows.push({ name: ORDERS[order] ?? visible(order), ...setOf(set) });
  if (rows.length < 2) return null;
  const most = Math.max(...rows.map((row) => row.cost));
  return (
    <Section title="Cost" aside="the engine ran the verified sets">
      <Table
        label="Cost of sets of nodes"
        rows={rows}
        columns={[
          ["Set", (row) => row.name],
          ["", (row) => <Bar of={most} parts={[[row.cost, row.name.startsWith("verified") ? "subject" : "rest"]]} />],
          ["cost", (row) => price(row.cost), NUM],
          ["Nodes", (row) => row.nodes],
          ["Pending", (row) => row.pending],
        ]}
      />
    </Section>
  );
}

const setOf = (set: NonNullable<PlanAnswer["packing"]>) => ({
  cost: set.cost,
  nodes: listed(set.nodes),
  pending: Object.entries(set.pending ?? {})
    .map(([order, pods]) => `${pods} ${order === "asGiven" ? "as given" : order === "largestFirst" ? "largest first" : "smallest first"}`)
    .join(", "),
});

const price = (value: number) => String(Number(value.toFixed(3)));

const listed = (nodes: Readonly<Record<string, number>>) =>
  Object.entries(nodes)
    .map(([type, number]) => `${count(number)} ${visible(type)}`)
    .join(", ");

function Used({ answer }: { answer: PlanAnswer }) {
  const used = Object.entries(answer.used ?? {});
  if (!used.length) return null;
  return (
    <Section title="The new nodes" aside={listed(answer.nodes)}>
      <div class="why">
        {used.map(([resource, { requested, allocatable }]) => (
          <div class="row-bar">
            <span>{visible(resource)}</span>
            <Bar of={allocatable} value={requested} />
            <span class="num">
              {percent(allocatable ? requested / allocatable : 0)} <span class="muted small">of {amount(resource, allocatable)}</span>
            </span>
          </div>
        ))}
        {Object.entries(answer.perZone ?? {}).map(([type, zones]) => (
          <p class="small muted">
            {visible(type)}: {listed(zones)}
          </p>
        ))}
      </div>
    </Section>
  );
}

function Pending({ answer }: { answer: PlanAnswer }) {
  const rows = [
    ...(answer.unplaceable ?? []).map(({ pods, why }) => ({ pods, why: why.map((one) => `${one.type}: ${one.plugin} ${one.reason}`) })),
    ...(answer.left ?? []).map(({ pods, why, message }) => ({ pods, why: [...why, message] })),
  ];
  if (!rows.length) return null;
  return (
    <TableSection
      title="Pods that stay pending"
      rows={rows}
      columns={[
        ["Pods", (row) => <Chips names={row.pods} first={3} />],
        ["Why", (row) => row.why.map((line) => <p class="small">{visible(line)}</p>), PROSE],
      ]}
    />
  );
}

function Blocked({ blocked }: { blocked: PlanAnswer["blocked"] }) {
  const rows = Object.entries(blocked).flatMap(([node, reasons]) => reasons.map((reason) => ({ node, ...reason })));
  if (!rows.length) return null;
  return (
    <TableSection
      title="Why the other nodes stay"
      rows={rows}
      columns={[
        ["Node", (row) => <Name of={row.node} to="node" />],
        ["Pod", (row) => <Name of={row.pod ?? ""} to="pod" />],
        ["Rule", (row) => (row.rule || row.plugin ? <Badge tone="no">{visible(row.rule ?? row.plugin ?? "")}</Badge> : "")],
        ["Why", (row) => visible(row.text ?? ""), PROSE],
      ]}
    />
  );
}
