import { type ComponentChildren, createElement } from "preact";

/** Make an element of a tag and its classes, "span small muted": the build writes the calls (bundling/elements.ts). */
export function element(words: string, ...children: ComponentChildren[]) {
  const [tag = "", ...names] = words.split(" ");
  return createElement(tag, names[0] ? { class: names.join(" ") } : null, ...children);
}
