/** The page of each kind of answer. */
import type { ComponentType } from "preact";
import type { AnyDocument, UnknownDocument } from "../documents";
import { CapacityPage } from "./capacity";
import { ComparisonPage } from "./comparison";
import { DrainPage } from "./drain";
import { AnswerHead } from "./envelope";
import { ExplanationPage } from "./explanation";
import { GangPage } from "./gang";
import { OverviewPage } from "./overview";
import { PlanPage } from "./plan";
import { Raw } from "./raw";
import { RunPage } from "./run";
import { SurvivalPage } from "./survival";

const PAGES: Readonly<Record<string, ComponentType<{ document: never }>>> = {
  Explanation: ExplanationPage,
  Capacity: CapacityPage,
  NodePlan: PlanPage,
  DrainReport: DrainPage,
  Survival: SurvivalPage,
  Comparison: ComparisonPage,
  Overview: OverviewPage,
  PodGroupExplanation: GangPage,
  SimulationReport: RunPage,
};

export function Answer({ document }: { document: AnyDocument | UnknownDocument }) {
  // A kind may be hostile, such as "constructor".
  const Page = Object.hasOwn(PAGES, document.kind) && PAGES[document.kind];
  return Page ? (
    <Page document={document as never} />
  ) : (
    <>
      <AnswerHead document={document} tone="idle" verdict="answer" />
      <Raw value={document.answer} />
    </>
  );
}
