/** How full a cluster is, what is pending, and what still fits. */
import type { Overview, OverviewAnswer, PendingCause, Place, ResourceUse } from "../documents";
import { Badge, Chips, Figure, Muted, Section, SmallText } from "../kit/basics";
import { Bar } from "../kit/bar";
import { type Column, NUM, Table, TableSection } from "../kit/table";
import { amount, amounts, count, percent, plural, visible } from "../text";
import { AnswerHead } from "./envelope";
import { QueuesOfCluster } from "./queues";

export function OverviewPage({ document }: { document: Overview }) {
  const { answer } = document;
  const { nodes, pods } = answer;
  return (
    <>
      <AnswerHead document={document} tone={pods.pending ? "no" : "ok"} verdict={pods.pending ? `${count(pods.pending)} pending` : "nothing pending"} />
      <div class="figures">
        <Figure value={count(pods.placed)} label="pods placed" />
        <Figure value={count(pods.pending)} label="pods pending" />
        <Figure value={count(nodes.counted)} label={`of ${plural(nodes.all, "node")} take pods`} />
        {nodes.cordoned > 0 && <Figure value={count(nodes.cordoned)} label="cordoned" />}
        {nodes.notReady > 0 && <Figure value={count(nodes.notReady)} label="not ready" />}
        <Figure value={percent(answer.all.fragmentation)} label="fragmentation of the typical mix" />
      </div>
      {answer.pending.length > 0 && <Pending causes={answer.pending} />}
      <Section title="Resources" aside="of the nodes that take pods">
        <Table
          label="Resources"
          rows={answer.all.resources}
          columns={[
            ["Resource", (one) => visible(one.resource)],
            ["", (one) => <Bar of={1} value={one.utilisation} />],
            ["requested", (one) => percent(one.utilisation), NUM],
            ["free", (one) => amount(one.resource, one.free), NUM],
            ["unusable", (one) => percent(one.stranded), NUM],
            ["σ of nodes", (one) => percent(one.sigma), NUM],
            ["Jain’s index", (one) => one.jain.toFixed(2), NUM],
          ]}
        />
        <p class="small muted after">“unusable”: the share of what is free on nodes where no pod of the typical mix fits.</p>
      </Section>
      <Places title="Node groups" places={answer.groups} />
      <Places title="Zones" places={answer.zones} />
      <Mix answer={answer} />
      {answer.queues && <QueuesOfCluster queues={answer.queues} />}
    </>
  );
}

const Pending = ({ causes }: { causes: readonly PendingCause[] }) => (
  <Section title="Pending" aside="by cause">
    <ul class="groups">
      {causes.map((cause) => (
        <li class="keep">
          <div class="who">
            <p>
              <Badge tone="no">{plural(cause.pods.length, "pod")}</Badge>
            </p>
            <Chips names={cause.pods} first={6} to="pod" />
          </div>
          <div class="why">
            <div class="chips">
              {Object.entries(cause.plugins)
                .sort((a, b) => b[1] - a[1])
                .map(([plugin, nodes]) => (
                  <span class="chip">
                    {visible(plugin)} <strong>{count(nodes)}</strong>
                  </span>
                ))}
            </div>
            <SmallText>{visible(cause.message)}</SmallText>
          </div>
        </li>
      ))}
    </ul>
  </Section>
);

/** The same resources of several places, as small bars in a row. */
function Places({ title, places }: { title: string; places: readonly Place[] }) {
  if (places.length < 2) return null;
  const resources = [...new Set(places.flatMap((place) => place.resources.map((one) => one.resource)))].filter((one) => one !== "pods");
  const use = (place: Place, resource: string): ResourceUse | undefined => place.resources.find((one) => one.resource === resource);
  return (
    <TableSection
      title={title}
      rows={places}
      columns={[
        ["Name", (place) => <strong class="name">{visible(place.name || "none")}</strong>],
        ["nodes", (place) => count(place.nodes), NUM],
        ["pods", (place) => count(place.pods), NUM],
        ...resources.slice(0, 5).map((resource): Column<Place> => [
          visible(resource),
          (place) => {
            const one = use(place, resource);
            return one && one.allocatable > 0 ? (
              <div class="cell-bar">
                <Bar of={1} value={one.utilisation} />
                <span class="num small">{percent(one.utilisation, 0)}</span>
              </div>
            ) : (
              <Muted>–</Muted>
            );
          },
        ]),
        ["fragmentation", (place) => percent(place.fragmentation), NUM],
      ]}
    />
  );
}

const Mix = ({ answer }: { answer: OverviewAnswer }) =>
  answer.mix.length ? (
    <TableSection
      title="What still fits"
      aside="shapes of pods in the cluster, by how many there are"
      rows={answer.mix}
      first={20}
      columns={[
        ["Like", (shape) => <span class="name">{visible(shape.example)}</span>],
        ["Requests", (shape) => amounts(shape.requests)],
        ["there are", (shape) => count(shape.pods), NUM],
        ["more fit by arithmetic", (shape) => count(shape.arithmetic), NUM],
        ["by the engine", (shape) => (shape.engine === undefined ? "" : `${count(shape.engine)}${shape.complete === false ? "+" : ""}`), NUM],
      ]}
    />
  ) : null;
