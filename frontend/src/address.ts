// The address holds the state of the page: "#/plan?clients=120&cohort=12".

export interface Place {
  view: string;
  query: URLSearchParams;
}

/** Return the place that the address names. */
export function here(): Place {
  const [path = "", query = ""] = window.location.hash.replace(/^#\/?/, "").split("?", 2);
  return { view: path, query: new URLSearchParams(query) };
}

/** Write the place into the address, without a new entry in the history. */
export function note(view: string, query: Record<string, string | number | boolean>): void {
  const pairs = Object.entries(query).map(([name, value]): [string, string] => [name, String(value)]);
  const hash = `#/${view}${pairs.length ? `?${new URLSearchParams(pairs)}` : ""}`;
  if (window.location.hash !== hash) window.history.replaceState(null, "", hash);
}

/** Return a whole number of the query within bounds, or a value in its place. */
export function whole(query: URLSearchParams, name: string, otherwise: number, least: number, most: number): number {
  const given = query.get(name);
  const value = given !== null && /^\d{1,15}$/.test(given) ? Number(given) : otherwise;
  return Math.min(most, Math.max(least, value));
}
