/** A moment that the reader moves. */
import { clock } from "../text";

interface SliderProps {
  label: string;
  range: readonly [number, number];
  at: number;
  move: (at: number) => void;
}

export const Slider = ({ label, range: [min, max], at, move }: SliderProps) => (
  <label>
    {label} {clock(at, max - min)}{" "}
    <input
      type="range"
      min={min}
      max={max}
      step={(max - min) / 1000 || 1}
      value={at}
      aria-label={label}
      aria-valuetext={clock(at, max - min)}
      onInput={({ currentTarget: { valueAsNumber } }) => move(valueAsNumber)}
    />
  </label>
);
