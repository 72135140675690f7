// Where the lines that a verdict cites are on this machine.
import { statSync } from "node:fs";
import { basename, dirname, isAbsolute, join, resolve } from "node:path";
import type { Evidence } from "./verdict";

/** A line of a file, both as the verdict counts them: the first line is 1. */
export interface Place {
  readonly path: string;
  readonly line: number;
}

/** What was analysed, on the disk. */
export interface Subject {
  readonly path: string;
  readonly isFolder: boolean;
}

/** The file that evidence cites, if it is there; names in archives and masked names are not. */
export function evidencePlace(subject: Subject, evidence: Evidence): Place | undefined {
  if (!subject.isFolder && evidence.file === basename(subject.path)) return { path: subject.path, line: evidence.line };
  const path = resolve(subject.isFolder ? subject.path : dirname(subject.path), evidence.file);
  return isFile(path) ? { path, line: evidence.line } : undefined;
}

/**
 * The user's own frame, `file:line`: where the traceback says, else below the folders by as much of the end of its path
 * as fits.
 */
export function sourcePlace(location: string, folders: readonly string[]): Place | undefined {
  const match = /^(.+):(\d{1,9})$/s.exec(location);
  if (!match?.[1] || !match[2]) return undefined;
  const [file, line] = [match[1], Number(match[2])];
  const parts = file.split(/[/\\]/).filter((part) => !["", ".", ".."].includes(part));
  const below = parts.flatMap((_, first) => folders.map((folder) => join(folder, ...parts.slice(first))));
  const path = [...(isAbsolute(file) ? [file] : []), ...below].find(isFile);
  return path === undefined || line < 1 ? undefined : { path, line };
}

/** A path that a log made up must not reach another machine: names like //host/share are not looked at. */
function isFile(path: string): boolean {
  return !/^[/\\]{2}/.test(path) && (statSync(path, { throwIfNoEntry: false })?.isFile() ?? false);
}
