// Start: read the data, build the parts, and tie them to the controls.

const LENSES = ["play", "load", "path", "chunk"];

class State {
  constructor() {
    Object.assign(this, { time: 0, lens: "play", node: null, hue: null, chunks: new Map(), moments: new Map() });
  }

  chunkOf(plan) {
    return this.chunks.get(plan) ?? (plan.numSends ? plan.chunk[plan.critical[plan.critical.length - 1] ?? 0] : null);
  }

  /** What happens now, worked out once for all that show it. */
  moment(plan) {
    const known = this.moments.get(plan);
    if (known && known.time === this.time) return known;
    const moment = { time: this.time, ...plan.at(this.time) };
    this.moments.set(plan, moment);
    return moment;
  }
}

async function start() {
  setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const { document: packed, columns } = await unpack(byId("data").textContent);
  const network = new Network(packed.topology, columns);
  const plans = packed.plans.map((plan, i) => new Plan(plan, columns, `${i}.`, network));
  const state = new State();
  const app = new App(plans, state);
  document.documentElement.dataset.ready = "";
  return app;
}

class App {
  constructor(plans, state) {
    Object.assign(this, { plans, state });
    this.finish = Math.max(1, ...plans.map((plan) => plan.finish));
    state.actions = {
      isComparison: plans.length > 1,
      pickChunk: (plan, chunk, follow) => this.pickChunk(plan, chunk, follow),
      pickNode: (node) => { state.node = node === state.node ? null : node; this.refresh(); },
      pickSend: (plan, row) => this.timeline.pick(plan, row),
      repaint: (stage) => { if (this.stages) stage.paint(state); },
    };
    document.querySelector(".explore").classList.toggle("two", plans.length > 1);
    const stages = byId("stages");
    const drawn = plans.map((plan) => new Stage(stages, plan, state.actions));
    this.stages = drawn;
    this.timeline = new Timeline(byId("gantt"), plans, state, state.actions);
    this.bindControls();
    this.bindKeys();
    this.drawLegend();
    this.setLens("play");
    // The rest stands below the fold: let the first picture appear.
    requestAnimationFrame(() => setTimeout(() => { this.drawGrids(); document.documentElement.dataset.complete = ""; }));
  }

  bindControls() {
    byId("theme").addEventListener("click", () => this.toggleTheme());
    byId("time").addEventListener("input", (event) => this.setTime((this.finish * event.target.value) / 1000));
    byId("play").addEventListener("click", () => this.toggle());
    byId("back").addEventListener("click", () => this.stepEvent(-1));
    byId("forth").addEventListener("click", () => this.stepEvent(1));
    byId("zoom-in").addEventListener("click", () => this.timeline.zoom(0.5));
    byId("zoom-out").addEventListener("click", () => this.timeline.zoom(2));
    byId("zoom-all").addEventListener("click", () => this.timeline.whole());
    byId("order").addEventListener("change", (event) => { this.timeline.order = event.target.value; this.timeline.setRows(); });
    byId("filter").addEventListener("input", (event) => { this.timeline.filter = event.target.value; this.timeline.setRows(); });
    byId("heat-rows").addEventListener("change", () => this.drawGrids());
    LENSES.forEach((lens) => byId(`lens-${lens}`).addEventListener("click", () => this.setLens(lens)));
    document.querySelector('[role="tablist"]').addEventListener("keydown", (event) => this.turnTabs(event));
    addEventListener("beforeprint", () => this.setTheme("light"));
    const total = this.plans.reduce((sum, plan) => sum + plan.numSends, 0);
    byId("gantt-hint").textContent =
      `${count(total, "send")} on ${count(this.timeline.rows.length, "link")}. Drag to pan, hold Ctrl and turn the wheel to zoom, `
      + "point at a send to read it, click to choose it. Red outlines mark the critical path.";
  }

  bindKeys() {
    addEventListener("keydown", (event) => {
      if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.target.closest("#gantt") && this.timelineKey(event)) { event.preventDefault(); return; }
      const isButton = event.target.closest("button, a, summary, [role=button]");
      if (event.key === " " && isButton) return;
      const acts = {
        " ": () => this.toggle(), d: () => this.toggleTheme(),
        "[": () => this.stepEvent(-1), "]": () => this.stepEvent(1),
      };
      LENSES.forEach((lens, i) => { acts[String(i + 1)] = () => this.setLens(lens); });
      if (acts[event.key]) { event.preventDefault(); acts[event.key](); }
    });
  }

  timelineKey(event) {
    const { timeline } = this;
    const acts = {
      ArrowLeft: () => (event.shiftKey ? timeline.pan(-0.25) : timeline.step(-1, 0)),
      ArrowRight: () => (event.shiftKey ? timeline.pan(0.25) : timeline.step(1, 0)),
      ArrowUp: () => timeline.step(0, -1),
      ArrowDown: () => timeline.step(0, 1),
      "+": () => timeline.zoom(0.5), "=": () => timeline.zoom(0.5), "-": () => timeline.zoom(2),
      0: () => timeline.whole(),
      Enter: () => { if (timeline.picked) timeline.pick(timeline.picked.plan, timeline.picked.row, { follow: true }); },
    };
    if (!acts[event.key]) return false;
    acts[event.key]();
    return true;
  }

  turnTabs(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = LENSES[(LENSES.indexOf(this.state.lens) + step + LENSES.length) % LENSES.length];
    this.setLens(next);
    byId(`lens-${next}`).focus();
    event.preventDefault();
  }

  setLens(lens) {
    this.state.lens = lens;
    for (const each of LENSES) {
      const tab = byId(`lens-${each}`);
      tab.setAttribute("aria-selected", String(each === lens));
      tab.tabIndex = each === lens ? 0 : -1;
    }
    byId("panel").setAttribute("aria-labelledby", `lens-${lens}`);
    this.refresh();
    this.timeline.draw();
  }

  pickChunk(plan, chunk, follow) {
    this.state.chunks.set(plan, chunk);
    if (follow && this.state.lens !== "chunk") this.setLens("chunk");
    else if (this.state.lens === "chunk") { this.refresh(); this.timeline.draw(); }
  }

  setTime(time) {
    this.state.time = Math.min(this.finish, Math.max(0, time));
    const slider = byId("time");
    slider.value = Math.round((1000 * this.state.time) / this.finish);
    slider.setAttribute("aria-valuetext", showTime(this.state.time));
    byId("now").textContent = showTime(this.state.time);
    this.timeline.moveCursor();
    if (this.state.lens === "play" || this.state.lens === "chunk") this.paintSoon();
  }

  /** The network follows the slider at once, the panel when there is time. */
  paintSoon() {
    this.stages.forEach((stage) => stage.paint(this.state));
    if (this.state.lens !== "play" || this.panelTimer) return;
    this.panelTimer = setTimeout(() => { this.panelTimer = null; this.drawPanel(); }, this.playing ? 250 : 40);
  }

  refresh() {
    this.stages.forEach((stage) => stage.paint(this.state));
    this.drawPanel();
  }

  drawPanel() {
    const panel = byId("panel");
    disposeIn(panel);
    panel.replaceChildren();
    for (const plan of this.plans) {
      const host = el("div", { "data-plan": plan.label });
      panel.append(host);
      if (this.plans.length > 1) host.append(el("h3", {}, plan.label));
      PANELS[this.state.lens](host, plan, this.state);
    }
  }

  toggle() {
    this.playing = !this.playing;
    const button = byId("play");
    button.textContent = this.playing ? "Pause" : "Play";
    button.setAttribute("aria-pressed", String(this.playing));
    if (!this.playing) return;
    if (this.state.time >= this.finish) this.setTime(0);
    let before = performance.now();
    const tick = (now) => {
      if (!this.playing) return;
      const seconds = Number(byId("speed").value);
      this.setTime(this.state.time + ((now - before) / 1000 / seconds) * this.finish);
      before = now;
      if (this.state.time >= this.finish) this.toggle();
      else requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  stepEvent(direction) {
    const times = this.plans.flatMap((plan) => {
      plan.eventTimes ??= plan.events();
      const found = direction > 0
        ? plan.eventTimes.find((time) => time > this.state.time)
        : plan.eventTimes.findLast((time) => time < this.state.time);
      return found === undefined ? [] : [found];
    });
    if (times.length) this.setTime(direction > 0 ? Math.min(...times) : Math.max(...times));
  }

  drawLegend() {
    const legend = byId("legend");
    const [plan] = this.plans;
    const shown = plan.hues.slice(0, 144);
    legend.replaceChildren(el("span", { class: "hint" }, `Colour by ${plan.huesBy}:`), ...shown.map((name, hue) =>
      el("button", {
        type: "button", "aria-pressed": String(this.state.hue === hue),
        onclick: () => { this.state.hue = this.state.hue === hue ? null : hue; this.drawLegend(); this.timeline.draw(); },
      }, swatch(hueColour(hue, plan.hues.length)), short(name, 28))));
  }

  drawGrids() {
    const limit = Number(byId("heat-rows").value);
    const grid = (host, plan) => {
      const chart = el("div", { class: "chart", role: "img", "aria-label": `${host.closest("section").querySelector("h2").textContent}, ${plan.label}` });
      host.append(...(this.plans.length > 1 ? [el("h3", {}, plan.label)] : []), chart);
      return chart;
    };
    for (const id of ["heat-charts", "buffer-charts"]) {
      disposeIn(byId(id));
      byId(id).replaceChildren();
    }
    const buffers = this.plans.map((plan) => {
      linkHeat(grid(byId("heat-charts"), plan), plan, limit, this.finish);
      return bufferHeat(grid(byId("buffer-charts"), plan), plan, MAX_MATRIX, this.finish);
    });
    byId("heat-note").textContent = this.plans.map((plan) => plan.bottleneck === null ? "No link is used."
      : `${this.of(plan)}The bottleneck is ${plan.network.linkName(plan.bottleneck)}, busy ${percent(plan.load[plan.bottleneck])} of the time.`).join(" ");
    byId("buffer-note").textContent = this.plans.map((plan, i) => buffers[i].most === 0
      ? `${this.of(plan)}No received chunk waits to be forwarded.`
      : `${this.of(plan)}At most ${count(buffers[i].most, "received chunk")} at ${plan.network.nodes[buffers[i].at.gpu].name} at one time.`).join(" ");
  }

  of(plan) {
    return this.plans.length > 1 ? `${plan.label}: ` : "";
  }

  toggleTheme() {
    this.setTheme(isDark() ? "light" : "dark");
  }

  setTheme(theme) {
    if (document.documentElement.dataset.theme === theme) return;
    setTheme(theme);
    this.timeline.layOut();
    this.drawLegend();
    this.refresh();
    this.drawGrids();
  }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  byId("theme").textContent = theme === "dark" ? "Light colours" : "Dark colours";
}

function disposeIn(host) {
  for (const chart of CHARTS) {
    if (host.contains(chart.getDom())) { chart.dispose(); CHARTS.delete(chart); }
  }
}

// The figures are painted first; then there is time for drawing. For the curious, the parts of the
// page can be reached from the browser's console.
requestAnimationFrame(() => setTimeout(() => {
  start().then((app) => { window.teccl = app; }).catch((problem) => {
    byId("explore").append(el("p", { role: "alert" }, `This page could not be drawn: ${problem.message}. It needs a browser of 2023 or later.`));
    throw problem;
  });
}));
