/** The report file: one document, or several of a List, with what they rest on. */
import { useMemo } from "preact/hooks";
import { Answer } from "./answers";
import { Basis } from "./answers/envelope";
import type { AnyDocument } from "./documents";
import { Several } from "./kit/basics";
import { Guard } from "./kit/guard";
import { Cluster, type Snapshot } from "./live/cluster";
import { StillCluster } from "./map/still";
import { visible } from "./text";

/** What the writer of the file adds to the document. */
export interface Context {
  readonly command?: string;
  readonly snapshot?: Snapshot;
}

type Input = AnyDocument | { readonly kind: "List"; readonly items: readonly AnyDocument[] };

export function Report({ input, context }: { input: Input; context: Context }) {
  const documents = input.kind === "List" ? input.items : [input];
  const cluster = useMemo(() => context.snapshot && new Cluster(context.snapshot), [context]);
  return (
    <div class="page report">
      <StillCluster.Provider value={cluster}>
        <Several.Provider value={documents.length > 1}>
          <main class="stack">
            {documents.map((document, index) => (
              <article class="stack" aria-label={visible(document.summary)}>
                <Guard>
                  <Answer document={document} />
                </Guard>
                <Basis document={document} command={index === documents.length - 1 ? context.command : undefined} />
              </article>
            ))}
          </main>
        </Several.Provider>
      </StillCluster.Provider>
      <footer class="small muted foot">Moorage report · works without a network</footer>
    </div>
  );
}

/** Return the JSON of a data block of the page, or undefined if there is none. */
export function embedded<T>(id: string): T | undefined {
  const text = document.getElementById(id)?.textContent;
  return text ? (JSON.parse(text) as T) : undefined;
}
