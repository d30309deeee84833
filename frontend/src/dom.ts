// Small helpers that make elements. Text is always set as text, never as markup.

type Child = Node | string | number | null | undefined | false | Child[];
type Value = string | number | boolean | null | undefined | ((event: never) => void);

export type Attributes = Record<string, Value>;

function fill(element: Element, children: Child[]): void {
  for (const child of children) {
    if (Array.isArray(child)) fill(element, child);
    else if (child instanceof Node) element.append(child);
    else if (child !== null && child !== undefined && child !== false) element.append(String(child));
  }
}

function set(element: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value as unknown as EventListener);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, String(value));
  }
}

/** Make an HTML element; attributes that are functions are event listeners. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  set(element, attributes);
  fill(element, children);
  return element;
}

/** Make an SVG element. */
export function s(tag: string, attributes: Attributes = {}, ...children: Child[]): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  set(element, attributes);
  fill(element, children);
  return element;
}

/** Replace what an element contains. */
export function put(element: Element, ...children: Child[]): void {
  element.replaceChildren();
  fill(element, children);
}

/** A picture made of lines, for buttons. */
export function icon(name: keyof typeof PATHS): SVGElement {
  return s("svg", { "aria-hidden": "true", viewBox: "0 0 24 24", class: "icon" }, s("path", { d: PATHS[name] }));
}

const PATHS = {
  play: "M7 4.5v15l12-7.5z",
  pause: "M7 5h3.6v14H7zM13.4 5H17v14h-3.6z",
  back: "M15.5 5 8.5 12l7 7",
  forward: "m8.5 5 7 7-7 7",
  again: "M19 12a7 7 0 1 1-2.2-5.1M19 4v4.2h-4.2",
  link: "M10 14a4 4 0 0 0 6 .4l2.6-2.6a4 4 0 0 0-5.7-5.7L11.6 7.4M14 10a4 4 0 0 0-6-.4l-2.6 2.6a4 4 0 0 0 5.7 5.7l1.3-1.3",
  print: "M7 9V4h10v5M7 17H4v-7h16v7h-3M7 14h10v6H7z",
  file: "M12 16V5m0 0L7.5 9.5M12 5l4.5 4.5M5 15v4h14v-4",
} as const;

/** The names in a sentence: "Ada, Ben and Cleo". */
export function listed(names: string[]): string {
  if (names.length < 2) return names.join("");
  return `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]}`;
}

/** Call a function once its caller has been quiet for a while. */
export function debounce(milliseconds: number, call: () => void): () => void {
  let timer = 0;
  return () => {
    window.clearTimeout(timer);
    timer = window.setTimeout(call, milliseconds);
  };
}

/** Whether the reader prefers pages that do not move. */
export function still(): boolean {
  return window.matchMedia("(prefers-reduced-motion: reduce)").matches;
}
