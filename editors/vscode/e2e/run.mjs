// Drives the extension in a real workbench: code-server and headless Chromium. docs/vscode.md tells how to run it.
//
//   node e2e/run.mjs [--keep FOLDER] [--screenshot FILE]
//
// FOLDER keeps code-server for the next run. CHROMIUM and DENPEX_AGG name programs that are not on the PATH.
import assert from "node:assert/strict";
import {
  appendFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";
import { codeServer } from "./install.mjs";
import { caret, command, inWorkbench, onRun, openFile, palette, WAIT, webview } from "./workbench.mjs";

const { values } = parseArgs({ options: { keep: { type: "string" }, screenshot: { type: "string" } } });
const work = mkdtempSync(join(tmpdir(), "denpex-agg-e2e-"));
const project = join(work, "project");
/** What a program that the workspace names would write. */
const EVIL = join(work, "evil");
const LOG = "rank3.log";
const began = Date.now();

/** The folders in which watches keep what they read. */
const watches = () => readdirSync(work).filter((name) => name.startsWith("denpex-agg-watch-"));
const step = (words) => console.log(`${((Date.now() - began) / 1000).toFixed(0).padStart(4)} s  ${words}`);

function onPath(...names) {
  const folders = (process.env.PATH ?? "").split(delimiter);
  const found = names.flatMap((name) => folders.map((folder) => join(folder, name))).find((path) => existsSync(path));
  assert.ok(found, `none of these is on the PATH: ${names.join(", ")}`);
  return resolve(found);
}

const PROGRAM = process.env.DENPEX_AGG ?? onPath("denpex-agg");

/** The file that the sample's traceback ends in, with the line that failed. */
const MODEL = `"""Pyramid scene parsing network."""

import torch
import torch.nn.functional as F
from torch import nn


class PPM(nn.Module):
    """Pools the features at several sizes."""

    def __init__(self, in_dim, reduction_dim, bins):
        super().__init__()
        self.features = nn.ModuleList(
            nn.Sequential(
                nn.AdaptiveAvgPool2d(bin_size),
                nn.Conv2d(in_dim, reduction_dim, kernel_size=1, bias=False),
                nn.BatchNorm2d(reduction_dim),
                nn.ReLU(inplace=True),
            )
            for bin_size in bins
        )

    def forward(self, x):
        size = x.size()[2:]
        out = [x]
        for feature in self.features:
            pooled = feature(x)
            out.append(F.interpolate(pooled, size, mode="bilinear", align_corners=True))

        return torch.cat(out, 1)
`;

const TASK = {
  label: "post-mortem",
  type: "process",
  command: PROGRAM,
  args: ["postmortem", "--format", "problems", "--", "runs/4242"],
  problemMatcher: "$denpex-agg",
};

const clock = () => new Date().toISOString().replace("T", " ").replace("Z", "");

/** A user's project: the sample job, one that runs, a log of it, and the model's source. */
function makeProject() {
  const sample = resolve("../../sample_runs/eval-oom-no-grad/job");
  cpSync(sample, join(project, "runs/4242"), { recursive: true });
  cpSync(join(sample, "exp/ade20k/log", LOG), join(project, LOG));
  mkdirSync(join(project, "runs/live"));
  for (const rank of [0, 1]) {
    const steps = [1, 2, 3].map((n) => `${clock()} INFO step ${n} loss 2.0`);
    const start = `${clock()} INFO initialised process group: rank ${rank} of 2 on node-a pid 4`;
    writeFileSync(join(project, `runs/live/rank_${rank}.log`), [start, ...steps, ""].join("\n"));
  }
  mkdirSync(join(project, ".vscode"));
  writeFileSync(join(project, ".vscode/evil"), `#!/bin/sh\necho > ${EVIL}\n`, { mode: 0o755 });
  writeFileSync(
    join(project, ".vscode/settings.json"),
    JSON.stringify({ "denpex-agg.path": join(project, ".vscode/evil") }),
  );
  writeFileSync(join(project, ".vscode/tasks.json"), JSON.stringify({ version: "2.0.0", tasks: [TASK] }));
  mkdirSync(join(project, "model"));
  writeFileSync(join(project, "model/pspnet.py"), MODEL);
}

async function trusted(page) {
  step("the workbench is there");

  await openFile(page, LOG);
  await page.locator(".editor-instance .view-lines").first().click();
  await page.keyboard.press("Control+A");
  await command(page, "denpex-agg: Diagnose selection");
  const result = await webview(page, /First failure: rank 3/);
  assert.match(await result.locator("h1").innerText(), /Evaluation loop OOM due to missing torch.no_grad/);
  step("a selected traceback has its verdict");

  await page.keyboard.press("Control+Home");
  await result.locator("a", { hasText: ":46" }).first().click();
  await caret(page, 46);
  step("a click on the evidence opens rank3.log:46");

  await result.locator("a", { hasText: "pspnet.py:30" }).click();
  await page.locator(".tab.active", { hasText: "pspnet.py" }).waitFor(WAIT);
  await caret(page, 30);
  await page.keyboard.press("Control+Shift+M");
  const problem = page.locator(".markers-panel .monaco-list-row", { hasText: "first failure: rank 3" });
  await problem.waitFor(WAIT);
  step("the user's own line is opened, and is among the problems");

  if (values.screenshot) await page.screenshot({ path: values.screenshot });

  await result.locator("a.button", { hasText: "terminal" }).click();
  const rows = page.locator(".terminal-wrapper.active .xterm-rows");
  await rows
    .locator("div", { hasText: /project[$#]\s# In the loop/ })
    .last()
    .waitFor(WAIT);
  assert.match((await rows.innerText()).trimEnd(), /same\s*batch\s*size\.$/); // no prompt behind it
  step("the way to verify it is in a terminal, and is not run");

  await page.evaluate("navigator.clipboard.writeText('mine')");
  await command(page, "Terminal: Create New Terminal");
  await rows.locator("div", { hasText: /project[$#]/ }).waitFor(WAIT);
  await page.keyboard.type(`tail -n 18 ${LOG}; false`);
  await page.keyboard.press("Enter");
  await rows.locator("div", { hasText: "variables)" }).first().waitFor(WAIT);
  await command(page, "denpex-agg: Diagnose the terminal's last failure");
  const last = await webview(page, /terminal: 19 lines/);
  assert.match(await last.locator("h1").innerText(), /^First failure: rank 3/);
  await last
    .locator("pre", { hasText: /79.11 GiB of which .*variables\)$/s })
    .first()
    .waitFor(WAIT);
  assert.equal(await page.evaluate("navigator.clipboard.readText()"), "mine");
  step("the terminal's last failure has its verdict, and the clipboard is as before");

  await onRun(page, "4242", "Post-mortem of this folder");
  const folder = await webview(page, /rank 3 \(seg-gpu07\)/);
  await folder.locator("summary", { hasText: "7 more" }).waitFor(WAIT);
  await folder.locator("a.button", { hasText: "Full report" }).click();
  const report = await webview(page, /Decisive seconds/);
  await report.locator("#chart[data-drawn=yes]").waitFor(WAIT);
  step("the post-mortem of a folder, and its report with the chart");

  await command(page, "Tasks: Run Task");
  await page.locator(".quick-input-list .monaco-list-row", { hasText: TASK.label }).first().click(WAIT);
  await page.locator(".tabs .badge, .badge-content", { hasText: /^11$/ }).first().waitFor(WAIT);
  step("a task's problems are among the problems");

  const live = (words) => page.locator(".statusbar-item", { hasText: words });
  const answer = (words) => page.locator(".notifications-toasts a", { hasText: words }).click(WAIT);
  await onRun(page, "live", "Watch this run");
  await live(/run healthy: 2 ranks, step 3/).waitFor(WAIT);
  appendFileSync(
    join(project, "runs/live/rank_1.log"),
    `${clock()} ERROR torch.OutOfMemoryError: CUDA out of memory.\n`,
  );
  await live("run failed: 2 ranks").click(WAIT);
  await answer("Stop watching");
  await live("run failed").waitFor({ ...WAIT, state: "hidden" });
  await onRun(page, "4242", "Watch this run");
  await answer("Show the verdict");
  await live("run failed").waitFor({ ...WAIT, state: "hidden" });
  step("a run is watched in the status bar, and its end leads to the verdict");

  await onRun(page, "live", "Watch this run");
  await live("run failed: 2 ranks").waitFor(WAIT);
  assert.equal(watches().length, 1);
}

async function watchesEnd() {
  for (let tries = 0; watches().length > 0 && tries < 100; tries++) await sleep(100);
  assert.deepEqual(watches(), []);
  step("the watch that was left has ended with the window, and has left nothing");
}

/** The extension is off: its commands are unknown. */
async function untrusted(page) {
  await page.locator("[id='status.workspaceTrust']", { hasText: "Restricted Mode" }).waitFor(WAIT);
  await palette(page, "denpex-agg: Diagnose");
  await page.locator(".quick-input-list", { hasText: "No matching" }).waitFor(WAIT);
  step("in a folder that is not trusted there are no commands");
}

makeProject();
const setup = {
  work,
  entry: codeServer(resolve(values.keep ?? join(work, "code-server"))),
  permissions: ["clipboard-read", "clipboard-write"],
  settings: {
    "denpex-agg.path": PROGRAM,
    "explorer.compactFolders": false,
    "security.workspace.trust.startupPrompt": "never", // not trusted, without a question
    "terminal.integrated.gpuAcceleration": "off", // its text is in the page then
    "workbench.colorTheme": "Default Light Modern",
    "workbench.startupEditor": "none",
    "workbench.tips.enabled": false,
  },
};
step("code-server is installed");
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? onPath("chromium", "chromium-browser", "google-chrome"),
  args: ["--no-sandbox"],
});
try {
  const asked = await inWorkbench(
    browser,
    { ...setup, closed: watchesEnd, options: ["--disable-workspace-trust"] },
    project,
    trusted,
  );
  assert.deepEqual(asked, []);
  step("nobody else was asked for anything");
  await inWorkbench(browser, setup, project, untrusted);
  assert.equal(existsSync(EVIL), false);
  step("the program that the workspace names was never started");
} finally {
  await browser.close();
  rmSync(work, { recursive: true, force: true });
}
