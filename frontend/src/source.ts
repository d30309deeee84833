// Where answers come from: this page's server, or what was recorded when the page was exported.

export interface Setting {
  label: string;
  help: string;
  default: string | number | boolean;
  least: number | null;
  most: number | null;
  kind: string;
}

export interface Story {
  name: string;
  title: string;
  summary: string;
  circles: boolean;
  losses: boolean;
  /** Whether no round can split a circle. */
  holds: boolean;
}

export interface About {
  version: string;
  people: { name: string; picture: string }[];
  side: number;
  length: number;
  delta: number;
  most_bytes: number;
  formats: string[];
  stories: Story[];
  settings: Record<"leak" | "plan" | "audit" | "session", Record<string, Setting>>;
}

export interface Exposure {
  person: number;
  terms: { round: number; coefficient: string }[];
  words: string;
}

export interface Round {
  selected: number[];
  lost: number[];
  stranded: number[];
  summed: number[];
  strong: number | null;
  reduced: string[][];
  exposed: Exposure[];
  known: number[];
}

export interface Leak {
  story: string;
  seed: number;
  circles: number[][];
  rounds: Round[];
}

export interface Choice {
  privacy: number;
  honest: number;
  aggregated: number;
  selected: number;
  skipped: number;
  recommended: boolean;
}

export interface Plan {
  numbers: { name: string; value: string; note: string }[];
  sentence: string;
  level: string;
  recommended: number | null;
  choices: Choice[];
  chosen: Choice;
  session: {
    problem?: string;
    graph: string;
    degree: number;
    threshold: number;
    minimum: number;
    upload_bytes: number;
    failure_log2: number | null;
    leak_log2: number | null;
    promise: string;
  };
  commands: { purpose: string; command: string }[];
}

export interface Audit {
  verdict: { level: string; mark: string; label: string; headline: string; meaning: string; advice: string };
  extent: string;
  measures: { name: string; value: string; note: string }[];
  collusion: string | null;
  exposed: { client: string; round: string; witness: string | null }[];
  exposed_count: number;
  leak: string | null;
  read: [string, string][];
  evidence: [string, string][];
  unreadable: { count: number; words: string; lines: { line: number; reason: string; text: string }[] };
  series: { rounds: string[]; strong: (number | null)[]; exposed: number[] };
}

export interface Upload {
  bytes: number;
  sha256: string;
  hex: string;
  picture: string;
  correlation: number;
}

export interface Session {
  gone: number[];
  circles: number[][];
  aborted: string | null;
  summed: number[];
  mean: string | null;
  received: (Upload | null)[];
  steps: { step: string; messages: number; bytes: number }[];
  threshold: number;
  ring_bits: number;
  length: number;
}

export type Query = Record<string, string | number | boolean>;

/** A request that was refused, with the reason that the server gives. */
export class Refusal extends Error {}

interface Recorded {
  about: About;
  leaks: Leak[];
  sessions: Session[];
}

/** The answers to this page's questions. */
export interface Source {
  /** Whether there is a server, which can compute anything. */
  readonly live: boolean;
  /** The seeds that can be asked for; all of them if there are none here. */
  readonly seeds: number[];
  about(): Promise<About>;
  leak(query: Query): Promise<Leak>;
  session(query: Query): Promise<Session>;
  plan(query: Query, signal: AbortSignal): Promise<Plan>;
  audit(file: Blob, query: Query): Promise<Audit>;
}

function text(query: Query): string {
  const pairs = Object.entries(query).map(([name, value]): [string, string] => [name, String(value)]);
  return pairs.length ? `?${new URLSearchParams(pairs)}` : "";
}

async function ask<T>(path: string, options: RequestInit = {}): Promise<T> {
  let response: Response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Refusal("The explorer does not answer. Is coterie explore still running?");
  }
  const answer = (await response.json()) as T & { error?: string };
  if (!response.ok) throw new Refusal(sentence(answer.error ?? response.statusText));
  return answer;
}

function sentence(reason: string): string {
  return reason.charAt(0).toUpperCase() + reason.slice(1) + (/[.!?…]$/.test(reason) ? "" : ".");
}

const server: Source = {
  live: true,
  seeds: [],
  about: () => ask("/api/about"),
  leak: (query) => ask(`/api/leak${text(query)}`),
  session: (query) => ask(`/api/session${text(query)}`),
  plan: (query, signal) => ask(`/api/plan${text(query)}`, { signal }),
  audit: (file, query) =>
    ask(`/api/audit${text(query)}`, {
      method: "POST",
      body: file,
      headers: { "X-Coterie": "explore", "Content-Type": "application/octet-stream" },
    }),
};

function recordings(recorded: Recorded): Source {
  const missing = () => Promise.reject(new Refusal("This copy of the page has no server. Run coterie explore."));
  const found = <T>(value: T | undefined): Promise<T> => (value === undefined ? missing() : Promise.resolve(value));
  return {
    live: false,
    seeds: [...new Set(recorded.leaks.map((leak) => leak.seed))],
    about: () => Promise.resolve(recorded.about),
    leak: (query) => found(recorded.leaks.find((leak) => leak.story === query.story && leak.seed === query.seed)),
    session: (query) => found(recorded.sessions.find((one) => one.circles.length > 0 === Boolean(query.circles))),
    plan: missing,
    audit: missing,
  };
}

/** Return the source of this page. */
export function findSource(): Source {
  const block = document.getElementById("recorded");
  return block ? recordings(JSON.parse(block.textContent ?? "") as Recorded) : server;
}
