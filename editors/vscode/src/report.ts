// The HTML report in a webview. Its own policy is held to what we allow; a page with another one is not shown.
import { Problem } from "./verdict";

const HASH = /^'sha256-[A-Za-z0-9+/]{43}='$/;

/** What each directive may name. A browser takes the first of two equal directives, so each may be there once. */
const ALLOWED = new Map<string, RegExp>([
  ["default-src", /^'none'$/],
  ["base-uri", /^'none'$/],
  ["form-action", /^'none'$/],
  ["img-src", /^data:$/],
  ["style-src", HASH],
  ["script-src", HASH],
]);

/** The page as it came; throws a Problem unless its policy lets it load nothing and run only what it names by hash. */
export function checkedReport(html: string): string {
  const head = /^<!doctype html>\s*<html[^<>]*>\s*<head>\s*<meta charset="utf-8">\s*<meta ([^<>]*)>/i.exec(html);
  const policy = /^http-equiv="Content-Security-Policy" content="([^"]*)"$/.exec(
    (head?.[1] ?? "").replaceAll("&#39;", "'"),
  )?.[1];
  if (policy === undefined) throw new Problem("The report has no content policy at its head: it is not shown.");
  const seen = new Set<string>();
  for (const directive of policy.split(";").map((part) => part.trim())) {
    const [name = "", ...sources] = directive.split(/\s+/);
    const allowed = ALLOWED.get(name);
    if (!allowed || seen.has(name) || sources.length === 0 || !sources.every((source) => allowed.test(source))) {
      throw new Problem(`The report's content policy allows more than it should (${name}): it is not shown.`);
    }
    seen.add(name);
  }
  if (!seen.has("default-src") || !seen.has("base-uri") || !seen.has("form-action")) {
    throw new Problem("The report's content policy leaves something open: it is not shown.");
  }
  return html;
}
