/** The map at a moment of the past, which the reader moves or lets run. */
import { useEffect, useState } from "preact/hooks";
import { Badge, Button, Section } from "../kit/basics";
import { Slider } from "../kit/slider";
import { get } from "../live/api";
import { Cluster, type Snapshot } from "../live/cluster";
import { ClusterMap, Key } from "../map/still";
import { clock, plural, visible } from "../text";
import type { Range } from "./chart";

interface ReplayProps {
  /** Of a question; empty: the cluster's own past. */
  run: string;
  range: Range;
  moment: number | undefined;
  show: (moment: number | undefined) => void;
}

const STEPS = 60;
const PAUSE_MS = 150;

export function Replay({ run, range: [from, to], moment, show }: ReplayProps) {
  const [past, setPast] = useState<Cluster>();
  const [why, setWhy] = useState("");
  const [runs, setRuns] = useState(false);
  useEffect(() => {
    if (moment === undefined) return;
    const control = new AbortController();
    const timer = setTimeout(
      () =>
        get<Snapshot>(`snapshot?at=${moment}${run && `&run=${run}`}`, control.signal).then(
          (found) => (setPast(new Cluster(found)), setWhy("")),
          (error: Error) => control.signal.aborted || (setWhy(error.message), setRuns(false)),
        ),
      PAUSE_MS,
    );
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [moment]);
  useEffect(() => {
    if (!runs || !past) return;
    if (moment! < to) show(Math.min(to, moment! + (to - from) / STEPS));
    else setRuns(false);
  }, [runs, past]);
  const play = () => {
    setRuns(!runs);
    if (!runs && (moment === undefined || moment >= to)) show(from);
  };
  const shown = moment !== undefined && past;
  return (
    <Section title="Replay" aside={shown && past.head.notes.map(visible).join(" ")}>
      <div class="waiting small">
        <Slider label="at" range={[from, to]} at={moment ?? to} move={show} />
        <Button onClick={play}>{runs ? "Pause" : "Play"}</Button>
        <Button disabled={!shown} onClick={() => (show(undefined), setRuns(false))}>
          Close
        </Button>
        {why && (
          <span role="alert">
            <Badge tone="no">no answer</Badge> {visible(why)}
          </span>
        )}
      </div>
      {shown && (
        <div class="cards">
          <h3>
            {clock(Date.parse(past.head.at) / 1000, to - from)}: {plural(past.waiting.size, "pod")} pending, {past.pods.size - past.waiting.size} on{" "}
            {plural(past.nodes.size, "node")}
          </h3>
          <Key verdicts={undefined} />
          <ClusterMap cluster={past} />
        </div>
      )}
    </Section>
  );
}
