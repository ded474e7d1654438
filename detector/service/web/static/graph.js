// The interactive wait-for graph: services first, and their parties when opened; a click on a party shows what it waits for,
// since when, where it is in the code, and who waits for it. Drawn by cytoscape.js from /api/v1.
"use strict";

(() => {
  const section = document.querySelector("#graph");
  if (!section) return;
  const library = document.currentScript.dataset.library;
  const { base, trace } = document.body.dataset;
  const ROLES = ["core", "behind", "missing", "waiting", "free"];
  const DESCRIPTION = { core: "deadlocked", behind: "waits behind the deadlock", missing: "did not report", waiting: "waits", free: "can go on" };
  const COUNT_LABEL = { core: "deadlocked", behind: "behind the deadlock", missing: "not reported", waiting: "waiting", free: "able to go on" };
  const OPENED_AT_ONCE_MAX = 60;
  const FITTED_ZOOM_MAX = 1.5;
  const LEGIBLE_WIDTH_MIN = 600; // in narrower windows, parties of services that are opened by default would be illegible
  const opened = new Set();
  let begun = false; // services that the user has closed stay closed in the next snapshot
  let graph = null;
  let view = null;
  let wanted = 0;
  let chosen = "";
  let moved = false; // the user has zoomed or panned, which the next snapshot keeps
  let later = 0;
  let rested = 0; // when the next snapshot may be loaded: large graphs, which cost the detector more, are loaded less often

  const clock = (time) => new Date(time).toLocaleTimeString([], { hourCycle: "h23" }); // as the commands print times

  const make = (tag, text, attributes = {}) => {
    const element = document.createElement(tag);
    element.textContent = text;
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };
  const button = (text, act, attributes = {}) => {
    const element = make("button", text, { type: "button", ...attributes });
    element.addEventListener("click", act);
    return element;
  };
  const count = (n, noun, plural = `${noun}s`) => `${n} ${n === 1 ? noun : plural}`;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const worst = (nodes) => ROLES.find((role) => nodes.some((node) => node.role === role));
  const parties = (nodes, role) => nodes.reduce((sum, node) => sum + (!role || node.role === role ? node.count : 0), 0);
  const idOf = (service) => `service:${service}`;

  // -- the parts of the page -----------------------------------------------------------------------------------------

  const bar = make("div", "", { class: "tools" });
  const search = make("input", "", { type: "search", placeholder: "find a service or party", "aria-label": "find a service or party" });
  const status = make("span", "", { class: "quiet", role: "status" });
  const canvas = make("div", "", { class: "canvas", role: "img", "aria-label": "wait-for graph; the list below it has the same content" });
  const panel = make("div", "", { class: "panel", "aria-live": "polite" });
  const slider = make("input", "", { type: "range", min: "0", max: "0", value: "0", "aria-label": "snapshot" });
  const moment = make("span", "", { class: "quiet" });
  const time = make("div", "", { class: "tools" });
  time.append(make("span", "snapshot "), slider, moment);
  time.hidden = true;
  bar.append(
    search,
    button("open all", () => { moved = false; for (const name of services().keys()) opened.add(name); draw(); }),
    button("close all", () => { moved = false; chosen = ""; opened.clear(); draw(); }),
    button("fit", () => { moved = false; if (view) fit(); }),
    button("PNG", savePicture, { title: "save the picture as PNG" }),
    status,
  );

  // -- data ----------------------------------------------------------------------------------------------------------

  async function json(path) {
    const answer = await fetch(`${base}/api/v1/${path}`, { cache: "no-store" });
    if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error || answer.statusText);
    return answer.json();
  }

  function services() {
    const found = new Map();
    for (const node of graph.nodes) {
      if (!found.has(node.service)) found.set(node.service, []);
      found.get(node.service).push(node);
    }
    return found;
  }

  async function load(snapshot) {
    const mine = ++wanted;
    let found = null;
    const asked = performance.now();
    try {
      const about = section.dataset.incident ? `&incident=${encodeURIComponent(section.dataset.incident)}` : "";
      const drawn = graph ? `&shape=${graph.shape}` : "";
      found = await json(`snapshots/${snapshot}/graph?predicate=${encodeURIComponent(section.dataset.predicate || "")}${about}${drawn}`);
      if (mine !== wanted) return;
    } catch (error) {
      status.textContent = `snapshot ${snapshot}: ${error.message}`;
      if (!canvas.isConnected) { section.append(status); drawPicture(section.querySelector(".picture")).catch(() => {}); }
      return;
    }
    rested = performance.now() + 10 * (performance.now() - asked);
    const same = !found.nodes; // as already drawn
    graph = same ? { ...graph, ...found } : found;
    if (!canvas.isConnected) {
      section.querySelector(".picture")?.remove();
      section.append(bar, time, canvas, panel);
    }
    const at = graph.ended ? `, at ${clock(graph.ended)}` : "";
    moment.textContent = ` ${graph.snapshot}${at}`;
    status.textContent = graph.left_out;
    if (!begun && graph.nodes.length <= OPENED_AT_ONCE_MAX / 2 && canvas.clientWidth >= LEGIBLE_WIDTH_MIN) for (const name of services().keys()) opened.add(name);
    begun ||= graph.nodes.length > 0;
    if (!same) draw();
    section.dataset.shown = graph.snapshot;
  }

  async function findSnapshots() {
    if (!section.dataset.incident) return;
    const { snapshots } = await json(`incidents/${encodeURIComponent(section.dataset.incident)}/snapshots`);
    const atEnd = slider.value === slider.max;
    slider.max = String(Math.max(0, snapshots.length - 1));
    slider.kept = snapshots;
    time.hidden = snapshots.length < 2;
    if (atEnd && snapshots.length) {
      slider.value = slider.max;
      const newest = snapshots[snapshots.length - 1];
      if (graph && graph.snapshot === newest) return;
      const left = rested - performance.now();
      clearTimeout(later);
      if (!graph || left <= 0) await load(newest);
      else later = setTimeout(() => { findSnapshots().catch(() => {}); }, left);
    }
  }

  // -- drawing -------------------------------------------------------------------------------------------------------

  function elements() {
    const shown = new Map(); // id of a party's node -> id of the node that represents it
    const nodes = [];
    for (const [name, members] of services()) {
      const role = worst(members);
      const open = opened.has(name);
      const stuck = parties(members, "core");
      const behind = parties(members, "behind");
      const counts = [stuck && `${stuck} deadlocked`, behind && `${behind} behind`, !stuck && !behind && count(parties(members), "party", "parties")];
      const label = open ? name : [name, ...counts.filter(Boolean)].join("\n");
      nodes.push({ data: { id: idOf(name), label, role, service: name }, classes: `service ${open ? "open" : "closed"} ${role}` });
      for (const node of members) {
        shown.set(node.id, open ? node.id : idOf(name));
        if (!open) continue;
        const local = node.id.startsWith(`${node.process}/`) ? node.id.slice(node.process.length + 1) : node.id;
        const text = node.process === name ? local : `${node.process}\n${local}`;
        nodes.push({ data: { id: node.id, parent: idOf(name), label: text + (node.victim ? "\nvictim" : ""), role: node.role },
                     classes: `party ${node.role} ${node.victim ? "victim" : ""}` });
      }
    }
    const edges = new Map();
    for (const edge of graph.edges) {
      const source = shown.get(edge.source);
      const target = shown.get(edge.target);
      if (!source || !target || (source === target && source !== edge.source)) continue;
      const id = JSON.stringify([source, target]);
      const one = edges.get(id) || { core: false, count: 0 };
      edges.set(id, { core: one.core || edge.core, count: one.count + 1 });
    }
    const drawn = [...edges].map(([id, one]) => {
      const [source, target] = JSON.parse(id);
      return { data: { id, source, target, label: one.count > 1 ? String(one.count) : "" }, classes: one.core ? "core" : "" };
    });
    return [...nodes, ...drawn];
  }

  function style() {
    const ink = colour("ink");
    const paper = colour("paper");
    const of = { core: colour("trouble"), behind: colour("doubt"), missing: colour("quiet"), waiting: colour("link"), free: colour("fine") };
    const font = { "font-family": "system-ui, sans-serif", "font-size": 12, color: ink };
    return [
      { selector: "node", style: { ...font, label: "data(label)", shape: "round-rectangle", "text-wrap": "wrap", "text-max-width": 220,
        "text-valign": "center", "text-halign": "center", width: "label", height: "label", padding: 9, "background-color": paper,
        "border-width": 2, "border-color": ink } },
      ...ROLES.map((role) => ({ selector: `node.${role}`, style: { "border-color": of[role] } })),
      { selector: "node.behind, node.missing", style: { "border-style": "dashed" } },
      { selector: "node.core", style: { "border-width": 3 } },
      { selector: "node.victim", style: { "border-style": "double", "border-width": 6 } },
      { selector: "node.open", style: { "text-valign": "top", "background-opacity": 0.35, "background-color": colour("line"), "border-width": 1, "border-style": "solid", padding: 14,
        "text-background-color": paper, "text-background-opacity": 0.85, "text-background-padding": 2 } },
      { selector: "node.closed", style: { "font-weight": "bold" } },
      { selector: "edge", style: { ...font, "curve-style": "bezier", "z-compound-depth": "bottom", "target-arrow-shape": "triangle", width: 1.5, "line-color": colour("quiet"),
        "target-arrow-color": colour("quiet"), label: "data(label)", "text-background-color": paper, "text-background-opacity": 1, "loop-direction": "-45deg" } },
      { selector: "edge.core", style: { width: 3, "line-color": of.core, "target-arrow-color": of.core } },
      { selector: ".chosen", style: { "overlay-color": colour("link"), "overlay-opacity": 0.18, "overlay-padding": 5 } },
      { selector: ".dim", style: { opacity: 0.25 } },
    ];
  }

  /* Deadlocked services are placed on a circle, in the order of their waits; the others in rows beside it, or above it in a narrow window.
     The layout is deterministic, and no service covers another. */
  function placed() {
    const GAP = 28;
    const blocks = new Map(view.nodes(".service").map((service) => [service.data("service"), block(service, GAP)]));
    const ring = ringOf();
    const rows = [...blocks.keys()].filter((name) => !ring.includes(name)).map((name) => blocks.get(name));
    const circle = ring.map((name) => blocks.get(name));
    const radius = radiusOf(circle, GAP);
    const flat = canvas.clientHeight / Math.max(canvas.clientWidth, 1);
    const wide = flat < 0.75;
    const turned = (wide ? 0 : Math.PI / 2) + (circle.length % 2 ? 0 : Math.PI / circle.length); // so that no service hides another
    circle.forEach((one, at) => {
      const angle = (2 * Math.PI * at) / circle.length + turned;
      one.x = radius * Math.cos(angle);
      one.y = 0.8 * radius * Math.sin(angle);
    });
    const box = boxOf(circle);
    const area = rows.reduce((sum, one) => sum + (one.width + GAP) * (one.height + GAP), 0);
    inRows(rows, wide ? Math.sqrt(area) : Math.max(box.right - box.left, 1.2 * Math.sqrt(area / flat)), GAP);
    const others = boxOf(rows);
    const [dx, dy] = wide ? [box.left - 3 * GAP - others.right, (box.top + box.bottom - others.top - others.bottom) / 2]
      : [(box.left + box.right - others.left - others.right) / 2, box.top - 3 * GAP - others.bottom];
    for (const one of rows) {
      one.x += dx;
      one.y += dy;
    }
    const positions = new Map();
    for (const one of blocks.values()) for (const { id, x, y } of one.inside) positions.set(id, { x: one.x + x, y: one.y + y });
    return positions;
  }

  /* A service's size, and its parties' positions relative to its centre. */
  function block(service, gap) {
    const parties = service.children();
    if (!parties.length) return { width: service.outerWidth(), height: service.outerHeight(), inside: [{ id: service.id(), x: 0, y: 0 }] };
    const columns = Math.ceil(Math.sqrt(parties.length));
    const width = Math.max(...parties.map((party) => party.outerWidth())) + gap;
    const height = Math.max(...parties.map((party) => party.outerHeight())) + gap;
    const rows = Math.ceil(parties.length / columns);
    const inside = parties.map((party, at) => ({
      id: party.id(), x: ((at % columns) - (columns - 1) / 2) * width, y: (Math.floor(at / columns) - (rows - 1) / 2) * height,
    }));
    return { width: columns * width + gap, height: rows * height + 2 * gap, inside };
  }

  function ringOf() {
    const services = new Map(graph.nodes.map((node) => [node.id, node.service]));
    const core = [...new Set(graph.nodes.filter((node) => node.role === "core").map((node) => node.service))];
    const next = new Map();
    for (const edge of graph.edges) {
      const [source, target] = [services.get(edge.source), services.get(edge.target)];
      if (edge.core && source !== target) next.set(source, [...(next.get(source) || []), target]);
    }
    const ring = [];
    for (const first of core) {
      for (let name = first; name && !ring.includes(name); name = (next.get(name) || []).find((one) => !ring.includes(one))) ring.push(name);
    }
    return ring;
  }

  function radiusOf(circle, gap) {
    if (circle.length < 2) return 0;
    const widest = Math.max(...circle.map((one) => Math.hypot(one.width, one.height)));
    return (widest + 1.5 * gap) / (2 * Math.sin(Math.PI / circle.length));
  }

  function boxOf(blocks) {
    return {
      left: Math.min(0, ...blocks.map((one) => one.x - one.width / 2)), right: Math.max(0, ...blocks.map((one) => one.x + one.width / 2)),
      top: Math.min(0, ...blocks.map((one) => one.y - one.height / 2)), bottom: Math.max(0, ...blocks.map((one) => one.y + one.height / 2)),
    };
  }

  function inRows(blocks, width, gap) {
    let [x, top, height] = [0, 0, 0];
    for (const one of blocks) {
      if (x > 0 && x + one.width > width) [x, top, height] = [0, top + height + gap, 0];
      one.x = x + one.width / 2;
      one.y = top + one.height / 2;
      x += one.width + gap;
      height = Math.max(height, one.height);
    }
  }

  /* A straight arrow that crosses the box of another party is bent around it: it would seem to begin or to end there. */
  function bend() {
    const boxes = view.nodes().filter((node) => !node.isParent()).map((node) => [node.id(), node.boundingBox({ includeLabels: false, includeOverlays: false })]);
    if (boxes.length > OPENED_AT_ONCE_MAX) return;
    view.edges().forEach((edge) => {
      const [a, b] = [edge.source().position(), edge.target().position()];
      const met = boxes.filter(([id, box]) => id !== edge.source().id() && id !== edge.target().id() && crosses(a, b, box));
      if (edge.isLoop() || !met.length) return;
      const height = Math.max(...met.map(([, box]) => (Math.abs(b.x - a.x) > Math.abs(b.y - a.y) ? box.h : box.w)));
      edge.style({ "curve-style": "unbundled-bezier", "control-point-weights": 0.5, "control-point-distances": 1.5 * height });
    });
  }

  /* Whether the line from a to b meets a box. */
  function crosses(a, b, box) {
    let [from, to] = [0, 1];
    for (const [start, way, low, high] of [[a.x, b.x - a.x, box.x1, box.x2], [a.y, b.y - a.y, box.y1, box.y2]]) {
      if (Math.abs(way) < 1e-9) { if (start < low || start > high) return false; continue; }
      const [enter, leave] = [(low - start) / way, (high - start) / way].sort((one, other) => one - other);
      [from, to] = [Math.max(from, enter), Math.min(to, leave)];
    }
    return from <= to;
  }

  /* Cytoscape would add a style element, which the page's policy forbids; its rules are in style.css. */
  function ownStyleSheet() {
    const id = "__________cytoscape_stylesheet";
    if (document.getElementById(id)) return;
    const there = document.createElement("template");
    there.id = id;
    document.head.append(there);
  }

  function draw() {
    const all = elements();
    const kept = moved && view ? { zoom: view.zoom(), pan: { ...view.pan() } } : null;
    if (view) view.destroy();
    ownStyleSheet();
    view = window.cytoscape({ container: canvas, elements: all, style: style(), wheelSensitivity: 0.3, minZoom: 0.05, maxZoom: 4,
      layout: { name: "circle" } }); // nodes in one place would get no edges
    const positions = placed();
    view.layout({ name: "preset", positions: (node) => positions.get(node.id()), fit: false }).run();
    bend();
    fit();
    if (kept) view.viewport(kept);
    view.on("scrollzoom dragpan pinchzoom", () => { moved = true; });
    view.on("tap", "node.service", (event) => toggle(event.target.data("service")));
    view.on("tap", "node.party", (event) => choose(event.target.id()));
    if (chosen && graph.nodes.some((node) => node.id === chosen)) choose(chosen);
    else summary();
    window.stilltrueGraph = view; // for tests and for the browser's console
  }

  /* All of it, but two parties not so large that their names are headlines. */
  function fit() {
    view.fit(undefined, 20);
    if (view.zoom() > FITTED_ZOOM_MAX) { view.zoom(FITTED_ZOOM_MAX); view.center(); }
  }

  function toggle(name) {
    chosen = "";
    moved = false;
    if (!opened.delete(name)) opened.add(name);
    draw();
  }

  function mark(ids) {
    view.elements().removeClass("chosen");
    for (const id of ids) view.getElementById(id).addClass("chosen");
  }

  // -- the panel below it --------------------------------------------------------------------------------------------

  function summary() {
    chosen = "";
    panel.replaceChildren(make("p", graph.subtitle));
    const list = make("ul", "", { class: "waits" });
    const ordered = [...services()].sort(([, a], [, b]) => ROLES.indexOf(worst(a)) - ROLES.indexOf(worst(b)));
    for (const [name, members] of ordered) {
      const row = make("li", "");
      row.append(button(name, () => toggle(name), { "aria-expanded": String(opened.has(name)) }));
      const counts = ROLES.filter((role) => parties(members, role)).map((role) => `${parties(members, role)} ${COUNT_LABEL[role]}`);
      row.append(` ${counts.join(", ")}`);
      list.append(row);
    }
    panel.append(list);
  }

  function choose(id) {
    const node = graph.nodes.find((one) => one.id === id);
    if (!node) return;
    chosen = id;
    if (!opened.has(node.service)) { opened.add(node.service); draw(); return; }
    mark([id]);
    panel.replaceChildren(make("h3", node.id), make("p", `${DESCRIPTION[node.role]}${node.victim ? "; aborting it would free the others" : ""}`));
    if (node.since) {
      const since = make("p", "has waited for ");
      since.append(make("span", "", { "data-since": String(Date.parse(node.since) / 1000) }), ` (since ${clock(node.since)})`);
      panel.append(since);
    }
    lines("waits", node.waits);
    if (node.stack.length) { panel.append(make("h4", "is at")); for (const line of node.stack) panel.append(make("code", line), make("br", "")); }
    if (node.trace) {
      const row = make("p", "trace ");
      row.append(trace ? make("a", node.trace, { href: trace.replace("{trace}", encodeURIComponent(node.trace)), rel: "noreferrer", target: "_blank" }) : node.trace);
      panel.append(row);
    }
    if (node.count > 1) lines(`${node.count} parties with equal waits`, [...node.parties, ...(node.count > node.parties.length ? [`and ${node.count - node.parties.length} more`] : [])]);
    neighbours("waits for", graph.edges.filter((edge) => edge.source === id).map((edge) => edge.target));
    neighbours("waited for by", graph.edges.filter((edge) => edge.target === id).map((edge) => edge.source));
    panel.append(button("back to the list", () => { mark([]); summary(); }));
    document.dispatchEvent(new Event("stilltrue:tick"));
  }

  function lines(title, texts) {
    if (!texts.length) return;
    const list = make("ul", "", { class: "waits" });
    for (const text of texts) list.append(make("li", text));
    panel.append(make("h4", title), list);
  }

  function neighbours(title, ids) {
    if (!ids.length) return;
    const row = make("p", "", { class: "neighbours" });
    for (const id of [...new Set(ids)].slice(0, 30)) row.append(button(id, () => choose(id)));
    panel.append(make("h4", title), row);
  }

  function find() {
    const text = search.value.trim().toLowerCase();
    view.elements().removeClass("dim");
    if (!text) { mark([]); status.textContent = graph.left_out; return; }
    const found = graph.nodes.filter((node) => [node.id, node.service, ...node.parties].some((name) => name.toLowerCase().includes(text)));
    const closed = new Set(found.slice(0, OPENED_AT_ONCE_MAX).map((node) => node.service).filter((name) => !opened.has(name)));
    if (closed.size) { for (const name of closed) opened.add(name); draw(); }
    const ids = new Set(found.map((node) => node.id));
    view.nodes(".party").forEach((node) => { if (!ids.has(node.id())) node.addClass("dim"); });
    mark(ids);
    status.textContent = `${count(found.length, "match", "matches")}`;
  }

  function savePicture() {
    if (!view) return;
    const link = make("a", "", { href: view.png({ full: true, scale: 2, bg: colour("paper") }), download: `stilltrue-${graph.snapshot}.png` });
    link.click();
  }

  search.addEventListener("input", find);
  search.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !search.value.trim()) return;
    const first = graph.nodes.find((node) => node.id.toLowerCase().includes(search.value.trim().toLowerCase()));
    if (first) choose(first.id);
  });
  slider.addEventListener("input", () => { if (slider.kept) load(slider.kept[Number(slider.value)]); });
  document.addEventListener("stilltrue:fresh", () => { findSnapshots().catch(() => {}); });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (view) view.style(style()); });

  // Loading the library takes the browser longest, so the page is painted first. A background tab is never painted, hence the timeout.
  const painted = () => new Promise((done) => { requestAnimationFrame(() => setTimeout(done)); setTimeout(done, 300); });
  const loaded = (source) => new Promise((done) => {
    const script = make("script", "", { src: source });
    script.onload = script.onerror = done;
    document.head.append(script);
  });

  (async () => {
    await painted();
    await loaded(library);
    if (!window.cytoscape) { await drawPicture(section.querySelector(".picture")).catch(() => {}); return; }
    await findSnapshots().catch(() => {});
    if (!graph) await load(section.dataset.snapshot);
  })();
})();
