/** How many instances fit, where, and what stops the next one. */
import type { Capacity, CapacityGroup, Gain, Stop } from "../documents";
import { Badge, chips, Facts, Figure, Muted, Quote, Section, Sign, SmallText } from "../kit/basics";
import { Bar } from "../kit/bar";
import { NUM, TableSection } from "../kit/table";
import { amount, amounts, count, plural, visible } from "../text";
import { AnswerHead } from "./envelope";

export function CapacityPage({ document }: { document: Capacity }) {
  const answer = document.answer;
  const { min, max } = answer.bySeed ?? {};
  const most = Math.max(1, ...answer.perGroup.flatMap((group) => group.each));
  const asked = (answer.templates ?? []).some((template) => template.asked !== undefined);
  const short = (answer.templates ?? []).reduce((sum, template) => sum + (template.leftOver ?? 0), 0);
  return (
    <>
      <AnswerHead document={document} tone={short || !answer.instances ? "no" : "ok"} verdict={short ? "not all fit" : answer.instances ? "fits" : "none fits"} />
      <div class="figures">
        <Figure value={count(answer.instances)} label={asked ? "placed" : "more fit"} />
        <Figure value={answer.upperBound === null ? "–" : count(answer.upperBound)} label="upper bound by arithmetic" />
        {min !== undefined && max !== undefined && min !== max && <Figure value={`${count(min)} – ${count(max)}`} label="over the seeds" />}
      </div>
      {answer.templates && (answer.templates.length > 1 || asked) && (
        <TableSection
          title="Templates"
          rows={answer.templates}
          columns={[
            ["Template", (one) => `${one.kind} ${visible(one.template)}`],
            ["Requests", (one) => amounts(one.requests)],
            ["asked", (one) => one.asked ?? "", NUM],
            ["placed", (one) => count(one.placed), NUM],
            ["left over", (one) => one.leftOver ?? "", NUM],
          ]}
        />
      )}
      <Section title="Where they fit" aside={(answer.templates ?? []).map((one) => `${visible(one.template)}: ${amounts(one.requests)}`).join(" · ")}>
        <ul class="groups">
          {answer.perGroup.map((group) => (
            <Group group={group} most={most} perNode={answer.perNode} />
          ))}
        </ul>
      </Section>
      <div class="columns even">
        <Section title="What stops the next one">
          <div class="cards">
            {answer.binding.map((stop) => (
              <StopLine stop={stop} />
            ))}
            <Facts
              of={[
                ["First without a place", visible(answer.blockedBy ?? "")],
                ["Unusable free capacity", answer.stranded ? amounts(answer.stranded) : ""],
                ["Evicted", chips(answer.preempted)],
                ["Rolled back", chips(answer.unplaced)],
              ]}
            />
            {answer.message && <Quote>{answer.message}</Quote>}
          </div>
        </Section>
        {answer.gains.length > 0 && <Gains gains={answer.gains} />}
      </div>
    </>
  );
}

function Group({ group, most, perNode }: { group: CapacityGroup; most: number; perNode: Readonly<Record<string, number>> }) {
  const nodes = [...group.nodes].sort((a, b) => (perNode[b] ?? 0) - (perNode[a] ?? 0));
  return (
    <li class="keep">
      <div class="who">
        <p>
          <strong class="name">{visible(group.group || "other nodes")}</strong> <Muted>{plural(group.nodes.length, "node")}</Muted>{" "}
          {group.eligible ? <Badge tone="ok">{`${count(group.instances)} fit`}</Badge> : <Badge tone="no">none fits</Badge>}
        </p>
        <SmallText>left: {Object.entries(group.left).map(([resource, [least = 0, greatest = 0]]) => `${resource} ${amount(resource, least)}${greatest !== least ? `…${amount(resource, greatest)}` : ""}`).join(", ")}</SmallText>
      </div>
      <div class="why">
        {group.eligible &&
          nodes.slice(0, 12).map((node) => (
            <div class="row-bar small">
              <span class="name">{visible(node)}</span>
              <Bar of={most} value={perNode[node] ?? 0} />
              <span class="num">{perNode[node] ?? 0}</span>
            </div>
          ))}
        {group.eligible && nodes.length > 12 && <SmallText>and {nodes.length - 12} more nodes</SmallText>}
        {group.stoppedBy.map((stop) => (
          <StopLine stop={stop} />
        ))}
      </div>
    </li>
  );
}

const StopLine = ({ stop }: { stop: Stop }) => (
  <p class="small">
    <Sign tone="no" /> <strong>{visible(stop.resource || stop.plugin)}</strong> {visible(stop.detail ?? stop.reason)}
    {stop.nodes !== undefined && <Muted> on {plural(stop.nodes, "node")}</Muted>}
  </p>
);

function Gains({ gains }: { gains: readonly Gain[] }) {
  const most = Math.max(1, ...gains.map((gain) => gain.more));
  return (
    <Section title="What would help" aside="counted again, not extrapolated">
      <div class="why">
        {gains.map((gain) => (
          <div class="row-bar">
            <span>{gainText(gain)}</span>
            <Bar of={most} parts={[[gain.more, "ok"]]} />
            <span class="num">+{count(gain.more)}</span>
          </div>
        ))}
      </div>
    </Section>
  );
}

function gainText(gain: Gain): string {
  if (gain.change === "node") return `one more ${visible(gain.group ?? "")} node`;
  if (gain.change === "resource") return `10% more ${visible(gain.resource ?? "")}`;
  return `uncordon ${visible((gain.nodes ?? []).join(", "))}`;
}
