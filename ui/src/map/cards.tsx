/** The map of few nodes: a card for each, with the pods as segments of its bar. */
import type { NodeFields, PodFields } from "../live/cluster";
import { share } from "../live/cluster";
import { percent, plural, shortNode, visible } from "../text";
import { GroupBox } from "./group";
import type { TileGroup } from "./layout";
import { type Look, type Measure, measured, measureName, secondOf, shade } from "./look";

interface CardsProps {
  groups: readonly TileGroup[];
  nodeOf: (name: string) => NodeFields | undefined;
  podsOf: (name: string) => readonly PodFields[];
  lookOf: (node: NodeFields) => Look;
  describe: (node: NodeFields) => string;
  href: (name: string) => string | undefined;
  measure: Measure;
  /** The pods in question, which stand out. */
  subjects?: ReadonlySet<string>;
}

export const CardMap = ({ groups, nodeOf, ...rest }: CardsProps) => (
  <div class="card-map">
    {groups.map((group) => (
      <GroupBox key={group.title} group={group}>
        <ul class="tiles">
          {group.names.map((name) => {
            const node = nodeOf(name);
            return node && <li key={name}><Card node={node} {...rest} /></li>;
          })}
        </ul>
      </GroupBox>
    ))}
  </div>
);

function Card({ node, podsOf, lookOf, describe, href, measure, subjects }: { node: NodeFields } & Omit<CardsProps, "groups" | "nodeOf">) {
  const look = lookOf(node);
  const pods = podsOf(node.name);
  const second = secondOf(measure);
  const resource = measure === "dominant" || measure === "stranded" ? mostUsed(node) : measure;
  const state = `${look.dim ? "dim" : ""} ${node.cordoned ? "cordoned" : ""} ${node.ready ? "" : "not-ready"} ${look.verdict ? (look.verdict.fits ? "fits" : "refuses") : ""}`;
  const link = href(node.name);
  const words = { class: `tile ${state}`, title: describe(node), "data-node": node.name };
  const content = (
    <>
      <span class="tile-head">
        <span class="name">{visible(shortNode(node.name))}</span>
        <span class="tile-share">{percent(measured(node, measure), 0)}</span>
      </span>
      <span class="hidden-text">
        {` of ${visible(measureName(resource))}, `}
        {["cpu", "memory"].filter((one) => one !== resource).map((one) => `${one} ${percent(share(node, one), 0)}, `)}
      </span>
      <Segments node={node} pods={pods} resource={resource} {...(subjects && { subjects })} />
      <span class="thin" aria-hidden title={`${second} ${percent(share(node, second), 0)}`}>
        <span class="fill" style={{ width: `${Math.min(100, 100 * share(node, second))}%` }} />
      </span>
      <span class="tile-foot">
        {look.verdict ? (
          <span class={look.verdict.fits ? "sign ok" : ""}>
            {look.verdict.fits ? "✓ fits" : <><span class={`swatch fill-${look.verdict.colour}`} /> {visible(look.verdict.plugin)}</>}
          </span>
        ) : (
          <>
            {plural(pods.length, "pod")}
            {!node.ready && <span class="sign no"> ✗ not ready</span>}
            {node.cordoned && <span> ⊘ cordoned</span>}
          </>
        )}
      </span>
    </>
  );
  return link ? (
    <a {...words} href={link}>
      {content}
    </a>
  ) : (
    <div {...words}>{content}</div>
  );
}

const MOST = 32;

/** The bar of one resource, with a segment for each pod, the largest first. */
function Segments({ node, pods, resource, subjects }: { node: NodeFields; pods: readonly PodFields[]; resource: string; subjects?: ReadonlySet<string> }) {
  const whole = node.allocatable[resource] ?? 0;
  const asked = (pod: PodFields) => (resource === "pods" ? 1 : (pod.requests[resource] ?? 0));
  const large = pods.filter((pod) => asked(pod) > 0).sort((a, b) => asked(b) - asked(a) || (a.key < b.key ? -1 : 1));
  const shown = large.slice(0, MOST);
  const rest = large.slice(MOST).reduce((sum, pod) => sum + asked(pod), 0);
  const tone = shade(share(node, resource));
  const width = (value: number) => ({ width: `${whole > 0 ? Math.min(100, (100 * value) / whole) : 0}%` });
  return (
    <span class={`segments shade-${tone}`} aria-hidden title={`${measureName(resource)} ${percent(share(node, resource), 0)}`}>
      {shown.map((pod) => (
        <span key={pod.key} class={subjects?.has(pod.key) ? "segment subject" : "segment"} style={width(asked(pod))} title={visible(pod.key)} />
      ))}
      {rest > 0 && <span class="segment" style={width(rest)} title={`${large.length - MOST} more`} />}
    </span>
  );
}

function mostUsed(node: NodeFields): string {
  let most = "cpu";
  for (const resource of Object.keys(node.allocatable)) {
    if (resource !== "pods" && share(node, resource) > share(node, most)) most = resource;
  }
  return most;
}
