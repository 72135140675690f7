// The result as a page without scripts. All text of a verdict is foreign: it is escaped, and no link is made of it.
import { escaped, ranges } from "./text";
import type { Consequence, Diagnosis, Evidence, Failure, Verdict } from "./verdict";

/** A name to show, and its address if it can be opened. */
export interface Link {
  readonly name: string;
  readonly address: string | undefined;
}

/** What can be clicked: addresses are made by us, undefined where there is nothing to open. */
export interface Links {
  readonly evidence: (evidence: Evidence) => Link;
  readonly location: string | undefined;
  readonly verify: string | undefined;
  readonly code: string | undefined;
  readonly report: string | undefined;
}

const MAX_HOSTS = 3;

const STYLE = `
body { line-height: 1.5; max-width: 60em; padding: 0 1.5em 2em; }
h1 { font-size: 1.4em; } h2 { font-size: 1.1em; margin: 1.4em 0 .3em; }
pre { background: var(--vscode-textCodeBlock-background); overflow-x: auto; padding: .5em .8em; white-space: pre-wrap; }
.outcome { color: var(--vscode-errorForeground); font-weight: bold; text-transform: uppercase; }
.outcome.completed, .outcome.running { color: var(--vscode-charts-green); }
.soft { color: var(--vscode-descriptionForeground); }
.button { background: var(--vscode-button-background); border-radius: 2px; color: var(--vscode-button-foreground);
  display: inline-block; margin: .3em .5em .3em 0; padding: .2em .8em; text-decoration: none; }
summary { cursor: pointer; }`;

/** The whole page; `nonce` is a fresh random word of letters and digits. */
export function page(verdict: Verdict, subject: string, links: Links, nonce: string): string {
  const body = [
    `<p><span class="outcome ${escaped(verdict.outcome)}">${escaped(verdict.outcome)}</span> <span class="soft">` +
      `${escaped(subject)}: ${verdict.lines} lines of ${verdict.files} ${verdict.files === 1 ? "file" : "files"} read</span></p>`,
    verdict.failure ? firstFailure(verdict.failure, links) : "<h1>No failure was found</h1>",
    consequences(verdict.collateral, links),
    verdict.failure ? listed("Why we think so", verdict.failure.reasons) : "",
    verdict.failure ? listed("What would settle it", verdict.failure.wouldSettle) : "",
    listed("Warnings", verdict.warnings),
    links.report ? `<p>${button(links.report, "Full report with the time line")}</p>` : "",
  ];
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'nonce-${nonce}'">
<style nonce="${nonce}">${STYLE}</style></head>
<body>${body.join("\n")}</body></html>`;
}

/** Who failed first, in a few words: `rank 3 (node-b)`. */
export function who(failure: Failure): string {
  const ranks = `${failure.ranks.length === 1 ? "rank" : "ranks"} ${ranges(failure.ranks)}`;
  const named = failure.ranks.length === 0 ? "an unknown rank" : ranks;
  const more = failure.hosts.length > MAX_HOSTS ? `, and ${failure.hosts.length - MAX_HOSTS} more hosts` : "";
  return failure.hosts.length === 0 ? named : `${named} (${failure.hosts.slice(0, MAX_HOSTS).join(", ")}${more})`;
}

/** What failed: the name that the catalogue has for it, else its kind. */
export function what(failure: Failure): string {
  return failure.diagnosis?.title ?? failure.kind.replaceAll("_", " ");
}

const STATUS: Record<string, string> = {
  identified: "First failure",
  ambiguous: "First failure is one of",
  undetermined: "First failure",
};

function firstFailure(failure: Failure, links: Links): string {
  const location =
    failure.location && `<p>Your code: ${maybeLink({ name: failure.location, address: links.location })}</p>`;
  return [
    `<h1>${STATUS[failure.status] ?? ""}: ${escaped(who(failure))}: ${escaped(what(failure))}</h1>`,
    `<pre>${escaped(failure.message)}</pre>`,
    location,
    `<p class="soft">Confidence ${failure.confidence.toFixed(2)}</p>`,
    failure.diagnosis ? wayOut(failure.diagnosis, links) : "",
    "<h2>Evidence</h2>",
    failure.evidence.map((item) => proof(item, links)).join("\n"),
  ].join("\n");
}

function wayOut(diagnosis: Diagnosis, links: Links): string {
  const code = diagnosis.code && `<pre>${escaped(diagnosis.code)}</pre>`;
  return [
    `<h2>Root cause</h2><p>${escaped(diagnosis.rootCause)} <span class="soft">[${escaped(diagnosis.entry)}]</span></p>`,
    `<h2>Fix</h2><p>${escaped(diagnosis.fix)}</p>${code}`,
    code && links.code ? button(links.code, "Copy the code") : "",
    `<h2>Verify</h2><p>${escaped(diagnosis.verify)}</p>`,
    links.verify ? button(links.verify, "Put it into a terminal, as a comment") : "",
    listed("References", diagnosis.references),
  ].join("\n");
}

function proof(evidence: Evidence, links: Links): string {
  return `<p>${maybeLink(links.evidence(evidence))}<br>${escaped(evidence.why)}</p><pre>${escaped(evidence.text)}</pre>`;
}

function consequences(collateral: readonly Consequence[], links: Links): string {
  if (collateral.length === 0) return "";
  const groups = new Map<string, Consequence[]>();
  for (const one of collateral) {
    const key = JSON.stringify([one.kind, one.because]);
    groups.set(key, [...(groups.get(key) ?? []), one]);
  }
  const items = [...groups.values()].map((group) => {
    const [one] = group;
    const ranks = ranges(group.flatMap(({ rank }) => (rank === null ? [] : [rank])));
    const first = group.flatMap(({ evidence }) => evidence).at(0);
    const place = first ? ` ${maybeLink(links.evidence(first))}` : "";
    const told = one ? `${one.kind.replaceAll("_", " ")}: ${one.because}` : "";
    return `<li>${ranks ? `ranks ${ranks}` : "a process"}: ${escaped(told)}${place}</li>`;
  });
  return `<h2>Only a consequence</h2><details><summary>${collateral.length} more ended because of it</summary>
<ul>${items.join("\n")}</ul></details>`;
}

function listed(title: string, items: readonly string[]): string {
  if (items.length === 0) return "";
  return `<h2>${title}</h2><ul>${items.map((item) => `<li>${escaped(item)}</li>`).join("\n")}</ul>`;
}

function maybeLink({ name, address }: Link): string {
  const text = `<code>${escaped(name)}</code>`;
  return address === undefined ? text : `<a href="${escaped(address)}">${text}</a>`;
}

function button(address: string, text: string): string {
  return `<a class="button" role="button" href="${escaped(address)}">${text}</a>`;
}
