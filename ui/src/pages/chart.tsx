/** Lines over time. Dragging over the chart narrows the time, and a double click shows all of it. */
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { Legend } from "../kit/basics";
import { useRedraw } from "../kit/redraw";
import { clock, count, percent, plural, visible } from "../text";

/** The first and last moment that is shown. */
export type Range = readonly [number, number];

/** Something that happened, which explains a step of the lines. */
export interface Mark {
  readonly at: number;
  readonly text: string;
}

interface ChartProps {
  marks: readonly Mark[];
  label: string;
  at: readonly number[];
  /** A value that is null is not known: the line has a gap there. */
  lines: readonly (readonly [string, readonly (number | null)[]])[];
  /** The lines are shares of 1. */
  shares?: boolean;
  range: Range;
  /** A moment that is marked. */
  moment?: number | undefined;
  zoom: (range: Range | undefined) => void;
}

const DASHES = [[], [7, 3], [2, 3]];

export function Chart({ label, marks, at, lines, shares, range, moment, zoom }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const made = useRef<uPlot>(undefined);
  const tip = useRef<HTMLDivElement>(null);
  const current = useRef(marks);
  current.current = marks;
  const latest = useRef({ at, lines });
  latest.current = { at, lines };
  useLayoutEffect(() => {
    const element = box.current!;
    const colour = (name: string) => () => getComputedStyle(element).getPropertyValue("--" + name);
    const words = shares ? (value: number) => percent(value, 0) : count;
    const when = (time: number) => clock(time, at.at(-1)! - at[0]!);
    const tell = (index: number, left: number) => {
      const { at, lines } = latest.current;
      const shown = left >= 0 && at[index] !== undefined;
      tip.current!.hidden = !shown;
      if (!shown) return;
      const near = current.current.filter((mark) => Math.abs(plot.valToPos(mark.at, "x") - left) < 8).map((mark) => mark.text);
      const values = lines.map(([name, values]) => `${name} ${values[index] == null ? "unknown" : words(values[index])}`);
      tip.current!.textContent = visible([when(at[index]!), ...values, ...near].join(" · "));
      const side = left > element.clientWidth / 2 ? "right" : "left";
      tip.current!.style.setProperty("left", side === "left" ? `${left + 60}px` : "auto");
      tip.current!.style.setProperty("right", side === "right" ? `${element.clientWidth - left - 40}px` : "auto");
    };
    const axis = { stroke: colour("ink-2"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false } };
    const plot = new uPlot(
      {
        width: element.clientWidth,
        height: 160,
        scales: { x: { range: (_, from, to) => [from, to] }, y: { range: (_, __, most) => [0, Math.max(shares ? 1 : 4, most)] } },
        axes: [
          { ...axis, space: 80, size: 24, values: (_, times) => times.map(when).map((text, at, all) => (at && text === all[at - 1] ? "" : text)) },
          { ...axis, values: (_, values) => values.map(words) },
        ],
        series: [
          {},
          ...lines.map(([name], index) => ({
            label: visible(name),
            stroke: colour(`cat-${index + 1}`),
            width: 2,
            dash: DASHES[index]!,
          })),
        ],
        legend: { show: false },
        cursor: { drag: { setScale: false }, bind: { dblclick: () => () => (zoom(undefined), null) } },
        hooks: {
          draw: [(drawn) => drawMarks(drawn, current.current, colour("risk")())],
          setCursor: [({ cursor: { idx, left = -1 } }) => tell(idx ?? -1, left)],
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
  }, [at, range[0], range[1], moment, marks.length]);
  return (
    <div class="chart-box">
      <Legend
        of={[
          ...lines.map(([name], index) => [`line-${index + 1}`, visible(name)] as const),
          ...(marks.length ? [["mark-event", `${plural(marks.length, "event")}: point at one`] as const] : []),
        ]}
      />
      <div ref={box} class="chart" role="img" aria-label={[label, ...marks.map((mark) => mark.text)].join("; ")} />
      <div ref={tip} class="tip" aria-hidden hidden />
    </div>
  );
}

/** A thin line and a triangle at each event. */
function drawMarks(plot: uPlot, marks: readonly Mark[], colour: string): void {
  const { ctx, bbox } = plot;
  const side = 5 * devicePixelRatio;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colour;
  for (const { at } of marks) {
    const x = plot.valToPos(at, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.globalAlpha = 0.45;
    ctx.fillRect(x, bbox.top, devicePixelRatio, bbox.height);
    ctx.globalAlpha = 1;
    ctx.beginPath();
    ctx.moveTo(x - side, bbox.top);
    ctx.lineTo(x + side, bbox.top);
    ctx.lineTo(x, bbox.top + 1.6 * side);
    ctx.fill();
  }
  ctx.restore();
}
