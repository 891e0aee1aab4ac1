/** Horizontal bars made of parts. */

export interface Part {
  readonly value: number;
  readonly fill: string;
  readonly title?: string;
}

/** One bar; `of` is the amount that fills it. The words for it stand beside it. */
export const Bar = ({ parts, of, class: extra = "" }: { parts: readonly Part[]; of: number; class?: string }) => (
  <div class={`bar ${extra}`} aria-hidden>
    {parts
      .filter((part) => part.value > 0)
      .map((part, index) => (
        <span
          key={index}
          class={`fill-${part.fill}`}
          title={part.title}
          style={{ width: `${of > 0 ? (100 * part.value) / of : 0}%` }}
        />
      ))}
  </div>
);
