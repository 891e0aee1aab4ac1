/** The page of each kind of answer. */
import type { AnyDocument, UnknownDocument } from "../documents";
import { CapacityPage } from "./capacity";
import { ComparisonPage } from "./comparison";
import { DrainPage } from "./drain";
import { AnswerHead } from "./envelope";
import { ExplanationPage } from "./explanation";
import { OverviewPage } from "./overview";
import { PlanPage } from "./plan";
import { Raw } from "./raw";
import { SurvivalPage } from "./survival";

export function Answer({ document }: { document: AnyDocument | UnknownDocument }) {
  const known = document as AnyDocument;
  switch (known.kind) {
    case "Explanation":
      return <ExplanationPage document={known} />;
    case "Capacity":
      return <CapacityPage document={known} />;
    case "NodePlan":
      return <PlanPage document={known} />;
    case "DrainReport":
      return <DrainPage document={known} />;
    case "Survival":
      return <SurvivalPage document={known} />;
    case "Comparison":
      return <ComparisonPage document={known} />;
    case "Overview":
      return <OverviewPage document={known} />;
    default:
      return (
        <>
          <AnswerHead document={document} tone="idle" verdict="answer" />
          <Raw value={document.answer} />
        </>
      );
  }
}
