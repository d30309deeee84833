// What the server saw: the masked bytes of a real session beside the sum.

import { note, whole } from "./address";
import { h, icon, listed, put } from "./dom";
import { decode } from "./pictures";
import { bytes } from "./plan";
import type { Session } from "./source";
import { type Context, type View, complaint, opening } from "./view";

export class SawView implements View {
  readonly name = "server";
  readonly title = "What the server saw";
  readonly element: HTMLElement;

  private session: Session | null = null;
  private person = 0;
  private turn = 0;
  private readonly leaving: HTMLSelectElement;
  private readonly circles = h("input", { type: "checkbox", change: () => void this.play() });
  private readonly active = h("input", { type: "checkbox", change: () => void this.play() });
  private readonly grid = h("div", { class: "uploads" });
  private readonly detail = h("section", { class: "card message" });
  private readonly sum = h("section", { class: "card sum", "aria-labelledby": "sum-title" });
  private readonly trouble = h("div");
  private readonly status = h("p", { class: "hidden", role: "status" });

  constructor(private readonly context: Context) {
    const { source, about } = context;
    const most = about.settings.session.leaving!.most ?? 4;
    this.leaving = h(
      "select",
      { id: "leaving", change: () => void this.play() },
      Array.from({ length: most + 1 }, (_, number) => h("option", { value: number }, number)),
    );
    this.leaving.value = String(about.settings.session.leaving!.default);
    const again = source.live
      ? h("button", { class: "primary", click: () => void this.play() }, icon("again"), h("span", {}, "Run it again"))
      : h("span", { class: "quiet" }, "Recorded when this copy was made.");
    this.element = h(
      "article",
      { class: "view saw" },
      opening(
        "One secure aggregation, opened up",
        "This is all the server gets.",
        source.live
          ? "A real session has just run on your machine: keys, masks, dropouts and all. On the left of each pair is what a person put in, on the right what the server received of it."
          : "A real session ran when this copy was made: keys, masks, dropouts and all. On the left of each pair is what a person put in, on the right what the server received of it.",
      ),
      h(
        "form",
        { class: "row controls", "aria-label": "The session", submit: (event: Event) => event.preventDefault() },
        source.live ? h("label", { class: "field inline", for: "leaving" }, h("span", {}, "People who leave"), this.leaving) : null,
        h("label", { class: "switch" }, this.circles, h("span", {}, "Circles of three")),
        source.live ? h("label", { class: "switch" }, this.active, h("span", {}, "The server may lie")) : null,
        again,
      ),
      this.trouble,
      this.status,
      h("div", { class: "desk wide" }, h("section", { class: "card", "aria-labelledby": "uploads-title" }, h("h2", { id: "uploads-title" }, "Twelve messages"), this.grid), h("div", { class: "stack" }, this.sum, this.detail)),
    );
  }

  async enter(query: URLSearchParams): Promise<void> {
    if (query.has("circles")) this.circles.checked = query.get("circles") === "true";
    if (query.has("active")) this.active.checked = query.get("active") === "true";
    if (query.has("leaving")) this.leaving.value = String(whole(query, "leaving", 1, 0, 4));
    if (!this.session || query.toString()) await this.play();
  }

  leave(): void {
    this.turn++;
  }

  private async play(): Promise<void> {
    const turn = ++this.turn;
    const query = { leaving: Number(this.leaving.value), circles: this.circles.checked, active: this.active.checked };
    try {
      const session = await this.context.source.session(query);
      if (turn !== this.turn) return;
      this.session = session;
      put(this.trouble);
    } catch (error) {
      if (turn === this.turn) put(this.trouble, complaint(error));
      return;
    }
    note(this.name, this.context.source.live ? query : { circles: query.circles });
    if (!this.session.received[this.person]) this.person = this.session.received.findIndex((upload) => upload !== null);
    this.showUploads();
    this.showMessage();
    this.showSum();
    put(this.status, this.session.aborted ? "The session has no sum." : `The session has run: ${this.session.summed.length} pictures are summed.`);
  }

  private showUploads(): void {
    const { album, names } = this.context;
    const session = this.session!;
    put(
      this.grid,
      session.received.map((upload, person) => {
        const name = names[person]!;
        const own = album.canvas(`What ${name} put in`);
        album.draw(own, album.pictures[person]!);
        const arrived = album.canvas(upload ? "What the server received: noise" : "Nothing arrived");
        if (upload) album.draw(arrived, decode(upload.picture));
        const stranded = upload && session.circles.length > 0 && !session.summed.includes(person) && !session.aborted;
        const state = !upload ? "left" : stranded ? "left out with their circle" : bytes(upload.bytes);
        return h(
          "button",
          {
            type: "button",
            class: ["upload", upload ? "" : "gone", stranded ? "stranded" : "", person === this.person ? "chosen" : ""].join(" "),
            disabled: !upload,
            "aria-pressed": String(person === this.person),
            click: () => {
              this.person = person;
              this.showMessage();
              put(this.status, `The bytes from ${name} are shown.`);
              [...this.grid.children].forEach((child, index) => {
                child.classList.toggle("chosen", index === person);
                child.setAttribute("aria-pressed", String(index === person));
              });
            },
          },
          h("span", { class: "pair" }, own, h("span", { class: "arrow", "aria-hidden": "true" }, "→"), arrived),
          h("span", { class: "line" }, h("span", { class: "name" }, name), h("span", { class: "quiet" }, state)),
        );
      }),
    );
  }

  private showMessage(): void {
    const upload = this.session!.received[this.person];
    if (!upload) {
      put(this.detail);
      return;
    }
    const name = this.context.names[this.person]!;
    const chance = 1 / Math.sqrt(this.session!.length);
    put(
      this.detail,
      h("h2", {}, `${name}’s bytes, as they arrived`),
      h("pre", { class: "hex", tabindex: "0", role: "region", "aria-label": `The first bytes from ${name}` }, h("code", {}, dump(upload.hex))),
      h(
        "table",
        { class: "facts" },
        h(
          "tbody",
          {},
          fact("Message", `${bytes(upload.bytes)}, of which these are the first ${upload.hex.length / 2} masked bytes`),
          fact("SHA-256", upload.sha256),
          fact("Resemblance", `${signed(upload.correlation)} correlation with the picture; by chance alone about ±${chance.toFixed(3)}`),
        ),
      ),
    );
  }

  private showSum(): void {
    const { album, names } = this.context;
    const session = this.session!;
    const missing = names.filter((_, person) => !session.summed.includes(person));
    if (session.aborted || !session.mean) {
      put(this.sum, h("h2", { id: "sum-title" }, "No sum"), h("p", { class: "notice caution" }, `${session.aborted ?? ""}. Nothing was unmasked: the server has noise, and no picture.`));
      return;
    }
    const canvas = album.canvas(`The mean of ${session.summed.length} pictures`);
    album.draw(canvas, decode(session.mean));
    const total = session.steps.reduce((sum, step) => sum + step.bytes, 0);
    put(
      this.sum,
      h("h2", { id: "sum-title" }, "The sum, and nothing else"),
      h(
        "div",
        { class: "mean" },
        canvas,
        h(
          "div",
          {},
          h("p", {}, `The masks cancel in the sum of ${session.summed.length} pictures, shown here as their mean. It equals plain addition in every one of ${session.length.toLocaleString("en")} numbers.`),
          h("p", { class: "quiet" }, missing.length ? `${listed(missing)} ${missing.length === 1 ? "is" : "are"} not in it. ` : "", `${session.threshold} of ${names.length} people had to help to open it. ${session.steps.length} trips, ${bytes(total)} in all.`),
        ),
      ),
    );
  }
}

function fact(name: string, value: string): HTMLElement {
  return h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value));
}

function signed(value: number): string {
  return (value < 0 ? "−" : "+") + Math.abs(value).toFixed(3);
}

/** Write bytes in rows of sixteen. */
function dump(hex: string): string {
  const pairs = hex.match(/../g) ?? [];
  const rows: string[] = [];
  for (let at = 0; at < pairs.length; at += 16) rows.push(pairs.slice(at, at + 16).join(" "));
  return rows.join("\n");
}
