/** Two maps side by side: where pods are, and where they are then. A pod that the reader points at is linked across. */
import { Muted, Section, SmallText } from "./basics";
import { useRef, useState } from "preact/hooks";
import { useRedraw } from "./redraw";
import { natural, shortName, shortNode, visible } from "../text";

export interface Move {
  readonly pod: string;
  /** The node before; empty if the pod had none. */
  readonly from: string;
  /** The node after; empty if it has none, and `end` says what became of it. */
  readonly to: string;
  readonly end?: string;
  /** What stands for the node before where there is none. */
  readonly start?: string;
  readonly title?: string;
}

interface MovesProps {
  before?: string;
  after?: string;
  moves: readonly Move[];
  /** Nodes that stand out on the left: those that are drained. */
  marked?: ReadonlySet<string>;
  mark?: string;
}

const MOST_PODS = 24;
const MOST_NODES = 40;

export function MoveMaps({ before = "Before", after = "After", moves, marked, mark }: MovesProps) {
  const [subject, setSubject] = useState<string>();
  const box = useRef<HTMLDivElement>(null);
  const chip = (move: Move, side: "from" | "to") => (
    <li
      key={move.pod}
      class={`chip pod ${subject === move.pod ? "subject" : ""} ${side === "to" && !move.to ? "lost" : ""}`}
      data-move={`${side} ${move.pod}`}
      title={visible([move.pod, move.title].filter(Boolean).join(": "))}
      tabIndex={0}
      onMouseEnter={() => setSubject(move.pod)}
      onMouseLeave={() => setSubject(undefined)}
      onFocus={() => setSubject(move.pod)}
      onBlur={() => setSubject(undefined)}
    >
      {visible(shortName(move.pod))}
    </li>
  );
  const side = (title: string, end: "from" | "to") => {
    const nodes = byNode(moves, end);
    return (
      <div role="group" aria-label={title}>
        <h3>{title}</h3>
        <div class="move-nodes">
          {nodes.slice(0, MOST_NODES).map(([node, members]) => (
            <div class={`card move-node ${end === "from" && marked?.has(node) ? "cordoned" : ""} ${end === "to" && members[0] && !members[0].to ? "ends" : ""}`}>
              <p class="small">
                <strong class="name">{visible(shortNode(node))}</strong>
                {end === "from" && marked?.has(node) && mark && <Muted> ⊘ {mark}</Muted>}
              </p>
              <ul class="chips">
                {members.slice(0, MOST_PODS).map((move) => chip(move, end))}
                {members.length > MOST_PODS && <li class="small muted">and {members.length - MOST_PODS} more</li>}
              </ul>
            </div>
          ))}
          {nodes.length > MOST_NODES && <SmallText>and {nodes.length - MOST_NODES} more nodes</SmallText>}
        </div>
      </div>
    );
  };
  return (
    <div class="moves" ref={box}>
      <Links box={box} moves={moves} subject={subject} />
      {side(before, "from")}
      {side(after, "to")}
    </div>
  );
}

/** The two maps of what nodes that go mean for their pods. */
export const BeforeAfter = (props: MovesProps) => (
  <Section title="Before and after" aside="point at a pod to see where it goes">
    <MoveMaps {...props} />
  </Section>
);

function byNode(moves: readonly Move[], end: "from" | "to"): [string, Move[]][] {
  const nodes = new Map<string, Move[]>();
  for (const move of moves) {
    const node = end === "from" ? move.from || move.start || "not placed" : move.to || move.end || "nowhere";
    const members = nodes.get(node);
    if (members) members.push(move);
    else nodes.set(node, [move]);
  }
  const ended = (members: readonly Move[]) => end === "to" && !members[0]!.to;
  return [...nodes].sort((a, b) => Number(ended(a[1])) - Number(ended(b[1])) || natural.compare(a[0], b[0]));
}

interface Line {
  readonly pod: string;
  readonly path: string;
}

/** Lines between the two places of each pod. They say nothing that the cards do not. */
function Links({ box, moves, subject }: { box: { current: HTMLDivElement | null }; moves: readonly Move[]; subject: string | undefined }) {
  const [lines, setLines] = useState<readonly Line[]>([]);
  useRedraw(box, () => setLines(linesOf(box.current!)), [moves]);
  return (
    <svg class="links on-screen" aria-hidden>
      {lines.map((line) => (
        <path d={line.path} class={line.pod === subject ? "subject" : ""} />
      ))}
    </svg>
  );
}

function linesOf(box: HTMLElement): Line[] {
  const origin = box.getBoundingClientRect();
  const places = new Map<string, DOMRect>();
  for (const element of box.querySelectorAll<HTMLElement>("[data-move]")) places.set(element.dataset.move!, element.getBoundingClientRect());
  const lines: Line[] = [];
  for (const [key, from] of places) {
    if (!key.startsWith("from ")) continue;
    const to = places.get("to " + key.slice(5));
    // On a narrow page the maps stand below each other, and lines would cross the text.
    if (!to || to.left < from.right) continue;
    const [x1, y1, x2, y2] = [from.right - origin.left, mid(from) - origin.top, to.left - origin.left, mid(to) - origin.top];
    const bend = (x2 - x1) / 2;
    lines.push({ pod: key.slice(5), path: `M${x1},${y1}C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}` });
  }
  return lines;
}

const mid = (box: DOMRect) => box.top + box.height / 2;
