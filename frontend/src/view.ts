// What all views have in common.

import { h } from "./dom";
import type { Album } from "./pictures";
import type { About, Source } from "./source";

export interface Context {
  source: Source;
  about: About;
  album: Album;
  names: string[];
}

export interface View {
  /** The name in the address. */
  readonly name: string;
  /** The title in the navigation. */
  readonly title: string;
  readonly element: HTMLElement;
  /** Show the state that an address describes. */
  enter(query: URLSearchParams): void | Promise<void>;
  /** Stop whatever moves. */
  leave(): void;
}

/** The heading of a view, and the sentences below it. */
export function opening(kicker: string, title: string, ...lede: (Node | string)[]): HTMLElement {
  return h(
    "header",
    { class: "opening" },
    h("p", { class: "kicker" }, kicker),
    h("h1", { tabindex: "-1" }, title),
    h("p", { class: "lede" }, ...lede),
  );
}

/** The note that a copy without a server shows in place of a view. */
export function needsServer(what: string): HTMLElement {
  return h(
    "div",
    { class: "card empty" },
    h("h2", {}, `${what} needs the library`),
    h("p", {}, "This is a copy of the page without a server. On your own machine, run"),
    h("pre", { class: "command" }, h("code", {}, "coterie explore")),
    h("p", { class: "quiet" }, "The page is then served by your own machine only, and nothing leaves it."),
  );
}

/** An error, as one line. */
export function complaint(error: unknown): HTMLElement {
  return h("p", { class: "notice danger", role: "alert" }, error instanceof Error ? error.message : String(error));
}
