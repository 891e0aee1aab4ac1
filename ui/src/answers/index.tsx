/** The page of each kind of answer. */
import type { AnyDocument, UnknownDocument } from "../documents";
import { AnswerHead } from "./envelope";
import { ExplanationPage } from "./explanation";
import { Raw } from "./raw";

export function Answer({ document }: { document: AnyDocument | UnknownDocument }) {
  const known = document as AnyDocument;
  switch (known.kind) {
    case "Explanation":
      return <ExplanationPage document={known} />;
    default:
      return (
        <>
          <AnswerHead document={document} tone="idle" verdict="answer" />
          <Raw value={document.answer} />
        </>
      );
  }
}
