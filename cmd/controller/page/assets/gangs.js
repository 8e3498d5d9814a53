import { age, details, h, quoted, replace, said, short, table } from "./dom.js";

const filter = { text: "", phase: "" };

const name = (gang) => `${gang.namespace}/${gang.name}`;

// matches tells whether a gang has all words of the filter in what is shown of it.
function matches(gang) {
  if (filter.phase && gang.phase !== filter.phase) {
    return false;
  }
  const text = [name(gang), gang.phase, gang.queue, gang.reason, gang.source, gang.domain?.value].join(" ").toLowerCase();
  return filter.text.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

// explanation is why a gang waits: its own reason, and what its members say beside.
function explanation(gang) {
  const waits = (gang.waits ?? []).filter((w) => w.message !== gang.message);
  return h("div", {}, said(gang),
    waits.length > 0 && h("ul", {}, waits.map((w) => h("li", {}, `${w.pods} of its pods: `, h("b", {}, w.reason), " " + w.message))),
    h("p", {}, "Member by member, and domain by domain: ", h("code", {}, `kubectl gang explain --namespace ${gang.namespace} -- ${quoted(gang.name)}`)));
}

const columns = [
  { name: "Gang", header: true, of: name },
  { name: "Phase", of: (g) => g.phase },
  { name: "Held", number: true, of: (g) => g.held },
  { name: "Bound", number: true, of: (g) => g.bound },
  { name: "Minimum", number: true, of: (g) => g.minimum },
  { name: "Why", of: (g) => details("why-" + name(g), g.reason || "-", () => explanation(g)) },
  { name: "Queue", of: (g) => g.queue },
  { name: "Priority", number: true, of: (g) => g.priority ?? "-" },
  { name: "Domain", of: (g) => g.domain ? `${short(g.domain.key)}=${g.domain.value}` : "-" },
  { name: "Mode", of: (g) => g.mode || "-" },
  { name: "Made by", of: (g) => g.source },
  { name: "Age", number: true, of: (g) => age(g.created) },
];

// drawGangs draws the table of gangs, those that wait first. The filter stays as it is when it is drawn anew.
export function drawGangs({ gangs }, tell) {
  const waiting = (g) => g.bound < Math.max(1, g.minimum) && g.phase !== "Finished" ? 0 : 1;
  const sorted = [...gangs].sort((a, b) => waiting(a) - waiting(b));
  const rows = h("div", {});
  const draw = (aloud) => {
    const shown = sorted.filter(matches);
    replace(rows, table(`${shown.length} of ${gangs.length} gangs`, columns, shown, gangs.length ? "No gang matches the filter." : "There are no gangs."));
    if (aloud) {
      tell(`${shown.length} of ${gangs.length} gangs match.`);
    }
  };
  const change = (key) => (event) => {
    filter[key] = event.target.value;
    draw(true);
  };
  const phases = [...new Set(gangs.map((g) => g.phase).concat(filter.phase || []))].sort();
  const text = h("input", { id: "gang-filter", type: "search", autocomplete: "off", input: change("text") });
  text.value = filter.text;
  draw(false);
  return [h("h2", {}, "Gangs"),
    h("form", { class: "filter", role: "search", submit: (event) => event.preventDefault() },
      h("label", { for: "gang-filter" }, "With the words"), text,
      h("label", { for: "gang-phase" }, "In the phase"),
      h("select", { id: "gang-phase", change: change("phase") }, h("option", { value: "" }, "any"),
        phases.map((phase) => h("option", { value: phase, selected: phase === filter.phase }, phase)))),
    rows];
}
