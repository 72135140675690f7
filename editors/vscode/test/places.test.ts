import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { evidencePlace, sourcePlace } from "../src/places";
import { folder } from "./helpers";

const cited = (file: string): { file: string; line: number; text: string; why: string } => ({
  file,
  line: 7,
  text: "",
  why: "",
});

test("evidence of a folder is opened below it, if it is there", (context) => {
  const path = folder(context, { "logs/rank3.log": "" });
  assert.deepEqual(evidencePlace({ path, isFolder: true }, cited("logs/rank3.log")), {
    path: join(path, "logs/rank3.log"),
    line: 7,
  });
  assert.equal(evidencePlace({ path, isFolder: true }, cited("logs.zip/rank3.log")), undefined);
  assert.equal(evidencePlace({ path, isFolder: true }, cited("logs")), undefined);
});

test("evidence of a file is opened in it", (context) => {
  const path = join(folder(context, { "rank3.log": "" }), "rank3.log");
  assert.deepEqual(evidencePlace({ path, isFolder: false }, cited("rank3.log")), { path, line: 7 });
});

test("the user's line is found in the workspace by the end of its path, longest first", (context) => {
  const here = folder(context, { "pspnet.py": "", "model/pspnet.py": "" });
  const place = sourcePlace("/home/u/semseg/model/pspnet.py:30", [here]);
  assert.deepEqual(place, { path: join(here, "model/pspnet.py"), line: 30 });
});

test("the user's line is opened where the traceback says, if that is there", (context) => {
  const here = folder(context, { "ws/train.py": "", "job/train.py": "" });
  const path = join(here, "job/train.py");
  assert.deepEqual(sourcePlace(`${path}:3`, [join(here, "ws")]), { path, line: 3 });
});

test("a traceback leads to no file above the workspace, on no other machine, and to none that is missing", (context) => {
  const here = folder(context, { "ws/a.py": "", "secret.py": "" });
  const workspace = [join(here, "ws")];
  assert.equal(sourcePlace("../secret.py:1", workspace), undefined);
  assert.equal(sourcePlace("//host/share/a.py:1", []), undefined);
  assert.equal(sourcePlace("/no/such/b.py:1", workspace), undefined);
  for (const location of ["", "a.py", "a.py:", "a.py:0", "a.py:x", ":3"]) {
    assert.equal(sourcePlace(location, workspace), undefined);
  }
});
