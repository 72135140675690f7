import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Cancelled, Missing, programOf, run } from "../src/run";
import { Problem } from "../src/verdict";
import { fake, folder } from "./helpers";

const LIMITS = { seconds: 20, bytes: 1024 * 1024 };
const never = (): AbortSignal => new AbortController().signal;
const problem =
  (words: RegExp) =>
  (error: unknown): boolean =>
    error instanceof Problem && words.test(error.message);
const FOREVER = "process.on('SIGTERM', () => process.exit(143)); setInterval(() => {}, 1000);";

test("text goes in on standard input, output comes back whole", async (context) => {
  const program = fake(context, "process.stdin.pipe(process.stdout)");
  const input = "é😀\n".repeat(100_000);
  assert.equal(await run({ program, args: [], input, signal: never(), limits: { ...LIMITS, bytes: 1e7 } }), input);
});

test("arguments reach the program as they are: no shell reads them", async (context) => {
  const program = fake(context, "console.log(JSON.stringify(process.argv.slice(2)))");
  const args = ["--", "-x; touch /tmp/never", "$(id)", "a b\n'\"", "*"];
  assert.deepEqual(JSON.parse(await run({ program, args, signal: never(), limits: LIMITS })), args);
});

test("nothing of the workspace is at hand for the program, and no webhook", async (context) => {
  process.env.DENPEX_WEBHOOK = "https://example.invalid/";
  context.after(() => delete process.env.DENPEX_WEBHOOK);
  const program = fake(context, "console.log(process.cwd(), process.env.DENPEX_WEBHOOK)");
  assert.equal(await run({ program, args: [], signal: never(), limits: LIMITS }), "/ undefined\n");
});

test("a program that is not there is told with the way to install it", async () => {
  const call = { program: "/nowhere/denpex-agg", args: [], signal: never(), limits: LIMITS };
  await assert.rejects(run(call), (error) => error instanceof Missing && error.message.includes("pip install ."));
});

test("a program that may not be run is told too", async (context) => {
  const program = join(folder(context, { "denpex-agg": "no program" }), "denpex-agg");
  await assert.rejects(run({ program, args: [], signal: never(), limits: LIMITS }), problem(/cannot be started/));
});

test("a program that ends with an error is told in its own words", async (context) => {
  const program = fake(context, "console.error('error: no such file'); process.exitCode = 3");
  const call = { program, args: [], input: "x".repeat(1e6), signal: never(), limits: LIMITS };
  await assert.rejects(run(call), problem(/code 3: error: no such file/));
});

test("who cancels waits no longer, and the program is gone", async (context) => {
  const note = join(folder(context), "pid");
  const program = fake(context, `require("fs").writeFileSync(process.argv[2], "" + process.pid); ${FOREVER}`);
  const abort = new AbortController();
  const running = run({ program, args: [note], signal: abort.signal, limits: LIMITS });
  const pid = await written(note);
  abort.abort();
  await assert.rejects(running, Cancelled);
  assert.throws(() => process.kill(pid, 0), { code: "ESRCH" });
});

test("a program that takes too long is stopped", async (context) => {
  const limits = { seconds: 0.3, bytes: 100 };
  const call = { program: fake(context, FOREVER), args: [], signal: never(), limits };
  await assert.rejects(run(call), problem(/longer than 0.3 s/));
});

test("a program that prints too much is stopped", async (context) => {
  const program = fake(context, "setInterval(() => process.stdout.write('x'.repeat(1e5)), 1)");
  await assert.rejects(run({ program, args: [], signal: never(), limits: LIMITS }), problem(/more than 1 MiB/));
});

test("the setting is a name or an absolute path, never one that a workspace could fill", () => {
  assert.equal(programOf(" denpex-agg "), "denpex-agg");
  assert.equal(programOf("~/bin/denpex-agg"), join(homedir(), "bin/denpex-agg"));
  for (const setting of ["", "./denpex-agg", ".venv/bin/denpex-agg"]) {
    assert.throws(() => programOf(setting), Problem);
  }
});

async function written(note: string): Promise<number> {
  while (!existsSync(note) || readFileSync(note, "utf8") === "")
    await new Promise((resolve) => setTimeout(resolve, 10));
  return Number(readFileSync(note, "utf8"));
}
