// Keeps a page current without reloading it: listens for changes, replaces the content, and counts ages up.
"use strict";

const HOURS = { hourCycle: "h23" }; // as the commands print times, in every language
const main = document.querySelector("main");
let offset = Number(document.body.dataset.now) - Date.now() / 1000; // the detector's clock minus ours
let filter = "";

function words(seconds) {
  if (seconds < 59.95) return `${Math.max(0, seconds).toFixed(0)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 24 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

function tick() {
  const now = Date.now() / 1000 + offset;
  for (const each of document.querySelectorAll("[data-since]")) each.textContent = words(now - Number(each.dataset.since));
}

function localTimes() {
  const today = new Date().toDateString();
  for (const each of document.querySelectorAll("time[datetime]")) {
    const at = new Date(each.dateTime);
    if (Number.isNaN(at.valueOf())) continue;
    each.textContent = at.toDateString() === today ? at.toLocaleTimeString([], HOURS) : at.toLocaleString([], HOURS);
    each.title = each.dateTime;
  }
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  for (const each of document.querySelectorAll(".zone")) each.textContent = `times are ${zone}`;
}

function applyFilter() {
  const box = document.querySelector("#filter");
  if (!box) return;
  box.hidden = false;
  box.value = filter;
  let shown = 0;
  for (const row of document.querySelectorAll("table.members tbody tr")) {
    row.hidden = !row.textContent.toLowerCase().includes(filter.toLowerCase());
    shown += row.hidden ? 0 : 1;
  }
  document.querySelector("#shown").textContent = filter ? `${shown} shown` : "";
  box.oninput = () => { filter = box.value; applyFilter(); box.focus(); };
}

// Pictures are loaded after the page, whose text has the same content; the graph loads its picture only if it cannot draw itself.
async function drawPicture(place) {
  const answer = await fetch(place.dataset.picture);
  if (!answer.ok) return;
  const drawn = new DOMParser().parseFromString(await answer.text(), "image/svg+xml").documentElement;
  if (drawn.nodeName === "svg") place.replaceChildren(document.importNode(drawn, true));
}

function dress() { localTimes(); tick(); applyFilter(); }

// The graph loads newer snapshots itself; it stays in the page, since it would otherwise be repainted.
function replaceAround(drawn, found) {
  const place = drawn && found.querySelector("#graph");
  if (!place || drawn.parentNode !== main || place.parentNode !== found) { main.replaceChildren(...found.childNodes); return; }
  for (const each of [...main.childNodes]) if (each !== drawn) each.remove();
  let after = null;
  for (const each of [...found.childNodes].reverse()) {
    if (each === place) after = drawn;
    else { main.insertBefore(each, after); after = each; }
  }
}

async function fresh() {
  const answer = await fetch(location.href, { cache: "no-store", headers: { "Stilltrue-Live": "yes" } });
  if (!answer.ok) throw new Error(answer.statusText);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const opened = new Set([...main.querySelectorAll("details[open]")].map((each) => each.id));
  const held = document.activeElement?.id ? document.activeElement : null; // keep what the user is typing
  offset = Number(page.body.dataset.now) - Date.now() / 1000;
  document.title = page.title;
  document.querySelector("link[rel=icon]").href = page.querySelector("link[rel=icon]").href;
  replaceAround(main.querySelector("#graph"), page.querySelector("main"));
  for (const each of main.querySelectorAll("details")) if (opened.has(each.id)) each.open = true;
  dress();
  const after = held && document.getElementById(held.id);
  if (after && after !== held) {
    if (held.name && held.value !== undefined) after.value = held.value;
    after.focus();
  }
  document.dispatchEvent(new Event("stilltrue:fresh"));
}

// One update at a time; changes meanwhile cause one more. A random delay spreads the requests of many watchers.
let updating = false;
let pending = false;
async function update() {
  pending = updating;
  if (updating) return;
  updating = true;
  const late = document.querySelector("#late");
  do {
    pending = false;
    try {
      await new Promise((done) => setTimeout(done, Math.random() * 200));
      await fresh();
      late.hidden = true;
    } catch {
      late.hidden = false; // the page may be out of date
      pending = true;
      await new Promise((done) => setTimeout(done, 2000));
    }
  } while (pending);
  updating = false;
}

function follow() {
  const late = document.querySelector("#late");
  let version = document.body.dataset.version;
  const listen = () => {
    const events = new EventSource(`${document.body.dataset.base}/api/v1/events?seen=${encodeURIComponent(version)}`);
    events.onopen = () => { late.hidden = true; };
    events.onmessage = (event) => { version = event.data; update(); };
    events.onerror = () => { // its own reconnect would send the initial version again
      late.hidden = false;
      events.close();
      setTimeout(listen, 1500 + Math.random() * 1500);
    };
  };
  listen();
  setInterval(() => { if (document.visibilityState === "visible") update(); }, 10000); // changes of "last seen" are not events
}

dress();
setInterval(tick, 1000);
for (const each of document.querySelectorAll("main > [data-picture]")) drawPicture(each).catch(() => {});
document.addEventListener("stilltrue:tick", tick);
if (document.body.dataset.live === "yes") follow();
