import { replace } from "./dom.js";
import { drawGangs } from "./gangs.js";
import { drawMigrations, drawReservations } from "./holdings.js";
import { drawQueues } from "./queues.js";
import { drawTopology } from "./topology.js";

const every = 5000; // milliseconds
const views = { topology: drawTopology, gangs: drawGangs, queues: drawQueues, reservations: drawReservations, migrations: drawMigrations };

const ofTenants = ["gangs", "queues", "migrations"];

const at = (id) => document.getElementById(id);
const navigation = document.querySelector("nav");

let token = ""; // is in no storage, no address and no cookie
let data = null;
let mine = false; // the user may see a part only
let timer = 0;
const etags = {};

// tell says something to those who read and those who hear the page.
function tell(text) {
  if (at("status").textContent !== text) {
    at("status").textContent = text;
  }
}

// get returns what is at a path, and its ETag, which counts once that is taken in; null where it is as it was.
async function get(path) {
  const headers = { ...(token && { Authorization: "Bearer " + token }), ...(etags[path] && { "If-None-Match": etags[path] }) };
  const response = await fetch(path, { headers, cache: "no-store", credentials: "same-origin" });
  if (response.status === 304) {
    return null;
  }
  if (!response.ok) {
    throw Object.assign(new Error((await response.text()).trim() || response.statusText), { status: response.status });
  }
  return { path, etag: response.headers.get("ETag"), value: await response.json() };
}

const seen = (view) => Object.hasOwn(views, view) && (!mine || ofTenants.includes(view));

const current = () => seen(location.hash.slice(1)) ? location.hash.slice(1) : mine ? "gangs" : "topology";

function draw() {
  if (!data) {
    return;
  }
  navigation.hidden = at("view").hidden = false;
  at("signin").hidden = true;
  for (const link of navigation.querySelectorAll("a")) {
    link.hidden = !seen(link.hash.slice(1));
    if (link.hash === "#" + current()) {
      link.setAttribute("aria-current", "page");
    } else {
      link.removeAttribute("aria-current");
    }
  }
  replace(at("view"), views[current()](data, tell, draw));
}

// forget drops all that was seen with a token that is not good any more.
function forget() {
  token = "";
  data = null;
  mine = false;
  for (const path of Object.keys(etags)) {
    delete etags[path];
  }
  at("view").replaceChildren();
  navigation.hidden = at("view").hidden = true;
  at("asof").textContent = "";
}

function signIn(error) {
  const tried = token !== "";
  forget();
  at("signin").hidden = false;
  at("token").focus();
  if (error.status === 403) {
    tell("The API server knows you, and does not let you get /overview or /overview/mine. Ask for the ClusterRole lockstep-page-reader, " +
      "or lockstep-page-tenant for what is in your namespaces.");
  } else {
    tell(tried ? "The API server does not know this token, or no longer." : "");
  }
}

// overview returns what the user may see: all of the cluster, or else the part that is theirs.
async function overview() {
  const before = token;
  if (!mine) {
    try {
      return await get("overview");
    } catch (error) {
      if (error.status !== 403) {
        throw error;
      }
    }
  }
  const part = await get("overview/mine");
  mine = mine || before === token; // or else somebody else signed in meanwhile
  return part;
}

async function update() {
  clearTimeout(timer);
  const before = token;
  try {
    const contents = await overview();
    const history = current() === "queues" && !mine ? await get("overview/history") : null;
    if (before !== token) {
      return; // somebody else signed in meanwhile
    }
    if (contents || history) {
      data = { ...data, ...contents?.value, mine, history: history?.value ?? data?.history };
      for (const { path, etag } of [contents, history].filter(Boolean)) {
        etags[path] = etag;
      }
      draw();
    }
    at("asof").textContent = "As of " + new Date().toLocaleTimeString();
    if (at("status").dataset.failed) {
      delete at("status").dataset.failed;
      tell("");
    }
  } catch (error) {
    if (before !== token) {
      return;
    }
    if (error.status === 401 || error.status === 403) {
      signIn(error);
      return;
    }
    at("status").dataset.failed = "true";
    tell(`${data ? "What is shown is old" : "Nothing was read yet"}: ${error.message}. Trying again.`);
  }
  timer = setTimeout(update, document.hidden ? 6 * every : every);
}

at("signin").addEventListener("submit", (event) => {
  event.preventDefault();
  token = at("token").value.trim();
  at("token").value = "";
  tell("");
  update();
});

window.addEventListener("hashchange", () => {
  if (seen(location.hash.slice(1))) {
    tell("");
    draw();
    update();
  }
});

document.addEventListener("visibilitychange", () => !document.hidden && data && update());

update();
