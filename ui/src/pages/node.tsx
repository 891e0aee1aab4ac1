/** One node: what it has, what its pods request, who is there. */
import { chips, Facts, Name, Section, Sign } from "../kit/basics";
import { Bar } from "../kit/bar";
import { NUM, Table, TableSection } from "../kit/table";
import { type Cluster, share } from "../live/cluster";
import { Actions } from "./actions";
import { version } from "../live/state";
import { amount, percent, plural, visible } from "../text";

export function NodePage({ cluster, name }: { cluster: Cluster; name: string }) {
  void version.value;
  const node = cluster.nodes.get(name);
  if (!node) {
    return (
      <main class="page stack">
        <h1>There is no node {visible(name)}.</h1>
      </main>
    );
  }
  const pods = [...node.pods].flatMap((key) => cluster.pods.get(key) ?? []);
  pods.sort((a, b) => (b.requests.cpu ?? 0) - (a.requests.cpu ?? 0) || (a.key < b.key ? -1 : 1));
  const resources = cluster.resources.filter((resource) => node.allocatable[resource]);
  return (
    <main class="page stack">
      <header class="answer">
        <p class="kind">Node</p>
        <h1>{visible(node.name)}</h1>
        <p class="certain">
          <Sign tone={node.ready ? "ok" : "no"} /> {node.ready ? "ready" : "not ready"}
          {node.cordoned && " · ⊘ cordoned"} · {plural(pods.length, "pod")}
        </p>
      </header>
      <Section title="Requested" aside="of what pods can have">
        <Table
          label="Resources"
          rows={resources}
          columns={[
            ["Resource", (resource) => visible(resource)],
            ["", (resource) => <Bar of={1} value={Math.min(1, share(node, resource))} />],
            ["share", (resource) => percent(share(node, resource)), NUM],
            ["requested", (resource) => amount(resource, node.requested[resource] ?? 0), NUM],
            ["allocatable", (resource) => amount(resource, node.allocatable[resource] ?? 0), NUM],
          ]}
        />
      </Section>
      <Actions names={node.name} of={[`kubectl ${node.cordoned ? "uncordon" : "cordon"} ${node.name}`]} />
      <TableSection
        title="Pods"
        aside={String(pods.length)}
        rows={pods}
        columns={[
          ["Pod", (pod) => <Name of={pod.key} to="pod" />],
          ["Workload", (pod) => visible(pod.owner)],
          ["Priority", (pod) => pod.priority, NUM],
          ["cpu", (pod) => amount("cpu", pod.requests.cpu ?? 0), NUM],
          ["memory", (pod) => amount("memory", pod.requests.memory ?? 0), NUM],
          ["State", (pod) => pod.state],
        ]}
      />
      <Section title="Labels and taints">
        <Facts
          of={[
            ["Zone", visible(node.zone)],
            ["Node group", visible(node.group)],
            ["Taints", chips(node.taints) || "none"],
            ["Labels", chips(Object.entries(node.labels).map(([key, value]) => `${key}=${value}`)) || "none"],
          ]}
        />
      </Section>
    </main>
  );
}
