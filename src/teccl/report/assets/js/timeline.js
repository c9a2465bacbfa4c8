// The timeline: what each link carries when, with zoom and pan.

// Sends drawn one by one; where more are in sight, those that touch are drawn as one block.
const MAX_DRAWN = 5000;
const ROW_HEIGHT = 17;

class Timeline {
  constructor(host, plans, state, actions) {
    Object.assign(this, { host, plans, state, actions });
    this.finish = Math.max(1, ...plans.map((plan) => plan.finish), ...plans.map((plan) => plan.bound ?? 0));
    this.picked = null;
    this.order = "busy";
    this.filter = "";
    this.cursor = el("div", { class: "cursor", "data-cursor": "" });
    this.chart = newChart(host, "timeline");
    this.chart.on("datazoom", () => this.soon());
    this.chart.on("click", ({ value }) => { if (value) this.pickItem(value); });
    this.setRows();
  }

  get visibleRows() {
    return Math.min(this.rows.length, this.plans.length > 1 ? 14 : 26);
  }

  /** Choose and order the links to show; the same for all schedules, so that rows compare. */
  setRows() {
    const [first] = this.plans;
    const { network } = first;
    const wanted = this.filter.trim().toLowerCase();
    const load = (link) => Math.max(...this.plans.map((plan) => plan.load[link]));
    const links = Array.from({ length: network.size }, (_, link) => link).filter((link) =>
      wanted ? network.linkName(link).toLowerCase().includes(wanted) : load(link) > 0);
    const isCritical = new Set(this.plans.flatMap((plan) => plan.critical.map((row) => plan.link[row])));
    if (this.order !== "number") links.sort((a, b) => load(b) - load(a) || a - b);
    if (this.order === "path") links.sort((a, b) => isCritical.has(b) - isCritical.has(a));
    this.rows = links.length ? links : [0];
    this.layOut();
  }

  /** Set up axes and zoom; the data follows. */
  layOut() {
    const { network } = this.plans[0];
    const grids = this.plans.map((_, i) => ({
      left: 190, right: 34, top: 30 + i * (this.visibleRows * ROW_HEIGHT + 46),
      height: this.visibleRows * ROW_HEIGHT,
    }));
    this.grids = grids;
    const last = grids[grids.length - 1];
    this.host.style.height = `${last.top + last.height + 66}px`;
    this.chart.resize();
    const all = this.plans.map((_, i) => i);
    const names = this.rows.map((link) => network.linkName(link));
    const show = axisTime(this.finish);
    const isLong = this.rows.length > this.visibleRows;
    const zoom = [
      { type: "inside", id: "drag", xAxisIndex: all, filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseMove: true, moveOnMouseWheel: false },
      { type: "slider", id: "time", xAxisIndex: all, filterMode: "none", bottom: 4, height: 20, left: 190, right: 34, labelFormatter: show, brushSelect: false, showDataShadow: false, borderColor: css("rule"), textStyle: { color: css("muted") } },
    ];
    if (isLong) {
      zoom.push({ type: "slider", id: "rows", yAxisIndex: all, filterMode: "none", right: 4, width: 14, top: grids[0].top, height: last.top + last.height - grids[0].top, zoomLock: true, brushSelect: false, showDetail: false, showDataShadow: false, startValue: 0, endValue: this.visibleRows - 1, handleSize: 0, borderColor: css("rule") });
    }
    this.chart.setOption({
      animation: false,
      tooltip: tooltipStyle(({ seriesIndex, value }) => this.tooltip(this.plans[seriesIndex], value)),
      grid: grids,
      xAxis: all.map((i) => ({
        type: "value", gridIndex: i, min: 0, max: this.finish, ...axisStyle(),
        axisLabel: { ...axisStyle().axisLabel, formatter: show, hideOverlap: true, showMaxLabel: false },
      })),
      yAxis: all.map((i) => ({
        type: "category", gridIndex: i, inverse: true, data: names, ...axisStyle(),
        axisLabel: { ...axisStyle().axisLabel, width: 172, overflow: "truncate", interval: 0 },
        splitLine: { show: false },
        name: this.plans.length > 1 ? short(this.plans[i].label, 28) : "", nameLocation: "start", nameGap: 8,
        nameTextStyle: { color: css("ink"), fontWeight: "bold", align: "right" },
      })),
      dataZoom: zoom,
      series: all.map((i) => this.series(i, [])),
    }, true);
    this.draw();
  }

  series(i, data) {
    const plan = this.plans[i];
    const lines = [{ xAxis: plan.finish, name: "finish" }];
    if (plan.bound) lines.unshift({ xAxis: plan.bound, name: "bound" });
    // The labels would lie on each other where the bound is nearly met.
    const isTight = plan.bound && plan.finish - plan.bound < 0.06 * this.finish;
    return {
      type: "custom", id: `plan${i}`, xAxisIndex: i, yAxisIndex: i, clip: true, progressive: 0, data,
      encode: { x: [1, 2], y: 0 },
      renderItem: (params, api) => this.item(plan, params, api),
      markLine: {
        silent: true, symbol: "none", animation: false,
        lineStyle: { color: css("mark"), type: "dashed", width: 1 },
        label: { color: css("mark"), fontSize: 11, position: "start", align: "right", distance: 6, formatter: ({ name, value }) =>
          (name === "bound" && isTight ? "" : `${isTight ? "bound, finish" : name} ${showTime(value)}`) },
        data: lines,
      },
    };
  }

  window() {
    const zoom = this.chart.getOption().dataZoom;
    const time = zoom.find(({ id }) => id === "time");
    const rows = zoom.find(({ id }) => id === "rows");
    const from = (this.finish * time.start) / 100;
    const until = (this.finish * time.end) / 100;
    return {
      from, until,
      top: rows ? rows.startValue : 0,
      bottom: rows ? rows.endValue : this.rows.length - 1,
    };
  }

  /** Draw what is in sight, at most once a frame. */
  soon() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => { this.pending = null; this.draw(); });
  }

  draw() {
    const span = this.window();
    this.blocks = this.plans.map(() => []);
    const series = this.plans.map((plan, i) => ({ id: `plan${i}`, data: this.items(plan, i, span) }));
    this.chart.setOption({ series });
    this.host.dataset.drawn = series.map(({ data }) => data.length).join(" ");
    this.moveCursor();
  }

  items(plan, number, { from, until, top, bottom }) {
    const runs = [];
    let total = 0;
    for (let place = top; place <= bottom; place++) {
      const rows = plan.byLink.of(this.rows[place]);
      const first = firstAfter(plan, rows, from);
      let last = first;
      while (last < rows.length && plan.start[rows[last]] < until) last++;
      runs.push([place, rows.subarray(first, last)]);
      total += last - first;
    }
    if (total <= MAX_DRAWN) {
      return runs.flatMap(([place, rows]) =>
        Array.from(rows, (row) => [place, plan.start[row], plan.end(row), row]));
    }
    const pixel = (until - from) / Math.max(200, this.host.clientWidth - 224);
    return runs.flatMap(([place, rows]) => this.merge(plan, number, place, rows, pixel));
  }

  /** Join sends that lie within a pixel of each other, up to a piece of sensible length. */
  merge(plan, number, place, rows, pixel) {
    const items = [];
    let block = null;
    const close = () => {
      if (block.rows.length === 1) items.push([place, block.start, block.end, block.rows[0]]);
      else items.push([place, block.start, block.end, -this.blocks[number].push(block)]);
    };
    for (const row of rows) {
      const start = plan.start[row];
      const fits = block !== null && start - block.end < pixel && start - block.start < 5 * pixel;
      if (fits) {
        block.rows.push(row);
        block.end = Math.max(block.end, plan.end(row));
      } else {
        if (block !== null) close();
        block = { rows: [row], start, end: plan.end(row) };
      }
    }
    if (block !== null) close();
    return items;
  }

  item(plan, params, api) {
    const [place, tag] = [api.value(0), api.value(3)];
    const [x0, y] = api.coord([api.value(1), place]);
    const [x1] = api.coord([api.value(2), place]);
    const height = Math.max(3, 0.74 * api.size([0, 1])[1]);
    const box = { x: x0, y: y - height / 2, width: Math.max(1, x1 - x0 - (x1 - x0 > 4 ? 0.6 : 0)), height };
    const shape = echarts.graphic.clipRectByRect(box, params.coordSys);
    if (!shape) return null;
    const rows = tag >= 0 ? [tag] : this.blocks[this.plans.indexOf(plan)][-tag - 1].rows;
    return { type: "rect", shape, style: this.style(plan, rows) };
  }

  /** Colour by source; what the lens or the legend singles out stands forth. */
  style(plan, rows) {
    const { state } = this;
    const isCritical = rows.some((row) => plan.flags[row] & CRITICAL);
    const chosen = this.chosen(plan, rows, isCritical);
    const row = chosen ?? rows[rows.length >> 1];
    const style = { fill: plan.colour(row), opacity: chosen === null ? 0.14 : 1 };
    if (isCritical && (state.lens === "path" || state.lens === "play")) {
      style.stroke = css("mark");
      style.lineWidth = state.lens === "path" ? 2 : 1.2;
    }
    if (this.picked && this.picked.plan === plan && rows.includes(this.picked.row)) {
      style.stroke = css("ink");
      style.lineWidth = 2.4;
      style.opacity = 1;
    }
    return style;
  }

  /** The row that gives a block its colour, null where nothing in it is singled out. */
  chosen(plan, rows, isCritical) {
    const { state } = this;
    if (state.lens === "path") return isCritical ? rows.find((row) => plan.flags[row] & CRITICAL) : null;
    if (state.lens === "chunk") {
      const chunk = state.chunkOf(plan);
      return rows.find((row) => plan.chunk[row] === chunk) ?? null;
    }
    if (state.hue !== null) return rows.find((row) => plan.chunkHue[plan.chunk[row]] === state.hue) ?? null;
    return rows[rows.length >> 1];
  }

  tooltip(plan, value) {
    const [place, , , tag] = value;
    const link = plan.network.linkName(this.rows[place]);
    if (tag >= 0) return tip(link, describeSend(plan, tag));
    const block = this.blocks[this.plans.indexOf(plan)][-tag - 1];
    return tip(link, [
      `${count(block.rows.length, "send")} from ${showTime(block.start)} to ${showTime(block.end)}`,
      "zoom in to see each",
    ]);
  }

  pickItem([place, , , tag]) {
    const number = this.plans.findIndex((plan, i) => tag < 0 ? this.blocks[i].length >= -tag : plan.numSends > tag && plan.link[tag] === this.rows[place]);
    if (tag >= 0 && number >= 0) this.pick(this.plans[number], tag);
    else this.zoomTo(this.blocks[number][-tag - 1]);
  }

  zoomTo(block) {
    const margin = 4 * (block.end - block.start);
    this.setWindow(block.start - margin, block.end + margin);
  }

  /** Choose a send: it is described below the chart and outlined. */
  pick(plan, row, { follow = false } = {}) {
    this.picked = { plan, row };
    byId("picked").textContent =
      `${plan.network.linkName(plan.link[row])}: ${describeSend(plan, row).join("; ")}`;
    this.reveal(plan, row);
    this.draw();
    this.actions.pickChunk(plan, plan.chunk[row], follow);
  }

  reveal(plan, row) {
    const { from, until, top, bottom } = this.window();
    const place = this.rows.indexOf(plan.link[row]);
    if (plan.start[row] < from || plan.end(row) > until) {
      const half = (until - from) / 2;
      this.setWindow(plan.start[row] - half, plan.start[row] + half);
    }
    if (place >= 0 && (place < top || place > bottom)) {
      const start = Math.max(0, Math.min(this.rows.length - this.visibleRows, place - 3));
      this.chart.dispatchAction({ type: "dataZoom", dataZoomId: "rows", startValue: start, endValue: start + this.visibleRows - 1 });
    }
  }

  setWindow(from, until) {
    const length = Math.min(this.finish, Math.max(this.finish / 1e7, until - from));
    const start = Math.min(Math.max(0, from), this.finish - length);
    this.chart.dispatchAction({ type: "dataZoom", dataZoomId: "time", start: (100 * start) / this.finish, end: (100 * (start + length)) / this.finish });
    this.soon();
  }

  zoom(factor) {
    const { from, until } = this.window();
    const { time } = this.state;
    const middle = time > from && time < until ? time : (from + until) / 2;
    this.setWindow(middle - (middle - from) * factor, middle + (until - middle) * factor);
  }

  pan(part) {
    const { from, until } = this.window();
    const step = part * (until - from);
    this.setWindow(from + step, until + step);
  }

  whole() {
    this.setWindow(0, this.finish);
  }

  /** Move the choice to a neighbour: along the link, or to another link. */
  step(along, across) {
    const plan = this.picked?.plan ?? this.plans[0];
    const current = this.picked?.row ?? null;
    let place = current === null ? 0 : this.rows.indexOf(plan.link[current]);
    place = Math.min(this.rows.length - 1, Math.max(0, place + across));
    const rows = plan.byLink.of(this.rows[place]);
    if (!rows.length) return;
    let index = current === null ? 0 : rows.indexOf(current) + along;
    if (across && current !== null) index = Math.min(rows.length - 1, firstAfter(plan, rows, plan.start[current]));
    this.pick(plan, rows[Math.min(rows.length - 1, Math.max(0, index))]);
  }

  moveCursor() {
    const [grid] = this.grids;
    const last = this.grids[this.grids.length - 1];
    const { from, until } = this.window();
    const { time } = this.state;
    const width = this.host.clientWidth - grid.left - last.right;
    this.cursor.hidden = time < from || time > until;
    this.cursor.style.left = `${grid.left + (width * (time - from)) / Math.max(1, until - from) - 1}px`;
    this.cursor.style.top = `${grid.top}px`;
    this.cursor.style.height = `${last.top + last.height - grid.top}px`;
    if (!this.cursor.isConnected) this.host.append(this.cursor);
  }
}

/** The first of a link's rows that ends after a time. */
function firstAfter(plan, rows, time) {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (plan.end(rows[middle]) > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

function describeSend(plan, row) {
  const chunk = plan.chunk[row];
  const lines = [
    `${plan.chunkName(chunk)}, ${plan.bytes(chunk)}${plan.flags[row] & REDUCE ? ", added at the far end" : ""}`,
    `start ${showTime(plan.start[row])}, end ${showTime(plan.end(row))}, arrival ${showTime(plan.arrival[row])}`,
  ];
  if (plan.carried[row] >= 0) lines.push(`carries ${plan.sums[plan.carried[row]]}`);
  if (plan.flags[row] & CRITICAL) lines.push("on the critical path");
  return lines;
}
