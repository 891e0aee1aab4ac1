/** One workload: where its pods are, what they wait for, and how evenly it is spread. */
import { chips, Chips, Facts, Figure, Name, Section, Sign } from "../kit/basics";
import { Bar } from "../kit/bar";
import { NUM, Table, TableSection } from "../kit/table";
import type { Cluster, PodFields } from "../live/cluster";
import { accepts, inWords, type Requirement } from "../live/requires";
import { linkTo } from "../live/router";
import { version } from "../live/state";
import { amount, clock, count, natural, plural, shortNode, visible } from "../text";
import { Chart } from "./chart";
import { reasonsOf } from "../map/causes";

export function WorkloadPage({ cluster, namespace, owner }: { cluster: Cluster; namespace: string; owner: string }) {
  void version.value;
  const pods = [...cluster.pods.values()].filter((pod) => pod.owner === owner && pod.key.startsWith(namespace + "/"));
  if (!pods.length) {
    return (
      <main class="page stack">
        <h1>{visible(owner)} has no pod in {visible(namespace)}.</h1>
      </main>
    );
  }
  pods.sort((a, b) => natural.compare(a.key, b.key));
  const placed = pods.filter((pod) => pod.node !== null);
  const waiting = pods.filter((pod) => pod.node === null);
  const places = [["Zone", (node: string) => cluster.nodes.get(node)?.zone ?? ""], ["Node", (node: string) => node]] as const;
  const asked = pods[0]!.requests;
  const fullest = tally(placed.map((pod) => pod.node!))[0];
  const name = owner.replace("/", `/${namespace}/`).toLowerCase();
  return (
    <main class="page stack">
      <header class="answer">
        <p class="kind">Workload in {visible(namespace)}</p>
        <h1>{visible(owner)}</h1>
        <p class="certain">
          <Sign tone={waiting.length ? "no" : "ok"} /> {count(placed.length)} of {plural(pods.length, "pod")} placed
        </p>
      </header>
      <div class="figures">
        <Figure value={count(new Set(placed.map((pod) => pod.node)).size)} label="nodes" />
        <Figure value={count(new Set(placed.map((pod) => cluster.nodes.get(pod.node!)?.zone)).size)} label="zones" />
        {Object.entries(asked).filter(([, value]) => value).map(([resource, value]) => (
          <Figure value={amount(resource, value)} label={`${visible(resource)} a pod`} />
        ))}
      </div>
      <Section title="What if …">
        <p class="chips">
          <a class="button" href={linkTo(["if"], { ask: "scale", workload: name, replicas: String(pods.length) })}>Scale it</a>
          <a class="button" href={linkTo(["if"], { ask: "capacity", workload: name })}>How many more fit?</a>
          {fullest && (
            <a class="button" href={linkTo(["if"], { ask: "fail", nodes: fullest[0] })}>
              {`${shortNode(fullest[0])} is lost, with ${plural(fullest[1], "pod")} of it`}
            </a>
          )}
        </p>
      </Section>
      <Requires pod={pods[0]!} cluster={cluster} />
      <Grown pods={pods} />
      {waiting.length > 0 && (
        <Section title="Pending" aside={plural(waiting.length, "pod")}>
          <Facts of={[["Why", <Reasons pods={waiting} />], ["Pods", chips(waiting.map((pod) => pod.key), "pod")]]} />
        </Section>
      )}
      {places.map(([head, placeOf]) => {
        const counts = tally(placed.map((pod) => placeOf(pod.node!)));
        const most = Math.max(...counts.map(([, number]) => number), 1);
        return counts.length === 0 ? null : (
          <Section title={`By ${head.toLowerCase()}`} aside={evenness(counts.map(([, number]) => number))}>
            <Table
              label={`Pods by ${head.toLowerCase()}`}
              rows={counts}
              first={12}
              columns={[
                [head, ([place]) => (head === "Node" ? <Name of={place} to="node" /> : visible(place) || "none")],
                ["", ([, number]) => <Bar of={most} value={number} />],
                ["pods", ([, number]) => count(number), NUM],
              ]}
            />
          </Section>
        );
      })}
      <TableSection
        title="Pods"
        aside={String(pods.length)}
        rows={pods}
        columns={[
          ["Pod", (pod) => <Name of={pod.key} to="pod" />],
          ["Node", (pod) => (pod.node === null ? "" : <Name of={pod.node} to="node" />)],
          ["State", (pod) => pod.state],
          ["Since", (pod) => (pod.arrived ? clock(pod.arrived, Infinity) : ""), NUM],
        ]}
      />
    </main>
  );
}

/** What its pods require of a node, and how many nodes are so. */
function Requires({ pod, cluster }: { pod: PodFields; cluster: Cluster }) {
  if (!pod.requires) return null;
  const asked = JSON.parse(pod.requires) as Requirement;
  const nodes = [...cluster.nodes.values()].filter((node) => accepts(asked, node.labels));
  return (
    <Section title="Nodes that it selects" aside={`${plural(nodes.length, "node")} of ${count(cluster.nodes.size)}`}>
      <p class="breaks">{visible(inWords(asked))}</p>
      {nodes.length > 0 && <Chips names={nodes.map((node) => node.name)} first={6} to="node" label="Nodes that it selects" />}
    </Section>
  );
}

/** How many of the pods that are here had come by each time. */
function Grown({ pods }: { pods: readonly PodFields[] }) {
  const at = pods.flatMap((pod) => pod.arrived || []).sort((a, b) => a - b);
  const range = [at[0] ?? 0, at.at(-1) ?? 0] as const;
  if (range[1] - range[0] < 1) return null;
  return (
    <Section title="How it grew" aside="by the pods that are here">
      <Chart label={`Pods from ${clock(range[0], Infinity)} to ${clock(range[1], Infinity)}`} at={at} lines={[["pods", at.map((_, index) => index + 1)]]} marks={[]} range={range} zoom={() => undefined} />
    </Section>
  );
}

function Reasons({ pods }: { pods: readonly PodFields[] }) {
  const causes = [...new Set(pods.flatMap((pod) => (reasonsOf(pod.cause).length ? reasonsOf(pod.cause) : [pod.cause || "not tried yet"])))];
  return (
    <ul>
      {causes.slice(0, 6).map((cause) => (
        <li>{visible(cause)}</li>
      ))}
    </ul>
  );
}

function tally(places: readonly string[]): [string, number][] {
  const counts = new Map<string, number>();
  for (const place of places) counts.set(place, (counts.get(place) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1] || natural.compare(a[0], b[0]));
}

function evenness(numbers: readonly number[]): string {
  const [least, most] = [Math.min(...numbers), Math.max(...numbers)];
  return numbers.length < 2 ? "all in one place" : least === most ? `${count(least)} each` : `between ${count(least)} and ${count(most)} each`;
}
