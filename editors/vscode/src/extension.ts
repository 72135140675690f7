// The commands. Nothing is started, read or kept but by one of them, and none is there in a folder that is not trusted.
import { basename } from "node:path";
import * as vscode from "vscode";
import { evidencePlace } from "./places";
import { checkedReport } from "./report";
import { lineOf, locationOf, Results, sourceFolders, type Result } from "./results";
import { Cancelled, INSTALL, mebibytes, Missing, programOf, run } from "./run";
import { LiveStatus } from "./status";
import { copied, lastOutput } from "./terminal";
import { notice } from "./text";
import { parseVerdict, Problem, type Verdict } from "./verdict";

const MAX_INPUT = 8 * 1024 * 1024;
const LIMITS = { seconds: 600, bytes: 64 * 1024 * 1024 };

let live: LiveStatus | undefined;

export function activate(context: vscode.ExtensionContext): void {
  const results = new Results(told);
  const status = (live = new LiveStatus());
  const commands: Record<string, (uri?: vscode.Uri) => Promise<void>> = {
    diagnoseSelection: () => diagnoseSelection(results),
    diagnoseFile: (uri) => diagnoseFile(results, uri),
    diagnoseTerminal: () => diagnoseTerminal(results),
    postmortem: (uri) => postmortem(results, uri),
    watch: (uri) => watch(results, status, uri),
    stopWatching: () => status.stop(),
  };
  const registered = Object.entries(commands).map(([name, action]) =>
    vscode.commands.registerCommand(`denpex-agg.${name}`, (uri: unknown) =>
      told(() => action(uri instanceof vscode.Uri ? uri : undefined)),
    ),
  );
  context.subscriptions.push(results, status, ...registered);
}

/** Waits for a watch to end: what it stored is removed then. */
export async function deactivate(): Promise<void> {
  await live?.stop();
}

/** Tells of problems; of being cancelled the user knows. */
async function told(action: () => Promise<void>): Promise<void> {
  try {
    await action();
  } catch (error) {
    if (error instanceof Cancelled) return;
    if (!(error instanceof Problem)) throw error;
    const ways = error instanceof Missing ? ["Copy the command", "Open the setting"] : [];
    const way = await vscode.window.showErrorMessage(notice(error.message), ...ways);
    if (way === "Copy the command") await vscode.env.clipboard.writeText(INSTALL);
    if (way === "Open the setting")
      await vscode.commands.executeCommand("workbench.action.openSettings", "denpex-agg.path");
  }
}

function program(): string {
  return programOf(vscode.workspace.getConfiguration("denpex-agg").get("path", "denpex-agg"));
}

/** Runs the program, with a notification that can cancel it. */
async function waited(title: string, args: readonly string[], input?: string): Promise<string> {
  const options = { location: vscode.ProgressLocation.Notification, title: notice(title), cancellable: true };
  return vscode.window.withProgress(options, (_, token) => {
    const abort = new AbortController();
    token.onCancellationRequested(() => {
      abort.abort();
    });
    return run({ program: program(), args, signal: abort.signal, limits: LIMITS, ...(input && { input }) });
  });
}

const sources = (): string[] => sourceFolders().flatMap((folder) => ["--source", folder]);

/** The verdict on a text. */
async function diagnosed(what: string, text: string): Promise<Verdict> {
  const bytes = Buffer.byteLength(text);
  if (bytes > MAX_INPUT) {
    throw new Problem(
      `${what} has ${mebibytes(bytes)}, at most ${mebibytes(MAX_INPUT)} are taken: save it to a file of its own and ` +
        "diagnose that, or select less.",
    );
  }
  if (text.trim() === "") throw new Problem(`${what} is empty: there is nothing to diagnose.`);
  return parseVerdict(await waited(`denpex-agg: ${what}`, ["diagnose", "--json", ...sources(), "--", "-"], text));
}

async function diagnoseSelection(results: Results): Promise<void> {
  const editor = vscode.window.activeTextEditor;
  if (!editor || editor.selection.isEmpty)
    throw new Problem("Nothing is selected: select a traceback or a part of a log.");
  const { uri } = editor.document;
  const first = editor.selection.start.line;
  const verdict = await diagnosed("The selection", editor.document.getText(editor.selection));
  results.show({
    verdict,
    subject: `selection in ${basename(uri.path)}`,
    locate: ({ line }) => lineOf(uri, first + line),
  });
}

async function diagnoseFile(results: Results, chosen: vscode.Uri | undefined): Promise<void> {
  const uri = chosen ?? vscode.window.activeTextEditor?.document.uri;
  if (!uri) throw new Problem("No file is open: open a log, or choose one in the explorer.");
  const document = vscode.workspace.textDocuments.find((open) => open.uri.toString() === uri.toString());
  if (document && (document.isDirty || uri.scheme !== "file")) {
    const verdict = await diagnosed("The file", document.getText());
    results.show({ verdict, subject: basename(uri.path), locate: ({ line }) => lineOf(uri, line) });
    return;
  }
  const path = pathOf(uri);
  const output = await waited(`denpex-agg: ${path}`, ["diagnose", "--json", ...sources(), "--", path]);
  results.show(onDisk(parseVerdict(output), path, false));
}

async function diagnoseTerminal(results: Results): Promise<void> {
  if (!vscode.window.activeTerminal) throw new Problem("No terminal is open.");
  const act = vscode.commands.executeCommand;
  const copy = (...commands: string[]): Promise<string> =>
    copied(vscode.env.clipboard, async () => {
      for (const command of commands) await act(`workbench.action.terminal.${command}`);
    });
  const output = await copy("copyLastCommandOutput"); // nothing without shell integration
  const whole = await copy("selectAll", "copySelection", "clearSelection");
  const last = lastOutput(whole, output);
  let verdict = await diagnosed("The terminal's text", last);
  if (!verdict.failure && last !== whole) verdict = await diagnosed("The terminal's text", whole);
  results.show({ verdict, subject: "terminal", locate: () => undefined });
}

async function postmortem(results: Results, chosen: vscode.Uri | undefined): Promise<void> {
  const folder = await folderOf(chosen, "Post-mortem");
  const args = ["postmortem", "--json", "--no-history", ...sources(), "--", folder];
  results.show(onDisk(parseVerdict(await waited(`denpex-agg: ${folder}`, args)), folder, true));
}

async function watch(results: Results, status: LiveStatus, chosen: vscode.Uri | undefined): Promise<void> {
  const folder = await folderOf(chosen, "Watch");
  await status.follow(program(), folder, (verdict) => {
    results.show(onDisk(verdict, folder, true));
  });
}

function onDisk(verdict: Verdict, path: string, isFolder: boolean): Result {
  const args = ["postmortem", "--format", "html", "--no-history", ...sources(), "--", path];
  return {
    verdict,
    subject: path,
    locate: (evidence) => locationOf(evidencePlace({ path, isFolder }, evidence)),
    report: async () => checkedReport(await waited(`denpex-agg: report of ${path}`, args)),
  };
}

function pathOf(uri: vscode.Uri): string {
  if (uri.scheme !== "file")
    throw new Problem(`${uri.scheme}: is not on a disk: denpex-agg reads files and folders only.`);
  return uri.fsPath;
}

async function folderOf(chosen: vscode.Uri | undefined, openLabel: string): Promise<string> {
  const defaultUri = vscode.workspace.workspaceFolders?.[0]?.uri;
  const options = { canSelectFiles: false, canSelectFolders: true, openLabel, ...(defaultUri && { defaultUri }) };
  const folder = chosen ?? (await vscode.window.showOpenDialog(options))?.[0];
  if (!folder) throw new Cancelled();
  return pathOf(folder);
}
