/** The winner's lead over the runner-up, split by plugin, and what would turn it. */
import type { Scores } from "../../documents";
import { Badge, Muted, SmallText } from "../../kit/basics";
import { plural, signed, visible } from "../../text";

export function Margin({ scores, nodes }: { scores: Scores; nodes: readonly string[] }) {
  if (scores.runnerUp === undefined) return <p class="muted">It is the only node that fits.</p>;
  const split = Object.entries(scores.split).filter(([, points]) => points);
  const widest = Math.max(1, ...split.map(([, points]) => Math.abs(points)));
  return (
    <div class="keep">
      <h3>
        Ahead of {visible(nodes[scores.runnerUp] ?? "")} by {plural(scores.margin, "point")}{" "}
        {scores.margin === 0 ? <Badge tone="risk">draw</Badge> : scores.nearTie && <Badge tone="risk">near tie</Badge>}
      </h3>
      {scores.tied.length > 1 && (
        <SmallText>
          Chosen from {scores.tied.length} equally scored nodes: kube-scheduler at random, here by the seed.
        </SmallText>
      )}
      <table class="margin" aria-label="Lead over the runner-up by plugin">
        <tbody>
          {split.map(([plugin, points]) => (
            <tr>
              <th scope="row" class="plugin">
                {visible(plugin)}
              </th>
              <td class="wide">
                <span class="diverging" aria-hidden>
                  <span
                    class={points > 0 ? "ahead" : "behind"}
                    style={{ width: `${(50 * Math.abs(points)) / widest}%`, marginLeft: `${points > 0 ? 50 : 50 - (50 * -points) / widest}%` }}
                  />
                </span>
              </td>
              <td class="num">{signed(points)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {scores.flips.length > 0 && (
        <>
          <h3>What would turn it</h3>
          <ul class="flips">
            {scores.flips.map((flip) => (
              <li>
                {visible(flip.text)}
                {flip.kind !== "withoutNode" && flip.to !== undefined && (
                  <Muted> → {visible(nodes[flip.to] ?? "")}</Muted>
                )}
              </li>
            ))}
          </ul>
        </>
      )}
    </div>
  );
}
