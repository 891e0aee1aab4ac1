/** Draw tiles on a canvas, in the colours of the style sheet. */
import type { NodeFields } from "../live/cluster";
import { type Look, shade } from "./look";

export interface Palette {
  readonly shades: readonly string[];
  readonly categories: readonly string[];
  readonly empty: string;
  readonly line: string;
  readonly second: string;
  readonly no: string;
  readonly ok: string;
  readonly subject: string;
  readonly hatch: CanvasPattern;
}

const PAD = 1.5;

export function paletteOf(element: Element): Palette {
  const style = getComputedStyle(element);
  const colour = (name: string) => style.getPropertyValue(`--${name}`).trim();
  return {
    shades: [1, 2, 3, 4, 5, 6].map((step) => colour(`blue-${step}`)),
    categories: [1, 2, 3, 4, 5, 6, 7, 8].map((step) => colour(`cat-${step}`)),
    empty: colour("sunken"),
    line: colour("line-strong"),
    second: colour("ink-3"),
    no: colour("no"),
    ok: colour("ok"),
    subject: colour("subject"),
    hatch: hatchOf(colour("ink-2")),
  };
}

function hatchOf(colour: string): CanvasPattern {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 6;
  const context = canvas.getContext("2d")!;
  context.strokeStyle = colour;
  context.lineWidth = 1.2;
  context.beginPath();
  for (const from of [-6, 0, 6]) {
    context.moveTo(from, 6);
    context.lineTo(from + 6, 0);
  }
  context.stroke();
  return context.createPattern(canvas, "repeat")!;
}

/** Draw one square tile. A gauge from the bottom is the share, the narrow one beside it the second share. */
export function drawTile(context: CanvasRenderingContext2D, x: number, y: number, side: number, node: NodeFields, look: Look, palette: Palette): void {
  context.clearRect(x, y, side, side);
  context.globalAlpha = look.dim ? 0.18 : 1;
  const [left, top, size] = [x + PAD, y + PAD, side - 2 * PAD];
  const narrow = Math.max(2, Math.round(size * 0.18));
  const wide = size - narrow - 1;
  context.fillStyle = palette.empty;
  context.fillRect(left, top, size, size);
  if (look.verdict) drawVerdict(context, left, top, size, look, palette);
  else {
    gauge(context, left, top, wide, size, look.share, palette.shades[shade(look.share) - 1]!);
    gauge(context, left + wide + 1, top, narrow, size, look.second, palette.second);
  }
  if (node.cordoned) {
    context.fillStyle = palette.hatch;
    context.fillRect(left, top, size, size);
  }
  if (!node.ready) {
    context.strokeStyle = palette.no;
    context.lineWidth = 2;
    context.strokeRect(left + 1, top + 1, size - 2, size - 2);
  }
  context.globalAlpha = 1;
  if (look.picked) drawPicked(context, left, top, size, palette);
}

/** A frame, and a corner for those who see no colours. */
function drawPicked(context: CanvasRenderingContext2D, left: number, top: number, size: number, palette: Palette): void {
  context.strokeStyle = context.fillStyle = palette.subject;
  context.lineWidth = Math.max(2, size / 9);
  context.strokeRect(left, top, size, size);
  context.beginPath();
  context.moveTo(left, top);
  context.lineTo(left + size / 2, top);
  context.lineTo(left, top + size / 2);
  context.fill();
}

function gauge(context: CanvasRenderingContext2D, x: number, top: number, width: number, height: number, share: number, colour: string): void {
  const filled = share > 0 ? Math.max(1, Math.min(1, share) * height) : 0;
  context.fillStyle = colour;
  context.fillRect(x, top + height - filled, width, filled);
}

/** A node that fits is full and has a mark; one that refuses has the colour of the plugin, and a gap instead of the mark. */
function drawVerdict(context: CanvasRenderingContext2D, left: number, top: number, size: number, look: Look, palette: Palette): void {
  const verdict = look.verdict!;
  context.fillStyle = verdict.fits ? palette.ok : palette.categories[verdict.colour - 1]!;
  if (verdict.fits) {
    context.fillRect(left, top, size, size);
    context.strokeStyle = palette.empty;
    context.lineWidth = Math.max(1.5, size / 9);
    context.beginPath();
    context.moveTo(left + size * 0.22, top + size * 0.55);
    context.lineTo(left + size * 0.43, top + size * 0.75);
    context.lineTo(left + size * 0.8, top + size * 0.28);
    context.stroke();
  } else {
    context.globalAlpha *= 0.62;
    context.fillRect(left + size * 0.2, top + size * 0.2, size * 0.6, size * 0.6);
    context.globalAlpha = look.dim ? 0.18 : 1;
  }
}
