// The live state of one watched run in the status bar.
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

export class LiveStatus implements vscode.Disposable {
  #current: { readonly watch: Watch; readonly over: Promise<Verdict | undefined> } | undefined;

  /** Follows a run in place of the one before; the verdict if the job ended. */
  async follow(program: string, folder: string): Promise<Verdict | undefined> {
    await this.stop();
    const item = vscode.window.createStatusBarItem("denpex-agg.live", vscode.StatusBarAlignment.Left);
    item.name = "denpex-agg: watched run";
    item.command = "denpex-agg.stopWatching";
    const tell = (live: Live): void => {
      show(item, live, folder);
    };
    tell({ state: "waiting", headline: "", figures: "starting" });
    item.show();
    const watch = new Watch();
    const over = watch.follow(program, folder, tell);
    const current = { watch, over };
    this.#current = current;
    await vscode.commands.executeCommand("setContext", "denpex-agg.isWatching", true);
    try {
      return await over;
    } finally {
      item.dispose();
      if (this.#current === current) {
        this.#current = undefined;
        await vscode.commands.executeCommand("setContext", "denpex-agg.isWatching", false);
      }
    }
  }

  /** Ends the watch, and waits until the program has ended. */
  async stop(): Promise<void> {
    this.#current?.watch.stop();
    await this.#current?.over.catch(() => undefined); // whoever follows it is told
  }

  dispose(): void {
    this.#current?.watch.stop();
  }
}

/** The text has our words and the program's figures only: in a status bar, `$(…)` would be an icon. */
function show(item: vscode.StatusBarItem, live: Live, folder: string): void {
  item.text = `$(${ICONS[live.state]}) run ${live.state}: ${live.figures}`;
  item.tooltip = `${folder}\n${notice(live.headline)}\nA click ends the watch.`;
  const colour = COLOURS[live.state];
  item.backgroundColor = colour === undefined ? undefined : new vscode.ThemeColor(colour);
  item.accessibilityInformation = { label: `${basename(folder)}: ${live.state}, ${live.figures}` };
}
