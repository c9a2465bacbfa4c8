// Grids over time: how busy links are, and how much waits at GPUs.

const BINS = 96;

function linkHeat(host, plan, limit, finish) {
  const { network } = plan;
  const links = Array.from({ length: network.size }, (_, link) => link)
    .filter((link) => plan.load[link] > 0)
    .sort((a, b) => plan.load[b] - plan.load[a] || a - b)
    .slice(0, limit);
  const width = finish / BINS;
  const cells = [];
  links.forEach((link, place) => {
    const bins = new Float64Array(BINS);
    for (const row of plan.byLink.of(link)) {
      spread(plan.start[row], plan.end(row), width, BINS, (bin, part) => { bins[bin] += part / width; });
    }
    bins.forEach((part, bin) => cells.push([bin, place, Math.min(1, part)]));
  });
  host.style.height = `${40 + 17 * Math.max(1, links.length)}px`;
  const chart = newChart(host, "heat");
  drawHeat(chart, {
    rows: links.map((link) => (link === plan.bottleneck ? `▶ ${network.linkName(link)}` : network.linkName(link))),
    right: links.map((link) => percent(plan.load[link]) + (link === plan.bottleneck ? " most" : "")),
    finish, bins: BINS, cells, most: 1,
    tooltip: ({ value: [bin, place, part] }) => tip(network.linkName(links[place]), [
      `${percent(part)} busy from ${showTime(bin * width)} to ${showTime((bin + 1) * width)}`,
      `${percent(plan.load[links[place]])} busy overall`,
    ]),
  });
  return chart;
}

/** Where a chunk waits at most, by GPU and time. */
function bufferHeat(host, plan, limit, finish) {
  const { gpus, nodes } = plan.network;
  const waits = plan.waits();
  const width = finish / BINS;
  const events = new Map(gpus.map((gpu) => [gpu, []]));
  for (const { node, from, until } of waits) events.get(node).push([from, 1], [until, -1]);
  const rows = gpus.map((gpu) => ({ gpu, ...buffered(events.get(gpu), width) }));
  const most = Math.max(0, ...rows.map(({ peak }) => peak));
  const shown = rows.length <= limit ? rows : [...rows].sort((a, b) => b.peak - a.peak).slice(0, limit);
  host.style.height = `${40 + 17 * shown.length}px`;
  const chart = newChart(host, "buffers");
  drawHeat(chart, {
    rows: shown.map(({ gpu }) => nodes[gpu].name),
    right: shown.map(({ peak }) => `most ${peak}`),
    finish, bins: BINS, most: Math.max(1, most), labelWidth: 110,
    cells: shown.flatMap(({ bins }, place) => Array.from(bins, (value, bin) => [bin, place, value])),
    tooltip: ({ value: [bin, place, value] }) => tip(nodes[shown[place].gpu].name, [
      `at most ${count(value, "chunk")} waiting from ${showTime(bin * width)} to ${showTime((bin + 1) * width)}`,
    ]),
  });
  return { chart, most, at: rows.find(({ peak }) => peak === most) };
}

/** The largest number waiting in each bin, and over all. */
function buffered(events, width) {
  // What leaves at a moment makes room for what arrives at it.
  events.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const bins = new Float64Array(BINS);
  let waiting = 0;
  let since = 0;
  let peak = 0;
  const hold = (from, until) => spread(from, until, width, BINS, (bin, part) => {
    if (part > 0) bins[bin] = Math.max(bins[bin], waiting);
  });
  for (const [time, change] of events) {
    if (time > since) hold(since, time);
    since = time;
    waiting += change;
    peak = Math.max(peak, waiting);
  }
  return { bins, peak };
}
