import assert from "node:assert/strict";
import { test } from "node:test";
import { copied, lastOutput, type Clipboard } from "../src/terminal";

function clipboard(text: string): Clipboard & { text: string } {
  return {
    text,
    readText() {
      return Promise.resolve(this.text);
    },
    writeText(next) {
      this.text = next;
      return Promise.resolve();
    },
  };
}

test("what is copied is taken, and the clipboard is as before", async () => {
  const board = clipboard("mine");
  assert.equal(await copied(board, () => board.writeText("Traceback")), "Traceback");
  assert.equal(board.text, "mine");
});

test("nothing copied is empty, whatever the clipboard held", async () => {
  assert.equal(await copied(clipboard("mine"), () => Promise.resolve()), "");
});

test("the clipboard is put back when copying fails", async () => {
  const board = clipboard("mine");
  await assert.rejects(copied(board, () => Promise.reject(new Error("no terminal"))));
  assert.equal(board.text, "mine");
});

const SHOWN = "$ train\nOld error\n$ train\nTraceback:\n  a long line that is wrapped\nNew error\n$ ";

test("the last command's output is taken from the terminal's text, whatever became of its line ends", () => {
  const output = "Traceback:\n  a long line\n that is wrappedNew error\n";
  const last = "Traceback:\n  a long line that is wrapped\nNew error\n$ ";
  assert.equal(lastOutput(SHOWN, output), last);
  assert.equal(lastOutput(SHOWN, "Traceback:\n  a long"), last);
});

test("without a last command all of the terminal's text is taken", () => {
  assert.equal(lastOutput(SHOWN, ""), SHOWN);
  assert.equal(lastOutput(SHOWN, "scrolled away"), SHOWN);
});
