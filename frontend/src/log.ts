// Your log: drop a file; the verdict, who, since when, the witness, and a certificate to print.

import { h, icon, put } from "./dom";
import { lines } from "./chart";
import type { Audit, Query } from "./source";
import { type Context, type View, complaint, needsServer, opening } from "./view";

const HINTS: Record<string, string> = {
  round_column: "round, server_round, …",
  client_column: "client, cid, device, …",
  where: "event=aggregated",
  encoding: "latin-1",
};
const SWITCHES = ["keep_order", "as_written"];

export class LogView implements View {
  readonly name = "log";
  readonly title = "Your log";
  readonly element: HTMLElement;

  private file: File | null = null;
  private turn = 0;
  private readonly picker = h("input", {
    type: "file",
    id: "log-file",
    class: "hidden",
    change: () => {
      const file = this.picker.files?.[0];
      if (file) void this.audit(file);
    },
  });
  private readonly zone = h("label", { class: "drop", for: "log-file" });
  private readonly result = h("div", { class: "result" });
  private readonly options = new Map<string, HTMLInputElement | HTMLSelectElement>();
  private readonly status = h("p", { class: "hidden", role: "status" });

  constructor(private readonly context: Context) {
    const intro = opening(
      "After the fact",
      "What did your rounds give away?",
      context.source.live
        ? "Drop a participation log: who was aggregated in which round. CSV, JSON, npy, Parquet and more, from any system. It is read by your own machine, and does not leave it."
        : "A participation log says who was aggregated in which round. An audit finds whom its sums expose.",
    );
    if (!context.source.live) {
      this.element = h("article", { class: "view log" }, intro, needsServer("An audit"));
      return;
    }
    put(
      this.zone,
      icon("file"),
      h("strong", {}, "Drop a log here, or choose a file"),
      h("span", { class: "quiet" }, `Up to ${Math.round(context.about.most_bytes / 1e6)} MB. A row for each client in each round will do.`),
    );
    // Anywhere on the page: a browser would open a file that is dropped beside the zone, and leave the page.
    for (const event of ["dragenter", "dragover"]) document.addEventListener(event, (moved) => this.drag(moved, true));
    for (const event of ["dragleave", "drop"]) document.addEventListener(event, (moved) => this.drag(moved, false));
    this.element = h(
      "article",
      { class: "view log" },
      intro,
      h(
        "section",
        { class: "intake", "aria-label": "The log" },
        this.picker,
        this.zone,
        h("div", { class: "row" }, h("button", { class: "plain", click: () => void this.example() }, "Try it with an example"), h("span", { class: "quiet" }, "20 rounds of twelve people in circles, with a naive dropout")),
        this.optionForm(),
      ),
      this.status,
      this.result,
    );
  }

  enter(): void {
    // The address has no state here: a log stays on its machine.
  }

  leave(): void {
    // Nothing moves.
  }

  private optionForm(): HTMLElement {
    const settings = this.context.about.settings.audit;
    const field = (name: string) => {
      const input = h("input", { type: "text", id: `log-${name}`, placeholder: HINTS[name], maxlength: "200", autocomplete: "off", spellcheck: "false" });
      this.options.set(name, input);
      return h("label", { class: "field" }, h("span", {}, settings[name]!.label), input);
    };
    const toggle = (name: string) => {
      const input = h("input", { type: "checkbox", id: `log-${name}` });
      this.options.set(name, input);
      return h("label", { class: "switch" }, input, h("span", {}, settings[name]!.label, h("span", { class: "quiet" }, settings[name]!.help)));
    };
    const format = h("select", { id: "log-format" }, h("option", { value: "" }, "from the content"), this.context.about.formats.map((name) => h("option", { value: name }, name)));
    this.options.set("format", format);
    return h(
      "details",
      { class: "fold" },
      h("summary", {}, "How to read it, if that is not clear from the file"),
      h(
        "form",
        {
          class: "reading",
          submit: (event: Event) => {
            event.preventDefault();
            if (this.file) void this.audit(this.file);
          },
        },
        h("label", { class: "field" }, h("span", {}, settings.format!.label), format),
        Object.keys(HINTS).map(field),
        SWITCHES.map(toggle),
        h("button", { class: "plain" }, "Read it again"),
      ),
    );
  }

  private drag(event: Event, over: boolean): void {
    event.preventDefault();
    if (this.element.hidden) return;
    this.zone.classList.toggle("over", over);
    const file = event.type === "drop" ? (event as DragEvent).dataTransfer?.files[0] : undefined;
    if (file) void this.audit(file);
  }

  private async example(): Promise<void> {
    try {
      const leak = await this.context.source.leak({ story: "naive" });
      const rows = leak.rounds.flatMap((round, index) => round.summed.map((person) => `${index + 1},${this.context.names[person]}`));
      await this.audit(new File([["round,client", ...rows].join("\n") + "\n"], "example.csv"));
    } catch (error) {
      put(this.result, complaint(error));
    }
  }

  private query(file: File): Query {
    const query: Query = { name: file.name.slice(0, 200) || "log" };
    for (const [name, input] of this.options) {
      const value = input instanceof HTMLInputElement && input.type === "checkbox" ? input.checked : input.value.trim();
      if (value) query[name] = value;
    }
    return query;
  }

  private async audit(file: File): Promise<void> {
    this.file = file;
    this.picker.value = ""; // so that the same file can be chosen again
    const turn = ++this.turn;
    if (file.size > this.context.about.most_bytes) {
      put(this.result, complaint(new Error(`This file has ${(file.size / 1e6).toFixed(0)} MB. The page takes up to ${Math.round(this.context.about.most_bytes / 1e6)} MB; coterie audit takes more.`)));
      return;
    }
    put(this.result, h("p", { class: "working" }, h("span", { class: "spinner", "aria-hidden": "true" }), `Auditing ${file.name} …`));
    put(this.status, `Auditing ${file.name}.`);
    try {
      const audit = await this.context.source.audit(file, this.query(file));
      if (turn !== this.turn) return;
      this.show(audit, file);
      put(this.status, `${audit.verdict.label}. ${audit.verdict.headline}.`);
    } catch (error) {
      if (turn !== this.turn) return;
      put(this.status);
      put(this.result, h("section", { class: "card empty" }, h("h2", {}, "This log could not be read"), complaint(error), h("p", { class: "quiet" }, "If the file is right, say above how to read it. A verdict on a log that was read wrongly is worth nothing.")));
    }
    this.result.scrollIntoView({ block: "nearest" });
  }

  private show(audit: Audit, file: File): void {
    const { verdict } = audit;
    const now = new Date();
    put(
      this.result,
      h("div", { class: "row actions" }, h("button", { class: "primary", click: () => window.print() }, icon("print"), h("span", {}, "Print the certificate"))),
      h(
        "section",
        { class: "certificate", "aria-labelledby": "verdict-title" },
        h(
          "header",
          { class: "letterhead" },
          h("p", { class: "kicker" }, "Certificate of audit"),
          h("p", {}, h("strong", {}, file.name), ` · ${audit.extent} · `, h("time", { datetime: now.toISOString() }, now.toLocaleString("en", { dateStyle: "long", timeStyle: "short" }))),
        ),
        h(
          "div",
          { class: `verdict ${verdict.level}` },
          h("p", { class: "mark" }, `${verdict.mark} ${verdict.label}`),
          h("h2", { id: "verdict-title" }, `${verdict.headline}.`),
          h("p", {}, verdict.meaning),
          h("p", {}, h("strong", {}, "What to do. "), verdict.advice),
        ),
        audit.unreadable.count
          ? h("div", { class: "notice caution" }, h("p", {}, h("strong", {}, `${audit.unreadable.words} could not be read. `), "What they say may change this verdict: do not rely on it."), h("ul", {}, audit.unreadable.lines.map((line) => h("li", {}, `Line ${line.line}: ${line.reason}: `, h("code", {}, line.text)))))
          : null,
        h("dl", { class: "measures" }, audit.measures.map((measure) => h("div", {}, h("dt", {}, measure.name), h("dd", { class: "value" }, measure.value), h("dd", { class: "about" }, measure.note)))),
        audit.series.rounds.length > 1 ? lines(audit.series) : null,
        this.exposures(audit),
        h("h3", {}, "How the log was read"),
        facts(audit.read),
        h("h3", {}, "Evidence"),
        facts(audit.evidence),
        h("p", { class: "caption" }, "The same bytes, version and options give the same verdict. Every witness was verified in exact arithmetic. The verdict is about the sums in this log, and assumes that each round was protected by secure aggregation."),
      ),
    );
  }

  private exposures(audit: Audit): (HTMLElement | null)[] {
    if (!audit.exposed.length) return audit.leak ? [h("p", {}, `The least that can be computed: ${audit.leak}.`)] : [];
    const more = audit.exposed_count - audit.exposed.length;
    return [
      h("h3", {}, "Who, and since when"),
      h(
        "div",
        { class: "scroll wide", tabindex: "0", role: "region", "aria-label": "Exposed clients" },
        h(
          "table",
          { class: "facts list" },
          h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Client"), h("th", { scope: "col" }, "Since round"), h("th", { scope: "col" }, "How the server gets it"))),
          h("tbody", {}, audit.exposed.map((row) => h("tr", {}, h("th", { scope: "row" }, h("bdi", {}, row.client)), h("td", {}, h("bdi", {}, row.round)), h("td", {}, row.witness ?? h("span", { class: "quiet" }, "not computed here"))))),
        ),
      ),
      more > 0 ? h("p", { class: "caption" }, `${more.toLocaleString("en")} more are exposed; coterie audit --exposed writes all of them.`) : null,
    ];
  }
}

function facts(rows: [string, string][]): HTMLElement {
  return h("table", { class: "facts" }, h("tbody", {}, rows.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, h("bdi", {}, value))))));
}
