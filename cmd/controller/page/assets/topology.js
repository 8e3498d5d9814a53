import { details, h, short, table } from "./dom.js";

const cell = 16;
const gap = 3;
const perRow = 20;

// unit writes an amount: of cpu they are thousandths.
const unit = (resource) => (amount) => resource === "cpu" ? String(amount / 1000) : String(amount);

// title is what users call a domain.
function title(domain) {
  if (!domain.key) {
    return "All nodes";
  }
  return domain.outside ? "Without a " + short(domain.key) : short(domain.key) + " " + domain.value;
}

// finest lists the domains that have nodes, with those around them.
function finest(domain, around) {
  const path = domain.key ? [...around, title(domain)] : around;
  if (!domain.domains) {
    return domain.members ? [{ ...domain, path: path.length ? path.join(", ") : title(domain) }] : [];
  }
  return domain.domains.flatMap((inner) => finest(inner, path));
}

const numbers = (room, amount) => `${amount(room.used)} used, ${amount(room.held)} held, ${amount(room.closed)} closed, ${amount(room.free)} free of ${amount(room.total)}`;

// box draws a node: from the bottom up what is used, held and closed; what is empty is free.
function box(node, i, amount) {
  const x = (i % perRow) * (cell + gap) + 1;
  const y = Math.floor(i / perRow) * (cell + gap) + 1;
  let top = y + cell;
  const parts = [["used", node.used], ["held", node.held], ["closed", node.closed]].map(([kind, some]) => {
    const height = Math.min(top - y, cell * some / node.total);
    top -= height;
    return height > 0 && h("rect", { x, y: top, width: cell, height, class: kind, fill: `url(#${kind})` });
  });
  return h("g", { class: "node" }, h("title", {}, `${node.name}: ${numbers(node, amount)}`),
    h("rect", { x, y, width: cell, height: cell, class: "free" }), parts);
}

function map(domain, amount) {
  const nodes = domain.members;
  const width = Math.min(nodes.length, perRow) * (cell + gap);
  const height = Math.ceil(nodes.length / perRow) * (cell + gap);
  return h("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${domain.nodes} nodes: ${numbers(domain, amount)}` },
    nodes.map((node, i) => box(node, i, amount)));
}

// patterns tell used, held and closed apart without colours.
function patterns() {
  const pattern = (id, lines) => h("pattern", { id, width: 4, height: 4, patternUnits: "userSpaceOnUse" },
    h("rect", { width: 4, height: 4, class: "ground-" + id }), lines && h("path", { d: lines, class: "lines" }));
  return h("svg", { width: 0, height: 0, class: "patterns", "aria-hidden": "true" },
    h("defs", {}, pattern("used"), pattern("held", "M0 4L4 0"), pattern("closed", "M0 0L4 4M0 4L4 0")));
}

function legend(resource) {
  const sample = (kind, text) => h("li", {}, h("svg", { width: 16, height: 16, "aria-hidden": "true" },
    h("rect", { width: 16, height: 16, class: "free" }), kind && h("rect", { width: 16, height: 16, fill: `url(#${kind})` })), " " + text);
  return [h("p", {}, `A box is a node. It fills from the bottom with what is taken of ${resource}:`),
    h("ul", { class: "legend" }, sample("used", "used by pods"), sample("held", "held by Reservations, not used yet"),
      sample("closed", "left on a node that is cordoned or not ready, or has a taint that no pod tolerates"), sample("", "free"))];
}

const columns = (amount) => [
  { name: "Used", number: true, of: (r) => amount(r.used) },
  { name: "Held", number: true, of: (r) => amount(r.held) },
  { name: "Closed", number: true, of: (r) => amount(r.closed) },
  { name: "Free", number: true, of: (r) => amount(r.free) },
  { name: "Total", number: true, of: (r) => amount(r.total) },
];

// drawTopology draws the heat map, a figure for each of the finest domains, and the same in numbers.
export function drawTopology({ topology }) {
  const amount = unit(topology.resource);
  const domains = finest(topology, []);
  if (domains.length === 0) {
    return [h("h2", {}, "Topology"), h("p", {}, `No node has ${topology.resource}.`)];
  }
  const nodes = (domain) => table(`Nodes of ${domain.path}`, [{ name: "Node", header: true, of: (n) => n.name }, ...columns(amount)], domain.members, "");
  const figure = (domain) => h("li", {}, h("h3", {}, domain.path),
    h("p", {}, `${domain.nodes} nodes, ${domain.emptyNodes} of them empty. ${numbers(domain, amount)}.`),
    map(domain, amount), details("domain-" + domain.path, "Node by node", () => nodes(domain)));
  const inNumbers = () => table(`${topology.resource}, domain by domain`, [
    { name: "Domain", header: true, of: (d) => d.path },
    { name: "Nodes", number: true, of: (d) => d.nodes },
    { name: "Empty", number: true, of: (d) => d.emptyNodes },
    ...columns(amount),
    { name: "Largest free", number: true, of: (d) => d.largestFreeIn ? `${amount(d.largestFree)} (${d.largestFreeIn})` : "0" },
  ], domains, "");
  return [patterns(), h("h2", {}, "Topology"),
    h("p", { class: "sum" }, `${topology.nodes} nodes with ${topology.resource}, ${topology.emptyNodes} of them empty: ${numbers(topology, amount)}.`),
    legend(topology.resource), details("topology-numbers", "All domains in numbers", inNumbers),
    h("ul", { class: "map" }, domains.map(figure))];
}
