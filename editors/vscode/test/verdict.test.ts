import assert from "node:assert/strict";
import { test } from "node:test";
import { parseVerdict, Problem } from "../src/verdict";
import { verdict } from "./helpers";

test("a verdict is read", () => {
  const read = parseVerdict(verdict());
  assert.deepEqual(read.failure?.ranks, [3]);
  assert.equal(read.failure.diagnosis?.rootCause, "The graphs stay.");
  assert.equal(read.collateral.length, 4);
});

test("a job without a failure, and a failure without diagnosis, are read", () => {
  assert.equal(parseVerdict(verdict({}, { first_failure: null, outcome: "completed" })).failure, null);
  const bare = parseVerdict(verdict({ diagnosis: null, location: null, would_settle: undefined })).failure;
  assert.equal(bare?.diagnosis, null);
  assert.equal(bare.location, "");
  assert.deepEqual(bare.wouldSettle, []);
});

const BROKEN: Record<string, string> = {
  "no JSON at all": "Usage: something else",
  "cut JSON": verdict().slice(0, -1),
  "a list": "[]",
  null: "null",
  "another version": verdict({}, { schema_version: 2 }),
  "another outcome": verdict({}, { outcome: '<img src=x onerror="alert(1)">' }),
  "a status that is none": verdict({ status: "guessed" }),
  "a rank that is text": verdict({ ranks: ["3"] }),
  "a rank below zero": verdict({ ranks: [-1] }),
  "a confidence that is text": verdict({ confidence: "high" }),
  "a line that is text": verdict({ evidence: [{ file: "a", line: "1", text: "", why: "" }] }),
  "a line zero": verdict({ evidence: [{ file: "a", line: 0, text: "", why: "" }] }),
  "reasons that are no texts": verdict({ reasons: [1] }),
  "a diagnosis that is text": verdict({ diagnosis: "no_grad" }),
  "collateral that is no list": verdict({}, { collateral: {} }),
  "no coverage": verdict({}, { coverage: undefined }),
  "only inherited fields": '{"__proto__": {"schema_version": 1}}',
};

for (const [what, output] of Object.entries(BROKEN)) {
  test(`${what} is refused with a sentence`, () => {
    assert.throws(
      () => parseVerdict(output),
      (error) => error instanceof Problem && /^denpex-agg printed .*\.?$/.test(error.message),
    );
  });
}
