import assert from "node:assert/strict";
import { test } from "node:test";
import { page, type Links } from "../src/render";
import { escaped, notice, oneLine, ranges } from "../src/text";
import { parseVerdict } from "../src/verdict";
import { verdict } from "./helpers";

const LINKS: Links = {
  evidence: ({ file, line }) => ({ name: `${file}:${line}`, address: `command:open?${line}` }),
  location: "command:open?0",
  verify: "command:verify",
  code: "command:code",
  report: "command:report",
};
const NONE: Links = {
  evidence: ({ file }) => ({ name: file, address: undefined }),
  location: undefined,
  verify: undefined,
  code: undefined,
  report: undefined,
};

const shown = (failure: object = {}, root: object = {}, links = LINKS): string =>
  page(parseVerdict(verdict(failure, root)), "runs/4242", links, "n0nce");

test("the page says who failed first, why, and what to do", () => {
  const html = shown();
  for (const words of [
    "<h1>First failure: rank 3 (node-a): Evaluation with autograd on</h1>",
    "The graphs stay.",
    "Use torch.no_grad().",
    "nvidia-smi shows less.",
    '<a href="command:open?46"><code>rank3.log:46</code></a>',
    '<a href="command:open?0"><code>/home/u/semseg/model/pspnet.py:30</code></a>',
    "339 lines of 9 files",
  ]) {
    assert.ok(html.includes(words), words);
  }
});

test("the ranks that only followed are folded, equal ones into one line", () => {
  const folded = /<details><summary>4 more.*?<\/details>/s.exec(shown())?.[0] ?? "";
  assert.ok(folded.includes("ranks 0-2, 4: killed: stopped by its launcher"));
  assert.equal(folded.match(/<li>/g)?.length, 1);
});

test("what is not settled is not told as if it were", () => {
  assert.match(shown({ status: "ambiguous", ranks: [1, 2] }), /First failure is one of: ranks 1-2/);
  assert.match(shown({ status: "undetermined", ranks: [], hosts: [] }), /First failure: an unknown rank/);
  assert.match(shown({}, { first_failure: null }), /No failure was found/);
});

test("of many hosts a few are named", () => {
  assert.match(shown({ hosts: ["a", "b", "c", "d", "e"] }), /rank 3 \(a, b, c, and 2 more hosts\)/);
});

test("what cannot be opened is text", () => {
  assert.doesNotMatch(shown({}, {}, NONE), /<a /);
});

test("the page may load and run nothing, its own style apart", () => {
  const html = shown();
  assert.match(html, /content="default-src 'none'; style-src 'nonce-n0nce'"/);
  assert.doesNotMatch(html, /<script|<img|<link|style="/);
});

const PAYLOADS = [
  "<script>alert(1)</script>",
  "<img src=x onerror=alert(1)>",
  '"><a href="command:workbench.action.terminal.new">',
  "'-alert(1)-'",
  "[x](command:workbench.action.quit)",
  "</pre></style><style nonce=n0nce>*{display:none}",
  "\u202egnp.exe\u0007\u001b]8;;http://evil/\u0007",
];
const TAGS = (html: string): string[] => html.match(/<[a-z!/][^>]*>/gi) ?? [];

for (const payload of PAYLOADS) {
  test(`a log that says ${JSON.stringify(payload)} adds no markup`, () => {
    const text = { message: payload, location: payload, hosts: [payload], reasons: [payload], would_settle: [payload] };
    const evidence = [{ file: payload, line: 46, text: payload, why: payload }];
    const diagnosis = Object.fromEntries(
      ["entry", "title", "root_cause", "fix", "code", "verify"].map((key) => [key, payload]),
    );
    const hostile = { ...text, kind: payload, evidence, diagnosis: { ...diagnosis, references: [payload] } };
    const harmless = JSON.parse(JSON.stringify(hostile), (_, value: unknown) =>
      value === payload ? "word" : value,
    ) as object;
    assert.deepEqual(TAGS(shown(hostile, { warnings: [payload] })), TAGS(shown(harmless, { warnings: ["word"] })));
    assert.doesNotMatch(shown(hostile), /[\u0007\u001b\u202e]/);
  });
}

test("a terminal gets one line that does nothing by itself", () => {
  assert.equal(oneLine("a\r\nrm -rf ~\n\u001b[A\u0003\u2028b\u0085"), "a rm -rf ~ [A b");
});

test("a notification makes no link of foreign text", () => {
  assert.equal(notice("see [this](command:evil) now"), "see [this] (command:evil) now");
  assert.ok(notice("x".repeat(5000)).length < 700);
});

test("text for HTML keeps its line ends and shows what cannot be seen", () => {
  assert.equal(escaped("a\n\tb\u200b<"), "a\n\tb\ufffd&#60;");
});

test("ranks are told as ranges", () => {
  assert.equal(ranges([5, 0, 1, 2, 2, 10]), "0-2, 5, 10");
  assert.equal(ranges([]), "");
});
