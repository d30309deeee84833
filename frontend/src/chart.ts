// Two lines over the rounds of a log: strong T, and how many clients are exposed.

import { h, s } from "./dom";

const WIDTH = 640;
const HEIGHT = 150;
const EDGE = 8;

interface Series {
  rounds: string[];
  strong: (number | null)[];
  exposed: number[];
}

export function lines(series: Series): HTMLElement {
  const last = series.rounds.length - 1;
  const strong = series.strong[last];
  const exposed = series.exposed[last] ?? 0;
  return h(
    "div",
    { class: "charts" },
    figure("Strong T after each round", `${strong ?? "nothing"} at the end`, "safe", series.strong, series.rounds),
    figure("Exposed clients after each round", `${exposed.toLocaleString("en")} at the end`, exposed ? "danger" : "safe", series.exposed, series.rounds),
  );
}

function figure(title: string, end: string, level: string, values: (number | null)[], rounds: string[]): HTMLElement {
  const most = Math.max(0, ...values.map((value) => value ?? 0));
  const top = Math.max(1, most);
  const x = (at: number): number => EDGE + ((WIDTH - 2 * EDGE) * at) / Math.max(1, values.length - 1);
  const y = (value: number): number => HEIGHT - EDGE - ((HEIGHT - 2 * EDGE) * value) / top;
  let path = "";
  values.forEach((value, at) => {
    if (value === null) return;
    path += path ? `H${x(at).toFixed(1)}V${y(value).toFixed(1)}` : `M${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
  });
  return h(
    "figure",
    {},
    h("figcaption", {}, h("strong", {}, title), h("span", { class: "quiet" }, most ? `${end}; up to ${most.toLocaleString("en")}` : end)),
    s(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}: ${end}.`, class: `curve ${level}`, preserveAspectRatio: "none" },
      s("line", { x1: 0, x2: WIDTH, y1: y(0), y2: y(0), class: "axis" }),
      s("path", { d: path }),
    ),
    h("p", { class: "ends quiet", "aria-hidden": "true" }, h("span", {}, `round ${rounds[0] ?? ""}`), h("span", {}, `round ${rounds[rounds.length - 1] ?? ""}`)),
  );
}
