/** What kubectl drain does to nodes, and what becomes of their pods. */
import type { DrainAnswer, DrainedPod, DrainReport } from "../documents";
import { Badge, chips, Facts, Figure, Legend, Name, Quote, Section, Small, SmallText, type Tone } from "../kit/basics";
import { BeforeAfter } from "../kit/moves";
import { NUM, PROSE, TableSection } from "../kit/table";
import { count, plural, seconds, visible } from "../text";
import { AnswerHead } from "./envelope";

const OUTCOMES: Readonly<Record<DrainedPod["outcome"], readonly [Tone, string]>> = {
  moves: ["ok", "moves"],
  waits: ["risk", "waits"],
  never: ["no", "never evicted"],
  refused: ["no", "refused"],
  pending: ["no", "then pending"],
  lost: ["risk", "lost"],
  stays: ["idle", "stays"],
  finished: ["idle", "finished"],
};

const ORDER = Object.keys(OUTCOMES);

export function DrainPage({ document }: { document: DrainReport }) {
  const answer = document.answer;
  const verdict = answer.possible ? (answer.pending.length ? "possible, but leaves pods pending" : "possible") : "not possible";
  const counts = ORDER.map((outcome) => [outcome, answer.pods.filter((pod) => pod.outcome === outcome).length] as const);
  const pods = [...answer.pods].sort((a, b) => ORDER.indexOf(a.outcome) - ORDER.indexOf(b.outcome));
  const errors = answer.nodes.filter((node) => node.errors.length);
  return (
    <>
      <AnswerHead document={document} tone={!answer.possible ? "no" : answer.pending.length ? "risk" : "ok"} verdict={verdict} />
      <div class="figures">
        {counts.filter(([, pods]) => pods).map(([outcome, pods]) => (
          <Figure value={count(pods)} label={<Outcome of={outcome as DrainedPod["outcome"]} />} />
        ))}
        {answer.readySeconds !== undefined && <Figure value={seconds(answer.readySeconds)} label="until all are ready" />}
      </div>
      <BeforeAfter
        mark="drained"
        marked={new Set(answer.order)}
        moves={pods.map((pod) => ({
          pod: pod.pod,
          from: pod.origin,
          to: pod.node ?? "",
          end: pod.outcome === "pending" ? "pending" : pod.outcome === "finished" ? "finished" : "lost for good",
          title: OUTCOMES[pod.outcome]?.[1] ?? pod.outcome,
        }))}
      />
      <Timeline answer={answer} />
      <TableSection
        title="Pods"
        aside={plural(pods.length, "pod")}
        rows={pods}
        columns={[
          ["Pod", (pod) => <Name of={pod.pod} to="pod" />],
          ["Outcome", (pod) => <Outcome of={pod.outcome} />],
          ["From", (pod) => <Name of={pod.origin} to="node" />],
          ["To", (pod) => <Name of={pod.outcome === "moves" || pod.outcome === "waits" ? (pod.node ?? "") : ""} to="node" />],
          ["at", (pod) => (pod.at === undefined ? "" : seconds(pod.at)), NUM],
          ["Why", (pod) => <Small>{visible([pod.budget && `budget ${pod.budget}`, pod.why].filter(Boolean).join(": "))}</Small>, PROSE],
        ]}
      />
      {errors.length > 0 && (
        <Section title="What kubectl prints">
          <div class="cards">
            {errors.flatMap((node) => node.errors.map((error) => <Quote>{error}</Quote>))}
          </div>
        </Section>
      )}
      {answer.ifLost && (
        <Section title="If the nodes are lost instead">
          <Facts of={[["Move", plural(answer.ifLost.moves, "pod")], ["Then pending", chips(answer.ifLost.pending)], ["Lost for good", chips(answer.ifLost.lostForGood)]]} />
        </Section>
      )}
    </>
  );
}

function Outcome({ of }: { of: DrainedPod["outcome"] }) {
  const [tone, text] = OUTCOMES[of] ?? ["idle", of];
  return <Badge tone={tone}>{text}</Badge>;
}

/** When each pod is evicted, gone and placed again. */
function Timeline({ answer }: { answer: DrainAnswer }) {
  const pods = answer.pods.filter((pod) => pod.evictedSeconds !== undefined || pod.outcome === "never" || pod.outcome === "waits");
  const times = pods.flatMap((pod) => [pod.evictedSeconds ?? 0, pod.goneSeconds ?? 0, pod.placedSeconds ?? 0]);
  const end = Math.max(answer.readySeconds ?? 0, ...times);
  if (!pods.length || end <= 0) return null;
  const at = (time: number) => `${(100 * time) / end}%`;
  const span = (from: number, to: number, kind: string) => <span class={kind} style={{ left: at(from), width: at(Math.max(0, to - from)) }} />;
  return (
    <Section title="Timeline" aside={`0s to ${seconds(end)}`}>
      <div class="timeline">
        {pods.slice(0, 40).map(({ pod, outcome, evictedSeconds: evicted = end, goneSeconds: gone = end, placedSeconds: placed }) => (
          <div class="row-bar small">
            <span class="name">{visible(pod)}</span>
            <span class="lane" aria-hidden>
              {evicted > 0 && span(0, evicted, "waits")}
              {evicted < gone && span(evicted, gone, "goes")}
              {placed === undefined && outcome === "pending" && span(gone, end, "pends")}
              {placed !== undefined && span(placed, end, "runs")}
            </span>
            <span class="num muted">
              {placed !== undefined ? `placed ${seconds(placed)}` : evicted === end ? "never" : gone < end && `gone ${seconds(gone)}`}
            </span>
          </div>
        ))}
        {pods.length > 40 && <SmallText>and {pods.length - 40} more pods</SmallText>}
        <Legend of={[["lane-waits", "waits for a budget"], ["lane-goes", "terminates"], ["lane-runs", "placed again"], ["lane-pends", "pending"]]} />
      </div>
    </Section>
  );
}
