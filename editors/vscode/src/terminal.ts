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

/**
 * The end of what a terminal shows, from where the last command's output begins; all of it if that is not there.
 *
 * VS Code breaks the long lines of a command's output and joins others, so only what is no white space is compared.
 */
export function lastOutput(whole: string, output: string): string {
  const bare = output.replace(/\s/g, "");
  const at = bare === "" ? -1 : whole.replace(/\s/g, "").lastIndexOf(bare);
  if (at < 0) return whole;
  let before = -1;
  for (const { index } of whole.matchAll(/\S/g)) if (++before === at) return whole.slice(index);
  return whole;
}
