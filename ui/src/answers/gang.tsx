/** Why a pod group waits: how many of its pods fit in each domain, who waits for whom, and what starts it. */
import type { GangAnswer, GangDomain, GangPart, GangWay, PodGroupExplanation } from "../documents";
import { Badge, Chips, Figure, Quote, Section, Small, SmallText, type Tone } from "../kit/basics";
import { Bar } from "../kit/bar";
import { Command } from "../kit/command";
import { NUM, PROSE, Table, TableSection } from "../kit/table";
import { count, plural, visible } from "../text";
import { AnswerHead } from "./envelope";

const STATES: Readonly<Record<string, readonly [Tone, string]>> = {
  scheduled: ["ok", "runs"],
  fits: ["risk", "fits now"],
  waiting: ["no", "waits"],
  never: ["no", "can never start"],
  incomplete: ["risk", "incomplete"],
  preempting: ["risk", "preempts"],
  missing: ["no", "no group"],
};

const PARTS: Readonly<Record<GangPart["state"], readonly [Tone, string]>> = {
  placed: ["ok", "placed"],
  fits: ["subject", "would fit"],
  blocked: ["no", "no node"],
  held: ["risk", "held back"],
  absent: ["risk", "not created"],
};

const WAYS: Readonly<Record<string, string>> = {
  create: "create pods",
  release: "release pods",
  wait: "wait",
  room: "make room",
  fewer: "ask for fewer",
  grow: "add nodes",
};

export function GangPage({ document }: { document: PodGroupExplanation }) {
  const answer = document.answer;
  const [tone, verdict] = STATES[answer.state] ?? ["idle", answer.state];
  return (
    <>
      <AnswerHead document={document} tone={tone} verdict={verdict} />
      <div class="figures">
        <Figure value={`${count(answer.placed)} of ${count(answer.pods)}`} label="pods placed" />
        {answer.minCount !== undefined && <Figure value={count(answer.minCount)} label="go together" />}
        {answer.domains.length > 0 && <Figure value={`${count(answer.largest)} of ${count(answer.needed)}`} label={largest(answer)} />}
      </div>
      {answer.ways.length > 0 && <Ways ways={answer.ways} />}
      {answer.parts.length > 0 && <Parts parts={answer.parts} />}
      {answer.domains.length > 0 && <Domains answer={answer} />}
      {answer.message && (
        <Section title="Latest attempt">
          <Quote>{answer.message}</Quote>
        </Section>
      )}
    </>
  );
}

const largest = (answer: GangAnswer) =>
  answer.largest === answer.atMost ? "fit together now, no more in any order" : `fit together now, at most ${count(answer.atMost)}`;

function Ways({ ways }: { ways: readonly GangWay[] }) {
  return (
    <Section title="What starts it" aside="any one of these">
      <div class="cards">
        {ways.map((way) => (
          <div class="card">
            <Badge tone="ok">{visible(WAYS[way.kind] ?? way.kind)}</Badge>
            <p>{visible(way.text)}</p>
            {way.moved?.length ? <Chips names={way.moved} first={6} label="Move" to="pod" /> : null}
            {way.evicted?.length ? <Chips names={way.evicted} first={6} label="Evict" to="pod" /> : null}
            {way.commands?.slice(0, 5).map((command) => <Command text={command} />)}
            {(way.commands?.length ?? 0) > 5 && <SmallText>and {plural(way.commands!.length - 5, "command")} more</SmallText>}
          </div>
        ))}
      </div>
    </Section>
  );
}

function Parts({ parts }: { parts: readonly GangPart[] }) {
  return (
    <Section title="Who waits for whom">
      <Table
        label="Pods of the group"
        rows={parts}
        columns={[
          ["", (part) => <Badge tone={PARTS[part.state]?.[0] ?? "idle"}>{PARTS[part.state]?.[1] ?? visible(part.state)}</Badge>],
          ["pods", (part) => count(part.count), NUM],
          ["Which", (part) => (part.pods?.length ? <Chips names={part.pods} first={4} to="pod" /> : "")],
          ["", (part) => visible(part.why ?? ""), PROSE],
        ]}
      />
    </Section>
  );
}

function Domains({ answer }: { answer: GangAnswer }) {
  const most = Math.max(1, answer.needed);
  const domain = answer.topologyKey ?? "Domain";
  return (
    <TableSection
      title={answer.topologyKey ? `Room by ${answer.topologyKey}` : "Room"}
      aside={answer.topologyKey ? plural(answer.domains.length, "domain") : ""}
      rows={answer.domains}
      columns={[
        [domain, (one) => visible(one.name)],
        ["nodes that accept", (one) => `${count(one.accepting)} of ${count(one.nodes)}`, NUM],
        ["", (one) => <Bar of={most} value={Math.min(one.fits, most)} />],
        ["fit now", (one) => fits(one), NUM],
        ["ever", (one) => (one.ever < answer.needed ? count(one.ever) : "all"), NUM],
        ["What stops the next one", (one) => <Small>{stops(one)}</Small>, PROSE],
      ]}
    />
  );
}

const fits = (one: GangDomain) => (one.fits === one.atMost ? count(one.fits) : `${count(one.fits)} to ${count(one.atMost)}`);

const stops = (one: GangDomain) =>
  visible(
    one.closed ||
      Object.entries(one.stops ?? {})
        .map(([reason, nodes]) => `${nodes} ${reason}`)
        .join(", "),
  );
