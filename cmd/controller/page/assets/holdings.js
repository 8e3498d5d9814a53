import { age, details, h, said, table } from "./dom.js";

const list = (resources) => Object.entries(resources ?? {}).map(([name, amount]) => `${amount} ${name}`).join(", ") || "-";

const reservationColumns = [
  { name: "Reservation", header: true, of: (r) => r.name },
  { name: "Phase", of: (r) => r.phase },
  { name: "Held", number: true, of: (r) => `${r.held} of ${r.replicas}` },
  { name: "Pods", number: true, of: (r) => r.used },
  { name: "Reserved", of: (r) => list(r.allocatable) },
  { name: "Used of it", of: (r) => list(r.allocated) },
  { name: "For", of: (r) => (r.owners ?? []).join("; or ") || "-" },
  { name: "Nodes", of: (r) => r.nodes ? details("nodes-" + r.name, `${r.nodes.length}`, () => h("p", {}, r.nodes.join(", "))) : "-" },
  { name: "Why", of: said },
  { name: "Expires", of: (r) => r.ended ? "ended" : r.expires ? new Date(r.expires).toLocaleString() : "never" },
  { name: "Age", number: true, of: (r) => age(r.created) },
];

// drawReservations draws the table of Reservations.
export function drawReservations({ reservations }) {
  return [h("h2", {}, "Reservations"), table("Reservations", reservationColumns, reservations, "There are no Reservations.")];
}

const moveColumns = [
  { name: "Number", number: true, header: true, of: (m) => m.number },
  { name: "Pod", of: (m) => `${m.namespace}/${m.pod}` },
  { name: "Gang", of: (m) => m.gang || "-" },
  { name: "From", of: (m) => m.from },
  { name: "To", of: (m) => m.to },
  { name: "After", of: (m) => (m.after ?? []).join(", ") || "-" },
  { name: "Phase", of: (m) => m.phase || "-" },
  { name: "Why", of: (m) => m.why },
];

const planColumns = [
  { name: "Plan", header: true, of: (p) => p.name },
  { name: "Phase", of: (p) => p.phase },
  { name: "Mode", of: (p) => p.mode + (p.approved ? ", approved" : "") },
  { name: "Goal", of: (p) => p.goal || "-" },
  { name: "Gangs that fit", of: (p) => p.before === undefined ? "-" : `${p.before}, then ${p.after} (${p.achieved ? "achieved" : "predicted"})` },
  { name: "Moved", number: true, of: (p) => `${p.moved} of ${p.moves}` },
  { name: "Restarts", number: true, of: (p) => p.restarts },
  { name: "Moves", of: (p) => p.moving ? details("plan-" + p.name, "show", () => table(`Moves of ${p.name}`, moveColumns, p.moving, "")) : "-" },
  { name: "Why", of: said },
  { name: "Age", number: true, of: (p) => age(p.created) },
];

const migrationColumns = [
  { name: "PodMigration", header: true, of: (m) => `${m.namespace}/${m.name}` },
  { name: "Phase", of: (m) => m.phase + (m.suspended ? ", suspended" : "") },
  { name: "Pod", of: (m) => m.pod },
  { name: "Gang", of: (m) => m.gang || "-" },
  { name: "From", of: (m) => m.from },
  { name: "To", of: (m) => m.to },
  { name: "Successor", of: (m) => m.successor || "-" },
  { name: "Why", of: said },
  { name: "Age", number: true, of: (m) => age(m.created) },
];

// drawMigrations draws the tables of plans and of PodMigrations.
export function drawMigrations({ plans, migrations, mine }) {
  return [h("h2", {}, "Migrations"), !mine && table("DefragmentationPlans", planColumns, plans, "There are no DefragmentationPlans."),
    table("PodMigrations", migrationColumns, migrations, "There are no PodMigrations.")];
}
