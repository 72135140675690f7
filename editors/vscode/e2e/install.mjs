// Installs code-server, which is VS Code in a browser, from npm: `node e2e/install.mjs FOLDER`. Needs a C++ compiler.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** The last one for Node 20. */
const VERSION = "4.96.4";
const NATIVE = {
  "": ["argon2"],
  "node_modules/code-server/lib/vscode": ["@vscode/spdlog", "node-pty", "native-watchdog"],
};

/** The program's path; installs it into the folder unless it is there. */
export function codeServer(folder) {
  const entry = join(folder, "node_modules/code-server/out/node/entry.js");
  const done = join(folder, "installed");
  if (existsSync(done)) return entry;
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "package.json"), '{ "private": true }');
  const npm = (cwd, ...args) =>
    execFileSync("npm", [...args, "--no-audit", "--no-fund", "--silent"], { cwd: join(folder, cwd), stdio: "inherit" });
  const inner = "node_modules/code-server/lib/vscode";
  npm("", "install", "--ignore-scripts", `code-server@${VERSION}`);
  rmSync(join(folder, inner, "npm-shrinkwrap.json")); // it names a git repository
  npm(inner, "install", "--omit=dev", "--ignore-scripts");
  for (const [cwd, packages] of Object.entries(NATIVE)) npm(cwd, "rebuild", ...packages);
  writeFileSync(done, VERSION);
  return entry;
}
