// What all charts have in common: creation, colours, and drawing anew when those change.

const CHARTS = new Set();

/** A chart in a host element that follows its size. */
function newChart(host, label) {
  const chart = echarts.init(host, null, { renderer: "canvas" });
  host.dataset.chart = label;
  new ResizeObserver(() => { if (!chart.isDisposed()) chart.resize(); }).observe(host);
  CHARTS.add(chart);
  return chart;
}

function axisStyle() {
  return {
    axisLine: { lineStyle: { color: css("rule") } },
    axisTick: { show: false },
    axisLabel: { color: css("muted"), fontSize: 11 },
    splitLine: { lineStyle: { color: css("faint") } },
    nameTextStyle: { color: css("muted") },
  };
}

function tooltipStyle(formatter) {
  return {
    trigger: "item",
    confine: true,
    transitionDuration: 0,
    backgroundColor: css("surface"),
    borderColor: css("rule"),
    textStyle: { color: css("ink"), fontSize: 13 },
    formatter,
  };
}

/** The content of a tooltip: a head and lines, as elements. */
function tip(head, lines) {
  return el("div", { class: "tip" }, el("b", {}, head), ...lines.map((line) => el("div", {}, line)));
}

/** A grid of coloured cells: rows by name, columns of equal length in time. */
function drawHeat(chart, { rows, right, finish, bins, cells, most, tooltip, labelWidth = 170 }) {
  const show = axisTime(finish, 3);
  chart.setOption({
    animation: false,
    aria: { enabled: false },
    grid: { left: labelWidth + 14, right: 92, top: 8, bottom: 26 },
    tooltip: tooltipStyle(tooltip),
    xAxis: {
      type: "category",
      data: Array.from({ length: bins }, (_, i) => show((finish * i) / bins)),
      ...axisStyle(),
      axisLabel: { ...axisStyle().axisLabel, interval: Math.ceil(bins / 9) - 1 },
      splitLine: { show: false },
    },
    yAxis: [
      {
        type: "category",
        inverse: true,
        data: rows,
        ...axisStyle(),
        axisLabel: { ...axisStyle().axisLabel, width: labelWidth, overflow: "truncate", interval: 0 },
        splitLine: { show: false },
      },
      {
        type: "category",
        inverse: true,
        position: "right",
        data: right,
        ...axisStyle(),
        axisLabel: { ...axisStyle().axisLabel, interval: 0, formatter: (text) => text },
        splitLine: { show: false },
      },
    ],
    visualMap: {
      show: false,
      min: 0,
      max: most,
      dimension: 2,
      inRange: { color: heatColours() },
    },
    series: [{ type: "heatmap", data: cells, emphasis: { itemStyle: { borderColor: css("ink"), borderWidth: 1 } } }],
  }, true);
}

/** Shares of equal bins that an interval covers, passed on one by one. */
function spread(from, until, width, bins, add) {
  const first = Math.max(0, Math.floor(from / width));
  for (let bin = first; bin < bins && bin * width < until; bin++) {
    add(bin, Math.min(until, (bin + 1) * width) - Math.max(from, bin * width));
  }
}
