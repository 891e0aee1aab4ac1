/** The pages of the live interface. A page is one file here and one line in PAGES. */
import type { ComponentChildren } from "preact";
import { COMPARE, WHAT_IF } from "../forms";
import type { Cluster } from "../live/cluster";
import { AskPage } from "./ask";
import { AtlasPage } from "./atlas";
import { MapPage } from "./map";
import { NodePage } from "./node";
import { PodPage } from "./pod";
import { SetupPage } from "./setup";
import { TimePage } from "./time";
import { WorkloadPage } from "./workload";

interface Page {
  /** The first segment of the path. */
  readonly name: string;
  /** What the navigation calls it; pages without a label are reached by links. */
  readonly label?: string;
  /** It asks questions, which not every server answers. */
  readonly asks?: boolean;
  readonly show: (cluster: Cluster, rest: readonly string[]) => ComponentChildren;
}

export const PAGES: readonly Page[] = [
  { name: "", label: "Map", show: (cluster) => <MapPage cluster={cluster} /> },
  { name: "node", show: (cluster, [name = ""]) => <NodePage key={name} cluster={cluster} name={name} /> },
  { name: "pod", show: (cluster, [namespace = "", name = ""]) => <PodPage key={`${namespace}/${name}`} cluster={cluster} pod={`${namespace}/${name}`} /> },
  {
    name: "workload",
    show: (cluster, [namespace = "", ...owner]) => <WorkloadPage key={owner.join("/")} cluster={cluster} namespace={namespace} owner={owner.join("/")} />,
  },
  { name: "if", label: "What if", asks: true, show: (cluster) => <AskPage cluster={cluster} title="What if …" forms={WHAT_IF} /> },
  { name: "compare", label: "Compare", asks: true, show: (cluster) => <AskPage cluster={cluster} title="Compare two configurations or releases" forms={COMPARE} /> },
  { name: "atlas", label: "Atlas", show: () => <AtlasPage /> },
  { name: "time", label: "Time", show: () => <TimePage /> },
  { name: "setup", label: "Setup", show: () => <SetupPage /> },
];
