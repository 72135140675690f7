// Foreign text on its way to a screen or a terminal.

// Control characters, and those that reorder or hide text: what is shown is what is there.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;

/** For a screen: tabs and line ends stay, what cannot be seen is shown as a replacement character. */
export function visible(text: string): string {
  return text.replace(UNSEEN, (char) => (char === "\n" || char === "\t" ? char : "\ufffd"));
}

/** For a terminal: one line without anything that a terminal or a shell's line editor would act on. */
export function oneLine(text: string): string {
  return text.replace(UNSEEN, " ").replace(/ +/g, " ").trim();
}

/** For a notification, in which VS Code would make links, and even commands, of `[text](target)`. */
export function notice(text: string): string {
  const line = oneLine(text).replaceAll("](", "] (");
  return line.length > 600 ? `${line.slice(0, 600)} …` : line;
}

/** For HTML, as text and as the value of an attribute in double quotes. */
export function escaped(text: string): string {
  return visible(text).replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`);
}

/** `[0, 1, 2, 5]` as `0-2, 5`. */
export function ranges(numbers: readonly number[]): string {
  const parts: [number, number][] = [];
  for (const number of [...new Set(numbers)].sort((a, b) => a - b)) {
    const last = parts.at(-1);
    if (last?.[1] === number - 1) last[1] = number;
    else parts.push([number, number]);
  }
  return parts.map(([from, to]) => (from === to ? `${from}` : `${from}-${to}`)).join(", ");
}
