// The network as a drawing, painted by the chosen lens.

const RADIUS = 17;

class Stage {
  constructor(host, plan, actions) {
    this.plan = plan;
    this.actions = actions;
    this.view = 0;
    this.title = el("span");
    this.out = el("button", { type: "button", onclick: () => this.open(0) }, "All groups");
    this.drawing = svg("svg", { role: "group", "aria-label": `Network of ${plan.label}` });
    host.append(el("figure", { class: "stage" },
      el("figcaption", {}, this.title, this.out), this.drawing));
    this.open(0);
  }

  /** Draw another view: the whole, or the inside of a group. */
  open(view) {
    this.view = view;
    const network = this.plan.network;
    const { title, box, frames, spots, wires } = network.views[view];
    const hint = network.views.length > 1 && view === 0 ? `, ${spots.length} groups: choose one to look inside` : "";
    this.title.textContent = this.actions.isComparison ? `${this.plan.label}${view ? `, ${title}` : ""}${hint}` : `${title}${hint}`;
    this.out.hidden = view === 0;
    this.drawing.setAttribute("viewBox", box.join(" "));
    this.drawing.style.maxWidth = `${Math.max(420, 1.6 * box[2])}px`;
    this.wires = wires.map((wire) => this.wire(wire));
    this.spots = spots.map((spot) => this.spot(spot));
    this.labels = svg("g");
    this.drawing.replaceChildren(
      ...frames.map(({ at: [x, y, width, height] }) =>
        svg("rect", { class: "frame", x, y, width, height, rx: 8 })),
      svg("g", {}, ...this.wires.map(({ line }) => line)),
      svg("g", {}, ...this.wires.map(({ hit }) => hit)),
      ...frames.map(({ label, at: [x, y] }) =>
        svg("text", { class: "frame-label", x: x + 8, y: y + 15 }, short(label, 24))),
      svg("g", {}, ...this.spots.map(({ shape }) => shape)),
      this.labels,
    );
    this.actions.repaint(this);
  }

  wire({ src, dst, links, path: [x0, y0, cx, cy, x1, y1] }) {
    const d = `M${x0} ${y0}Q${cx} ${cy} ${x1} ${y1}`;
    const title = svg("title");
    const wire = {
      src, dst, links, title,
      line: svg("path", { class: "wire", d }),
      hit: svg("path", { class: "wire-hit", d }, title),
      // A third along, so that the labels of the two directions do not meet.
      at: [0.36 * x0 + 0.48 * cx + 0.16 * x1, 0.36 * y0 + 0.48 * cy + 0.16 * y1],
    };
    const busiest = links.reduce((a, b) => (this.plan.load[b] > this.plan.load[a] ? b : a));
    wire.busiest = busiest;
    const several = links.length > 1 ? `${links.length} links, the busiest ` : "";
    title.textContent = `${several}${this.plan.network.linkName(busiest)}: `
      + `${this.plan.network.linkKinds[this.plan.network.kind[busiest]]}, `
      + `busy ${percent(this.plan.load[busiest])} of the time`;
    return wire;
  }

  spot({ label, kind, members, opens, at: [x, y] }) {
    const { nodes } = this.plan.network;
    const isGroup = opens !== null && opens !== undefined;
    const name = isGroup ? `${label}, ${members.length} nodes` : nodes[members[0]].name;
    const isWide = kind === "switch" || isGroup;
    const text = short(label, isWide ? 16 : 6);
    const width = Math.max(38, 5.6 * text.length + 12);
    const body = isWide
      ? svg("rect", { class: "body", x: x - width / 2, y: y - 13, width, height: 26, rx: 5 })
      : svg("circle", { class: "body", cx: x, cy: y, r: RADIUS });
    const round = 2 * Math.PI * (RADIUS + 2.5);
    const done = kind === "gpu" && !isGroup
      ? svg("circle", { class: "done", cx: x, cy: y, r: RADIUS + 2.5, transform: `rotate(-90 ${x} ${y})`, "stroke-dasharray": `0 ${round}` })
      : null;
    const when = svg("text", { class: "when", x, y: y + RADIUS + 12 });
    const title = svg("title", {}, name);
    const choose = () => (isGroup ? this.open(opens) : this.actions.pickNode(members[0]));
    const shape = svg("g", {
      class: `spot ${kind}`, tabindex: 0, role: "button", "aria-label": name, "data-name": name,
      onclick: choose,
      onkeydown: (event) => { if (event.key === "Enter") { event.stopPropagation(); choose(); } },
    }, title, body, done, svg("text", { class: "name", x, y: y + 3.5 }, text), when);
    return { shape, body, done, round, when, title, name, members, kind };
  }

  /** Paint the drawing as the lens says. */
  paint(state) {
    for (const { line } of this.wires) {
      line.setAttribute("class", "wire");
      line.style.stroke = "";
      line.style.strokeWidth = "";
    }
    for (const { shape, when, done } of this.spots) {
      shape.classList.remove("has", "end");
      when.textContent = "";
      if (done) done.style.display = "none";
    }
    for (const { shape, members } of this.spots) {
      shape.classList.toggle("picked", members.length === 1 && members[0] === state.node);
    }
    this.labels.replaceChildren();
    const painters = { play: "paintPlay", load: "paintLoad", path: "paintPath", chunk: "paintChunk" };
    this[painters[state.lens]](state);
  }

  paintPlay(state) {
    const { busy, flying, done } = state.moment(this.plan);
    const onLink = new Map(flying.map((row) => [this.plan.link[row], { row, isBusy: false }]));
    for (const row of busy) onLink.set(this.plan.link[row], { row, isBusy: true });
    for (const { line, links } of this.wires) {
      const used = links.map((link) => onLink.get(link)).filter(Boolean);
      if (!used.length) continue;
      const shown = used.find(({ isBusy }) => isBusy) ?? used[0];
      line.classList.add(shown.isBusy ? "lit" : "flying");
      line.style.stroke = this.plan.colour(shown.row);
    }
    for (const spot of this.spots) {
      const wanted = spot.members.reduce((sum, node) => sum + this.plan.wanted[node], 0);
      const got = spot.members.reduce((sum, node) => sum + done[node], 0);
      const part = wanted ? got / wanted : 0;
      spot.title.textContent = wanted ? `${spot.name}: ${got} of ${wanted} chunks received` : spot.name;
      if (spot.done && wanted) {
        spot.done.style.display = "";
        spot.done.setAttribute("stroke-dasharray", `${part * spot.round} ${spot.round}`);
      }
      if (!spot.done && wanted) spot.when.textContent = percent(part);
    }
  }

  paintLoad() {
    const { load, bottleneck } = this.plan;
    for (const { line, links, busiest, at: [x, y] } of this.wires) {
      line.style.stroke = load[busiest] ? heatColour(load[busiest]) : css("faint");
      line.style.strokeWidth = 1 + 3 * load[busiest];
      if (links.includes(bottleneck)) {
        line.classList.add("marked");
        line.style.stroke = "";
        line.style.strokeWidth = "";
        this.label(x, y, percent(load[bottleneck]));
      }
    }
  }

  paintPath() {
    const { critical, link, network } = this.plan;
    const steps = new Map();
    critical.forEach((row, i) => steps.set(link[row], [...(steps.get(link[row]) ?? []), i + 1]));
    for (const { line, links, at: [x, y] } of this.wires) {
      const found = links.flatMap((each) => steps.get(each) ?? []);
      line.classList.add(found.length ? "marked" : "faint");
      if (found.length) this.label(x, y, ranges(found));
    }
    if (!critical.length) return;
    const end = network.dst[link[critical[critical.length - 1]]];
    this.spots.find(({ members }) => members.includes(end))?.shape.classList.add("end");
  }

  paintChunk(state) {
    const chunk = state.chunkOf(this.plan);
    if (chunk === null) return;
    const used = new Map();
    for (const row of this.plan.byChunk.of(chunk)) used.set(this.plan.link[row], row);
    for (const { line, links } of this.wires) {
      const link = links.find((each) => used.has(each));
      line.classList.add(link === undefined ? "faint" : "lit");
      if (link !== undefined) line.style.stroke = this.plan.colour(used.get(link));
    }
    const holders = this.plan.holders(chunk);
    for (const { shape, members, when } of this.spots) {
      const times = members.filter((node) => holders.has(node)).map((node) => holders.get(node));
      if (!times.length) continue;
      const first = Math.min(...times);
      when.textContent = first ? showTime(first) : "from start";
      shape.classList.toggle("has", first <= state.time);
    }
  }

  label(x, y, text) {
    this.labels.append(svg("text", { class: "wire-label", x, y: y - 7 }, text));
  }
}

/** Whole numbers in order as text, runs drawn together: 1, 4–6. */
function ranges(numbers) {
  const runs = [];
  for (const number of numbers) {
    const last = runs[runs.length - 1];
    if (last && number === last[1] + 1) last[1] = number;
    else runs.push([number, number]);
  }
  const text = runs.slice(0, 3).map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`));
  return text.join(", ") + (runs.length > 3 ? ` … (${numbers.length})` : "");
}
