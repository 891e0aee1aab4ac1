/** How much of each resource pods request, over all nodes that are ready. */
import type { NodeFields } from "../live/cluster";
import { amount, percent, visible } from "../text";
import { shade } from "./look";

export function Meters({ nodes, resources }: { nodes: Iterable<NodeFields>; resources: readonly string[] }) {
  const sums = new Map(resources.map((resource) => [resource, { used: 0, whole: 0 }]));
  for (const node of nodes) {
    if (!node.ready) continue;
    for (const [resource, sum] of sums) {
      sum.used += node.requested[resource] ?? 0;
      sum.whole += node.allocatable[resource] ?? 0;
    }
  }
  const shown = [...sums].filter(([resource, sum]) => sum.whole > 0 && (sum.used > 0 || resource === "cpu" || resource === "memory")).slice(0, 6);
  return (
    <dl class="meters">
      {shown.map(([resource, { used, whole }]) => (
        <div class="meter" title={`${amount(resource, used)} of ${amount(resource, whole)}`}>
          <dt>{visible(resource)}</dt>
          <dd>{percent(used / whole, 0)}</dd>
          <dd class="thin" aria-hidden>
            <span class={`fill shade-${shade(used / whole)}`} style={{ width: `${Math.min(100, (100 * used) / whole)}%` }} />
          </dd>
        </div>
      ))}
    </dl>
  );
}
