// Against the installed program, on the project's sample runs.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { evidencePlace } from "../src/places";
import { checkedReport } from "../src/report";
import { run } from "../src/run";
import { parseVerdict } from "../src/verdict";
import { Watch } from "../src/watch";
import { needsProgram, REAL, SAMPLES } from "./helpers";

const LIMITS = { seconds: 60, bytes: 64 * 1024 * 1024 };
const OOM = join(SAMPLES, "eval-oom-no-grad/job");
const ask = (args: string[], input?: string): Promise<string> =>
  run({ program: REAL ?? "", args, signal: new AbortController().signal, limits: LIMITS, ...(input && { input }) });

describe("the installed denpex-agg", needsProgram, () => {
  test("diagnoses a traceback on standard input", async () => {
    const lines = readFileSync(join(OOM, "exp/ade20k/log/rank3.log"), "utf8").split("\n");
    const verdict = parseVerdict(
      await ask(["diagnose", "--json", "--source", OOM, "--", "-"], lines.slice(28).join("\n")),
    );
    assert.equal(verdict.failure?.diagnosis?.entry, "eval-oom-missing-no-grad");
    assert.equal(verdict.failure.evidence[0]?.line, 18);
  });

  test("gives verdicts on all sample runs, whose evidence can be opened", async () => {
    for (const name of readdirSync(SAMPLES)) {
      const path = join(SAMPLES, name, "job");
      const verdict = parseVerdict(await ask(["postmortem", "--json", "--no-history", "--", path]));
      for (const evidence of verdict.failure?.evidence ?? []) {
        assert.ok(evidencePlace({ path, isFolder: true }, evidence), `${name}: ${evidence.file}`);
      }
    }
  });

  test("makes a report that may be shown", async () => {
    checkedReport(await ask(["postmortem", "--format", "html", "--no-history", "--", OOM]));
  });

  test("prints problems that the matcher of the manifest reads", async () => {
    const text = readFileSync("package.json", "utf8");
    const manifest = JSON.parse(text) as { contributes: { problemMatchers: { pattern: { regexp: string } }[] } };
    const matcher = new RegExp(manifest.contributes.problemMatchers[0]?.pattern.regexp ?? "never");
    const lines = (await ask(["postmortem", "--format", "problems", "--no-history", "--", OOM])).trim().split("\n");
    assert.ok(lines.length > 5);
    assert.deepEqual(
      lines.filter((line) => !matcher.test(line)),
      [],
    );
  });

  test("is understood while it watches", async () => {
    const states: string[] = [];
    const watch = new Watch();
    await watch.follow(REAL ?? "", OOM, ({ state }) => {
      states.push(state);
      if (state === "failed") watch.stop();
    });
    assert.equal(states.at(-1), "failed");
  });
});
