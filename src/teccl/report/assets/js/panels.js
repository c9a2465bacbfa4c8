// The panel beside the network: what the lens says in words and tables.

const MAX_LISTED = 60;
const MAX_MATRIX = 72;

const PANELS = {
  play(host, plan, state) {
    const { busy, flying, done } = state.moment(plan);
    const delivered = done.reduce((sum, got) => sum + got, 0);
    const links = new Set(busy.map((row) => plan.link[row])).size;
    put(host,
      facts([
        [showTime(state.time), "now"],
        [links.toLocaleString("en"), `of ${count(usedLinks(plan), "link")} busy`],
        [`${delivered.toLocaleString("en")} of ${plan.numDeliveries.toLocaleString("en")}`, "deliveries done"],
        [flying.length.toLocaleString("en"), "in flight"],
      ]),
      state.node === null ? holdings(plan, state) : nodeDetails(plan, state),
      el("h3", {}, "On the wires"),
      scrolled(table(["Link", "Chunk", ">Ends"], busy.slice(0, MAX_LISTED).map((row) => [
        plan.network.linkName(plan.link[row]), swatched(plan, plan.chunk[row]), showTime(plan.end(row)),
      ]), { caption: "Links that are busy" }), "Links that are busy"),
      more(busy.length),
    );
  },

  load(host, plan) {
    const { network } = plan;
    const links = Array.from({ length: network.size }, (_, link) => link)
      .sort((a, b) => plan.load[b] - plan.load[a] || a - b);
    const used = usedLinks(plan);
    put(host,
      facts([
        [plan.bottleneck === null ? "none" : percent(plan.load[plan.bottleneck]), "of the busiest link"],
        [percent(plan.load.reduce((sum, part) => sum + part, 0) / Math.max(1, network.size)), "on average"],
        [`${used} of ${network.size}`, "links used"],
      ]),
      scrolled(table(["Link", ">Busy", ">Sends"], links.slice(0, MAX_LISTED).map((link) => [
        link === plan.bottleneck ? strong(`${network.linkName(link)} (bottleneck)`) : network.linkName(link),
        percent(plan.load[link]), plan.byLink.of(link).length.toLocaleString("en"),
      ]), { caption: "Links by load" }), "Links by load"),
      more(links.length),
    );
  },

  path(host, plan, state) {
    const rows = plan.critical;
    const wire = rows.reduce((sum, row) => sum + plan.busy[row], 0);
    const listed = rows.slice(0, 400);
    put(host,
      facts([
        [rows.length.toLocaleString("en"), "sends without slack"],
        [showTime(wire), "on the wire"],
        [showTime(Math.max(0, plan.finish - wire)), "latency and start"],
      ]),
      el("p", { class: "hint" }, "Each send could start no earlier: it waited for its chunk to arrive or for its link to be free. Making any of them shorter is the only way to finish sooner."),
      scrolled(table([">", "Link", "Chunk", ">Start", ">Arrival"], listed.map((row, i) => [
        `${i + 1}`, linkButton(plan, row, state), swatched(plan, plan.chunk[row]), showTime(plan.start[row]), showTime(plan.arrival[row]),
      ]), { caption: "Critical path" }), "Critical path"),
      more(rows.length, listed.length),
    );
  },

  chunk(host, plan, state) {
    const chunk = state.chunkOf(plan);
    if (chunk === null) return;
    const wants = plan.sets[plan.chunkWants[chunk]];
    const sources = plan.sets[plan.chunkSources[chunk]];
    const way = el("div", { class: "chart" });
    put(host,
      chunkPicker(plan, chunk, state),
      facts([
        [plan.bytes(chunk), "each"],
        [names(plan, sources), sources.length > 1 ? "contribute" : "has it"],
        [names(plan, wants), wants.length > 1 ? "want it" : "wants it"],
      ]),
      el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Way of the chunk over time" }, way),
    );
    // A chart measures its host, so that must stand in the page first.
    const { order } = drawWay(way, plan, chunk, (row) => state.actions.pickSend(plan, row));
    const details = el("details", {}, el("summary", {}, `${count(order.length, "send")} as a table`),
      scrolled(table(["Link", ">Start", ">End", ">Arrival"], order.slice(0, 400).map(({ row }) => [
        plan.network.linkName(plan.link[row]), showTime(plan.start[row]), showTime(plan.end(row)), showTime(plan.arrival[row]),
      ]), { caption: "Sends of the chunk" }), "Sends of the chunk"));
    host.append(details);
  },
};

/** Append what there is to append. */
function put(host, ...children) {
  host.append(...children.filter((child) => child !== null));
}

function facts(entries) {
  return el("div", { class: "facts" }, ...entries.map(([value, name]) =>
    el("div", {}, el("b", {}, value), " ", el("span", {}, name))));
}

function strong(text) {
  return el("b", {}, text);
}

function scrolled(content, label) {
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, content);
}

function more(total, listed = MAX_LISTED) {
  return total > listed ? el("p", { class: "hint" }, `and ${(total - listed).toLocaleString("en")} more`) : null;
}

function names(plan, nodes) {
  if (nodes.length > 3) return `${nodes.length} GPUs`;
  return nodes.map((node) => plan.network.nodes[node].name).join(", ");
}

function usedLinks(plan) {
  return plan.load.reduce((sum, part) => sum + (part > 0), 0);
}

function swatch(colour) {
  const box = el("i", { class: "swatch", "aria-hidden": "true" });
  box.style.background = colour;
  return box;
}

function swatched(plan, chunk) {
  return el("span", {}, swatch(hueColour(plan.chunkHue[chunk], plan.hues.length)), plan.chunkName(chunk));
}

function linkButton(plan, row, state) {
  return el("button", { type: "button", class: "plain", onclick: () => state.actions.pickSend(plan, row) },
    plan.network.linkName(plan.link[row]));
}

function chunkPicker(plan, chunk, state) {
  const hue = plan.chunkHue[chunk];
  const choose = (next) => state.actions.pickChunk(plan, Number(next), true);
  const chunks = [...plan.byHue.of(hue)];
  const from = Math.max(0, Math.min(chunks.indexOf(chunk) - 100, chunks.length - 300));
  const what = plan.huesBy[0].toUpperCase() + plan.huesBy.slice(1);
  return el("div", { class: "row" },
    el("label", {}, what, el("select", { "data-pick": "hue", onchange: (event) => choose(plan.byHue.of(Number(event.target.value))[0]) },
      ...plan.hues.map((name, i) => option(i, short(name, 32), i === hue)))),
    el("label", {}, "Chunk", el("select", { "data-pick": "chunk", onchange: (event) => choose(event.target.value) },
      ...chunks.slice(from, from + 300).map((each) => option(each, plan.chunkName(each), each === chunk)))),
    el("button", { type: "button", "aria-label": "Previous chunk", disabled: chunk > 0 ? null : "", onclick: () => choose(chunk - 1) }, "◂"),
    el("button", { type: "button", "aria-label": "Next chunk", disabled: chunk + 1 < plan.numChunks ? null : "", onclick: () => choose(chunk + 1) }, "▸"),
  );
}

function option(value, text, isSelected) {
  return el("option", { value, selected: isSelected ? "" : null }, text);
}

/** What a chosen GPU holds and does at the moment. */
function nodeDetails(plan, state) {
  const { network } = plan;
  const { node, time } = state;
  const { busy } = state.moment(plan);
  const own = [];
  const held = [];
  for (let chunk = 0; chunk < plan.numChunks && own.length < 2000; chunk++) {
    if (plan.sets[plan.chunkSources[chunk]].includes(node)) own.push(chunk);
  }
  const seen = new Set();
  for (let row = 0, begun = plan.begun(time); row < begun; row++) {
    if (network.dst[plan.link[row]] !== node || plan.arrival[row] > time || seen.has(plan.chunk[row])) continue;
    seen.add(plan.chunk[row]);
    held.push([plan.chunk[row], plan.arrival[row]]);
  }
  held.sort((a, b) => b[1] - a[1]);
  const sends = busy.filter((row) => network.src[plan.link[row]] === node);
  const gets = busy.filter((row) => network.dst[plan.link[row]] === node);
  return el("div", {},
    el("div", { class: "row spread" }, el("h3", {}, network.nodes[node].name),
      el("button", { type: "button", onclick: () => state.actions.pickNode(null) }, "All GPUs")),
    el("p", {}, `Has ${count(own.length, "chunk")} of its own and ${held.length.toLocaleString("en")} received; sends ${sends.length}, receives ${gets.length} now.`),
    scrolled(table(["Received", ">At"], held.slice(0, MAX_LISTED).map(([chunk, at]) => [swatched(plan, chunk), showTime(at)]), { caption: "Chunks received" }), "Chunks received"),
    more(held.length));
}

/** A grid of GPUs and sources: how much of each source's data is where. */
function holdings(plan, state) {
  const host = el("div", { class: "chart", role: "img", "aria-label": `How much of each ${plan.huesBy} is at each GPU` });
  const rows = matrixRows(plan);
  const columns = Math.min(MAX_MATRIX, plan.hues.length);
  const column = (hue) => Math.floor((hue * columns) / plan.hues.length);
  host.style.height = `${Math.min(300, 46 + 13 * rows.length)}px`;
  requestAnimationFrame(() => {
    if (!host.isConnected) return;
    const cells = heldCells(plan, state.time, rows, columns, column);
    const name = (i) => plan.hues.findIndex((_, hue) => column(hue) === i);
    const chart = newChart(host, "holdings");
    chart.setOption({
      animation: false,
      grid: { left: 76, right: 8, top: 4, bottom: 24 },
      tooltip: tooltipStyle(({ value: [x, y, part] }) => tip(rows[y].name, [`${percent(part)} of what comes from ${plan.huesBy} ${plan.hues[name(x)]}`])),
      xAxis: { type: "category", data: Array.from({ length: columns }, (_, i) => plan.hues[name(i)]), ...axisStyle(), axisLabel: { ...axisStyle().axisLabel, width: 60, overflow: "truncate", hideOverlap: true }, splitLine: { show: false } },
      yAxis: { type: "category", inverse: true, data: rows.map((row) => row.name), ...axisStyle(), axisLabel: { ...axisStyle().axisLabel, width: 66, overflow: "truncate" }, splitLine: { show: false } },
      visualMap: { show: false, min: 0, max: 1, dimension: 2, inRange: { color: [css("sunken"), css("accent")] } },
      series: [{ type: "heatmap", data: cells, itemStyle: { borderWidth: 0.5, borderColor: css("surface") } }],
    });
  });
  return el("div", {}, el("h3", {}, `What is where: GPUs by ${plan.huesBy}`), host);
}

function matrixRows(plan) {
  const { gpus, nodes, views } = plan.network;
  if (gpus.length <= MAX_MATRIX) return gpus.map((gpu) => ({ name: nodes[gpu].name, members: [gpu] }));
  return views[0].spots
    .map(({ label, members }) => ({ name: label, members: members.filter((node) => nodes[node].kind === "gpu") }))
    .filter(({ members }) => members.length);
}

/** Part of the chunks of each source that each row holds, of those it ever holds. */
function heldCells(plan, time, rows, columns, column) {
  const rowOf = new Map(rows.flatMap(({ members }, i) => members.map((node) => [node, i])));
  const now = new Float64Array(rows.length * columns);
  const ever = new Float64Array(rows.length * columns);
  const add = (node, chunk, isThere) => {
    const row = rowOf.get(node);
    if (row === undefined) return;
    const cell = row * columns + column(plan.chunkHue[chunk]);
    ever[cell]++;
    if (isThere) now[cell]++;
  };
  for (let chunk = 0; chunk < plan.numChunks; chunk++) {
    const sources = plan.sets[plan.chunkSources[chunk]];
    if (sources.length <= 8) for (const node of sources) add(node, chunk, true);
  }
  for (let row = 0; row < plan.numSends; row++) {
    const node = plan.network.dst[plan.link[row]];
    if (rowOf.has(node)) add(node, plan.chunk[row], plan.arrival[row] <= time);
  }
  return Array.from(now, (held, cell) => [cell % columns, Math.floor(cell / columns), ever[cell] ? held / ever[cell] : 0]);
}
