// Runs the program: its arguments are an array, never a shell's line; text goes in on standard input.
import { spawn, type ChildProcess, type ChildProcessWithoutNullStreams } from "node:child_process";
import { homedir } from "node:os";
import { isAbsolute, join, parse } from "node:path";
import { Problem } from "./verdict";

export const INSTALL = "python3 -m venv .venv && .venv/bin/pip install .";

/** What one run may take. */
export interface Limits {
  readonly seconds: number;
  readonly bytes: number;
}

export interface Call {
  readonly program: string;
  readonly args: readonly string[];
  /** Standard input; empty if not given. */
  readonly input?: string;
  readonly signal: AbortSignal;
  readonly limits: Limits;
}

/** The program is not there; the message says how to install it. */
export class Missing extends Problem {}

/** The user gave up waiting. */
export class Cancelled extends Error {}

const KILL_AFTER_MS = 3000;
const MAX_COMPLAINT = 64 * 1024;

/** What the setting names: a bare name for the PATH, or an absolute path, `~` for the home folder. */
export function programOf(setting: string): string {
  const name = setting.trim();
  if (name.startsWith("~/")) return join(homedir(), name.slice(2));
  if (name === "" || (/[/\\]/.test(name) && !isAbsolute(name))) {
    throw new Problem("The setting denpex-agg.path must be a name on the PATH or an absolute path.");
  }
  return name;
}

/** Starts the program. It runs at the root folder, so that no file of a workspace is taken for one of its own. */
export function start(program: string, args: readonly string[]): ChildProcessWithoutNullStreams {
  const env = { ...process.env };
  delete env.DENPEX_WEBHOOK; // nothing that an editor starts posts anywhere
  return spawn(program, args, { stdio: "pipe", cwd: parse(homedir()).root, env, shell: false, windowsHide: true });
}

/** Ends it; by force if it does not listen. */
export function stop(child: ChildProcess): void {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill("SIGTERM");
  const force = setTimeout(() => child.kill("SIGKILL"), KILL_AFTER_MS);
  child.once("close", () => {
    clearTimeout(force);
  });
}

/** Why the program could not be started, for a person. */
function startProblem(program: string, error: NodeJS.ErrnoException): Problem {
  if (error.code !== "ENOENT") return new Problem(`${program} cannot be started: ${error.message}`);
  return new Missing(
    `denpex-agg is not installed, or not where it is looked for (${program}). ` +
      `In a clone of its repository, run: ${INSTALL} — then set denpex-agg.path to .venv/bin/denpex-agg in that folder.`,
  );
}

/** What the program printed; throws Missing, Cancelled, or a Problem with its own words. */
export async function run(call: Call): Promise<string> {
  if (call.signal.aborted) throw new Cancelled();
  const child = start(call.program, call.args);
  const output: Buffer[] = [];
  let bytes = 0;
  let complaint = "";
  let reason: Error | undefined;
  const giveUp = (error: Error): void => {
    reason ??= error;
    stop(child);
  };
  const cancel = (): void => {
    giveUp(new Cancelled());
  };
  const tooLong = new Problem(`denpex-agg was stopped: it took longer than ${call.limits.seconds} s.`);
  const clock = setTimeout(giveUp, call.limits.seconds * 1000, tooLong);
  call.signal.addEventListener("abort", cancel);

  child.stdout.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes <= call.limits.bytes) output.push(chunk);
    else giveUp(new Problem(`denpex-agg was stopped: it printed more than ${mebibytes(call.limits.bytes)}.`));
  });
  child.stderr.on("data", (chunk: Buffer) => {
    if (complaint.length < MAX_COMPLAINT) complaint += chunk.toString();
  });
  child.stdin.on("error", () => undefined); // it ended without reading all; its exit code tells why
  child.stdin.end(call.input ?? "");
  try {
    const code = await ended(child, call.program);
    if (reason) throw reason;
    if (code !== 0)
      throw new Problem(`denpex-agg ended with code ${code ?? "none"}: ${complaint.trim() || "it said nothing."}`);
    return Buffer.concat(output).toString();
  } finally {
    clearTimeout(clock);
    call.signal.removeEventListener("abort", cancel);
  }
}

/** The exit code, once all that it printed was read; null if a signal ended it. Throws if it could not be started. */
export function ended(child: ChildProcess, program: string): Promise<number | null> {
  return new Promise((resolve, reject) => {
    child.once("error", (error) => {
      reject(startProblem(program, error));
    });
    child.once("close", resolve);
  });
}

export function mebibytes(bytes: number): string {
  return `${Math.ceil(bytes / 1024 / 1024)} MiB`;
}
