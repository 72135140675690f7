// A workbench that a test drives: code-server with the packaged extension, and a page of headless Chromium in it.
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

export const WAIT = { timeout: 30_000 };
const START = { timeout: 60_000 };

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((ready) => server.once("listening", ready));
  const { port } = server.address();
  await new Promise((closed) => server.close(closed));
  return port;
}

async function serve(entry, work, project, settings, options) {
  const user = mkdtempSync(join(work, "user-"));
  for (const scope of ["User", "Machine"]) {
    // what starts programs is read from the machine's settings only
    mkdirSync(join(user, scope));
    writeFileSync(join(user, scope, "settings.json"), JSON.stringify(settings));
  }
  const port = await freePort();
  const config = join(work, "config.yaml");
  writeFileSync(
    config,
    `auth: none\nbind-addr: 127.0.0.1:${port}\ndisable-telemetry: true\ndisable-update-check: true\n`,
  );
  const common = [entry, "--config", config, "--user-data-dir", user, "--extensions-dir", join(work, "extensions")];
  execFileSync(process.execPath, [...common, "--install-extension", resolve("denpex-agg.vsix")], { stdio: "pipe" });
  const env = { ...process.env, TMPDIR: work, EXTENSIONS_GALLERY: "{}" }; // the workbench asks no gallery
  const server = spawn(process.execPath, [...common, ...options], {
    detached: true,
    env,
    stdio: ["ignore", "pipe", "pipe"],
  });
  let said = "";
  await new Promise((ready, failed) => {
    const listen = (chunk) => {
      said += chunk;
      if (said.includes("HTTP server listening")) ready();
    };
    server.stdout.on("data", listen);
    server.stderr.on("data", listen);
    server.once("exit", () => failed(new Error(said)));
  });
  const address = `http://127.0.0.1:${port}/?folder=${encodeURIComponent(project)}`;
  // Its group: what it has started outlives it for minutes, in case that a browser comes back.
  return { address, stop: () => new Promise((gone) => server.once("exit", gone) && process.kill(-server.pid)) };
}

/**
 * Opens a folder in a new workbench and lets `drive` use its page; gives the addresses elsewhere that were asked for.
 *
 * `setup` names code-server, a folder for its files, the user's settings, options of code-server, rights of the
 * page, and what is to be seen once the window was closed.
 */
export async function inWorkbench(browser, setup, project, drive) {
  const server = await serve(setup.entry, setup.work, project, setup.settings, setup.options ?? []);
  const context = await browser.newContext({
    viewport: { width: 1400, height: 900 },
    permissions: setup.permissions ?? [],
  });
  const page = await context.newPage();
  const asked = [];
  page.on("request", (request) => asked.push(request.url()));
  try {
    await page.goto(server.address);
    await page.locator(".explorer-folders-view").waitFor(START);
    await drive(page);
    await page.goto("about:blank"); // as a user closes the window
    await setup.closed?.();
  } catch (error) {
    const picture = join(tmpdir(), "denpex-agg-e2e.png");
    await page.screenshot({ path: picture });
    throw new Error(`what it looked like: ${picture}`, { cause: error });
  } finally {
    await context.close();
    await server.stop();
  }
  return asked.filter((url) => /^(http|ws)/.test(url) && new URL(url).host !== new URL(server.address).host);
}

const INPUT = ".quick-input-widget input[type=text]";

/** Opens the command palette with this text; a webview that is being loaded swallows keys. */
export async function palette(page, text) {
  const opens = () => page.locator(INPUT).waitFor({ timeout: 3000 });
  await page.keyboard.press("F1");
  await opens().catch(() => page.keyboard.press("F1").then(opens));
  await page.locator(INPUT).fill(`>${text}`);
}

export async function command(page, title) {
  await palette(page, title);
  await page.locator(".quick-input-list .monaco-list-row", { hasText: title }).first().click(WAIT);
}

/** By the context menu of the explorer. */
export async function onRun(page, run, title) {
  const row = (name) => page.locator(".explorer-folders-view .monaco-list-row", { hasText: name });
  if (!(await row(run).isVisible())) await row("runs").click();
  await row(run).click({ button: "right" });
  // A menu that has just opened does not take a quick click.
  await page.locator(".monaco-menu .action-item", { hasText: title }).click({ delay: 300 });
}

export async function openFile(page, name) {
  await page.keyboard.press("Control+P");
  await page.keyboard.type(name);
  await page.locator(".quick-input-list .monaco-list-row", { hasText: name }).first().click(WAIT);
  await page.locator(".tab.active", { hasText: name }).waitFor(WAIT);
}

/** The content of the webview whose text is like this. */
export async function webview(page, text) {
  const end = Date.now() + WAIT.timeout;
  while (Date.now() < end) {
    for (const frame of page.frames().filter((one) => one.parentFrame())) {
      const shown = await frame.evaluate("document.body.innerText").catch(() => ""); // it goes away at any time
      if (shown.search(text) >= 0) return frame;
    }
    await page.waitForTimeout(200);
  }
  throw new Error(`no webview says ${text}`);
}

export const caret = (page, line) =>
  page.locator("#status\\.editor\\.selection", { hasText: `Ln ${line},` }).waitFor(WAIT);
