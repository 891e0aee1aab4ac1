/** Horizontal bars made of parts. */

export type Part = readonly [value: number, fill: string, title?: string];

interface BarProps {
  /** The amount that fills the bar. */
  of: number;
  /** The only part. */
  value?: number;
  parts?: readonly Part[];
}

/** One bar. The words for it stand beside it. */
export const Bar = ({ of, value = 0, parts = [[value, "rest"]] }: BarProps) => (
  <div class="bar" aria-hidden>
    {parts
      .filter(([value]) => value > 0)
      .map(([value, fill, title]) => (
        <span class={`fill-${fill}`} title={title} style={{ width: `${of > 0 ? (100 * value) / of : 0}%` }} />
      ))}
  </div>
);
