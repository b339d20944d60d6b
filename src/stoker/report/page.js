"use strict";
// Charts follow the theme; tables sort by a click on a heading and filter by words. Numbers are sorted by data-value.

const figures = JSON.parse(document.getElementById("data").textContent);
const system = window.matchMedia("(prefers-color-scheme: dark)");
const root = document.documentElement;

function isDark() {
  return root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
}

function themed(layout) {
  const style = getComputedStyle(root);
  const [ink, line] = ["--ink", "--line"].map((name) => style.getPropertyValue(name).trim());
  const full = {
    ...layout,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: ink, size: 12.5 },
    margin: { l: 70, r: 14, t: 10, b: 44 },
    legend: { orientation: "h", y: 1, yanchor: "bottom", x: 0 }, // above: below it would meet the axis title
    showlegend: true,
  };
  for (const key of Object.keys(full)) {
    if (/^[xy]axis\d*$/.test(key)) {
      const title = { standoff: 10, ...full[key].title, font: { size: 12.5 } };
      full[key] = { ...full[key], title, gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true };
    }
  }
  return full;
}

function draw(plot) {
  const chosen = plot.parentElement.querySelector("select").value;
  const { data, layout } = figures[plot.dataset.chart][chosen];
  return Plotly.react(plot, data, themed(layout), { responsive: true, displaylogo: false });
}

function drawAll() {
  document.getElementById("theme").textContent = isDark() ? "light" : "dark";
  return Promise.all([...document.querySelectorAll(".plot")].map(draw));
}

function sortBy(table, column, header) {
  const downwards = header.getAttribute("aria-sort") === "ascending";
  for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", downwards ? "descending" : "ascending");
  const body = table.tBodies[0];
  const rows = [...body.rows];
  rows.sort((one, two) => (downwards ? -1 : 1) * compare(one.cells[column], two.cells[column]));
  body.append(...rows);
}

function compare(one, two) {
  const [a, b] = [one.dataset.value, two.dataset.value];
  if (a !== undefined && b !== undefined) return Number(a) - Number(b);
  if (a !== undefined || b !== undefined) return a === undefined ? 1 : -1; // numbers before words
  return one.textContent.localeCompare(two.textContent);
}

function filter(table, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of table.tBodies[0].rows) {
    // Cells apart from each other, so that no word is found across two of them.
    const content = [...row.cells].map((cell) => cell.textContent.toLowerCase()).join("\n");
    row.hidden = !words.every((word) => content.includes(word));
    shown += !row.hidden;
  }
  const total = table.tBodies[0].rows.length;
  document.querySelector(`[data-count="${table.id}"]`).textContent = `${shown} of ${total} rows`;
}

for (const select of document.querySelectorAll(".chart select")) {
  select.parentElement.hidden = select.options.length < 2 && !select.options[0].textContent;
  select.addEventListener("change", () => draw(select.closest(".chart").querySelector(".plot")));
}
for (const table of document.querySelectorAll("table")) {
  const headers = [...table.querySelectorAll("th")];
  headers.forEach((header, column) => header.addEventListener("click", () => sortBy(table, column, header)));
  const input = document.querySelector(`input[data-table="${table.id}"]`);
  input.addEventListener("input", () => filter(table, input.value));
  filter(table, "");
}
document.getElementById("theme").addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  drawAll();
});
system.addEventListener("change", drawAll);
drawAll().then(() => { root.dataset.drawn = "yes"; });
