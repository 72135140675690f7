import assert from "node:assert/strict";
import { test } from "node:test";
import { copied, type Clipboard } from "../src/terminal";

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
