// The live state of one watched run in the status bar; when the run has ended, the way to its verdict.
import { basename } from "node:path";
import * as vscode from "vscode";
import { notice } from "./text";
import type { Verdict } from "./verdict";
import { Watch, type Live } from "./watch";

const ICONS: Record<Live["state"], string> = {
  waiting: "watch",
  healthy: "pulse",
  suspect: "question",
  failed: "error",
  finished: "check",
};
const COLOURS: Partial<Record<Live["state"], string>> = {
  suspect: "statusBarItem.warningBackground",
  failed: "statusBarItem.errorBackground",
};

interface Running {
  readonly watch: Watch;
  /** When the program has ended, however it did. */
  readonly over: Promise<unknown>;
}

export class LiveStatus implements vscode.Disposable {
  readonly #item = vscode.window.createStatusBarItem("denpex-agg.live", vscode.StatusBarAlignment.Left);
  readonly #click = vscode.commands.registerCommand("denpex-agg.live.click", () => this.#clicked());
  #running: Running | undefined;
  #told = "";
  #showVerdict: (() => void) | undefined;

  constructor() {
    this.#item.name = "denpex-agg: watched run";
    this.#item.command = "denpex-agg.live.click";
  }

  /** Follows a run in place of the one before; `show` is called if the job ends and the user wants its verdict. */
  async follow(program: string, folder: string, show: (verdict: Verdict) => void): Promise<void> {
    await this.stop();
    const watch = new Watch();
    this.#tell({ state: "waiting", headline: "", figures: "starting" }, folder);
    this.#item.show();
    const ending = watch.follow(program, folder, (live) => {
      this.#tell(live, folder);
    });
    const running = { watch, over: ending.catch(() => undefined) };
    await this.#run(running);
    try {
      const verdict = await ending;
      if (!verdict) return;
      this.#showVerdict = () => {
        this.#hide();
        show(verdict);
      };
    } finally {
      if (this.#running === running) await this.#run(undefined);
      if (!this.#showVerdict) this.#hide();
    }
    await this.#clicked();
  }

  /** Ends the watch, and waits until the program has ended. */
  async stop(): Promise<void> {
    this.#hide();
    this.#running?.watch.stop();
    await this.#running?.over;
  }

  dispose(): void {
    this.#running?.watch.stop();
    vscode.Disposable.from(this.#item, this.#click).dispose();
  }

  async #run(running: Running | undefined): Promise<void> {
    this.#running = running;
    await vscode.commands.executeCommand("setContext", "denpex-agg.isWatching", running !== undefined);
  }

  #hide(): void {
    this.#showVerdict = undefined;
    this.#item.hide();
  }

  async #clicked(): Promise<void> {
    const [action, act] = this.#showVerdict
      ? (["Show the verdict", this.#showVerdict] as const)
      : (["Stop watching", (): Promise<void> => this.stop()] as const);
    if ((await vscode.window.showInformationMessage(notice(this.#told), action)) === action) await act();
  }

  /** The text has our words and the program's figures only: in a status bar, `$(…)` would be an icon. */
  #tell(live: Live, folder: string): void {
    this.#told = `${basename(folder)}: ${live.state}${live.headline && `: ${live.headline}`}`;
    this.#item.text = `$(${ICONS[live.state]}) run ${live.state}: ${live.figures}`;
    this.#item.tooltip = `${folder}\n${notice(this.#told)}`;
    const colour = COLOURS[live.state];
    this.#item.backgroundColor = colour === undefined ? undefined : new vscode.ThemeColor(colour);
    this.#item.accessibilityInformation = { label: `${basename(folder)}: ${live.state}, ${live.figures}` };
  }
}
