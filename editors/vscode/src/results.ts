// Shows verdicts: a page without scripts, the user's own line among the problems, the HTML report on demand.
import { randomBytes } from "node:crypto";
import { basename } from "node:path";
import * as vscode from "vscode";
import { sourcePlace, type Place } from "./places";
import { page, what, who } from "./render";
import { notice, oneLine } from "./text";
import type { Evidence, Verdict } from "./verdict";

/** A verdict, what it is about, and how to get from its lines to documents. */
export interface Result {
  readonly verdict: Verdict;
  readonly subject: string;
  readonly locate: (evidence: Evidence) => vscode.Location | undefined;
  /** Makes the HTML report; undefined for text, which is not kept. */
  readonly report?: (() => Promise<string>) | undefined;
}

const MAX_TYPED = 1000;
/** A column behind all that is shown of a line; VS Code cuts it back. */
const LINE_END = 10_000;

export const locationOf = (place: Place | undefined): vscode.Location | undefined =>
  place && lineOf(vscode.Uri.file(place.path), place.line);

/** `line` counts from 1. */
export function lineOf(uri: vscode.Uri, line: number): vscode.Location {
  return new vscode.Location(uri, new vscode.Range(line - 1, 0, line - 1, LINE_END));
}

export const sourceFolders = (): string[] =>
  (vscode.workspace.workspaceFolders ?? []).filter(({ uri }) => uri.scheme === "file").map(({ uri }) => uri.fsPath);

export class Results implements vscode.Disposable {
  readonly #problems = vscode.languages.createDiagnosticCollection("denpex-agg");
  readonly #commands: vscode.Disposable[];
  #panel: vscode.WebviewPanel | undefined;
  #result: Result | undefined;
  #places: vscode.Location[] = [];
  #terminal: vscode.Terminal | undefined;

  /** `told` runs what a click starts and tells the user of problems. */
  constructor(told: (action: () => Promise<void>) => Promise<void>) {
    const actions = {
      "denpex-agg.result.open": (index: unknown) => this.#open(index),
      "denpex-agg.result.verify": () => this.#type(),
      "denpex-agg.result.code": () => this.#copy(),
      "denpex-agg.result.report": () => this.#report(),
    };
    this.#commands = Object.entries(actions).map(([name, action]) =>
      vscode.commands.registerCommand(name, (index: unknown) => told(() => action(index))),
    );
  }

  show(result: Result): void {
    this.#result = result;
    this.#places = [];
    const failure = result.verdict.failure;
    const own = failure ? locationOf(sourcePlace(failure.location, sourceFolders())) : undefined;
    const html = page(
      result.verdict,
      result.subject,
      {
        evidence: (evidence) => {
          const place = result.locate(evidence);
          return { name: nameOf(evidence, place), address: this.#link(place) };
        },
        location: this.#link(own),
        verify: "command:denpex-agg.result.verify",
        code: "command:denpex-agg.result.code",
        report: result.report && "command:denpex-agg.result.report",
      },
      randomBytes(16).toString("hex"),
    );
    const panel = (this.#panel ??= this.#newPanel());
    panel.webview.html = html;
    panel.reveal(undefined, true);
    this.#problems.clear();
    if (own) this.#problems.set(own.uri, [problem(result, own.range)]);
  }

  dispose(): void {
    this.#panel?.dispose();
    vscode.Disposable.from(this.#problems, ...this.#commands).dispose();
  }

  #newPanel(): vscode.WebviewPanel {
    const column = { viewColumn: vscode.ViewColumn.Beside, preserveFocus: true };
    const panel = vscode.window.createWebviewPanel("denpex-agg.result", "denpex-agg: verdict", column, {
      enableScripts: false,
      enableForms: false,
      enableCommandUris: ["open", "verify", "code", "report"].map((name) => `denpex-agg.result.${name}`),
      localResourceRoots: [],
    });
    panel.onDidDispose(() => {
      this.#panel = this.#result = undefined;
      this.#problems.clear();
    });
    return panel;
  }

  /** Only a number goes into the address: a place comes from the list that is kept here. */
  #link(place: vscode.Location | undefined): string | undefined {
    return place && `command:denpex-agg.result.open?${encodeURIComponent(`[${this.#places.push(place) - 1}]`)}`;
  }

  async #open(index: unknown): Promise<void> {
    const place = typeof index === "number" ? this.#places[index] : undefined;
    if (!place) return;
    const start = new vscode.Range(place.range.start, place.range.start);
    await vscode.window.showTextDocument(place.uri, { selection: start, viewColumn: vscode.ViewColumn.One });
  }

  /** A terminal of its own: what runs in another one must not be typed into. Nothing is run: no line end is sent. */
  async #type(): Promise<void> {
    const verify = this.#result?.verdict.failure?.diagnosis?.verify;
    if (verify === undefined) return;
    if (this.#terminal?.exitStatus !== undefined) this.#terminal = undefined;
    this.#terminal ??= vscode.window.createTerminal("denpex-agg: verify");
    this.#terminal.show();
    this.#terminal.sendText(`# ${oneLine(verify).slice(0, MAX_TYPED)}`, false);
    return Promise.resolve();
  }

  async #copy(): Promise<void> {
    const code = this.#result?.verdict.failure?.diagnosis?.code;
    if (code) await vscode.env.clipboard.writeText(code);
  }

  async #report(): Promise<void> {
    if (!this.#result?.report) return;
    const html = await this.#result.report();
    const title = notice(`Report: ${this.#result.subject}`);
    const options = { enableScripts: true, enableForms: false, localResourceRoots: [] };
    const panel = vscode.window.createWebviewPanel("denpex-agg.report", title, vscode.ViewColumn.One, options);
    panel.webview.html = html;
  }
}

/** Text that was passed on has no name of its own, and its lines are counted from where it begins. */
function nameOf({ file, line }: Evidence, place: vscode.Location | undefined): string {
  if (file !== "-") return `${file}:${line}`;
  return place ? `${basename(place.uri.path)}:${place.range.start.line + 1}` : `line ${line}`;
}

function problem({ verdict, locate }: Result, range: vscode.Range): vscode.Diagnostic {
  const { failure } = verdict;
  if (!failure) throw new Error("a verdict without a failure has no line of its own");
  const fix = failure.diagnosis ? `\nFix: ${failure.diagnosis.fix}` : "";
  const text = `first failure: ${who(failure)}: ${what(failure)}${fix}`;
  const told = new vscode.Diagnostic(range, text, vscode.DiagnosticSeverity.Error);
  told.source = "denpex-agg";
  told.code = failure.diagnosis?.entry ?? failure.kind;
  told.relatedInformation = failure.evidence.flatMap((evidence) => {
    const place = locate(evidence);
    return place ? [new vscode.DiagnosticRelatedInformation(place, evidence.why)] : [];
  });
  return told;
}
