/**
 * The HTML files of the bundle, made from its script and style sheet.
 *
 * `app.html` is the live page and links both. `report.html` contains both, so that it works from disk without a network; its
 * Content-Security-Policy names their hashes. `licenses.txt` has the licences of the packages in the script. `source.sha256` lets a test see that the bundle is older than its source.
 */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Plugin } from "vite";
import { notice } from "./licenses.ts";

const SOURCES = ["bundling", "package-lock.json", "package.json", "src", "tsconfig.json", "vite.config.ts"];

const ICON =
  "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect width='16' height='16' rx='3' fill='%23174a7c'/%3E%3Cpath d='M4 12V5l4 4 4-4v7' fill='none' stroke='white' stroke-width='2'/%3E%3C/svg%3E";

const page = (head: string, body: string) => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
${head}
<link rel="icon" href="${ICON}">
</head>
<body>
<div id="app"></div>
<noscript>This page needs JavaScript.</noscript>
${body}
</body>
</html>
`;

const live = () =>
  page('<title>Moorage</title>\n<link rel="stylesheet" href="app.css">', '<script src="app.js"></script>');

function report(script: string, style: string, licenses: string): string {
  const policy = [
    "default-src 'none'",
    `script-src '${hashOf(script)}'`,
    `style-src '${hashOf(style)}'`,
    "img-src data:",
    "base-uri 'none'",
    "form-action 'none'",
    "require-trusted-types-for 'script'",
  ].join("; ");
  const head = `<meta http-equiv="Content-Security-Policy" content="${policy}">
<title><!--moorage-title--></title>
<style>${style}</style>`;
  return page(head, `<!--moorage-document-->\n<!--\n${licenses}-->\n<script>${script}</script>`);
}

const hashOf = (text: string) => "sha256-" + createHash("sha256").update(text, "utf8").digest("base64");

function* filesBelow(path: string): Generator<string> {
  let entries;
  try {
    entries = readdirSync(path, { withFileTypes: true });
  } catch {
    yield path;
    return;
  }
  for (const entry of entries) yield* filesBelow(join(path, entry.name));
}

/** The hash of all sources: one line for each file, `<sha256>  <path>`, in the order of the paths. */
export function sourceHash(root: string): string {
  const paths = SOURCES.flatMap((source) => [...filesBelow(join(root, source))]).sort();
  const lines = paths.map((path) => {
    const digest = createHash("sha256").update(readFileSync(path)).digest("hex");
    return `${digest}  ${path.slice(root.length + 1).replaceAll("\\", "/")}\n`;
  });
  return createHash("sha256").update(lines.join("")).digest("hex");
}

/** Refuse text that would end the element that contains it. */
function inlined(text: string, tag: string): string {
  if (text.toLowerCase().includes(`</${tag}`) || text.includes("<!--")) {
    throw new Error(`the bundle contains "</${tag}" or "<!--", which cannot stand inside <${tag}>`);
  }
  return text;
}

export function htmlFiles(): Plugin {
  return {
    name: "moorage-html",
    generateBundle: {
      order: "post",
      handler(_options, bundle) {
        const script = bundle["app.js"];
        const style = bundle["app.css"];
        if (script?.type !== "chunk" || style?.type !== "asset") throw new Error("app.js or app.css is missing");
        const licenses = notice(this.getModuleIds());
        if (licenses.includes("--")) throw new Error('a licence contains "--", which cannot stand in a comment of HTML');
        const files = {
          "app.html": live(),
          "licenses.txt": licenses,
          "report.html": report(inlined(script.code.trim(), "script"), inlined(String(style.source).trim(), "style"), licenses),
          "source.sha256": sourceHash(import.meta.dirname.replace(/\/bundling$/, "")) + "\n",
        };
        for (const [fileName, source] of Object.entries(files)) this.emitFile({ type: "asset", fileName, source });
      },
    },
  };
}
