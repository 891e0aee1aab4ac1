/**
 * The map of many nodes: a canvas for each group, and a list box over them for keyboards and screen readers.
 *
 * Only tiles that a change touched are drawn again. The one option of the list box stands where the active tile is; moving with the
 * arrow keys moves it, so that every tile can be reached and has a name.
 */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { NodeFields, Touched } from "../live/cluster";
import { useRedraw } from "../kit/redraw";
import { plural } from "../text";
import { GroupBox } from "./group";
import { columnsIn, neighbour, type TileGroup, tileSize } from "./layout";
import type { Look } from "./look";
import { drawTile, type Palette, paletteOf } from "./paint";

export interface MapProps {
  readonly groups: readonly TileGroup[];
  readonly nodeOf: (name: string) => NodeFields | undefined;
  readonly lookOf: (node: NodeFields) => Look;
  readonly describe: (node: NodeFields) => string;
  readonly pick: (name: string) => void;
  /** The nodes that are chosen, where several can be; without it, picking opens one. */
  readonly picked?: ReadonlySet<string>;
  /** Call with each change, so that tiles are drawn again. Return how to stop. */
  readonly follow?: (listener: (touched: Touched | undefined) => void) => () => void;
}

export function CanvasMap({ groups, nodeOf, lookOf, describe, pick, picked, follow }: MapProps) {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const [active, setActive] = useState(-1);
  const [scheme, setScheme] = useState(0);
  const names = useMemo(() => groups.flatMap((group) => group.names), [groups]);
  const places = useMemo(() => placesOf(groups), [groups]);
  const side = tileSize(names.length, width || 1200);
  const columns = columnsIn(width || 1200, side);
  const palette = useRef<Palette>(undefined);

  useRedraw(
    box,
    () => {
      setWidth(box.current!.clientWidth);
      setScheme((value) => value + 1);
    },
    [],
  );

  const contextOf = (group: number) => box.current?.querySelectorAll("canvas")[group]?.getContext("2d") ?? undefined;

  const drawn = useRef(new Map<string, Look>());
  const draw = (context: CanvasRenderingContext2D, index: number, name: string) => {
    const node = nodeOf(name);
    if (!node) return;
    const look = lookOf(node);
    drawn.current.set(name, look);
    drawTile(context, (index % columns) * side, Math.floor(index / columns) * side, side, node, look, palette.current!);
  };

  useLayoutEffect(() => {
    palette.current = paletteOf(box.current!);
    if (!width) return;
    groups.forEach((group, at) => {
      const canvas = contextOf(at)?.canvas;
      if (canvas) fit(canvas, Math.min(columns, group.names.length) * side, Math.ceil(group.names.length / columns) * side);
    });
    drawn.current.clear();
  }, [groups, width, side, columns, scheme]);

  // The tiles whose look changed, as many in a frame as leave time for the reader's own moves.
  useLayoutEffect(() => {
    if (!width) return;
    let frame = 0;
    let next = 0;
    const tiles = groups.flatMap((group, at) => {
      const context = contextOf(at);
      return context ? group.names.map((name, index) => [context, index, name] as const) : [];
    });
    const step = () => {
      const until = performance.now() + DRAWING_MS;
      for (; next < tiles.length && (next % 32 || performance.now() < until); next += 1) {
        const node = nodeOf(tiles[next]![2]);
        if (node && !sameLook(drawn.current.get(node.name), lookOf(node))) draw(...tiles[next]!);
      }
      if (next < tiles.length) frame = requestAnimationFrame(step);
    };
    frame = requestAnimationFrame(step); // what led here has had its share of this frame
    return () => cancelAnimationFrame(frame);
  }, [groups, width, side, columns, scheme, lookOf]);

  useEffect(
    () =>
      follow?.((touched) => {
        const contexts = new Map<number, CanvasRenderingContext2D | undefined>();
        for (const name of touched?.nodes ?? []) {
          const place = places.get(name);
          if (!place || !palette.current) continue;
          if (!contexts.has(place.group)) contexts.set(place.group, contextOf(place.group));
          const context = contexts.get(place.group);
          if (context) draw(context, place.index, name);
        }
      }),
    [follow, places, width, side, columns, lookOf],
  );

  const at = (event: MouseEvent, group: number): number => {
    const canvas = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const column = Math.floor((event.clientX - canvas.left) / side);
    const index = Math.floor((event.clientY - canvas.top) / side) * columns + column;
    return column < columns && index < groups[group]!.names.length ? firstOf(groups, group) + index : -1;
  };

  const key = (event: KeyboardEvent) => {
    if ((event.key === "Enter" || event.key === " ") && active >= 0) {
      event.preventDefault();
      return pick(names[active]!);
    }
    if (!/^(Arrow|Home|End)/.test(event.key)) return;
    event.preventDefault();
    setActive(active < 0 ? 0 : neighbour(groups.map((group) => group.names.length), columns, active, event.key));
  };

  const current = names[active] === undefined ? 0 : active;
  const node = names[current] === undefined ? undefined : nodeOf(names[current]);
  const place = node && places.get(node.name);
  return (
    <div
      class="canvas-map"
      ref={box}
      role="listbox"
      tabIndex={0}
      aria-multiselectable={picked ? true : undefined}
      aria-label={`${plural(names.length, "node")}; arrow keys move, Enter ${picked ? "chooses" : "opens"}`}
      aria-activedescendant={node ? "active-tile" : undefined}
      onKeyDown={key}
      onFocus={() => active < 0 && setActive(0)}
    >
      {groups.map((group, index) => (
        <GroupBox key={group.title} group={group}>
          <div class="tile-plane">
            <canvas
              aria-hidden
              onMouseMove={(event) => setActive(at(event, index))}
              onMouseLeave={() => setActive(-1)}
              onClick={(event) => {
                const found = at(event, index);
                if (found >= 0) pick(names[found]!);
              }}
            />
            {node && place?.group === index && (
              <Active key="active" text={describe(node)} selected={picked?.has(node.name) ?? true} shown={active >= 0} index={current} total={names.length} side={side} x={(place.index % columns) * side} y={Math.floor(place.index / columns) * side} />
            )}
          </div>
        </GroupBox>
      ))}
    </div>
  );
}

interface ActiveProps {
  text: string;
  selected: boolean;
  /** False before anything is active: the list has its first tile for those who hear it. */
  shown: boolean;
  index: number;
  total: number;
  side: number;
  x: number;
  y: number;
}

/** The active tile as an element: its frame, and its words. */
function Active({ text, selected, shown, index, total, side, x, y }: ActiveProps) {
  const element = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    element.current!.classList.toggle("to-left", element.current!.getBoundingClientRect().left > innerWidth / 2);
    if (element.current!.closest("[role=listbox]") === document.activeElement) element.current!.scrollIntoView({ block: "nearest" });
  }, [index, x]);
  return (
    <div
      id="active-tile"
      ref={element}
      class={shown ? "active-tile" : "active-tile quiet"}
      role="option"
      aria-selected={selected}
      aria-posinset={index + 1}
      aria-setsize={total}
      aria-label={text}
      style={{ left: `${x}px`, top: `${y}px`, width: `${side}px`, height: `${side}px` }}
    >
      <span class="tip" aria-hidden>
        {text}
      </span>
    </div>
  );
}

/** How long tiles are drawn in one frame: what was drawn has to reach the screen in the rest of it. */
const DRAWING_MS = 3;

const sameLook = (a: Look | undefined, b: Look): boolean =>
  a !== undefined && a.share === b.share && a.second === b.second && a.verdict === b.verdict && a.dim === b.dim && a.picked === b.picked;

interface TilePlace {
  readonly group: number;
  readonly index: number;
}

function placesOf(groups: readonly TileGroup[]): Map<string, TilePlace> {
  const places = new Map<string, TilePlace>();
  groups.forEach((group, at) => group.names.forEach((name, index) => places.set(name, { group: at, index })));
  return places;
}

const firstOf = (groups: readonly TileGroup[], group: number): number =>
  groups.slice(0, group).reduce((sum, one) => sum + one.names.length, 0);

/** Give a canvas its size on the page, with as many dots as the screen has. */
function fit(canvas: HTMLCanvasElement, width: number, height: number): void {
  const scale = devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.setProperty("width", `${width}px`);
  canvas.style.setProperty("height", `${height}px`);
  canvas.getContext("2d")!.setTransform(scale, 0, 0, scale, 0, 0);
}
