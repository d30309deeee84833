// Plan: sliders, three numbers, one sentence. The address holds the state, so a plan is a link.

import { note } from "./address";
import { debounce, h, icon, put } from "./dom";
import type { Choice, Plan, Query } from "./source";
import { type Context, type View, complaint, needsServer, opening } from "./view";

interface Knob {
  name: string;
  symbol: string;
  /** How a value is written. */
  show: (value: number) => string;
  /** Whether the slider is logarithmic, for ranges of several powers of ten. */
  log?: boolean;
  step: number;
}

const count = (value: number): string => value.toLocaleString("en");
const percent = (value: number): string => `${+(100 * value).toFixed(1)}%`;

const KNOBS: Knob[] = [
  { name: "clients", symbol: "N", show: count, log: true, step: 1 },
  { name: "cohort", symbol: "K", show: count, log: true, step: 1 },
  { name: "privacy", symbol: "T", show: count, step: 1 },
  { name: "absent", symbol: "", show: percent, step: 0.01 },
  { name: "lost", symbol: "", show: percent, step: 0.005 },
  { name: "collusion", symbol: "", show: percent, step: 0.005 },
  { name: "rounds", symbol: "", show: count, log: true, step: 1 },
  { name: "epsilon", symbol: "ε", show: (value) => String(value), log: true, step: 0.1 },
];
const FINE = 1000; // positions of a logarithmic slider

export class PlanView implements View {
  readonly name = "plan";
  readonly title = "Plan";
  readonly element: HTMLElement;

  private readonly values: Record<string, number> = {};
  private readonly sliders = new Map<string, HTMLInputElement>();
  private readonly outputs = new Map<string, HTMLOutputElement>();
  private readonly active = h("input", { type: "checkbox", id: "plan-active", change: () => this.changed() });
  private readonly numbers = h("dl", { class: "measures three" });
  private readonly sentence = h("p", { class: "sentence", role: "status" });
  private readonly chart = h("div", { class: "bars" });
  private readonly details = h("div");
  private readonly result = h("div", { class: "result" });
  private readonly trouble = h("div");
  private readonly copied = h("span", { class: "quiet", role: "status" });
  private request: AbortController | null = null;
  private readonly later: () => void;

  constructor(private readonly context: Context) {
    this.later = debounce(120, () => void this.compute());
    const intro = opening(
      "Before the first round",
      "What does privacy cost here?",
      "Circles keep people together over any number of rounds. Larger ones hide more, and break more often. ",
      context.source.live ? "Move a slider; the numbers are those of " : "The numbers are those of ",
      h("code", {}, "coterie plan"),
      ".",
    );
    if (!context.source.live) {
      this.element = h("article", { class: "view plan" }, intro, needsServer("A plan"));
      return;
    }
    for (const knob of KNOBS) this.values[knob.name] = Number(context.about.settings.plan[knob.name]!.default);
    this.result.hidden = true;
    put(this.trouble, h("p", { class: "working" }, h("span", { class: "spinner", "aria-hidden": "true" }), "Computing …"));
    put(
      this.result,
      this.numbers,
      this.sentence,
      h("section", { class: "card", "aria-labelledby": "choices-title" }, h("h2", { id: "choices-title" }, "Every T, side by side"), h("p", { class: "caption" }, "Clients of a cohort that reach the sum of a round on average. Choose a bar to set T. The star is the recommended one; hatched bars leave fewer than two honest members in a circle."), this.chart),
      this.details,
    );
    this.element = h(
      "article",
      { class: "view plan" },
      intro,
      h(
        "div",
        { class: "desk" },
        h(
          "form",
          { class: "card knobs", "aria-label": "Your deployment", submit: (event: Event) => event.preventDefault() },
          KNOBS.map((knob) => this.knob(knob)),
          h("label", { class: "switch" }, this.active, h("span", {}, context.about.settings.plan.active!.label, h("span", { class: "quiet" }, "It may invite whom it likes and make people drop out."))),
          h("div", { class: "row" }, h("button", { type: "button", class: "plain", click: () => void this.copy() }, icon("link"), h("span", {}, "Copy the link")), h("button", { type: "button", class: "plain", click: () => this.reset() }, icon("again"), h("span", {}, "Start over")), this.copied),
        ),
        h("div", {}, this.trouble, this.result),
      ),
    );
  }

  enter(query: URLSearchParams): void {
    if (!this.context.source.live) return;
    for (const knob of KNOBS) {
      const given = query.get(knob.name);
      if (given !== null && given !== "" && Number.isFinite(Number(given))) this.set(knob.name, Number(given));
    }
    if (query.has("active")) this.active.checked = query.get("active") === "true";
    this.fit("privacy");
    void this.compute();
  }

  leave(): void {
    this.request?.abort();
  }

  private bounds(name: string): [number, number] {
    const setting = this.context.about.settings.plan[name]!;
    return [setting.least ?? 0, setting.most ?? 1];
  }

  private knob(knob: Knob): HTMLElement {
    const [least, most] = this.bounds(knob.name);
    const setting = this.context.about.settings.plan[knob.name]!;
    const id = `plan-${knob.name}`;
    const slider = h("input", {
      type: "range",
      id,
      min: knob.log ? 0 : least,
      max: knob.log ? FINE : most,
      step: knob.log ? 1 : knob.step,
      "aria-describedby": `${id}-help`,
      input: () => {
        const place = Number(slider.value);
        this.set(knob.name, knob.log ? least * (most / least) ** (place / FINE) : place);
        this.fit(knob.name);
        this.changed();
      },
    });
    const output = h("output", { for: id });
    this.sliders.set(knob.name, slider);
    this.outputs.set(knob.name, output);
    this.set(knob.name, this.values[knob.name]!);
    return h("div", { class: "knob" }, h("label", { for: id }, setting.label, knob.symbol ? h("span", { class: "symbol" }, knob.symbol) : null), output, slider, h("span", { class: "hidden", id: `${id}-help` }, setting.help));
  }

  /** Set a value, as near as the slider allows, and show it. */
  private set(name: string, value: number): void {
    const knob = KNOBS.find((one) => one.name === name)!;
    const [least, most] = this.bounds(name);
    const stepped = Math.round(value / knob.step) * knob.step;
    const kept = Math.min(most, Math.max(least, Number(stepped.toFixed(4))));
    this.values[name] = kept;
    const slider = this.sliders.get(name)!;
    slider.value = String(knob.log ? Math.round((FINE * Math.log(kept / least)) / Math.log(most / least)) : kept);
    slider.setAttribute("aria-valuetext", knob.show(kept));
    this.outputs.get(name)!.textContent = knob.show(kept);
  }

  /** Keep T <= K <= N, by moving the others rather than the one that was moved. */
  private fit(moved: string): void {
    const order = ["privacy", "cohort", "clients"];
    const at = order.indexOf(moved);
    if (at < 0) return;
    for (let above = at; above < 2; above++) {
      if (this.values[order[above]!]! > this.values[order[above + 1]!]!) this.set(order[above + 1]!, this.values[order[above]!]!);
    }
    for (let below = at; below > 0; below--) {
      if (this.values[order[below - 1]!]! > this.values[order[below]!]!) this.set(order[below - 1]!, this.values[order[below]!]!);
    }
    for (let below = 2; below > 0; below--) {
      if (this.values[order[below - 1]!]! > this.values[order[below]!]!) this.set(order[below - 1]!, this.values[order[below]!]!);
    }
  }

  private query(): Query {
    return { ...this.values, active: this.active.checked };
  }

  private changed(): void {
    this.result.setAttribute("aria-busy", "true");
    this.later();
  }

  private reset(): void {
    for (const knob of KNOBS) this.set(knob.name, Number(this.context.about.settings.plan[knob.name]!.default));
    this.active.checked = false;
    this.changed();
  }

  private async copy(): Promise<void> {
    try {
      await navigator.clipboard.writeText(window.location.href);
      put(this.copied, "Copied.");
    } catch {
      put(this.copied, "Copy it from the address bar.");
    }
  }

  private async compute(): Promise<void> {
    const query = this.query();
    note(this.name, query);
    this.request?.abort();
    this.request = new AbortController();
    try {
      const plan = await this.context.source.plan(query, this.request.signal);
      put(this.trouble);
      this.result.hidden = false;
      this.show(plan);
    } catch (error) {
      if (error instanceof DOMException && error.name === "AbortError") return;
      this.result.hidden = true;
      put(this.trouble, h("div", { class: "card empty" }, h("h2", {}, "There is no such plan"), complaint(error)));
    }
    this.result.removeAttribute("aria-busy");
  }

  private show(plan: Plan): void {
    put(
      this.numbers,
      plan.numbers.map((number, index) =>
        h("div", { class: index === 0 ? plan.level : "" }, h("dt", {}, number.name), h("dd", { class: "value" }, number.value), h("dd", { class: "about" }, number.note)),
      ),
    );
    put(this.sentence, plan.sentence);
    this.showChoices(plan);
    this.showDetails(plan);
  }

  private showChoices(plan: Plan): void {
    const focused = document.activeElement instanceof HTMLElement ? document.activeElement.dataset.privacy : undefined;
    const rows = [...plan.choices];
    if (!rows.some((row) => row.privacy === plan.chosen.privacy)) rows.push(plan.chosen);
    rows.sort((one, other) => one.privacy - other.privacy);
    const most = Math.max(this.values.cohort!, ...rows.map((row) => row.aggregated));
    put(this.chart, rows.map((row) => this.bar(row, row.privacy === plan.chosen.privacy, most)));
    if (focused) this.chart.querySelector<HTMLElement>(`[data-privacy="${focused}"]`)?.focus();
  }

  private bar(row: Choice, chosen: boolean, most: number): HTMLElement {
    const column = h("span", { class: "column" }, h("span", { class: "level" }));
    (column.firstElementChild as HTMLElement).style.height = `${(100 * row.aggregated) / most}%`;
    const remarks = [row.honest < 2 ? "not protected" : "", row.recommended ? "recommended" : ""].filter(Boolean);
    return h(
      "button",
      {
        type: "button",
        class: ["bar", chosen ? "chosen" : "", row.recommended ? "recommended" : "", row.honest < 2 ? "weak" : ""].join(" "),
        "aria-pressed": String(chosen),
        "data-privacy": row.privacy,
        click: () => {
          this.set("privacy", row.privacy);
          this.changed();
        },
      },
      h("span", { class: "amount" }, row.aggregated.toFixed(row.aggregated < 10 ? 1 : 0)),
      h("span", { class: "hidden" }, " clients with T = "),
      column,
      h("span", { class: "number" }, row.privacy),
      remarks.length ? h("span", { class: "hidden" }, `, ${remarks.join(", ")}`) : null,
      row.recommended ? h("span", { class: "mark", "aria-hidden": "true" }, "★") : null,
    );
  }

  private showDetails(plan: Plan): void {
    const { session } = plan;
    const rows: [string, string][] = session.problem
      ? [["Session", session.problem]]
      : [
          ["Graph", `${session.graph}, ${+session.degree.toFixed(1)} neighbours, ${session.threshold} shares open a secret`],
          ["Fewest in a sum", String(session.minimum)],
          ["Upload of a client", `${bytes(session.upload_bytes)} for 100,000 numbers`],
          ["A session fails", odds(session.failure_log2)],
          ["The graph leaks", odds(session.leak_log2)],
          ["Promise", session.promise],
        ];
    put(
      this.details,
      h(
        "details",
        { class: "card fold" },
        h("summary", {}, "One session of this plan, and the commands for all of it"),
        h("table", { class: "facts" }, h("tbody", {}, rows.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value))))),
        plan.commands.map(({ purpose, command }) => [h("p", { class: "quiet" }, purpose), h("pre", { class: "command", tabindex: "0" }, h("code", {}, command))]),
      ),
    );
  }
}

function odds(log2: number | null): string {
  if (log2 === null) return "never";
  return log2 > -7 ? `in up to ${percent(Math.min(1, 2 ** log2))} of all rounds` : `with a probability below 2^${Math.ceil(log2)}`;
}

export function bytes(size: number): string {
  return size < 1000 ? `${size} B` : size < 1e6 ? `${(size / 1000).toPrecision(3)} kB` : `${(size / 1e6).toPrecision(3)} MB`;
}
