// Follows a run with `denpex-agg watch --json`: plain lines on standard error tell the state, the verdict ends it.
import type { ChildProcessWithoutNullStreams } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ended, start, stop } from "./run";
import { parseVerdict, Problem, type Verdict } from "./verdict";

export interface Live {
  readonly state: "waiting" | "healthy" | "suspect" | "failed" | "finished";
  /** Foreign text; empty if nothing but the figures changed. */
  readonly headline: string;
  /** Such as `8 ranks, step 690, 9 files, 0 lines/s`. */
  readonly figures: string;
}

const LINE = /^\d\d:\d\d:\d\dZ (waiting|healthy|suspect|failed|finished)(?:: (.*))? \(([^()]*)\)$/;
const MAX_LINE = 64 * 1024;
const MAX_VERDICT = 64 * 1024 * 1024;

/** A line that tells the state; undefined for the lines of logs beside it, which begin with two spaces. */
export function parseLine(line: string): Live | undefined {
  const match = LINE.exec(line);
  if (!match) return undefined;
  return { state: match[1] as Live["state"], headline: match[2] ?? "", figures: match[3] ?? "" };
}

/** A watch that runs until the job ends or `stop` is called. What it stores of the logs is removed when it ends. */
export class Watch {
  readonly #stopped = new AbortController();
  #child: ChildProcessWithoutNullStreams | undefined;

  /** The verdict when the job has ended; undefined if it was stopped before. */
  async follow(program: string, folder: string, tell: (live: Live) => void): Promise<Verdict | undefined> {
    const state = await mkdtemp(join(tmpdir(), "denpex-agg-watch-"));
    try {
      const options = ["--json", "--exit-on-end", "--no-history", "--state-dir", state];
      const child = start(program, ["watch", ...options, "--", folder]);
      this.#child = child;
      if (this.#stopped.signal.aborted) stop(child);
      child.stdin.on("error", () => undefined);
      child.stdin.end();
      const output: Buffer[] = [];
      let bytes = 0;
      child.stdout.on("data", (chunk: Buffer) => {
        bytes += chunk.length;
        if (bytes <= MAX_VERDICT) output.push(chunk);
      });
      let last = "";
      eachLine(child, (line) => {
        const live = parseLine(line);
        if (live) tell(live);
        else last = line;
      });
      const code = await ended(child, program);
      if (this.#stopped.signal.aborted) return undefined;
      if (code !== 0) throw new Problem(`denpex-agg watch ended with code ${code ?? "none"}: ${last}`);
      return parseVerdict(Buffer.concat(output).toString());
    } finally {
      await rm(state, { recursive: true, force: true });
    }
  }

  /** Ends the program; `follow` then returns. */
  stop(): void {
    this.#stopped.abort();
    if (this.#child) stop(this.#child);
  }
}

function eachLine(child: ChildProcessWithoutNullStreams, take: (line: string) => void): void {
  let rest = "";
  child.stderr.setEncoding("utf8").on("data", (chunk: string) => {
    const lines = (rest + chunk).split("\n");
    rest = (lines.pop() ?? "").slice(-MAX_LINE);
    lines.forEach(take);
  });
}
