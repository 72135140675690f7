import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { test } from "node:test";
import { Missing } from "../src/run";
import { Problem } from "../src/verdict";
import { parseLine, Watch, type Live } from "../src/watch";
import { fake, verdict } from "./helpers";

/** Tells its state folder as a headline, so that a test can look after it. */
const begin = (rest: string): string =>
  `const state = process.argv[process.argv.indexOf("--state-dir") + 1];
   console.error("14:09:28Z   rank3.log:1: 14:09:28Z failed: a log that says so (0 ranks)");
   console.error("14:09:28Z healthy: " + state + " (2 ranks, step 5, 2 files, 3 lines/s)");
   ${rest}`;

test("lines that tell the state are read, lines of logs are not", () => {
  assert.deepEqual(
    parseLine("14:09:29Z failed: first failure: rank 3 (gpu07): OOM (8 ranks, step 690, 9 files, 0 lines/s)"),
    {
      state: "failed",
      headline: "first failure: rank 3 (gpu07): OOM",
      figures: "8 ranks, step 690, 9 files, 0 lines/s",
    },
  );
  assert.equal(parseLine("14:09:29Z healthy (8 ranks, 9 files, 2 lines/s)")?.state, "healthy");
  for (const line of [
    "14:09:28Z   a.log:1: failed: x (1 rank)",
    "14:09:28Z   … and 12 more lines like these",
    "warning: not told",
    "",
  ]) {
    assert.equal(parseLine(line), undefined);
  }
});

test("the state is told, the verdict ends the watch, nothing is left", async (context) => {
  const told: Live[] = [];
  const program = fake(context, begin(`console.log(${JSON.stringify(verdict())})`));
  const end = await new Watch().follow(program, "/runs/1", (live) => told.push(live));
  assert.deepEqual(end?.failure?.ranks, [3]);
  assert.equal(told.length, 1);
  const state = told[0]?.headline ?? "";
  assert.match(state, /denpex-agg-watch-/);
  assert.equal(existsSync(state), false);
});

test("a stopped watch tells no verdict, and its program is gone", async (context) => {
  const watch = new Watch();
  const program = fake(context, begin("process.on('SIGTERM', () => process.exit(143)); setInterval(() => {}, 1000);"));
  const end = await watch.follow(program, "/runs/1", () => {
    watch.stop();
  });
  assert.equal(end, undefined);
});

test("a watch that breaks says why", async (context) => {
  const program = fake(context, "console.error('error: somebody else watches it'); process.exitCode = 4");
  await assert.rejects(
    new Watch().follow(program, "/runs/1", () => undefined),
    (error) => error instanceof Problem && error.message.includes("code 4: error: somebody else watches it"),
  );
  await assert.rejects(
    new Watch().follow("/nowhere/denpex-agg", "/runs/1", () => undefined),
    Missing,
  );
});
