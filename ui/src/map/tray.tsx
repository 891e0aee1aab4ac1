/** Pending pods, grouped by cause. */
import { useState } from "preact/hooks";
import type { Lacking, PodFields } from "../live/cluster";
import { podLink } from "../live/router";
import { Button, Muted, Sign, SmallText } from "../kit/basics";
import { byCause, byWorkload, reasonsOf } from "./causes";
import { briefly, count, plural, visible } from "../text";

const SIGNS: Readonly<Record<string, readonly [string, string]>> = {
  pending: ["·", "pending"],
  backoff: ["↻", "backing off"],
  gated: ["⊘", "gated"],
  nominated: ["→", "nominated"],
};

const FIRST = 8;
const MORE = 100;
const CAUSES = 12;

interface TrayProps {
  /** What is wrong, in words. */
  wrong: readonly string[];
  lacking: readonly Lacking[];
  pods: readonly PodFields[];
  subject: string | undefined;
  /** Show on the map how nodes answer this pod; undefined ends it. */
  show: (pod: string | undefined) => void;
  matches: (pod: PodFields) => boolean;
}

export function Tray({ wrong, lacking, pods, subject, show, matches }: TrayProps) {
  if (!pods.length) {
    return (
      <section class="tray" aria-label="Pending pods">
        <p>
          {wrong.length + lacking.length ? (
            <>
              <Sign tone="risk" /> {wrong.join(" · ") || `${plural(lacking.length, "workload")} without all pods ready`}. No pod is pending yet.
            </>
          ) : (
            <>
              <Sign tone="ok" /> No pod is pending.
            </>
          )}
        </p>
        <LackingWorkloads of={lacking} />
      </section>
    );
  }
  const causes = byCause(pods);
  return (
    <section class="tray" aria-label="Pending pods">
      <h2>
        <Sign tone="no" /> {plural(pods.length, "pending pod")}
      </h2>
      {pods.some((pod) => pod.recorded) && (
        <SmallText>
          <span class="sign risk">≠</span> The cluster's scheduler recorded another cause than Moorage finds now.
        </SmallText>
      )}
      <ul class="causes" onMouseLeave={() => show(undefined)}>
        {causes.slice(0, CAUSES).map(([cause, members]) => (
          <li key={cause}>
            <Cause text={cause} total={members.length} gated={members.every((pod) => pod.state === "gated")} />
            <Members {...{ members, subject, show, matches }} />
          </li>
        ))}
        {causes.length > CAUSES && <li class="small muted">and {plural(causes.length - CAUSES, "more cause")}</li>}
      </ul>
      <LackingWorkloads of={lacking} />
    </section>
  );
}

/** Workloads that lack pods, with what their controller was refused. */
function LackingWorkloads({ of }: { of: readonly Lacking[] }) {
  if (!of.length) return null;
  return (
    <ul class="causes">
      {of.slice(0, CAUSES).map((one) => (
        <li key={one.key}>
          <p class="cause small">
            <strong>{visible(one.key)}:</strong> {`wants ${count(one.wanted)}, has ${count(one.existing)}, ${count(one.ready)} ready`}
            {one.why && ` · ${visible(one.why)}`}
          </p>
        </li>
      ))}
      {of.length > CAUSES && <li class="small muted">and {plural(of.length - CAUSES, "more workload")}</li>}
    </ul>
  );
}

type MembersProps = { members: readonly PodFields[] } & Pick<TrayProps, "subject" | "show" | "matches">;

/** The pods of a cause: those of one workload together, which open with a button; the first few, and a button for more. */
function Members(props: MembersProps) {
  const { members, subject } = props;
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const [limit, setLimit] = useState(FIRST);
  const groups = byWorkload(members);
  const rest = groups.slice(limit).reduce((sum, [, pods]) => sum + pods.length, 0);
  return (
    <span class="chips">
      {groups.slice(0, limit).map(([workload, pods]) =>
        pods.length === 1 || open.has(workload) || pods.some((pod) => pod.key === subject) ? (
          <Chips key={workload} {...props} members={pods} />
        ) : (
          <Button key={workload} quiet onClick={() => setOpen(new Set([...open, workload]))}>
            {`${visible(workload)} ×${count(pods.length)}`}
          </Button>
        ),
      )}
      {rest > 0 && (
        <Button quiet onClick={() => setLimit(limit + MORE)}>
          {`Show ${count(rest)} more`}
        </Button>
      )}
    </span>
  );
}

function Chips({ members, subject, show, matches }: MembersProps) {
  return (
    <>
      {members.map((pod) => (
        <a
          key={pod.key}
          class={`chip pod ${pod.key === subject ? "subject" : ""} ${matches(pod) ? "" : "dim"}`}
          href={podLink(pod.key)}
          data-pod={pod.key}
          title={`${SIGNS[pod.state]?.[1] ?? pod.state}, ${plural(pod.attempts, "attempt")}`}
          onMouseEnter={() => show(pod.key)}
          onFocus={() => show(pod.key)}
          onBlur={() => show(undefined)}
        >
          {pod.state !== "pending" && <span aria-hidden>{SIGNS[pod.state]?.[0] ?? "·"} </span>}
          {visible(pod.key)}
          {pod.recorded && (
            <span class="sign risk" title={`recorded: ${visible(pod.recorded)}`}>
              {" ≠"}
            </span>
          )}
          <span class="hidden-text">
            {" "}
            {SIGNS[pod.state]?.[1] ?? pod.state}
            {pod.recorded && ", another cause was recorded"}
          </span>
        </a>
      ))}
    </>
  );
}

function Cause({ text, total, gated }: { text: string; total: number; gated: boolean }) {
  const reasons = reasonsOf(text);
  return (
    <p class="cause small" title={visible(text)}>
      <strong>{plural(total, "pod")}:</strong>{" "}
      {reasons.length ? visible(reasons.join(" · ")) : text ? briefly(text) : <Muted>{gated ? "held by scheduling gates" : "not tried yet"}</Muted>}
    </p>
  );
}
