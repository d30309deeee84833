// What is shown for an address that names no view.

import { h } from "./dom";
import { type View, opening } from "./view";

export class MissingView implements View {
  readonly name = "missing";
  readonly title = "No such page";
  readonly element: HTMLElement;

  constructor(views: View[]) {
    const links = views.map((view) => h("li", {}, h("a", { href: `#/${view.name}` }, view.title)));
    this.element = h(
      "article",
      { class: "view missing" },
      opening("The explorer", "No such page.", "The address names no page of the explorer. These are its pages:"),
      h("ul", {}, links),
    );
  }

  enter(): void {}

  leave(): void {}
}
