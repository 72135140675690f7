// What a terminal shows. There is no interface for it but the clipboard, which is put back.

export interface Clipboard {
  readText(): PromiseLike<string>;
  writeText(text: string): PromiseLike<void>;
}

const NOTHING = "denpex-agg: nothing was copied";

/** What `copy` puts onto the clipboard; empty if nothing. */
export async function copied(clipboard: Clipboard, copy: () => PromiseLike<unknown>): Promise<string> {
  const before = await clipboard.readText();
  try {
    await clipboard.writeText(NOTHING);
    await copy();
    const text = await clipboard.readText();
    return text === NOTHING ? "" : text;
  } finally {
    await clipboard.writeText(before);
  }
}
