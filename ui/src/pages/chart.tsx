/** Lines over time. Dragging over the chart narrows the time, and a double click shows all of it. */
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useRedraw } from "../kit/redraw";
import { clock, count, percent, visible } from "../text";

/** The first and last moment that is shown. */
export type Range = readonly [number, number];

interface ChartProps {
  label: string;
  at: readonly number[];
  lines: readonly (readonly [string, readonly number[]])[];
  /** The lines are shares of 1. */
  shares?: boolean;
  range: Range;
  /** A moment that is marked. */
  moment?: number | undefined;
  zoom: (range: Range | undefined) => void;
}

const DASHES = [[], [7, 3], [2, 3]];

export function Chart({ label, at, lines, shares, range, moment, zoom }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const made = useRef<uPlot>(undefined);
  useLayoutEffect(() => {
    const element = box.current!;
    const colour = (name: string) => () => getComputedStyle(element).getPropertyValue("--" + name);
    const words = shares ? (value: number) => percent(value, 0) : count;
    const when = (time: number) => clock(time, at.at(-1)! - at[0]!);
    const axis = { stroke: colour("ink-2"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false } };
    const plot = new uPlot(
      {
        width: element.clientWidth,
        height: 160,
        scales: { x: { range: (_, from, to) => [from, to] }, y: { range: (_, __, most) => [0, Math.max(shares ? 1 : 4, most)] } },
        axes: [
          { ...axis, space: 80, size: 24, values: (_, times) => times.map(when) },
          { ...axis, values: (_, values) => values.map(words) },
        ],
        series: [
          { label: "Time", value: (_, time: number | null) => (time === null ? "" : when(time)) },
          ...lines.map(([name], index) => ({
            label: visible(name),
            stroke: colour(`cat-${index + 1}`),
            width: 2,
            dash: DASHES[index]!,
            value: (_: uPlot, value: number | null) => (value === null ? "" : words(value)),
          })),
        ],
        cursor: { drag: { setScale: false }, bind: { dblclick: () => () => (zoom(undefined), null) } },
        hooks: {
          setSelect: [
            ({ select: { left, width } }) => {
              if (width > 2) zoom([plot.posToVal(left, "x"), plot.posToVal(left + width, "x")]);
              plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            },
          ],
        },
      },
      undefined,
      element,
    );
    made.current = plot;
    return () => plot.destroy();
  }, []);
  useRedraw(box, () => made.current!.setSize({ width: box.current!.clientWidth, height: 160 }), []);
  useEffect(() => {
    made.current!.setData([at, ...lines.map(([, values]) => values)] as uPlot.AlignedData, false);
    made.current!.setScale("x", { min: range[0], max: range[1] });
    made.current!.setCursor({ left: moment === undefined ? -10 : made.current!.valToPos(moment, "x"), top: -10 });
  }, [at, range[0], range[1], moment]);
  return <div ref={box} class="chart" role="img" aria-label={label} />;
}
