import { useLayoutEffect } from "preact/hooks";

/** Call `redraw` now, when the size of a box changes, and when the page turns dark or light. */
export function useRedraw(box: { readonly current: HTMLElement | null }, redraw: () => void, inputs: readonly unknown[]): void {
  useLayoutEffect(() => {
    redraw();
    const observer = new ResizeObserver(redraw);
    observer.observe(box.current!);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", redraw);
    return () => {
      observer.disconnect();
      dark.removeEventListener("change", redraw);
    };
  }, [...inputs]);
}
