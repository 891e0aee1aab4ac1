/** Weights to change: the ranking beside them follows at once, by the closed form. */
import { Button, SmallText } from "../../kit/basics";
import { useId, useMemo } from "preact/hooks";
import { ranking, type ScoreColumns, turns, type Turns } from "../../ranking";
import { plural, visible } from "../../text";
import { fill } from "./fill";

interface WeightsProps {
  columns: ScoreColumns;
  weights: readonly number[];
  differing: readonly number[];
  winner: string;
  changed: boolean;
  set: (weights: readonly number[]) => void;
  /** Whether the columns hold all nodes that fit. */
  complete: boolean;
}

export function Weights({ columns, weights, differing, winner, changed, set, complete }: WeightsProps) {
  if (columns.nodes.length < 2) return null;
  if (!differing.length) {
    return <p class="muted small">All plugins give every node the same score: no weight changes the choice.</p>;
  }
  return (
    <form class="card weights" aria-label="Weights" onSubmit={(event) => event.preventDefault()}>
      <header>
        <h3>Other weights</h3>
        <Button quiet disabled={!changed} onClick={() => set(columns.weights)}>
          Reset
        </Button>
      </header>
      {differing.map((plugin) => (
        <Weight {...{ columns, weights, differing, plugin }} set={(weight) => set(weights.map((old, at) => (at === plugin ? weight : old)))} />
      ))}
      <p class="verdict" role="status">
        {verdict(columns, weights, winner, changed)}
      </p>
      {!complete && (
        <SmallText>Only the {columns.nodes.length} best nodes are in this report; another node could overtake them.</SmallText>
      )}
    </form>
  );
}

interface WeightProps extends Pick<WeightsProps, "columns" | "weights" | "differing"> {
  plugin: number;
  set: (weight: number) => void;
}

function Weight({ columns, weights, differing, plugin, set }: WeightProps) {
  const value = weights[plugin]!;
  const id = useId();
  const turn = useMemo(() => turns(columns, weights, plugin), [columns, weights, plugin]);
  const label = visible(columns.plugins[plugin]!);
  const read = (event: { currentTarget: HTMLInputElement }) => {
    const weight = Math.round(event.currentTarget.valueAsNumber);
    if (weight >= 0 && weight <= 100) set(weight);
  };
  return (
    <div class="weight">
      <label for={id}>
        <span class={`swatch fill-${fill(differing, plugin)}`} aria-hidden /> {label}
      </label>
      <input type="number" min={0} max={100} step={1} value={value} onInput={read} aria-label={`Weight of ${label}, as a number`} />
      <input id={id} type="range" min={0} max={Math.max(20, value)} step={1} value={value} onInput={read} />
      <span class="small muted turns">{where(turn)}</span>
    </div>
  );
}

function where({ below, above }: Turns): string {
  const at = [below, above].filter((weight) => weight !== undefined);
  return at.length ? `another choice at ${at.join(" and at ")}` : "the choice stays from 0 to 100";
}

/** Say what the weights lead to. */
export function verdict(columns: ScoreColumns, weights: readonly number[], winner: string, changed: boolean): string {
  const { best } = ranking(columns, weights);
  const names = best.map((node) => visible(columns.nodes[node]!));
  if (!changed) return "Move a weight: the nodes are ranked again at once.";
  if (names.length > 1) return `A draw of ${plural(names.length, "node")}: ${names.slice(0, 4).join(", ")}${names.length > 4 ? ", …" : ""}.`;
  return names[0] === visible(winner) ? `Still ${names[0]}.` : `${names[0]} wins with these weights.`;
}
