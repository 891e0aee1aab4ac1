/** What happens when nodes or zones are lost. */
import type { Failure, Survival } from "../documents";
import { Badge, chips, Chips, Facts, Legend, Name, Section, Small, SmallText } from "../kit/basics";
import { Bar } from "../kit/bar";
import { Command } from "../kit/command";
import { BeforeAfter } from "../kit/moves";
import { NUM, Table } from "../kit/table";
import { bytes, cores, count, plural, visible } from "../text";
import { AnswerHead } from "./envelope";

export function SurvivalPage({ document }: { document: Survival }) {
  const answer = document.answer;
  const worst = new Set(answer.worst);
  const most = Math.max(1, ...answer.failures.map((failure) => failure.pods));
  const failures = [...answer.failures].sort((a, b) => Number(worst.has(b.lost)) - Number(worst.has(a.lost)) || b.pending.length - a.pending.length);
  const bad = failures.filter((failure) => failure.pending.length || failure.lostForGood.length || failure.stuck.length);
  return (
    <>
      <AnswerHead
        document={document}
        tone={answer.survives ? "ok" : worst.size ? "no" : "risk"}
        verdict={answer.survives ? "survives" : worst.size ? "not safe" : "undecided"}
      />
      <Section title="Losses">
        <Table
          label="Losses"
          rows={failures}
          columns={[
            ["Lost", (failure) => <Lost failure={failure} worst={worst.has(failure.lost) && !answer.survives} />],
            ["nodes", (failure) => count(failure.nodes.length), NUM],
            ["pods", (failure) => count(failure.pods), NUM],
            [
              "",
              (failure) => (
                <Bar
                  of={most}
                  parts={[
                    [failure.moves, "rest"],
                    [failure.pending.length, "no"],
                    [failure.lostForGood.length, "old"],
                  ]}
                />
              ),
            ],
            ["move", (failure) => count(failure.moves), NUM],
            ["pending", (failure) => (failure.pending.length ? <span class="sign no">{failure.pending.length}</span> : "0"), NUM],
            ["lost for good", (failure) => count(failure.lostForGood.length), NUM],
            ["Room left", (failure) => `${cores(failure.freeCpuMilli)} cpu, ${bytes(failure.freeMemoryBytes)}`, NUM],
          ]}
        />
        <Legend of={[["fill-rest", "move"], ["fill-no", "stay pending"], ["fill-old", "lost for good: no controller"]]} />
      </Section>
      {failures[0]?.moved && (
        <BeforeAfter
          mark="lost"
          marked={new Set(failures[0].nodes)}
          moves={failures[0].moved.map(({ pod, source, to }) => ({
            pod,
            from: source,
            to,
            end: failures[0]!.lostForGood.includes(pod) ? "lost for good" : "pending",
          }))}
        />
      )}
      {answer.fix && (
        <Section title="What would make it safe" aside={`cost ${count(answer.fix.cost)}; run for every loss`}>
          <div class="cards">
            {answer.fix.commands.length ? answer.fix.commands.map((command) => <Command text={command} />) : <Chips names={answer.fix.changes} />}
            {answer.fix.notes.map((note) => (
              <p class="small">
                <Badge tone="risk">note</Badge> {visible(note)}
              </p>
            ))}
          </div>
        </Section>
      )}
      {answer.spare && (
        <Section title="Spare nodes">
          <p>
            {answer.spare.nodes === undefined
              ? `Up to ${answer.spare.tried} more nodes like ${visible(answer.spare.like)} are not enough.`
              : `${plural(answer.spare.nodes, "more node")} like ${visible(answer.spare.like)} would be enough.`}
          </p>
        </Section>
      )}
      {bad.length > 0 && (
        <Section title="Pods that suffer">
          <ul class="groups">
            {bad.slice(0, 30).map((failure) => (
              <li class="keep">
                <div class="who">
                  <strong class="name">{visible(failure.lost)}</strong>
                </div>
                <Facts
                  of={[
                    ["Pending", chips(failure.pending, "pod")],
                    ["Why", failure.why ? <Small>{visible(failure.why)}</Small> : ""],
                    ["Lost for good", chips(failure.lostForGood, "pod")],
                    ["Stuck", chips(failure.stuck)],
                    ["Evicted", chips(failure.preempted)],
                  ]}
                />
              </li>
            ))}
          </ul>
        </Section>
      )}
      {answer.pendingBefore.length > 0 && (
        <SmallText>Pending without any loss, and not counted: {visible(answer.pendingBefore.join(", "))}.</SmallText>
      )}
    </>
  );
}

const Lost = ({ failure, worst }: { failure: Failure; worst: boolean }) => (
  <>
    <Name of={failure.lost} /> {worst && <Badge tone="no">worst</Badge>}
    {failure.sameAs && <span class="small muted"> equal to {visible(failure.sameAs)}</span>}
  </>
);
