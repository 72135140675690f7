// What the tests share: a verdict as JSON, folders that go away, programs that stand in for denpex-agg.
import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import type { TestContext } from "node:test";

export const SAMPLES = resolve("../../sample_runs");

/** The installed program, unless there is none. */
export const REAL = ((): string | undefined => {
  const name = process.env.DENPEX_AGG ?? "denpex-agg";
  try {
    execFileSync(name, ["--version"], { stdio: "ignore" });
    return name;
  } catch {
    return undefined;
  }
})();
export const needsProgram = REAL ? {} : { skip: "denpex-agg is not installed" };

export function folder(context: TestContext, files: Record<string, string> = {}): string {
  const path = mkdtempSync(join(tmpdir(), "denpex-agg-test-"));
  context.after(() => {
    rmSync(path, { recursive: true });
  });
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(path, name)), { recursive: true });
    writeFileSync(join(path, name), text);
  }
  return path;
}

/** A program of this text, in JavaScript. */
export function fake(context: TestContext, script: string): string {
  const path = join(folder(context, { "denpex-agg": `#!${process.execPath}\n${script}\n` }), "denpex-agg");
  chmodSync(path, 0o755);
  return path;
}

/** A verdict as the program prints it, with changes. */
export function verdict(failure: object = {}, root: object = {}): string {
  const evidence = [{ file: "rank3.log", line: 46, text: "OutOfMemoryError: 1.13 GiB", why: "rank 3: out of memory" }];
  return JSON.stringify({
    schema_version: 1,
    outcome: "failed",
    coverage: { files: 9, lines: 339, bytes: 1000, files_skipped: [] },
    warnings: [],
    first_failure: {
      status: "identified",
      confidence: 0.98,
      kind: "cuda_oom",
      ranks: [3],
      hosts: ["node-a"],
      message: "OutOfMemoryError: 1.13 GiB",
      location: "/home/u/semseg/model/pspnet.py:30",
      evidence,
      reasons: ["rank 3 reports a fault of its own"],
      candidates: [],
      would_settle: [],
      diagnosis: {
        entry: "eval-oom",
        title: "Evaluation with autograd on",
        root_cause: "The graphs stay.",
        fix: "Use torch.no_grad().",
        code: "with torch.no_grad():\n    validate()",
        verify: "nvidia-smi shows less.",
        score: 0.8,
        references: ["https://docs.pytorch.org/"],
      },
      ...failure,
    },
    collateral: [0, 1, 2, 4].map((rank) => ({
      rank,
      kind: "killed",
      time: null,
      message: "",
      because: "stopped by its launcher",
      evidence: [{ ...evidence[0], file: "launcher.err", line: 5 + rank }],
    })),
    ...root,
  });
}
