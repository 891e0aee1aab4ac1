/** One node: what it has, what its pods request, who is there. */
import { chips, Chips, Facts, Muted, Name, Section, Sign, Small } from "../kit/basics";
import { Bar } from "../kit/bar";
import { NUM, PROSE, Table, TableSection } from "../kit/table";
import { type Amounts, type Cluster, type NodeFields, type PodFields, share } from "../live/cluster";
import { accepts, inWords, type Requirement } from "../live/requires";
import { Actions } from "./actions";
import { linkTo } from "../live/router";
import { version } from "../live/state";
import { Chart } from "./chart";
import { amount, clock, count, percent, plural, visible } from "../text";

/** How the requests of the pods that are here grew, by the times at which the pods came. */
function Filled({ pods, allocatable }: { pods: readonly PodFields[]; allocatable: Amounts }) {
  const known = pods.filter((pod) => pod.arrived).sort((a, b) => a.arrived - b.arrived);
  const first = known[0]?.arrived;
  const last = known.at(-1)?.arrived;
  if (first === undefined || last === undefined || last - first < 1) return null;
  const at: number[] = [];
  const lines: [string, number[]][] = ["cpu", "memory"].map((resource) => [`${resource} requested`, []]);
  const sums = [0, 0];
  for (const pod of known) {
    at.push(pod.arrived, pod.arrived);
    lines.forEach(([name, values], which) => {
      const resource = name.split(" ")[0]!;
      values.push(sums[which]!, (sums[which]! += (pod.requests[resource] ?? 0) / (allocatable[resource] || 1)));
    });
  }
  return (
    <Section title="How it filled" aside="by the pods that are here">
      <Chart label={`Requests from ${clock(first, Infinity)} to ${clock(last, Infinity)}`} {...{ at, lines }} marks={[]} shares range={[first, last]} zoom={() => undefined} />
    </Section>
  );
}

interface Selector {
  readonly words: string;
  readonly pods: PodFields[];
}

/** The pods, by what they require, that require labels which this node has. */
function Selecting({ cluster, node }: { cluster: Cluster; node: NodeFields }) {
  const found = new Map<string, Selector | null>();
  for (const pod of cluster.pods.values()) {
    if (!pod.requires) continue;
    let held = found.get(pod.requires);
    if (held === undefined) {
      const asked = JSON.parse(pod.requires) as Requirement;
      held = accepts(asked, node.labels) ? { words: inWords(asked), pods: [] } : null;
      found.set(pod.requires, held);
    }
    held?.pods.push(pod);
  }
  const selectors = [...found.values()].filter((one) => one !== null).sort((a, b) => b.pods.length - a.pods.length);
  if (!selectors.length) return null;
  return (
    <Section title="Who selects it" aside="by a node selector or required affinity">
      <Table
        label="Who selects it"
        rows={selectors}
        first={8}
        columns={[
          ["Pods that require", ({ words }) => <span class="breaks">{visible(words)}</span>, PROSE],
          ["Workloads", ({ pods }) => <Owners pods={pods} />, PROSE],
          ["pods", ({ pods }) => count(pods.length), NUM],
          ["here", ({ pods }) => count(pods.filter((pod) => pod.node === node.name).length), NUM],
          ["pending", ({ pods }) => count(pods.filter((pod) => pod.node === null).length), NUM],
        ]}
      />
    </Section>
  );
}

/** The first workloads of some pods, with links. */
function Owners({ pods }: { pods: readonly PodFields[] }) {
  const owners = new Map(pods.filter((pod) => pod.owner).map((pod) => [`${pod.key.split("/")[0]}/${pod.owner}`, pod]));
  const first = [...owners.values()].slice(0, 3);
  return (
    <>
      {first.map((pod, at) => (
        <>
          {at > 0 && ", "}
          <Name of={pod.owner} to="workload" at={pod.key} />
        </>
      ))}
      {owners.size > first.length && <Muted> and {plural(owners.size - first.length, "other")}</Muted>}
    </>
  );
}

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
  const free = Object.fromEntries(cluster.resources.map((one) => [one, Math.max(0, (node.allocatable[one] ?? 0) - (node.requested[one] ?? 0))]));
  const waiting = [...cluster.waiting].flatMap((key) => cluster.pods.get(key) ?? []);
  const small = waiting.filter((pod) => Object.entries({ ...pod.requests, pods: 1 }).every(([one, value]) => value <= (free[one] ?? 0)));
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
            ["free", (resource) => amount(resource, free[resource]!), NUM],
          ]}
        />
      </Section>
      <Filled pods={pods} allocatable={node.allocatable} />
      <Section title="What if …" aside="where its pods go, and whether they find a place">
        <p class="chips">
          <a class="button" href={linkTo(["if"], { ask: "fail", nodes: name })}>It is lost</a>
          <a class="button" href={linkTo(["if"], { ask: "drain", nodes: name, ignore_daemonsets: "yes", delete_emptydir_data: "yes", force: "yes" })}>It is drained</a>
          <a class="button" href={linkTo(["if"], { ask: "add", nodes: name, count: "1" })}>There is another one</a>
        </p>
        {waiting.length > 0 && (
          <p class="below">
            {plural(small.length, "pending pod")} of {count(waiting.length)} would have enough room here, by requests alone.{" "}
            {small.length > 0 && <Chips names={small.map((pod) => pod.key)} first={4} to="pod" label="Pending pods that have room here" />}
          </p>
        )}
      </Section>
      <Selecting cluster={cluster} node={node} />
      <Actions names={node.name} of={[`kubectl ${node.cordoned ? "uncordon" : "cordon"} ${node.name}`]} />
      <TableSection
        title="Pods"
        aside={String(pods.length)}
        rows={pods}
        columns={[
          [
            "Pod",
            (pod) => (
              <>
                <Name of={pod.key} to="pod" />
                {pod.owner && (
                  <Small>
                    <br />
                    <Muted>of </Muted>
                    <Name of={pod.owner} to="workload" at={pod.key} />
                  </Small>
                )}
              </>
            ),
          ],
          ["Priority", (pod) => count(pod.priority), NUM],
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
