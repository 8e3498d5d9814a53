import { h, said, table } from "./dom.js";

const width = 280;
const height = 90;
let chosen = "";

const sizes = [["Ei", 2 ** 60], ["Pi", 2 ** 50], ["Ti", 2 ** 40], ["Gi", 2 ** 30], ["Mi", 2 ** 20]];

// round writes a number in few digits: memory in the units that people use.
function round(n) {
  const [suffix, size] = sizes.find(([, s]) => n >= s) ?? ["", 1];
  return String(Math.round(n / size * 10) / 10) + suffix;
}

// line is the path of a series; it is broken where nothing is known.
function line(values, most) {
  const x = (i) => (values.length < 2 ? 0 : i * width / (values.length - 1)).toFixed(1);
  const y = (v) => (height - 4 - v / most * (height - 8)).toFixed(1);
  let pen = "M";
  return values.map((v, i) => {
    const step = v === null ? "" : pen + x(i) + " " + y(v);
    pen = v === null ? "M" : "L";
    return step;
  }).join("");
}

const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });

function chart(times, s) {
  const numbers = [...s.deserved, ...s.allocated].filter((n) => n !== null);
  const most = Math.max(...numbers, 1e-9);
  const last = (list) => list.findLast((n) => n !== null) ?? 0;
  const now = `allocated ${round(last(s.allocated))}, deserved ${round(last(s.deserved))}`;
  const label = `${s.queue}, ${s.resource}: now ${now}; at most ${round(most)} from ${clock(times[0])} to ${clock(times.at(-1))}`;
  return h("li", {}, h("h4", {}, s.queue), h("p", {}, now),
    h("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, class: "chart" },
      h("line", { x1: 0, x2: width, y1: height - 4, y2: height - 4, class: "axis" }),
      h("path", { d: line(s.deserved, most), class: "deserved" }), h("path", { d: line(s.allocated, most), class: "allocated" })),
    h("p", { class: "times" }, h("span", {}, clock(times[0])), h("span", {}, `top: ${round(most)}`), h("span", {}, clock(times.at(-1)))));
}

// charts are those of one resource; which one, a list says.
function charts(queues, history, redraw) {
  if (!history || history.times.length < 2) {
    return [h("p", {}, "There are charts when the queues have been watched for some seconds.")];
  }
  const resources = [...new Set(history.series.map((s) => s.resource))].sort((a, b) => b.includes("/") - a.includes("/") || (a < b ? -1 : 1));
  if (!resources.includes(chosen)) {
    chosen = resources[0] ?? "";
  }
  const order = new Map(queues.map((q, i) => [q.name, i]));
  const shown = history.series.filter((s) => s.resource === chosen).sort((a, b) => (order.get(a.queue) ?? Infinity) - (order.get(b.queue) ?? Infinity));
  const choose = (event) => {
    chosen = event.target.value;
    redraw();
  };
  return [h("form", { class: "filter", submit: (event) => event.preventDefault() }, h("label", { for: "queue-resource" }, "Resource"),
    h("select", { id: "queue-resource", change: choose }, resources.map((r) => h("option", { value: r, selected: r === chosen }, r)))),
    h("ul", { class: "legend" }, h("li", {}, sample("allocated"), " allocated: what its pods use"), h("li", {}, sample("deserved"), " deserved: its share as things are")),
    history.leftOut > 0 && h("p", {}, `${history.leftOut} pairs of a queue and a resource have no chart: there are too many.`),
    h("ul", { class: "charts" }, shown.map((s) => chart(history.times, s)))];
}

const sample = (kind) => h("svg", { width: 32, height: 12, "aria-hidden": "true", class: "chart" }, h("path", { d: "M0 6L32 6", class: kind }));

const columns = [
  { name: "Queue", header: true, of: (l) => l.first ? h("span", { class: "depth-" + Math.min(l.queue.depth, 6) }, l.queue.name) : h("span", { class: "again" }, l.queue.name) },
  { name: "Resource", of: (l) => l.resource?.name ?? "-" },
  { name: "Allocated", number: true, of: (l) => l.resource?.allocated ?? "-" },
  { name: "Deserved", number: true, of: (l) => l.resource?.deserved ?? "-" },
  { name: "Pending", number: true, of: (l) => l.resource?.pending ?? "-" },
  { name: "Guarantee", number: true, of: (l) => l.resource?.guarantee ?? "-" },
  { name: "Capability", number: true, of: (l) => l.resource?.capability ?? "-" },
  { name: "Share", number: true, of: (l) => l.first && l.queue.share || "" },
  { name: "Running", number: true, of: (l) => l.first ? l.queue.runningGangs : "" },
  { name: "Waiting", number: true, of: (l) => l.first ? l.queue.pendingGangs : "" },
  { name: "Weight", number: true, of: (l) => l.first ? l.queue.weight : "" },
  { name: "State", of: (l) => l.first ? h("div", {}, l.queue.closed && h("b", {}, "closed "), said(l.queue)) : "" },
];

// drawQueues draws the tree of queues, and how they stood in the last hour.
export function drawQueues({ queues, history, mine }, tell, redraw) {
  const lines = queues.flatMap((queue) => (queue.resources ?? [undefined]).map((resource, i) => ({ queue, resource, first: i === 0 })));
  return [h("h2", {}, "Queues"), table("Queues, with a line for each resource", columns, lines, "There are no queues."),
    queues.length > 0 && !mine && h("h3", {}, "The last hour"), queues.length > 0 && !mine && charts(queues, history, redraw)];
}
