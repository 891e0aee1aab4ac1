/** The page of one pod: the decision, what refused it, what would change it. */
import type { ComponentChildren } from "preact";
import { useContext } from "preact/hooks";
import type { Explanation, ExplanationAnswer, Remedy } from "../../documents";
import { Chips, Facts, Quote, Section, type Tone } from "../../kit/basics";
import { Links } from "../../kit/links";
import type { ScoreColumns } from "../../ranking";
import { briefly, plural, visible } from "../../text";
import { AnswerHead } from "../envelope";
import { StillMap } from "../../map/still";
import { Changes } from "./changes";
import { Funnel } from "./funnel";
import { Groups } from "./groups";
import { PreemptionTable } from "./preemption";
import { ScoreSection } from "./scores";

const OUTCOMES: Readonly<Record<ExplanationAnswer["outcome"], readonly [Tone, string]>> = {
  pending: ["no", "pending"],
  placed: ["ok", "placed"],
  preempts: ["risk", "preempts"],
  gated: ["risk", "gated"],
  notOurs: ["idle", "another scheduler"],
  notCreated: ["no", "not created"],
  ended: ["idle", "ended"],
};

interface ExplanationProps {
  document: Explanation;
  offer?: ((change: Remedy, first: boolean) => ComponentChildren) | undefined;
  /** The scores of all nodes that fit; the document has the best ten. */
  scores?: ScoreColumns | undefined;
}

export function ExplanationPage({ document, offer, scores }: ExplanationProps) {
  const answer = document.answer;
  const [tone, verdict] = OUTCOMES[answer.outcome] ?? ["idle", answer.outcome];
  const changes = <Changes changes={answer.changes} leftOut={answer.leftOut} nodes={answer.nodes} offer={offer} />;
  const refusals = (
    <>
      <Funnel steps={answer.funnel} nodes={answer.nodes.length} />
      <Groups groups={answer.groups} nodes={answer.nodes} />
      <Conflicts conflicts={answer.conflicts} />
    </>
  );
  return (
    <>
      <AnswerHead document={document} tone={tone} verdict={verdict} map={false} kind={answer.outcome === "pending" ? "Why is this pod pending?" : undefined}>
        {answer.state.text && <p class="certain">{briefly(answer.state.text)}</p>}
      </AnswerHead>
      {changes}
      <StillMap document={document} />
      <State answer={answer} />
      {answer.scores && <ScoreSection scores={answer.scores} nodes={answer.nodes} all={scores} />}
      {refusals}
      {answer.preemption && <PreemptionTable preemption={answer.preemption} nodes={answer.nodes} />}
      {answer.message && (
        <Section title="The event" aside="kube-scheduler’s own words">
          <Quote>{answer.message}</Quote>
          <InAtlas event={answer.message} />
        </Section>
      )}
    </>
  );
}

/** A link to what such events stand for; a report has no pages to lead to. */
function InAtlas({ event }: { event: string }) {
  const { event: linkOf } = useContext(Links);
  return linkOf ? (
    <p class="small">
      <a href={linkOf(event)}>What such events stand for: the atlas</a>
    </p>
  ) : null;
}

function Conflicts({ conflicts }: { conflicts: ExplanationAnswer["conflicts"] }) {
  if (!conflicts.length) return null;
  return (
    <Section
      title={conflicts.some((terms) => terms.length > 1) ? "No node satisfies together" : "No node satisfies"}
      aside={plural(conflicts.length, conflicts.some((terms) => terms.length > 1) ? "combination" : "requirement")}
    >
      <ul class="cards">
        {conflicts.map((terms) => (
          <li>
            <Chips names={terms.map((term) => term.term)} />
          </li>
        ))}
      </ul>
    </Section>
  );
}

function State({ answer }: { answer: ExplanationAnswer }) {
  const { state, notCreated, nearestMiss } = answer;
  const facts = [
    ["Causes", state.causes?.length ? <List of={state.causes} /> : ""],
    ["Tried again after", state.endedBy?.length ? <Folded of={state.endedBy} /> : ""],
    ["Once released", state.fitsOnceReleased === undefined ? "" : state.fitsOnceReleased ? "it fits" : "it does not fit"],
    ["Nominated to", visible(state.nominatedNode ?? "")],
    ["Did you mean", nearestMiss?.hints.length ? <List of={nearestMiss.hints} /> : ""],
    ["Refused by", notCreated ? visible([notCreated.by, notCreated.quota].filter(Boolean).join(" ")) : ""],
    ["Message", visible(notCreated?.message ?? "")],
  ] as const;
  return facts.some(([, value]) => value !== "") ? <Facts of={facts} /> : null;
}

const List = ({ of }: { of: readonly string[] }) => (
  <ul>
    {of.map((text) => (
      <li>{briefly(text)}</li>
    ))}
  </ul>
);

const Folded = ({ of }: { of: readonly string[] }) => (
  <details>
    <summary>{plural(of.length, "kind of event", "kinds of event")}</summary>
    <List of={of} />
  </details>
);
