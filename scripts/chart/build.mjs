// Writes echarts.min.js and its licences to the folder that is given: `npm ci && npm run build -- ../../aggregator/reports/html`.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";

const target = process.argv[2];
if (!target) throw new Error("name the folder to write to");
const packages = ["echarts", "zrender", "tslib"];
const about = (name) => JSON.parse(readFileSync(join("node_modules", name, "package.json"), "utf8"));
const text = (name, file) => readFileSync(join("node_modules", name, file), "utf8").trim();
const file = { echarts: ["LICENSE", "NOTICE"], zrender: ["LICENSE"], tslib: ["LICENSE.txt"] };
const banner = packages.map((name) => `${name} ${about(name).version} (${about(name).license})`).join(", ");

await build({
  entryPoints: ["chart.mjs"],
  bundle: true,
  minify: true,
  format: "iife",
  globalName: "echarts",
  target: "es2020",
  legalComments: "none",
  charset: "ascii",
  banner: { js: `/*! ${banner}; licences: echarts.LICENSE.txt */` },
  outfile: join(target, "echarts.min.js"),
});
const licences = packages.flatMap((name) => [
  `${"=".repeat(78)}\n${name} ${about(name).version}\n`,
  ...file[name].map((part) => `${text(name, part)}\n`),
]);
writeFileSync(join(target, "echarts.LICENSE.txt"), licences.join("\n"));
