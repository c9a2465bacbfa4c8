// Follow a chunk: its way from the source to every destination.

/** The sends of a chunk as bars on a time axis, each tied to the one that fed it. */
function drawWay(host, plan, chunk, onPick) {
  const hops = plan.hops(chunk);
  const { network } = plan;
  const order = treeOrder(hops);
  const place = new Map(order.map((hop, i) => [hop, i]));
  host.style.height = `${36 + 17 * Math.max(1, order.length)}px`;
  const chart = newChart(host, "way");
  const finish = Math.max(1, ...order.map(({ row }) => plan.arrival[row]));
  const colour = hueColour(plan.chunkHue[chunk], plan.hues.length);
  chart.setOption({
    animation: false,
    grid: { left: 178, right: 20, top: 6, bottom: 26 },
    tooltip: tooltipStyle(({ value }) => tip(network.linkName(plan.link[value[3]]), describeSend(plan, value[3]))),
    xAxis: { type: "value", min: 0, max: finish, ...axisStyle(), axisLabel: { ...axisStyle().axisLabel, formatter: axisTime(finish), hideOverlap: true } },
    yAxis: {
      type: "category", inverse: true, ...axisStyle(), splitLine: { show: false },
      data: order.map(({ row, depth }) => `${"· ".repeat(Math.min(depth, 5))}${network.linkName(plan.link[row])}`),
      axisLabel: { ...axisStyle().axisLabel, width: 164, overflow: "truncate", interval: 0, align: "right" },
    },
    series: [{
      type: "custom", clip: true, encode: { x: [1, 2], y: 0 },
      data: order.map((hop, i) => [i, plan.start[hop.row], plan.arrival[hop.row], hop.row, hop.parent === null ? -1 : place.get(hops[hop.parent])]),
      renderItem: (params, api) => wayItem(plan, api, colour),
    }],
  });
  chart.on("click", ({ value }) => onPick(value[3]));
  return { chart, order };
}

function wayItem(plan, api, colour) {
  const row = api.value(3);
  const [x0, y] = api.coord([plan.start[row], api.value(0)]);
  const [x1] = api.coord([plan.end(row), api.value(0)]);
  const [x2] = api.coord([plan.arrival[row], api.value(0)]);
  const children = [
    { type: "rect", shape: { x: x1, y: y - 2, width: Math.max(0, x2 - x1), height: 4 }, style: { fill: colour, opacity: 0.45 } },
    { type: "rect", shape: { x: x0, y: y - 5, width: Math.max(1.5, x1 - x0), height: 10 }, style: { fill: colour } },
  ];
  if (api.value(4) >= 0) {
    const [, from] = api.coord([0, api.value(4)]);
    children.push({ type: "line", shape: { x1: x0, y1: from, x2: x0, y2: y }, style: { stroke: css("muted"), lineWidth: 1 }, silent: true });
  }
  return { type: "group", children };
}

/** Hops so that each stands below the one that fed it, brothers by time. */
function treeOrder(hops) {
  const children = new Map();
  hops.forEach((hop) => children.set(hop.parent, [...(children.get(hop.parent) ?? []), hop]));
  const order = [];
  const stack = [...(children.get(null) ?? [])].reverse();
  while (stack.length) {
    const hop = stack.pop();
    order.push(hop);
    stack.push(...[...(children.get(hops.indexOf(hop)) ?? [])].reverse());
  }
  return order;
}
