/** What the live interface adds to names and commands; a report has neither. */
import { createContext } from "preact";

type LinkTo = (name: string) => string | undefined;

interface LiveParts {
  /** Where names lead. */
  readonly node: LinkTo;
  readonly pod: LinkTo;
  /** Of `shop/Deployment/web`. */
  readonly workload: LinkTo;
  /** To the situations that an event may stand for. */
  readonly event?: ((text: string) => string) | undefined;
  /** Ask the reader to confirm a kubectl command and run it on the server; missing where the interface changes nothing. */
  readonly run?: ((command: string) => void) | undefined;
}

export const Links = createContext<LiveParts>({ node: () => undefined, pod: () => undefined, workload: () => undefined });

export type LinkKind = "node" | "pod" | "workload";
