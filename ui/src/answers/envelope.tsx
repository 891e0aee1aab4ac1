/** What surrounds every answer: the answer in words above it, and below it what it rests on. */
import type { ComponentChildren } from "preact";
import type { AnyDocument, UnknownDocument } from "../documents";
import { Badge, Facts, Section, Sign, type Tone } from "../kit/basics";
import { Command } from "../kit/command";
import { StillMap } from "../map/still";
import { briefly, plural, visible } from "../text";

type Document = AnyDocument | UnknownDocument;

const KINDS: Readonly<Record<string, string>> = {
  Explanation: "Why is this pod where it is?",
  Capacity: "How many more fit?",
  NodePlan: "Which nodes are needed?",
  DrainReport: "What does a drain do?",
  Survival: "What if nodes are lost?",
  Comparison: "Is B better than A?",
  Overview: "How full is the cluster?",
};

interface HeadProps {
  document: Document;
  tone: Tone;
  verdict: string;
  /** The map stands right below the words. */
  map?: boolean;
  /** The question in words, where the kind of the document is not enough. */
  kind?: string | undefined;
  children?: ComponentChildren;
}

export const AnswerHead = ({ document, tone, verdict, map = true, kind, children }: HeadProps) => (
  <>
    <header class="answer">
      <p class="kind">
        <Badge tone={tone}>{verdict}</Badge> {kind ?? KINDS[document.kind] ?? visible(document.kind)}
      </p>
      <h1>{briefly(document.summary)}</h1>
      {document.before && (
        <p class="certain">
          <strong>Before:</strong> {visible(document.before.summary)}
          <br />
          <strong>With the changes:</strong> {visible((document.question.changes ?? []).join(" · "))}
        </p>
      )}
      {document.stopped && (
        <p class="certain">
          <Sign tone="risk" /> The time was over before all was found: {visible(document.stopped.left.join("; "))}.
        </p>
      )}
      {children}
    </header>
    {map && <StillMap document={document} />}
  </>
);

/** Say how certain the answer is, as the last line of the commands does. */
export function certainty(document: Document): string {
  const { kind, runs, probes } = document.proof;
  const byRuns = "Verified by the engine" + (runs ? ` (${plural(runs, "run")})` : "");
  switch (kind) {
    case "exhaustive":
      return `${byRuns}; no cheaper answer exists${probes ? ` among ${plural(probes, "change")}` : ""}.`;
    case "bound":
      return "Equal to the arithmetic bound.";
    case "bounded":
      return `${byRuns}; ended at a limit.`;
    default:
      return `${byRuns}.`;
  }
}

export const Basis = ({ document, command }: { document: Document; command?: string | undefined }) => (
  <Section title="What this rests on">
    <div class="cards">
      <Facts
        of={[
          ["How certain", certainty(document)],
          ["Rules", `kube-scheduler ${visible(document.release)}`],
          ["Seeds", document.seeds.join(", ")],
          ["Input", visible(document.input.files.filter((file) => file !== "-").join(", "))],
          ["Taken at", visible(document.input.takenAt ?? "")],
          ["Digest", <code>{visible(document.input.digest)}</code>],
          ...document.assumptions.map((one) => [`Assumed: ${visible(one.name)}`, visible(one.value)] as const),
          ...document.input.notes.map((note) => ["Note", visible(note)] as const),
        ]}
      />
      {command && (
        <div>
          <h3>Run this again</h3>
          <Command text={command} />
        </div>
      )}
    </div>
  </Section>
);
