// What all views are built with. Text is only ever set as text: names in a cluster are not markup.

const svgTags = new Set(["svg", "g", "rect", "path", "pattern", "defs", "title", "polyline", "line", "text"]);

// h makes an element: h("td", {class: "number"}, "8", h("b", {}, "GPUs")). Functions among the attributes are listeners.
export function h(tag, attributes = {}, ...children) {
  const element = svgTags.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") {
      element.addEventListener(name, value);
    } else if (value === true) {
      element.setAttribute(name, "");
    } else if (value !== false && value !== undefined && value !== null) {
      element.setAttribute(name, value);
    }
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// quoted is a word as a shell reads it back: names in annotations may be anything.
export const quoted = (word) => /^[\w.][\w.-]*$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;

// table makes one with a caption. A column is {name, of, number, header}; of returns text or an element.
export function table(caption, columns, rows, none) {
  if (rows.length === 0) {
    return h("p", {}, none);
  }
  const cell = (column, row) => h(column.header ? "th" : "td", { scope: column.header && "row", class: column.number && "number" }, column.of(row));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", {},
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, columns.map((c) => h("th", { scope: "col", class: c.number && "number" }, c.name)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, columns.map((c) => cell(c, row)))))));
}

const opened = new Set();

// details makes a part that opens. What is in it is made when it is open, which it stays when the page is drawn anew.
export function details(id, summary, content) {
  const fill = (element) => element.childElementCount === 1 && element.append(...[content()].flat());
  const element = h("details", { open: opened.has(id) }, h("summary", { id }, summary));
  element.addEventListener("toggle", () => {
    if (element.open) {
      opened.add(id);
      fill(element);
    } else {
      opened.delete(id);
    }
  });
  if (opened.has(id)) {
    fill(element);
  }
  return element;
}

// replace puts others in the place of what is in an element. Where the focus was, it stays, and where it was scrolled to.
export function replace(element, ...children) {
  const focused = element.contains(document.activeElement) ? document.activeElement : null;
  const selection = focused?.type === "search" ? [focused.selectionStart, focused.selectionEnd] : null;
  const scrolled = [...element.querySelectorAll(".scroll")].map((region) => [region.scrollLeft, region.scrollTop]);
  element.replaceChildren(...children.flat(Infinity).filter(Boolean));
  element.querySelectorAll(".scroll").forEach((region, i) => {
    [region.scrollLeft, region.scrollTop] = scrolled[i] ?? [0, 0];
  });
  const again = focused?.id ? document.getElementById(focused.id) : null;
  again?.focus({ preventScroll: true });
  if (again && selection) {
    again.setSelectionRange(...selection);
  }
}

// age is how long ago something was, as kubectl says it.
export function age(time, now = Date.now()) {
  const seconds = Math.max(0, Math.floor((now - Date.parse(time)) / 1000));
  if (!time || Number.isNaN(seconds)) {
    return "-";
  }
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["m", 60]]) {
    if (seconds >= 2 * length) {
      return Math.floor(seconds / length) + unit;
    }
  }
  return seconds + "s";
}

// short is the last part of the key of a label.
export const short = (key) => key.slice(key.lastIndexOf("/") + 1);

// said is a reason and its message.
export const said = (row) => h("div", { class: "said" }, h("b", {}, row.reason || "-"), row.message ? " " + row.message : "");
