/** The past of the cluster: pending pods and utilisation as charts, and a lane for each pod. */
import { useState } from "preact/hooks";
import { Button, Legend, Name, Section, Small } from "../kit/basics";
import { Table } from "../kit/table";
import { Slider } from "../kit/slider";
import { LatestPage } from "../live/latest";
import { place } from "../live/router";
import { clock, percent, plural, seconds, visible } from "../text";
import { Chart, type Mark, type Range } from "./chart";
import { Replay } from "./replay";

interface History {
  readonly now: number;
  /** The first moment that is known. */
  readonly began: number;
  /** Since when all changes were seen; null if that is all of the time. */
  readonly observed?: number | null;
  /** Samples from before that are null. */
  readonly samples: {
    readonly at: readonly number[];
    readonly pending: readonly (number | null)[];
    readonly utilisation: Readonly<Record<string, readonly (number | null)[]>>;
    readonly nodes?: readonly (number | null)[];
    /** What the nodes cost in an hour, if their prices are known. */
    readonly cost?: readonly (number | null)[];
  };
  readonly marks?: readonly Mark[];
  readonly lanes: {
    readonly pod: readonly string[];
    readonly state: readonly string[];
    readonly arrived: readonly number[];
    readonly bound: readonly (number | null)[];
    readonly gone: readonly (number | null)[];
    readonly node: readonly (string | null)[];
    readonly tries: readonly number[];
    readonly attempts: readonly (readonly { readonly at: number }[])[];
  };
}

/** `run`: of a question, which the address may name, too; `brief`: its nodes and money alone. */
export function TimePage({ run = place.value.query.get("run") ?? "", brief }: { run?: string; brief?: boolean }) {
  const [chosen, zoom] = useState<Range>();
  const query = new URLSearchParams({ ...(run && { run }), ...(chosen && { from: `${chosen[0]}`, to: `${chosen[1]}` }) });
  return (
    <LatestPage<History>
      path={`history?${query}`}
      pauseMs={1500}
      within={brief}
      show={(history) => (brief ? <Growth {...history} chosen={chosen} zoom={zoom} /> : <Shown history={history} {...{ run, chosen, zoom }} />)}
    />
  );
}

/** The last of some values in words, or "unknown". */
function known(values: readonly (number | null)[], words: (value: number) => string): string {
  const last = values.at(-1);
  return last == null ? "unknown" : words(last);
}

interface ShownProps {
  history: History;
  run: string;
  chosen: Range | undefined;
  zoom: (range: Range | undefined) => void;
}

function Shown({ history: { now, began, observed, samples, lanes, marks = [] }, run, chosen, zoom }: ShownProps) {
  const [moment, setMoment] = useState<number>();
  const last = Math.max(now, began + 1);
  const range = chosen ?? ([began, last] as const);
  const used = Object.entries(samples.utilisation);
  const pending = known(samples.pending, (value) => plural(value, "pod"));
  const requested = used.map(([name, values]) => `${visible(name)} ${known(values, (value) => percent(value, 0))}`).join(", ");
  const shown = lanes.pod.map((_, row) => row).filter((row) => lanes.arrived[row]! <= range[1] && (lanes.gone[row] ?? now) >= range[0]);
  const end = (which: 0 | 1) => (
    <Slider
      label={which ? "to" : "from"}
      range={[began, last]}
      at={range[which]}
      move={(at) => zoom(which ? [Math.min(range[0], at - 1), at] : [at, Math.max(range[1], at + 1)])}
    />
  );
  const shared = { marks, at: samples.at, range, zoom, moment };
  return (
    <>
      <header class="answer">
        <p class="kind">{run ? "Time of an autoscaler’s run" : "Time"}</p>
        <h1>
          {chosen && `At ${clock(range[1], last - began)}: `}
          {pending} pending; requested: {requested}.
        </h1>
        {observed != null && observed > began && (
          <p class="small">
            Observed since {clock(observed, last - began)}. Before that the sums are not known; the lanes have what still exists.
          </p>
        )}
        <div class="waiting small" role="group" aria-label="Time shown">
          {end(0)} {end(1)}
          <Button disabled={!chosen} onClick={() => zoom(undefined)}>
            Show all
          </Button>
        </div>
      </header>
      <Section title="Pending pods">
        <Chart label={`Pending pods: now ${pending}`} lines={[["pending pods", samples.pending]]} {...shared} />
      </Section>
      <Section title="Utilisation" aside="requested share of what pods can have">
        <Chart label={`Utilisation: now ${requested}`} lines={used.map(([name, values]) => [`${name} requested`, values] as const)} shares {...shared} />
      </Section>
      <Growth {...{ now, began, samples, marks, chosen, zoom, moment }} />
      <Replay {...{ run, range, moment }} show={setMoment} />
      <Section title="Pods" aside={plural(shown.length, "pod")}>
        <Legend of={KEY} />
        <Table
          label="Lanes of pods"
          rows={shown}
          columns={[
            [
              "Pod",
              (row) => (
                <>
                  <Name of={lanes.pod[row]!} to="pod" /> <br />
                  <Small>{words(lanes, row, now)}</Small>
                </>
              ),
            ],
            ["", (row) => <Lane lanes={lanes} row={row} range={range} now={now} moment={moment} />],
          ]}
        />
      </Section>
    </>
  );
}

type GrowthProps = Pick<History, "now" | "began" | "samples" | "marks"> & Pick<ShownProps, "chosen" | "zoom"> & { moment?: number | undefined };

/** How many nodes there are, and what they cost. */
function Growth({ now, began, samples, marks = [], chosen, zoom, moment }: GrowthProps) {
  const shared = { marks, at: samples.at, range: chosen ?? ([began, Math.max(now, began + 1)] as const), zoom, moment };
  return (
    <>
      {samples.nodes && (
        <Section title="Nodes">
          <Chart label={`Nodes: now ${known(samples.nodes, (value) => plural(value, "node"))}`} lines={[["nodes", samples.nodes]]} {...shared} />
        </Section>
      )}
      {samples.cost && (
        <Section title="Money" aside="what the nodes cost in an hour">
          <Chart label={`Money: now ${known(samples.cost, (value) => value.toFixed(2))} an hour`} lines={[["an hour costs", samples.cost]]} {...shared} />
        </Section>
      )}
    </>
  );
}

const KEY = [
  ["fill-wait", "waits"],
  ["fill-rest", "bound"],
  ["mark-try", "attempt"],
  ["mark-gone", "gone: evicted, deleted or ended"],
] as const;

interface LaneProps {
  lanes: History["lanes"];
  row: number;
  range: Range;
  now: number;
  moment: number | undefined;
}

function Lane({ lanes, row, range: [from, to], now, moment }: LaneProps) {
  const place = (at: number) => Math.max(0, Math.min(1, (at - from) / (to - from || 1))) * 100;
  const bound = lanes.bound[row] ?? lanes.gone[row] ?? now;
  const end = lanes.gone[row] ?? now;
  const part = (fill: string, begin: number, stop: number) => (
    <span class={fill} style={{ left: `${place(begin)}%`, width: `${place(stop) - place(begin)}%` }} />
  );
  const mark = (kind: string, at: number) => at >= from && at <= to && <span class={kind} style={{ left: `${place(at)}%` }} />;
  return (
    <div class="lane" aria-hidden>
      {part("fill-wait", lanes.arrived[row]!, bound)}
      {part("fill-rest", bound, end)}
      {lanes.attempts[row]!.map(({ at }) => mark("mark-try", at))}
      {end < now && mark("mark-gone", end)}
      {moment !== undefined && mark("mark-moment", moment)}
    </div>
  );
}

function words({ state, arrived, bound, gone, node, tries }: History["lanes"], row: number, now: number): string {
  const waited = seconds(Math.max(0, (bound[row] ?? gone[row] ?? now) - arrived[row]!));
  const where = node[row] ? ` on ${visible(node[row])}` : "";
  return `${state[row]}${where}; waited ${waited}${tries[row] ? `, ${plural(tries[row], "attempt")}` : ""}`;
}
