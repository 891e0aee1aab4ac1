import type { AnyDocument } from "../documents";

/** Save an answer as a report file: the page that needs no server, with the document in it. */
export async function download(answer: AnyDocument): Promise<void> {
  const page = await (await fetch("report.html")).text();
  const text = JSON.stringify(answer).replace(/[<>&\u2028\u2029]/g, (one) => "\\u" + one.charCodeAt(0).toString(16).padStart(4, "0"));
  // The bundle stands inside a script element, so its text must not contain the end of one, nor the start of a comment.
  const tag = document.scripts[0]!.localName;
  const block = `<${tag} type="application/json" id="moorage-document">${text}</${tag}>`;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([page.replace(/<.--moorage-title-->/, answer.kind).replace(/<.--moorage-document-->/, () => block)], { type: "text/html" }));
  link.download = answer.kind + ".html";
  link.click();
}
