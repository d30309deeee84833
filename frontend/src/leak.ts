// Watch it leak: rounds one after the other, and what a server that keeps every sum can make of them.

import { note, whole } from "./address";
import { h, icon, listed, put, still } from "./dom";
import { symmetric } from "./pictures";
import type { Exposure, Leak, Query, Round, Story } from "./source";
import { type Context, type View, complaint, opening } from "./view";

const SCALE = 10_000;
const STEP = 1200; // milliseconds from round to round
const DISCOVERY = 2800; // the same, after somebody was exposed
const MORPH = 700; // milliseconds in which a picture changes
const LETTERS = "ABCDEF";
const SIZES = [2, 3, 4, 6];
const LOSSES = [0.02, 0.08, 0.15, 0.3];
const FEW = 6; // terms of an equation that is shown at once
const MARKS = { one: "summed", lost: "left during the round", stranded: "left out with its circle" };
const FIELDS = { one: "summed", lost: "lost", stranded: "stranded" } as const;
const FRACTIONS: Record<string, string> = { "1/2": "½", "1/3": "⅓", "2/3": "⅔", "1/4": "¼", "3/4": "¾" };

interface Card {
  box: HTMLElement;
  canvas: HTMLCanvasElement;
  state: HTMLElement;
  bar: HTMLElement;
  percent: HTMLElement;
}

export class LeakView implements View {
  readonly name = "leak";
  readonly title = "Watch it leak";
  readonly element: HTMLElement;

  private leak: Leak | null = null;
  private asked = "";
  private round = 0;
  private story: string;
  private seed: number;
  private timer = 0;
  private frame = 0;
  private wanted = 0;
  private cards: Card[] = [];
  private shares: Float32Array[];
  private known = new Map<number, Float32Array[]>();

  private privacy: number;
  private lost: number;
  private readonly circleSize: HTMLSelectElement;
  private readonly leaving: HTMLSelectElement;
  private readonly stories: HTMLInputElement[];
  private readonly people = h("div", { class: "people" });
  private readonly scrubber = h("input", {
    type: "range",
    min: "0",
    value: "0",
    step: "1",
    "aria-label": "Round",
    input: () => this.scrub(Number(this.scrubber.value)),
  });
  private readonly ticks = h("div", { class: "ticks", "aria-hidden": "true" });
  private readonly playing = h("button", { class: "primary play", click: () => this.toggle() });
  private readonly back = h("button", { class: "plain", "aria-label": "Previous round", click: () => this.scrub(this.round - 1) }, icon("back"));
  private readonly forward = h("button", { class: "plain", "aria-label": "Next round", click: () => this.scrub(this.round + 1) }, icon("forward"));
  private readonly counter = h("p", { class: "counter" });
  private readonly news = h("p", { class: "news", role: "status" });
  private readonly measures = h("dl", { class: "measures" });
  private readonly matrix = h("div", { class: "scroll" });
  private readonly legend = h("ul", { class: "legend" });
  private readonly reduced = h("div", { class: "scroll" });
  private readonly findings = h("section", { class: "card findings", "aria-labelledby": "findings-title" });
  private readonly trouble = h("div");

  constructor(private readonly context: Context) {
    const { about, source } = context;
    const settings = about.settings.leak;
    this.story = about.stories[0]!.name;
    this.seed = source.seeds[0] ?? Number(settings.seed!.default);
    this.privacy = Number(settings.privacy!.default);
    this.lost = Number(settings.lost!.default);
    this.circleSize = this.choice(SIZES, this.privacy, (value) => String(value), (value) => (this.privacy = value));
    this.leaving = this.choice(LOSSES, this.lost, (value) => `${Math.round(100 * value)}%`, (value) => (this.lost = value));
    this.shares = about.people.map(() => new Float32Array(about.people.length));
    this.stories = about.stories.map((story) =>
      h("input", { type: "radio", name: "story", value: story.name, change: () => this.choose(story.name) }),
    );
    this.element = h(
      "article",
      { class: "view leak" },
      h(
        "div",
        { class: "hero" },
        opening(
          "Why one secure sum is safe, and many are not",
          "Every sum was secret. Together they are not.",
          "Twelve people put their picture into secure sums. The server learns one sum a round, and nothing else. It keeps them all, and adds and subtracts.",
        ),
        this.lineUp(),
      ),
      h(
        "fieldset",
        { class: "stories" },
        h("legend", {}, "How a round is made"),
        about.stories.map((story, index) =>
          h("label", { class: "story" }, this.stories[index]!, h("span", {}, h("strong", {}, story.title), h("span", { class: "quiet" }, story.summary))),
        ),
      ),
      source.live
        ? h(
            "div",
            { class: "row fine" },
            h("label", { class: "field inline" }, h("span", {}, "People in a circle"), this.circleSize),
            h("label", { class: "field inline" }, h("span", {}, "Leave during a round"), this.leaving),
          )
        : null,
      this.trouble,
      h("div", { class: "theatre" }, h(
        "div",
        { class: "stage" },
        h(
          "div",
          { class: "stack" },
          h(
            "section",
            { class: "card guesses", "aria-labelledby": "guesses-title" },
            h("h2", { id: "guesses-title" }, "What the server can make of it"),
            this.people,
            h("p", { class: "caption" }, "Each picture is the server’s best guess from all sums so far. The bar says how much of it the sums pin down: a full bar is the exact picture."),
          ),
          this.findings,
        ),
        h(
          "section",
          { class: "card notebook", "aria-labelledby": "notebook-title" },
          h("h2", { id: "notebook-title" }, "The server’s notebook"),
          this.measures,
          h("h3", {}, "Participation matrix"),
          this.matrix,
          this.legend,
          h("h3", {}, "The same, reduced"),
          this.reduced,
          h("p", { class: "caption" }, "Adding and subtracting rounds turns the upper table into the lower one. A row with a single 1 is one person."),
        ),
      ),
      h(
        "div",
        { class: "transport", role: "group", "aria-label": "Playback" },
        this.back,
        this.playing,
        this.forward,
        h("div", { class: "track" }, this.scrubber, this.ticks),
        this.counter,
        h("button", { class: "plain again", "aria-label": "Another draw", click: () => this.redraw() }, icon("again"), h("span", {}, "Another draw")),
        this.news,
      )),
    );
    document.addEventListener("keydown", (event) => this.press(event));
    this.showPlaying(false);
  }

  async enter(query: URLSearchParams): Promise<void> {
    const { about, source } = this.context;
    const story = about.stories.find((one) => one.name === query.get("story"))?.name ?? this.story;
    const asked = whole(query, "seed", this.seed, 0, Number.MAX_SAFE_INTEGER);
    const seed = source.live || source.seeds.includes(asked) ? asked : this.seed;
    if (source.live) {
      this.privacy = nearest(SIZES, Number(query.get("privacy") ?? this.privacy));
      this.lost = nearest(LOSSES, Number(query.get("lost") ?? this.lost));
      this.circleSize.value = String(this.privacy);
      this.leaving.value = String(this.lost);
    }
    await this.load(story, seed, whole(query, "round", this.round, 0, 40));
  }

  /** The story that is shown. */
  private get kind(): Story {
    return this.context.about.stories.find((one) => one.name === this.story)!;
  }

  /** The settings of the rounds that are shown. A copy without a server has those of the default settings only. */
  private query(): Query {
    const { story, seed, privacy, lost } = this;
    return this.context.source.live ? { story, seed, privacy, lost } : { story, seed };
  }

  private choice(values: number[], chosen: number, show: (value: number) => string, set: (value: number) => void): HTMLSelectElement {
    const select = h(
      "select",
      {
        change: () => {
          set(Number(select.value));
          this.stop();
          void this.load(this.story, this.seed, this.round);
        },
      },
      values.map((value) => h("option", { value }, show(value))),
    );
    select.value = String(chosen);
    return select;
  }

  leave(): void {
    this.stop();
  }

  private async load(story: string, seed: number, round: number): Promise<void> {
    this.story = story;
    this.seed = seed;
    for (const input of this.stories) input.checked = input.value === story;
    this.circleSize.disabled = !this.kind.circles;
    this.leaving.disabled = !this.kind.losses;
    const turn = ++this.wanted;
    const query = this.query();
    const asked = JSON.stringify(query);
    if (this.asked !== asked) {
      try {
        const leak = await this.context.source.leak(query);
        if (turn !== this.wanted) return;
        this.leak = leak;
        this.asked = asked;
        put(this.trouble);
      } catch (error) {
        this.stop();
        put(this.trouble, complaint(error));
        return;
      }
      this.known.clear();
      this.buildPeople();
      this.buildTicks();
    }
    this.show(Math.min(round, this.leak!.rounds.length), true);
  }

  private choose(story: string): void {
    this.stop();
    void this.load(story, this.seed, this.round);
  }

  private redraw(): void {
    this.stop();
    const { seeds } = this.context.source;
    const seed = seeds.length ? seeds[(seeds.indexOf(this.seed) + 1) % seeds.length]! : this.seed + 1;
    void this.load(this.story, seed, 0);
  }

  private scrub(round: number): void {
    this.stop();
    this.show(round, false);
  }

  private press(event: KeyboardEvent): void {
    const target = event.target as HTMLElement;
    if (this.element.hidden || event.key !== " " || target.closest("button, input, a, summary, select, textarea")) return;
    event.preventDefault();
    this.toggle();
  }

  private toggle(): void {
    if (!this.leak) return;
    if (this.timer) return this.stop();
    this.showPlaying(true);
    if (this.round >= this.leak.rounds.length) this.show(0, true);
    this.tick();
  }

  private tick(): void {
    if (!this.leak || this.round >= this.leak.rounds.length) return this.stop();
    this.show(this.round + 1, false);
    const found = this.leak.rounds[this.round - 1]!.exposed.length;
    this.timer = window.setTimeout(() => this.tick(), found ? DISCOVERY : STEP);
  }

  private stop(): void {
    window.clearTimeout(this.timer);
    this.timer = 0;
    this.showPlaying(false);
  }

  private showPlaying(playing: boolean): void {
    put(this.playing, icon(playing ? "pause" : "play"), h("span", {}, playing ? "Pause" : "Play"));
  }

  private lineUp(): HTMLElement {
    const { album, names } = this.context;
    const row = h("ul", { class: "lineup", "aria-label": "The twelve people" });
    names.forEach((name, person) => {
      const canvas = album.canvas(`${name}, as they are`);
      album.draw(canvas, album.pictures[person]!);
      row.append(h("li", {}, canvas, h("span", { "aria-hidden": "true" }, name)));
    });
    return row;
  }

  private buildPeople(): void {
    const { album, names } = this.context;
    const circles = this.leak!.circles;
    this.cards = names.map((name) => {
      const canvas = album.canvas("");
      const state = h("span", { class: "state" });
      const bar = h("span", { class: "meter" }, h("span"));
      const percent = h("span", { class: "percent" });
      const box = h("li", { class: "person" }, h("div", { class: "frame" }, canvas, h("span", { class: "unknown", "aria-hidden": "true" }, "?")), h("span", { class: "name" }, name), bar, h("span", { class: "line" }, state, percent));
      return { box, canvas, state, bar, percent };
    });
    const groups = circles.length ? circles : [names.map((_, person) => person)];
    put(
      this.people,
      groups.map((group, index) =>
        h(
          "div",
          { class: circles.length ? "circle" : "everybody" },
          circles.length ? h("h3", { class: `tag tag-${index}` }, `Circle ${LETTERS[index] ?? index + 1}`) : null,
          h("ul", { class: "group" }, group.map((person) => this.cards[person]!.box)),
        ),
      ),
    );
    this.people.dataset.circles = String(circles.length);
  }

  private buildTicks(): void {
    const { rounds } = this.leak!;
    this.scrubber.max = String(rounds.length);
    put(
      this.ticks,
      rounds.map((round, index) => {
        const tick = h("span", { class: round.exposed.length ? "found" : "" });
        tick.style.left = `${(100 * (index + 1)) / rounds.length}%`;
        return tick;
      }),
    );
  }

  private matrixAfter(round: number): Float32Array[] {
    const size = this.context.names.length;
    let found = this.known.get(round);
    if (!found) {
      found = symmetric(round ? this.leak!.rounds[round - 1]!.known : [], size, SCALE);
      this.known.set(round, found);
    }
    return found;
  }

  private show(wanted: number, at_once: boolean): void {
    if (!this.leak) return;
    this.round = Math.max(0, Math.min(wanted, this.leak.rounds.length));
    const { rounds } = this.leak;
    const now = rounds[this.round - 1];
    const found = rounds.slice(0, this.round).flatMap((round) => round.exposed);
    this.scrubber.value = String(this.round);
    this.scrubber.setAttribute("aria-valuetext", `round ${this.round} of ${rounds.length}`);
    this.back.disabled = this.round === 0;
    this.forward.disabled = this.round === rounds.length;
    put(this.counter, h("strong", {}, this.round), ` of ${rounds.length}`);
    this.morph(this.matrixAfter(this.round), at_once || still());
    this.showStates(now, found);
    this.showMeasures(now, found);
    this.showMatrix();
    this.showReduced(now);
    this.showNews(now, found);
    this.showFindings(found);
    note(this.name, { ...this.query(), round: this.round });
  }

  private morph(target: Float32Array[], at_once: boolean): void {
    window.cancelAnimationFrame(this.frame);
    const from = this.shares.map((row) => row.slice());
    const begun = performance.now();
    const draw = (time: number): void => {
      const part = at_once ? 1 : Math.min(1, (time - begun) / MORPH);
      const eased = part < 1 ? 1 - (1 - part) ** 3 : 1;
      this.cards.forEach((card, person) => {
        const row = this.shares[person]!;
        for (let other = 0; other < row.length; other++) {
          row[other] = from[person]![other]! + eased * (target[person]![other]! - from[person]![other]!);
        }
        this.context.album.draw(card.canvas, this.context.album.guess(row));
      });
      if (part < 1) this.frame = window.requestAnimationFrame(draw);
    };
    draw(begun);
  }

  private showStates(now: Round | undefined, found: Exposure[]): void {
    const matrix = this.matrixAfter(this.round);
    this.cards.forEach((card, person) => {
      const exposed = found.some((one) => one.person === person);
      const fresh = now?.exposed.some((one) => one.person === person) ?? false;
      const role = now?.lost.includes(person)
        ? "left"
        : now?.stranded.includes(person)
          ? "left out"
          : now?.summed.includes(person)
            ? "summed"
            : "";
      const known = matrix[person]![person]!;
      card.box.className = ["person", exposed ? "exposed" : "", fresh ? "fresh" : "", role.replace(/ /g, "-"), known < 1e-6 ? "blank" : ""].join(" ");
      card.state.textContent = exposed ? "exposed" : role;
      card.percent.textContent = exposed || known < 1e-6 ? "" : `${Math.floor(100 * known + 1e-6)}%`;
      (card.bar.firstElementChild as HTMLElement).style.width = `${100 * known}%`;
      const seen = exposed ? "exposed: this is the exact picture" : known < 1e-6 ? "nothing known" : `${Math.floor(100 * known + 1e-6)}% pinned down`;
      card.canvas.setAttribute("aria-label", `${this.context.names[person]}: ${seen}`);
    });
  }

  private showMeasures(now: Round | undefined, found: Exposure[]): void {
    const strong = now?.strong ?? null;
    const row = (name: string, value: string, about: string, level = "") =>
      h("div", { class: level }, h("dt", {}, name), h("dd", { class: "value" }, value), h("dd", { class: "about" }, about));
    put(
      this.measures,
      row("T", strong === null ? "–" : String(strong), "people that no sum tells apart, at least", strong === 1 ? "caution" : strong ? "safe" : ""),
      row("Exposed", String(found.length), `of ${this.context.names.length} people`, found.length ? "danger" : ""),
      row("Equations", String(now?.reduced.length ?? 0), `independent, for ${this.context.names.length} unknown pictures`),
    );
  }

  private header(): HTMLElement {
    return h("thead", {}, h("tr", {}, h("th", { scope: "col" }, h("span", { class: "hidden" }, "Round")), this.context.names.map((name) => h("th", { scope: "col" }, h("abbr", { title: name }, name[0]!), h("span", { class: "hidden" }, name.slice(1))))));
  }

  private showMatrix(): void {
    const { rounds } = this.leak!;
    const used = new Map(shortest(rounds[this.round - 1]?.exposed ?? [])?.terms.map((term) => [term.round, term.coefficient]));
    const rows = rounds.map((round, index) => {
      const number = index + 1;
      const past = number <= this.round;
      const coefficient = used.get(number);
      const sign = coefficient === undefined ? "" : coefficient.startsWith("-") ? "minus" : "plus";
      return h(
        "tr",
        { class: [past ? "" : "ahead", number === this.round ? "now" : "", sign].join(" "), "aria-hidden": past ? null : "true" },
        h("th", { scope: "row" }, number),
        this.context.names.map((_, person) => {
          if (!past) return h("td");
          const one = round.summed.includes(person);
          const gone = round.lost.includes(person) ? "lost" : round.stranded.includes(person) ? "stranded" : "";
          return h("td", { class: one ? "one" : gone }, h("span", { class: "hidden" }, one ? "1" : gone ? `0, ${MARKS[gone]}` : "0"));
        }),
      );
    });
    const shown = rounds.slice(0, this.round);
    const kinds = (["one", "lost", "stranded"] as const).filter((kind) => shown.some((round) => round[FIELDS[kind]].length));
    put(this.legend, kinds.map((kind) => h("li", {}, h("span", { class: `mark-of ${kind}`, "aria-hidden": "true" }), MARKS[kind])));
    put(this.matrix, h("table", { class: "bits" }, h("caption", { class: "hidden" }, "Who was in the sum of each round"), this.header(), h("tbody", {}, rows)));
  }

  private showReduced(now: Round | undefined): void {
    if (!now?.reduced.length) {
      put(this.reduced, h("p", { class: "quiet none" }, "No sum yet."));
      return;
    }
    const rows = now.reduced.map((row) => {
      const places = row.flatMap((value, person) => (value === "0" ? [] : [person]));
      const alone = places.length === 1 ? this.context.names[places[0]!] : null;
      return h(
        "tr",
        { class: alone ? "unit" : "" },
        h("th", { scope: "row" }, alone ? h("span", { class: "hidden" }, `only ${alone}`) : h("span", { class: "hidden" }, "combination")),
        row.map((value) => h("td", { class: value === "0" ? "zero" : "" }, value === "0" ? "·" : written(value))),
      );
    });
    put(this.reduced, h("table", { class: "bits numbers" }, h("caption", { class: "hidden" }, "The participation matrix in reduced row echelon form"), this.header(), h("tbody", {}, rows)));
  }

  private showNews(now: Round | undefined, found: Exposure[]): void {
    const { names } = this.context;
    const name = (people: number[]) => listed(people.map((person) => names[person]!));
    this.news.className = "news";
    if (!now) {
      put(this.news, "Nothing was summed yet. The server knows nothing about anybody.");
      return;
    }
    const parts = [now.summed.length ? `Round ${this.round}: the server learns the sum of ${name(now.summed)}.` : `Round ${this.round}: no sum is opened.`];
    if (now.lost.length) parts.push(`${name(now.lost)} left during the round.`);
    if (now.stranded.length) parts.push(`${name(now.stranded)} ${now.stranded.length === 1 ? "is" : "are"} left out too: a circle is summed whole or not at all.`);
    const witness = shortest(now.exposed);
    if (now.exposed.length === names.length) parts.push("Everybody is exposed, all at once.");
    else if (now.exposed.length > 1) parts.push(`${name(now.exposed.map((one) => one.person))} are exposed.`);
    if (witness) parts.push(`${capital(witness.words.replace("'s update", "’s picture"))}.`);
    else if (this.round === this.leak!.rounds.length && found.length) parts.push(`The rounds are over: ${found.length === names.length ? "everybody is exposed" : found.length === 1 ? `${names[found[0]!.person]} is exposed` : `${found.length} of ${names.length} people are exposed`}.`);
    else if (this.round === this.leak!.rounds.length && !found.length) parts.push(this.kind.holds ? "The rounds are over, and nobody is exposed. No further round would change that: circles stay whole." : "The rounds are over, and nobody is exposed yet.");
    if (now.exposed.length) this.news.classList.add("danger");
    put(this.news, parts.join(" "));
  }

  private showFindings(found: Exposure[]): void {
    const { names } = this.context;
    const strong = this.leak!.rounds[this.round - 1]?.strong ?? 0;
    if (!found.length) {
      put(this.findings, h("h2", { id: "findings-title" }, "What the server worked out"), h("p", { class: "quiet" }, strong > 1 ? `Nobody. Every equation has ${strong} people or more in it.` : "Nobody yet."));
      return;
    }
    const latest = [...found].reverse();
    put(
      this.findings,
      h("h2", { id: "findings-title" }, `What the server worked out: ${found.length === 1 ? names[found[0]!.person] : `${found.length} of ${names.length} people`}`),
      h("ol", {}, latest.map((one) => this.equation(one))),
    );
  }

  private equation(one: Exposure): HTMLElement {
    const { album, names } = this.context;
    const name = names[one.person]!;
    const picture = (label: string, shares: Float32Array, caption: string): HTMLElement => {
      const canvas = album.canvas(label);
      album.draw(canvas, album.guess(shares));
      return h("span", { class: "term" }, canvas, h("span", {}, caption));
    };
    const terms = one.terms.map((term, index) => {
      const members = this.leak!.rounds[term.round - 1]!.summed;
      const shares = new Float32Array(names.length);
      for (const person of members) shares[person] = 1 / members.length;
      const negative = term.coefficient.startsWith("-");
      const size = term.coefficient.replace("-", "");
      const sign = negative ? "−" : index ? "+" : "";
      // A sign and its picture stay on one line.
      return h(
        "span",
        { class: "step" },
        sign || size !== "1" ? h("span", { class: "sign" }, sign, size === "1" ? "" : ` ${written(size)} ×`) : null,
        picture(`The sum of round ${term.round}`, shares, `round ${term.round}`),
      );
    });
    const own = new Float32Array(names.length);
    own[one.person] = 1;
    const result = h("span", { class: "step answer" }, h("span", { class: "sign" }, "="), picture(`${name}, exactly`, own, name));
    if (one.terms.length <= FEW) return h("li", { class: "equation" }, h("div", { class: "terms" }, terms, result));
    const closed = h("summary", {}, h("span", { class: "terms" }, h("span", { class: "many" }, `${one.terms.length} sums, added and subtracted`), result));
    return h("li", { class: "equation" }, h("details", {}, closed, h("div", { class: "terms long" }, terms)));
  }
}

/** The value of a list that is nearest to a number. */
function nearest(values: number[], wanted: number): number {
  return [...values].sort((one, other) => Math.abs(one - wanted) - Math.abs(other - wanted))[0]!;
}

/** The exposure with the fewest terms, which is the easiest to follow. */
function shortest(found: Exposure[]): Exposure | undefined {
  return [...found].sort((one, other) => one.terms.length - other.terms.length)[0];
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Write a fraction as people do. */
function written(value: string): string {
  const size = value.replace("-", "");
  return (value.startsWith("-") ? "−" : "") + (FRACTIONS[size] ?? size);
}
