
const dark = matchMedia("(prefers-color-scheme: dark)");
const plots = [...document.querySelectorAll(".plotly-graph-div")];
// Colours of the page, and a height that has room for the legend below the plot.
function fit(plot) {
  const ink = dark.matches ? "#dddddd" : "#1c1c1c", line = dark.matches ? "#444444" : "#dddddd";
  const names = plot.data.filter(trace => trace.visible !== false).map(trace => trace.name || "");
  const longest = Math.max(8, ...names.map(name => name.length));
  const rows = names.length < 2 ? 0 : Math.ceil(names.length / Math.max(1, Math.floor(plot.clientWidth / (45 + 7 * longest))));
  const legend = 20 * rows;
  const layout = { height: 380 + legend, "margin.b": 90 + legend, "font.color": ink, paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)", "title.x": 0, "title.xanchor": "left", "legend.orientation": "h", "legend.x": 0, "legend.yref": "container", "legend.y": 0,
    "legend.yanchor": "bottom" };
  for (const axis of ["xaxis", "yaxis"])
    for (const what of ["gridcolor", "linecolor", "zerolinecolor"]) layout[`${axis}.${what}`] = line;
  Plotly.relayout(plot, layout);
}
const all = () => plots.forEach(fit);
addEventListener("load", all);
dark.addEventListener("change", all);
let width = innerWidth;
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; all(); } });
document.querySelectorAll("input[data-plot]").forEach(box => box.addEventListener("change", () => {
  const plot = document.getElementById(box.dataset.plot);
  const papers = plot.data.flatMap((trace, at) => trace.name.startsWith("paper: ") ? [at] : []);
  Plotly.restyle(plot, { visible: box.checked }, papers).then(() => fit(plot));
}));
