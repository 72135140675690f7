import assert from "node:assert/strict";
import { test } from "node:test";
import { checkedReport } from "../src/report";
import { Problem } from "../src/verdict";

const HASH = `'sha256-${"A".repeat(43)}='`;
const GOOD = `default-src 'none'; base-uri 'none'; form-action 'none'; style-src ${HASH}; script-src ${HASH} ${HASH}`;
const report = (policy: string, before = ""): string =>
  `<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n${before}` +
  `<meta http-equiv="Content-Security-Policy" content="${policy.replaceAll("'", "&#39;")}">\n<title>x</title></head></html>`;

test("a report whose policy names what it runs is shown as it came", () => {
  assert.equal(checkedReport(report(GOOD)), report(GOOD));
});

const BAD: Record<string, string> = {
  "no policy": "<!doctype html><html><head><title>x</title></head></html>",
  "no page": "error: nothing",
  "a script before its policy": report(GOOD, "<script>alert(1)</script>"),
  "scripts from anywhere": report(GOOD.replace("script-src", "script-src https:")),
  "any inline script": report(GOOD.replace("script-src", "script-src 'unsafe-inline'")),
  eval: report(GOOD.replace("script-src", "script-src 'unsafe-eval'")),
  "a connection": report(`${GOOD}; connect-src https://example.invalid`),
  "a default that is open": report(GOOD.replace("default-src 'none'", "default-src *")),
  "no default": report(GOOD.replace("default-src 'none'; ", "")),
  forms: report(GOOD.replace("form-action 'none'; ", "")),
  "two values for one": report(`${GOOD}; script-src ${HASH}`),
};

for (const [what, html] of Object.entries(BAD)) {
  test(`a report with ${what} is not shown`, () => {
    assert.throws(() => checkedReport(html), Problem);
  });
}
