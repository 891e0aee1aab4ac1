/** Kueue's queues: cohorts as a tree with bars, the jobs that wait, and a lane for each job. */
import type { ClusterQueue, QueuedJob, Queues } from "../documents";
import { Badge, Legend, Muted, Quote, Small } from "../kit/basics";
import { Bar } from "../kit/bar";
import { type Column, NUM, PROSE, TableSection } from "../kit/table";
import { amount, count, natural, plural, seconds, visible } from "../text";

/** Amounts of one resource: quota, and what is used, borrowed and lent of it. */
type Use = readonly [quota: number, used: number, borrowed: number, lent: number];

interface Row {
  readonly name: string;
  readonly depth: number;
  readonly queue?: ClusterQueue;
  readonly uses: Readonly<Record<string, Use>>;
}

const RESOURCES = 4;

export function QueuesOfCluster({ queues }: { queues: Queues }) {
  const timed = queues.seconds > 0 && queues.workloads.some((job) => job.finished !== null || job.arrived > 0);
  const rows = tree(queues, timed);
  const resources = [...new Set(rows.flatMap((row) => Object.keys(row.uses)))].sort((a, b) => Number(!/gpu/i.test(a)) - Number(!/gpu/i.test(b)));
  const number = (head: string, value: (queue: ClusterQueue) => string): Column<Row> => [head, ({ queue }) => queue && value(queue), NUM];
  const wait = (value?: number | null) => (value === undefined ? "" : value === null ? "never" : seconds(value));
  return (
    <>
      <TableSection
        title="Queues"
        aside={
          <>
            {timed ? `means over ${seconds(queues.seconds)}` : "as they are"} {timed && queues.fairness !== null && `· Jain’s index ${queues.fairness.toFixed(2)} `}
            <Legend of={LEGEND} />
          </>
        }
        rows={rows}
        columns={[
          [
            "Cohort and queue",
            ({ name, depth, queue }) => (
              <span style={{ paddingLeft: `${depth * 1.25}rem` }}>
                {queue ? <span class="name">{visible(name)}</span> : <strong class="name">{visible(name)}</strong>}
                {queue?.fault && <Badge tone="no">{visible(queue.fault)}</Badge>}
              </span>
            ),
          ],
          ...resources.slice(0, RESOURCES).map((resource): Column<Row> => [visible(resource), ({ uses }) => <Used resource={resource} use={uses[resource]} />]),
          number("admitted", (queue) => count(queue.admitted)),
          number("waiting", (queue) => count(queue.waiting)),
          ...(timed
            ? [
                number("finished", (queue) => count(queue.finished)),
                number("evictions", (queue) => count(queue.evictions)),
                number("wait p50", (queue) => wait(queue.waits?.p50)),
                number("p90", (queue) => wait(queue.waits?.p90)),
              ]
            : []),
          ...(queues.fairSharing ? [number("share", (queue) => (queue.share > 1e18 ? "infinite" : count(queue.share)))] : []),
        ]}
      />
      <Waiting queues={queues} />
      <Lanes queues={queues} />
    </>
  );
}

const LEGEND = [
  ["fill-rest", "used"],
  ["fill-subject", "borrowed"],
  ["fill-old", "lent"],
] as const;

function Used({ resource, use }: { resource: string; use: Use | undefined }) {
  if (!use) return <Muted>–</Muted>;
  const [quota, used, borrowed, lent] = use;
  return (
    <div class="use">
      <Bar
        of={Math.max(quota, used)}
        parts={[
          [used - borrowed, "rest", "used"],
          [borrowed, "subject", "borrowed"],
          [lent, "old", "lent"],
        ]}
      />
      <Small>
        {mean(resource, used)} of {amount(resource, quota)}
      </Small>
    </div>
  );
}

/** Return an amount that may be a mean: as the text of the command has it, cores then have one decimal. */
const mean = (resource: string, value: number) =>
  resource === "cpu" && !Number.isInteger(value) ? (value / 1000).toFixed(1) : amount(resource, Math.round(value * 10) / 10);

/** Return cohorts and queues in the order of a tree, each with what is used below it. */
function tree(queues: Queues, timed: boolean): Row[] {
  const known = new Set(queues.cohorts.map((cohort) => cohort.name));
  const below = (name: string, depth: number, above: ReadonlySet<string>): Row[] => {
    const rows = queues.cohorts
      .filter((cohort) => cohort.parent === name && !above.has(cohort.name))
      .flatMap((cohort) => {
        const inside = below(cohort.name, depth + 1, new Set([...above, cohort.name]));
        const own = Object.entries(cohort.nominal).map(([resource, quota]): Record<string, Use> => ({ [resource]: [quota, 0, 0, 0] }));
        const children = inside.filter((row) => row.depth === depth + 1).map((row) => row.uses);
        // What queues of a cohort lend each other is neither lent nor borrowed by the cohort.
        const uses = Object.fromEntries(
          Object.entries(sum([...own, ...children])).map(([resource, [quota, used]]): [string, Use] => [resource, [quota, used, Math.max(0, used - quota), 0]]),
        );
        return [{ name: cohort.name, depth, uses }, ...inside];
      });
    const own = queues.queues
      .filter((queue) => (known.has(queue.cohort) ? queue.cohort : "") === name)
      .sort((a, b) => natural.compare(a.name, b.name))
      .map((queue) => ({ name: queue.name, depth, queue, uses: sum(queue.amounts.map((one) => ({ [one.resource]: use(one, timed) }))) }));
    return [...rows, ...own];
  };
  return below("", 0, new Set());
}

const use = (one: ClusterQueue["amounts"][number], timed: boolean): Use =>
  timed ? [one.nominal, one.meanUsed, one.meanBorrowed, one.meanLent] : [one.nominal, one.used, one.borrowed, one.lent];

function sum(all: readonly Readonly<Record<string, Use>>[]): Record<string, Use> {
  const total: Record<string, Use> = {};
  for (const uses of all)
    for (const [resource, [a, b, c, d]] of Object.entries(uses)) {
      const [w, x, y, z] = total[resource] ?? [0, 0, 0, 0];
      total[resource] = [w + a, x + b, y + c, z + d];
    }
  return total;
}

const waits = (job: QueuedJob) => job.state === "Waiting" || job.state === "Deactivated";

function Waiting({ queues }: { queues: Queues }) {
  const jobs = queues.workloads.filter(waits);
  if (!jobs.length) return null;
  return (
    <TableSection
      title="Waiting jobs"
      aside={plural(jobs.length, "job")}
      rows={jobs}
      columns={[
        ["Job", (job) => <JobName job={job} />],
        ["Queue", (job) => visible(job.clusterQueue || "–")],
        ["priority", (job) => count(job.priority), NUM],
        ["pods", (job) => count(job.pods), NUM],
        ["waits", (job) => (job.reserved === null ? seconds(queues.seconds - job.arrived) : "again"), NUM],
        ["Why", (job) => <Quote>{job.reason}</Quote>, PROSE],
      ]}
    />
  );
}

const JobName = ({ job }: { job: QueuedJob }) => (
  <span class="name">
    {visible(job.namespace)}/{visible(job.object)}
  </span>
);

function Lanes({ queues }: { queues: Queues }) {
  const ends = queues.workloads.flatMap((job) => [job.arrived, ...job.held.map(([begin, end]) => end ?? begin)]);
  const from = Math.min(0, ...ends);
  const to = Math.max(queues.seconds, ...ends, 0);
  if (from >= to) return null;
  const jobs = [...queues.workloads].sort((a, b) => natural.compare(a.clusterQueue, b.clusterQueue) || a.arrived - b.arrived);
  return (
    <TableSection
      title="Jobs over time"
      aside={
        <>
          {from < 0 ? `${seconds(-from)} until now` : seconds(to)} <Legend of={LANES} />
        </>
      }
      rows={jobs}
      columns={[
        ["Queue", (job) => visible(job.clusterQueue || "–")],
        [
          "Job",
          (job) => (
            <>
              <JobName job={job} /> <br />
              <Small>{words(job, to)}</Small>
            </>
          ),
        ],
        ["", (job) => <Lane job={job} from={from} to={to} />],
      ]}
    />
  );
}

const LANES = [
  ["fill-wait", "waits"],
  ["fill-rest", "holds quota"],
] as const;

function Lane({ job, from, to }: { job: QueuedJob; from: number; to: number }) {
  const place = (at: number) => (100 * (at - from)) / (to - from);
  const part = (fill: string, begin: number, end: number) => (
    <span class={`fill-${fill}`} style={{ left: `${place(begin)}%`, width: `${place(end) - place(begin)}%` }} />
  );
  return (
    <div class="lane" aria-hidden>
      {part("wait", job.arrived, job.finished ?? to)}
      {job.held.map(([begin, end]) => part("rest", begin, end ?? to))}
    </div>
  );
}

function words(job: QueuedJob, to: number): string {
  const begun = job.held[0]?.[0];
  const evicted = job.evictions ? `, evicted ${plural(job.evictions, "time")}` : "";
  const waited = `waited ${seconds((begun ?? to) - job.arrived)}`;
  if (job.finished !== null) return `${waited}, finished after ${seconds(job.finished - job.arrived)}${evicted}`;
  if (waits(job)) return `${begun === undefined ? waited.replace("waited", "waits for") : "waits again"}${evicted}`;
  return `${waited}${job.withoutNode ? `, ${plural(job.withoutNode, "pod")} without a node` : ""}${evicted}`;
}
