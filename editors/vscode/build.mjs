// Bundles the extension into dist/extension.js; with --tests, the tests into out/.
import { readdirSync, rmSync } from "node:fs";
import { build } from "esbuild";

const common = { bundle: true, platform: "node", target: "node18", charset: "utf8", logLevel: "warning" };

if (process.argv.includes("--tests")) {
  rmSync("out", { recursive: true, force: true });
  const tests = readdirSync("test").filter((name) => name.endsWith(".test.ts"));
  await build({
    ...common,
    entryPoints: tests.map((name) => `test/${name}`),
    format: "esm",
    outdir: "out",
    outExtension: { ".js": ".mjs" },
  });
} else {
  await build({
    ...common,
    entryPoints: ["src/extension.ts"],
    format: "cjs",
    external: ["vscode"],
    minify: true,
    outfile: "dist/extension.js",
  });
}
