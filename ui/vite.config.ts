import { defineConfig } from "vite";
import { htmlFiles } from "./bundling/html.ts";

export default defineConfig({
  // Preact's own runtime; no plugin is needed.
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  plugins: [htmlFiles()],
  build: {
    outDir: "../src/moorage/web/bundle",
    emptyOutDir: true,
    target: "es2022",
    cssCodeSplit: false,
    modulePreload: false,
    reportCompressedSize: false,
    rolldownOptions: {
      input: "src/main.tsx",
      output: { format: "iife", entryFileNames: "app.js", assetFileNames: "app[extname]" },
    },
  },
  test: { include: ["tests/**/*.test.ts"] },
} as Parameters<typeof defineConfig>[0]);
