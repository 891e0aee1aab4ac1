import { defineConfig } from "vite";
import { shortElements } from "./bundling/elements.ts";
import { htmlFiles } from "./bundling/html.ts";

export default defineConfig({
  // Calls of `h` are shorter than those of the automatic runtime, which wraps children in properties.
  oxc: { jsx: { runtime: "classic", pragma: "h", pragmaFrag: "Fragment" }, jsxInject: 'import { h, Fragment } from "preact"' },
  plugins: [shortElements(), htmlFiles()],
  build: {
    outDir: "../src/moorage/interfaces/web/bundle",
    emptyOutDir: true,
    target: "es2022",
    cssCodeSplit: false,
    minify: "terser",
    terserOptions: { ecma: 2020, toplevel: true, compress: { passes: 3, unsafe_arrows: true, keep_fargs: false } },
    modulePreload: false,
    reportCompressedSize: false,
    rolldownOptions: {
      input: "src/main.tsx",
      output: { format: "iife", entryFileNames: "app.js", assetFileNames: "app[extname]" },
    },
  },
  test: { include: ["tests/**/*.test.ts"] },
} as Parameters<typeof defineConfig>[0]);
