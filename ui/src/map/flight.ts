/** Let a pod that was bound fly from the tray to its tile, unless the reader wants no motion. */

const MOST = 12;
const FLIGHT_MS = 450;

/** Return where the chips of pods are, before the page is drawn without them. */
export function chipsOf(pods: readonly (readonly [string, string])[]): Map<string, DOMRect> {
  const places = new Map<string, DOMRect>();
  if (!pods.length || matchMedia("(prefers-reduced-motion: reduce)").matches) return places;
  for (const [pod] of pods.slice(0, MOST)) {
    const chip = document.querySelector(`[data-pod="${CSS.escape(pod)}"]`);
    if (chip) places.set(pod, chip.getBoundingClientRect());
  }
  return places;
}

export function fly(from: DOMRect, to: DOMRect): void {
  const dot = document.createElement("div");
  dot.className = "flying";
  document.body.append(dot);
  const at = (box: DOMRect) => `translate(${box.left + box.width / 2 - 6}px, ${box.top + box.height / 2 - 6}px)`;
  const flight = dot.animate([{ transform: at(from) }, { transform: at(to), opacity: 0.4 }], { duration: FLIGHT_MS, easing: "ease-in-out" });
  flight.onfinish = () => dot.remove();
}
