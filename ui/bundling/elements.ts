/**
 * Shorter calls for elements that have a class and nothing else, or nothing at all.
 *
 * `h("span", { class: "small muted" }, …)` becomes `element("span small muted", …)` and `h("p", null, …)` becomes `element("p", …)`:
 * 250 such calls are 2 kB of the bundle.
 */
import type { Plugin } from "vite";

const ATTRIBUTES = /\bh\("([a-z][a-z0-9]*)", (?:null|\{ class: (?:"([^"\\]*)"|`((?:[^`\\{}]|\$\{[^`{}]*\})*)`) \})(?=[,)])/g;

export const shorten = (code: string): string =>
  code.replace(ATTRIBUTES, (_call, tag: string, names?: string, template?: string) =>
    template === undefined ? `element(${JSON.stringify(names ? `${tag} ${names}` : tag)}` : `element(\`${tag} ${template}\``,
  );

export const shortElements = (): Plugin => ({
  name: "moorage-elements",
  enforce: "post",
  transform: { filter: { id: /\/src\/.*\.tsx$/ }, handler: (code) => ({ code: `import { element } from "/src/kit/element";${shorten(code)}`, map: null }) },
});
