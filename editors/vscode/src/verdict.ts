// What `--json` prints, as far as it is shown: aggregator/verdict.schema.json has all of it. Checked before it is used.

/** Something that the user is told in a sentence; never a bug of ours. */
export class Problem extends Error {}

export interface Evidence {
  readonly file: string;
  readonly line: number;
  readonly text: string;
  readonly why: string;
}

export interface Diagnosis {
  readonly entry: string;
  readonly title: string;
  readonly rootCause: string;
  readonly fix: string;
  readonly code: string;
  readonly verify: string;
  readonly references: readonly string[];
}

export interface Failure {
  readonly status: string;
  readonly confidence: number;
  readonly kind: string;
  readonly ranks: readonly number[];
  readonly hosts: readonly string[];
  readonly message: string;
  readonly location: string;
  readonly evidence: readonly Evidence[];
  readonly reasons: readonly string[];
  readonly wouldSettle: readonly string[];
  readonly diagnosis: Diagnosis | null;
}

export interface Consequence {
  readonly rank: number | null;
  readonly kind: string;
  readonly because: string;
  readonly evidence: readonly Evidence[];
}

export interface Verdict {
  readonly outcome: string;
  readonly files: number;
  readonly lines: number;
  readonly failure: Failure | null;
  readonly collateral: readonly Consequence[];
  readonly warnings: readonly string[];
}

const OUTCOMES = ["completed", "failed", "hung", "cancelled", "running", "unknown"];
const STATUSES = ["identified", "ambiguous", "undetermined"];

/** Reads the output of the program; throws a Problem that names what is wrong with it. */
export function parseVerdict(output: string): Verdict {
  let value: unknown;
  try {
    value = JSON.parse(output);
  } catch {
    throw new Problem("denpex-agg printed something that is not JSON: is `denpex-agg.path` another program?");
  }
  const root = new Fields(value, "the output");
  if (root.optional("schema_version") !== 1) {
    throw new Problem(
      "denpex-agg printed JSON that is not a verdict of version 1: update the extension or denpex-agg.",
    );
  }
  const coverage = root.object("coverage");
  return {
    outcome: root.word("outcome", OUTCOMES),
    files: coverage.whole("files", 0),
    lines: coverage.whole("lines", 0),
    failure: root.optional("first_failure") === null ? null : failure(root.object("first_failure")),
    collateral: root.objects("collateral").map(consequence),
    warnings: root.texts("warnings"),
  };
}

function failure(fields: Fields): Failure {
  const confidence = fields.optional("confidence");
  return {
    status: fields.word("status", STATUSES),
    confidence: typeof confidence === "number" ? confidence : fields.refuse("confidence", "a number"),
    kind: fields.text("kind"),
    ranks: fields.list("ranks").map((rank) => (isWhole(rank, 0) ? rank : fields.refuse("ranks", "a list of ranks"))),
    hosts: fields.texts("hosts"),
    message: fields.text("message"),
    location: fields.optional("location") === null ? "" : fields.text("location"),
    evidence: fields.objects("evidence").map(evidence),
    reasons: fields.texts("reasons"),
    wouldSettle: fields.optional("would_settle") === undefined ? [] : fields.texts("would_settle"),
    diagnosis: fields.optional("diagnosis") === null ? null : diagnosis(fields.object("diagnosis")),
  };
}

function evidence(fields: Fields): Evidence {
  return {
    file: fields.text("file"),
    line: fields.whole("line", 1),
    text: fields.text("text"),
    why: fields.text("why"),
  };
}

function diagnosis(fields: Fields): Diagnosis {
  return {
    entry: fields.text("entry"),
    title: fields.text("title"),
    rootCause: fields.text("root_cause"),
    fix: fields.text("fix"),
    code: typeof fields.optional("code") === "string" ? fields.text("code") : "",
    verify: fields.text("verify"),
    references: fields.optional("references") === undefined ? [] : fields.texts("references"),
  };
}

function consequence(fields: Fields): Consequence {
  return {
    rank: fields.optional("rank") === null ? null : fields.whole("rank", 0),
    kind: fields.text("kind"),
    because: fields.text("because"),
    evidence: fields.optional("evidence") === undefined ? [] : fields.objects("evidence").map(evidence),
  };
}

function isWhole(value: unknown, least: number): value is number {
  return Number.isSafeInteger(value) && (value as number) >= least;
}

/** An object of unknown make; each question names its place where the answer is refused. */
class Fields {
  readonly #values: Record<string, unknown>;
  readonly #where: string;

  constructor(value: unknown, where: string) {
    if (typeof value !== "object" || value === null || Array.isArray(value)) {
      throw new Problem(`denpex-agg printed JSON that is not a verdict: ${where} is not an object.`);
    }
    this.#values = value as Record<string, unknown>;
    this.#where = where;
  }

  refuse(key: string, wanted: string): never {
    throw new Problem(`denpex-agg printed JSON that is not a verdict: "${key}" of ${this.#where} is not ${wanted}.`);
  }

  optional(key: string): unknown {
    return Object.hasOwn(this.#values, key) ? this.#values[key] : undefined;
  }

  text(key: string): string {
    const value = this.optional(key);
    return typeof value === "string" ? value : this.refuse(key, "a text");
  }

  word(key: string, words: readonly string[]): string {
    const value = this.text(key);
    return words.includes(value) ? value : this.refuse(key, `one of ${words.join(", ")}`);
  }

  whole(key: string, least: number): number {
    const value = this.optional(key);
    return isWhole(value, least) ? value : this.refuse(key, "a whole number");
  }

  list(key: string): readonly unknown[] {
    const value = this.optional(key);
    return Array.isArray(value) ? value : this.refuse(key, "a list");
  }

  texts(key: string): string[] {
    return this.list(key).map((item) => (typeof item === "string" ? item : this.refuse(key, "a list of texts")));
  }

  object(key: string): Fields {
    return new Fields(this.optional(key), `"${key}"`);
  }

  objects(key: string): Fields[] {
    return this.list(key).map((item) => new Fields(item, `an item of "${key}"`));
  }
}
