import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

interface Manifest {
  readonly activationEvents: readonly string[];
  readonly capabilities: Record<string, { readonly supported: boolean }>;
  readonly dependencies?: object;
  readonly contributes: {
    readonly configuration: { readonly properties: Record<string, { readonly scope: string }> };
    readonly commands: readonly { readonly command: string }[];
    readonly problemMatchers: readonly { readonly pattern: { readonly regexp: string } }[];
  };
}

const manifest = JSON.parse(readFileSync("package.json", "utf8")) as Manifest;

test("nothing runs in a folder that is not trusted, nor before a command is given", () => {
  assert.equal(manifest.capabilities.untrustedWorkspaces?.supported, false);
  assert.equal(manifest.capabilities.virtualWorkspaces?.supported, false);
  assert.deepEqual(manifest.activationEvents, []);
});

test("a workspace cannot say which program is started", () => {
  assert.equal(manifest.contributes.configuration.properties["denpex-agg.path"]?.scope, "machine");
});

test("the extension brings no other packages", () => {
  assert.equal(manifest.dependencies, undefined);
  assert.doesNotMatch(readFileSync("package-lock.json", "utf8"), /"resolved"/);
});

test("every command of the manifest is registered", () => {
  const source = readFileSync("src/extension.ts", "utf8");
  for (const { command } of manifest.contributes.commands) {
    assert.match(source, new RegExp(`^ {4}${command.replace("denpex-agg.", "")}: `, "m"));
  }
});

test("no source names a module or a global that reaches a network", () => {
  for (const name of [
    "extension",
    "places",
    "render",
    "report",
    "results",
    "run",
    "status",
    "terminal",
    "text",
    "watch",
  ]) {
    const source = readFileSync(`src/${name}.ts`, "utf8");
    assert.doesNotMatch(
      source,
      /node:(?:https?|http2|net|tls|dgram|dns)|\bfetch\(|WebSocket|XMLHttpRequest|openExternal/,
    );
  }
});
