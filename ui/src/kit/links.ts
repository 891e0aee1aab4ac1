/** What the live interface adds to names and commands; a report has neither. */
import { createContext } from "preact";

type LinkTo = (name: string) => string | undefined;

interface LiveParts {
  /** Where names lead. */
  readonly node: LinkTo;
  readonly pod: LinkTo;
  /** Run a kubectl command on the server and return what kubectl would say; missing where the interface changes nothing. */
  readonly run?: ((command: string, dryRun: boolean) => Promise<string>) | undefined;
}

export const Links = createContext<LiveParts>({ node: () => undefined, pod: () => undefined });

export type LinkKind = "node" | "pod";
