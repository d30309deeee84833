// Draws every figure of the page in the colours of the style sheet, again whenever those change.
"use strict";
(() => {
  const root = document.documentElement;
  const plots = [...document.querySelectorAll(".plot")].map((box) => {
    const source = box.querySelector("script");
    const figure = source.textContent;
    source.remove();
    return { box, figure };
  });

  // "@accent" becomes the value of the style sheet's --accent.
  const coloured = (figure) => {
    const style = getComputedStyle(root);
    return JSON.parse(figure, (_, value) =>
      typeof value === "string" && /^@[a-z-]+$/.test(value) ? style.getPropertyValue("--" + value.slice(1)).trim() : value);
  };

  const base = () => ({
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: "@muted" },
    margin: { l: 56, r: 16, t: 16, b: 48 },
    showlegend: false,
    hoverlabel: { bgcolor: "@raised", bordercolor: "@line", font: { color: "@ink" } },
  });
  const axis = { gridcolor: "@line", linecolor: "@line", zeroline: false, automargin: true, ticks: "outside", tickcolor: "@line" };

  const draw = ({ box, figure }) => {
    const { data, layout } = JSON.parse(figure);
    const whole = { ...base(), ...layout, ...("paper" in root.dataset ? { width: 640 } : { autosize: true }) };
    for (const name of Object.keys(whole).filter((key) => /^[xy]axis\d*$/.test(key))) {
      whole[name] = { ...axis, ...whole[name] };
      if (whole[name].title) whole[name].title = { standoff: 8, ...whole[name].title }; // clear of the ticks' labels
    }
    if (box.clientWidth < 480 && whole.annotations?.some(({ name }) => name === "line end")) {
      // Names at the ends of the lines would leave no room for the lines.
      whole.annotations = whole.annotations.filter(({ name }) => name !== "line end");
      whole.margin = { ...whole.margin, r: 16 };
      Object.assign(whole, { showlegend: true, legend: { orientation: "h", x: 0, y: -0.2, yanchor: "top" } });
    }
    const ready = coloured(JSON.stringify({ data, layout: whole }));
    return Plotly.react(box, ready.data, ready.layout, {
      responsive: true,
      displayModeBar: false,
    });
  };
  const drawAll = () =>
    Promise.all(plots.map(draw)).then(() => { root.dataset.plots = String(plots.length); });

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  // Paper is light and narrow, whatever the screen is.
  addEventListener("beforeprint", () => { root.dataset.paper = ""; drawAll(); });
  addEventListener("afterprint", () => { delete root.dataset.paper; drawAll(); });
  drawAll();
})();
