/** Which node stands where on the map: groups of tiles, and the size of a tile. */
import type { NodeFields } from "../live/cluster";
import { natural } from "../text";

/** How nodes are grouped: by zone, by node group, by a label, or not at all. */
export type Grouping = "zone" | "group" | "none" | `label:${string}`;

export interface TileGroup {
  readonly title: string;
  readonly names: readonly string[];
}

const MOST_GROUPS = 200;

/** The place of each name in the order of names, kept while the names are the same: to compare names takes a frame. */
let places: ReadonlyMap<string, number> = new Map();

function placesOf(names: readonly string[]): ReadonlyMap<string, number> {
  if (names.length !== places.size || !names.every((name) => places.has(name))) {
    places = new Map([...names].sort(natural.compare).map((name, at) => [name, at]));
  }
  return places;
}

export function groupsOf(nodes: Iterable<NodeFields>, grouping: Grouping): TileGroup[] {
  const found = new Map<string, string[]>();
  for (const node of nodes) {
    const title = titleOf(node, grouping);
    const names = found.get(title);
    if (names) names.push(node.name);
    else found.set(title, [node.name]);
  }
  const order = placesOf([...found.values()].flat());
  const groups = [...found].map(([title, names]) => ({ title, names: names.sort((a, b) => order.get(a)! - order.get(b)!) }));
  groups.sort((a, b) => Number(!a.title) - Number(!b.title) || natural.compare(a.title, b.title));
  if (groups.length <= MOST_GROUPS) return groups;
  const rest = groups.slice(MOST_GROUPS - 1).flatMap((group) => group.names);
  return [...groups.slice(0, MOST_GROUPS - 1), { title: `${groups.length - MOST_GROUPS + 1} other groups`, names: rest }];
}

function titleOf(node: NodeFields, grouping: Grouping): string {
  if (grouping === "none") return "";
  if (grouping === "zone") return node.zone;
  if (grouping === "group") return node.group;
  return node.labels[grouping.slice("label:".length)] ?? "";
}

/** Return label keys that sort the nodes into at least two groups and far fewer groups than nodes. */
export function groupingLabels(nodes: Iterable<NodeFields>): string[] {
  const values = new Map<string, Set<string>>();
  let count = 0;
  for (const node of nodes) {
    count += 1;
    for (const [key, value] of Object.entries(node.labels)) {
      const seen = values.get(key);
      if (!seen) values.set(key, new Set([value]));
      else if (seen.size <= MOST_GROUPS) seen.add(value);
    }
  }
  const most = Math.max(2, Math.min(MOST_GROUPS, count / 2));
  return [...values].filter(([, seen]) => seen.size <= most && seen.size > (count > 1 ? 0 : -1)).map(([key]) => key).sort();
}

/** Up to so many nodes, tiles are cards with text; above, they are drawn on a canvas. */
export const MOST_CARDS = 150;

const SIZES = [48, 38, 30, 26, 22, 19, 16, 14, 12] as const;
const HEIGHT = 600;
/** Tiles larger than this are for so few nodes that they stay low. */
const USUAL = 30;

/** Return the side of a square tile with which all nodes fit on a page of this width; the smallest if none does. */
export function tileSize(nodes: number, width: number): number {
  const fits = (side: number) => Math.ceil(nodes / Math.max(1, Math.floor(width / side))) * side <= (side > USUAL ? HEIGHT / 4 : HEIGHT);
  return SIZES.find(fits) ?? SIZES.at(-1)!;
}

export const columnsIn = (width: number, side: number): number => Math.max(1, Math.floor(width / side));

/** Return the tile that an arrow key leads to from `at`, over groups that each begin a new row. */
export function neighbour(sizes: readonly number[], columns: number, at: number, key: string): number {
  const total = sizes.reduce((sum, size) => sum + size, 0);
  if (key === "ArrowLeft") return Math.max(0, at - 1);
  if (key === "ArrowRight") return Math.min(total - 1, at + 1);
  if (key === "Home") return 0;
  if (key === "End") return total - 1;
  const rows = rowsOf(sizes, columns);
  const row = rows.findIndex(([first, length]) => at >= first && at < first + length);
  const target = rows[row + (key === "ArrowDown" ? 1 : -1)];
  if (!target) return at;
  return target[0] + Math.min(at - rows[row]![0], target[1] - 1);
}

/** Return the rows of all groups: the first tile of each and how many it has. */
function rowsOf(sizes: readonly number[], columns: number): [number, number][] {
  const rows: [number, number][] = [];
  let first = 0;
  for (const size of sizes) {
    for (let at = 0; at < size; at += columns) rows.push([first + at, Math.min(columns, size - at)]);
    first += size;
  }
  return rows;
}
