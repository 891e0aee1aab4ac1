import { defineConfig } from "vite";
import { htmlFiles } from "./bundling/html.ts";

export default defineConfig({
  // Calls of `h` are shorter than those of the automatic runtime, which wraps children in properties.
  oxc: { jsx: { runtime: "classic", pragma: "h", pragmaFrag: "Fragment" }, jsxInject: 'import { h, Fragment } from "preact"' },
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
