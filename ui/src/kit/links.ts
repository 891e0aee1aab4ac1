/** Where names lead: to pages of the live interface; a report has none. */
import { createContext } from "preact";

type LinkTo = (name: string) => string | undefined;

export const Links = createContext<Readonly<Record<"node" | "pod", LinkTo>>>({ node: () => undefined, pod: () => undefined });

export type LinkKind = "node" | "pod";
