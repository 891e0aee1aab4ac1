/** One node: what it has, what its pods request, who is there. */
import { Chips, Facts, Name, Section, Sign } from "../kit/basics";
import { Bar } from "../kit/bar";
import { Table } from "../kit/table";
import { type Cluster, share } from "../live/cluster";
import { version } from "../live/state";
import { amount, percent, plural, visible } from "../text";

export function NodePage({ cluster, name }: { cluster: Cluster; name: string }) {
  void version.value;
  const node = cluster.nodes.get(name);
  if (!node) {
    return (
      <main class="page stack">
        <h1>There is no node {visible(name)}.</h1>
        <p>
          <a href="#/">Back to the map</a>
        </p>
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
            { head: "Resource", cell: (resource) => visible(resource) },
            { head: "", cell: (resource) => <Bar of={1} parts={[{ value: Math.min(1, share(node, resource)), fill: "rest" }]} class="wide-bar" /> },
            { head: "share", num: true, cell: (resource) => percent(share(node, resource)) },
            { head: "requested", num: true, cell: (resource) => amount(resource, node.requested[resource] ?? 0) },
            { head: "allocatable", num: true, cell: (resource) => amount(resource, node.allocatable[resource] ?? 0) },
          ]}
        />
      </Section>
      <Section title="Pods" aside={String(pods.length)}>
        <Table
          label="Pods"
          rows={pods}
          columns={[
            { head: "Pod", cell: (pod) => <Name of={pod.key} to="pod" /> },
            { head: "Workload", cell: (pod) => visible(pod.owner) },
            { head: "Priority", num: true, cell: (pod) => pod.priority },
            { head: "cpu", num: true, cell: (pod) => amount("cpu", pod.requests.cpu ?? 0) },
            { head: "memory", num: true, cell: (pod) => amount("memory", pod.requests.memory ?? 0) },
            { head: "State", cell: (pod) => pod.state },
          ]}
        />
      </Section>
      <Section title="Labels and taints">
        <Facts
          of={[
            ["Zone", visible(node.zone)],
            ["Node group", visible(node.group)],
            ["Taints", node.taints.length ? <Chips names={node.taints} /> : "none"],
            ["Labels", <Chips names={Object.entries(node.labels).map(([key, value]) => `${key}=${value}`)} first={30} />],
          ]}
        />
      </Section>
    </main>
  );
}
