// The page: four views, one at a time, chosen by the address.

import "./styles.css";
import { here } from "./address";
import { h, put } from "./dom";
import { LeakView } from "./leak";
import { LogView } from "./log";
import { MissingView } from "./missing";
import { Album } from "./pictures";
import { PlanView } from "./plan";
import { SawView } from "./saw";
import { findSource } from "./source";
import type { Context, View } from "./view";

async function begin(): Promise<void> {
  const main = document.getElementById("main")!;
  const source = findSource();
  let context: Context;
  try {
    const about = await source.about();
    const album = new Album(about.people.map((person) => person.picture), about.side);
    context = { source, about, album, names: about.people.map((person) => person.name) };
  } catch (error) {
    put(main, h("p", { class: "notice danger", role: "alert" }, error instanceof Error ? error.message : String(error)));
    return;
  }
  const views: View[] = [new LeakView(context), new PlanView(context), new LogView(context), new SawView(context)];
  const links = views.map((view) => h("a", { href: `#/${view.name}` }, view.title));
  put(document.getElementById("views")!, ...links);
  const missing = new MissingView(views);
  put(main, ...[...views, missing].map((view) => view.element));
  const origin = source.live ? "computed on this machine" : "computed when this copy was made";
  put(document.getElementById("about")!, `Everything on this page is ${origin}. It loads nothing from elsewhere, and sends nothing anywhere. Coterie ${context.about.version}.`);

  let shown: View | null = null;
  const show = (): void => {
    const place = here();
    const unknown = place.view !== "" && window.location.hash.startsWith("#/");
    const view = views.find((one) => one.name === place.view) ?? (unknown ? missing : views[0]!);
    missing.element.hidden = view !== missing;
    for (const [index, other] of views.entries()) {
      other.element.hidden = other !== view;
      if (other === view) links[index]!.setAttribute("aria-current", "page");
      else links[index]!.removeAttribute("aria-current");
    }
    document.title = `${view.title} · Coterie explorer`;
    if (shown !== view) {
      shown?.leave();
      if (shown) {
        window.scrollTo(0, 0);
        view.element.querySelector<HTMLElement>("h1")?.focus({ preventScroll: true });
      }
    }
    shown = view;
    void view.enter(place.query);
  };
  window.addEventListener("hashchange", (event) => {
    if (new URL(event.newURL).hash.startsWith("#/")) show();
  });
  show();
  document.documentElement.dataset.ready = "true";
}

void begin();
