// The local app: ask for a schedule, watch it being found, look at it.
"use strict";

const byId = (id) => document.getElementById(id);
const state = { options: null, upload: null, job: null, source: null, chart: null, points: [], baselines: [] };

/** An element; text always goes in as text. */
function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Ask the server; its errors become exceptions with its words. */
async function ask(method, path, body, type = "application/json") {
  const headers = body === undefined ? {} : { "Content-Type": type };
  const answer = await fetch(path, { method, body, headers });
  if (answer.status === 204) return null;
  const document = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
  if (!answer.ok) throw new Error(document.error ?? `the server answered ${answer.status}`);
  return document;
}

function say(id, text) {
  const place = byId(id);
  place.textContent = text ?? "";
  place.hidden = !text;
}

const STOP = "Stop and keep the best";
const END = "End at once";
const UNITS = [["s", 1], ["ms", 1e-3], ["us", 1e-6], ["ns", 1e-9], ["ps", 1e-12]];

function showTime(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const [unit, scale] = UNITS.find(([, size]) => seconds >= size) ?? UNITS[4];
  return seconds ? `${Number((seconds / scale).toPrecision(4))} ${unit}` : "0 s";
}

function showGap(gap) {
  return gap === null || gap === undefined ? "–" : `${Number((100 * gap).toPrecision(3))} %`;
}

function showRate(rate) {
  return rate === null || rate === undefined ? "–" : `${Number(rate.toPrecision(4))} GB/s`;
}

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

async function start() {
  setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  state.options = await ask("GET", "/api/options");
  const { presets, collectives, methods, efforts } = state.options;
  fillSelect("preset", presets.map(({ name }) => name), "ndv2");
  fillSelect("collective", collectives, "allgather");
  fillSelect("method", methods, "auto");
  fillSelect("effort", efforts, "normal");
  byId("preset").addEventListener("change", choosePreset);
  byId("parameters").addEventListener("change", preview);
  byId("file").addEventListener("change", uploadFile);
  byId("form").addEventListener("submit", (event) => { event.preventDefault(); submit(); });
  byId("cancel").addEventListener("click", cancel);
  byId("compare").addEventListener("click", compare);
  byId("theme").addEventListener("click", () => { setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"); drawChart(); });
  choosePreset();
  byId("parameters").value = "chassis=2";
  preview();
  await listJobs();
  document.documentElement.dataset.ready = "";
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  byId("theme").textContent = theme === "dark" ? "Light colours" : "Dark colours";
}

function fillSelect(id, names, chosen) {
  byId(id).replaceChildren(...names.map((name) => el("option", { value: name, selected: name === chosen ? "" : null }, name)));
}

function choosePreset() {
  const { summary, parameters } = state.options.presets.find(({ name }) => name === byId("preset").value);
  byId("summary").textContent = summary;
  const known = Object.entries(parameters).map(([key, value]) => `${key}=${value}`);
  byId("known").textContent = known.length ? `Defaults: ${known.join(", ")}` : "It has none.";
  byId("parameters").value = "";
  state.upload = null;
  byId("file").value = "";
  say("upload", "");
  preview();
}

/** What the request calls the topology: an uploaded file or a preset with parameters. */
function topology() {
  if (state.upload) return { upload: state.upload };
  const parameters = byId("parameters").value.trim();
  return { topology: byId("preset").value + (parameters ? `:${parameters}` : "") };
}

async function preview() {
  const picture = byId("picture");
  const wanted = JSON.stringify(topology());
  try {
    const answer = await fetch(`/api/drawing?${new URLSearchParams(topology())}`);
    if (!answer.ok) throw new Error((await answer.json()).error);
    const drawing = await answer.text();
    // An answer that comes late belongs to what was chosen before.
    if (wanted !== JSON.stringify(topology())) return;
    picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(drawing)}`;
    picture.alt = `Drawing of ${Object.values(topology())[0]}`;
    byId("preview").hidden = false;
    say("problem", "");
  } catch (problem) {
    if (wanted !== JSON.stringify(topology())) return;
    byId("preview").hidden = true;
    say("problem", problem.message);
  }
}

async function uploadFile() {
  const [file] = byId("file").files;
  if (!file) return;
  try {
    if (file.size > 8 * 2 ** 20) throw new Error(`${file.name} is larger than 8 MiB; give a smaller one`);
    const found = await ask("POST", `/api/topologies?${new URLSearchParams({ name: file.name })}`, file, "application/octet-stream");
    state.upload = found.upload;
    say("upload", `${found.file}: ${found.name}, ${found.num_gpus} GPUs, ${found.num_switches} switches, ${found.num_links} links`);
    await preview();
  } catch (problem) {
    state.upload = null;
    byId("file").value = "";
    say("upload", "");
    say("problem", problem.message);
  }
}

async function submit() {
  say("problem", "");
  byId("solve").disabled = true;
  const request = {
    ...topology(),
    collective: byId("collective").value, size: byId("size").value,
    method: byId("method").value, effort: byId("effort").value,
    chunks: byId("chunks").value, time_limit: byId("limit").value,
  };
  try {
    const job = await ask("POST", "/api/jobs", JSON.stringify(request));
    open(job);
    await listJobs();
  } catch (problem) {
    say("problem", problem.message);
  } finally {
    byId("solve").disabled = false;
  }
}

/** The first time asks for the best so far, the second ends the search without. */
async function cancel() {
  byId("cancel").textContent = END;
  say("message", "stopping; the best schedule so far is verified and kept");
  await ask("POST", `/api/jobs/${state.job}/cancel`).catch((problem) => say("failure", problem.message));
}

async function listJobs() {
  const { jobs } = await ask("GET", "/api/jobs");
  const own = jobs.filter(({ parent }) => parent === null).reverse();
  const list = own.map((job) => el("li", {}, el("button", { type: "button", "aria-current": String(job.id === state.job), onclick: () => { open(job); listJobs(); } },
    el("span", {}, job.title), el("small", {}, job.result?.finish_time_s ? showTime(job.result.finish_time_s) : job.state))));
  byId("jobs").replaceChildren(...(list.length ? list : [el("li", { class: "hint" }, "none yet")]));
}

/** Show a job: its progress from the beginning, and its result when there is one. */
function open(job) {
  state.source?.close();
  Object.assign(state, { job: job.id, points: [], baselines: [] });
  for (const id of ["welcome", "result", "report", "baselines"]) byId(id).hidden = true;
  byId("live").hidden = false;
  byId("cancel").textContent = STOP;
  byId("live-title").textContent = job.title;
  say("message", "");
  say("failure", "");
  say("compare-note", "");
  for (const id of ["incumbent", "bound", "gap", "elapsed", "phase"]) byId(id).textContent = "–";
  drawChart();
  state.source = new EventSource(`/api/jobs/${job.id}/events`);
  state.source.addEventListener("progress", (event) => progress(JSON.parse(event.data)));
  state.source.addEventListener("state", (event) => changed(JSON.parse(event.data)));
}

function progress(event) {
  byId("incumbent").textContent = showTime(event.incumbent_s);
  byId("bound").textContent = showTime(event.bound_s);
  byId("gap").textContent = showGap(event.gap);
  byId("elapsed").textContent = showTime(event.elapsed_s);
  byId("phase").textContent = event.phase;
  say("message", event.message);
  if (event.phase === "kernels" || event.phase === "report") return;
  state.points.push([event.elapsed_s, event.incumbent_s, event.bound_s]);
  drawChart();
}

function changed(job) {
  if (job.id !== state.job) return;
  const badge = byId("state");
  badge.textContent = job.state;
  badge.className = `badge ${job.state}`;
  const isOver = ["done", "failed", "cancelled"].includes(job.state);
  byId("cancel").hidden = isOver;
  if (!isOver) return;
  state.source.close();
  say("failure", job.has_schedule ? "" : `No schedule: ${job.error ?? job.state}`);
  if (job.has_schedule) showResult(job);
  listJobs();
}

/** Best finish and bound as lines that step. */
function drawChart() {
  const host = byId("chart");
  state.chart ??= echarts.init(host);
  const unit = UNITS.find(([, size]) => (state.points.find(([, best]) => best)?.[1] ?? state.points[0]?.[2] ?? 1e-6) >= size) ?? UNITS[4];
  const line = (name, column, colour, type) => ({
    name, type: "line", step: "end", showSymbol: state.points.length < 40, symbolSize: 5, lineStyle: { width: 2, type }, itemStyle: { color: colour },
    data: state.points.filter((point) => point[column] !== null && point[column] !== undefined).map((point) => [point[0], point[column] / unit[1]]),
  });
  const axis = { axisLine: { lineStyle: { color: css("rule") } }, axisLabel: { color: css("muted") }, splitLine: { lineStyle: { color: css("faint") } }, nameTextStyle: { color: css("muted") } };
  state.chart.setOption({
    animation: false,
    grid: { left: 64, right: 24, top: 34, bottom: 40 },
    legend: { top: 0, right: 10, textStyle: { color: css("ink") } },
    tooltip: { trigger: "axis", backgroundColor: css("surface"), borderColor: css("rule"), textStyle: { color: css("ink") }, valueFormatter: (value) => (value === undefined ? "–" : `${Number(value.toPrecision(5))} ${unit[0]}`) },
    xAxis: { type: "value", min: 0, name: "seconds of search", nameLocation: "middle", nameGap: 26, ...axis },
    yAxis: { type: "value", scale: true, name: unit[0], ...axis },
    series: [line("best so far", 1, css("accent"), "solid"), line("lower bound", 2, css("mark"), "dashed")],
  }, true);
}
addEventListener("resize", () => state.chart?.resize());

function showResult(job) {
  const { result } = job;
  const rows = [
    ["Status", result.status],
    ["Finish time", showTime(result.finish_time_s)],
    ["Lower bound", `${showTime(result.physical_bound_s)} (gap ${showGap(result.physical_gap)})`],
    ["What binds", result.certificate ?? "–"],
    ["algbw, busbw", `${showRate(result.algbw_GBps)}, ${showRate(result.busbw_GBps)}`],
    ["Method", result.method],
    ["Chunks", `${result.num_chunks} of ${Number(result.chunk_bytes).toLocaleString("en")} bytes`],
    ["Sends", `${result.num_sends.toLocaleString("en")}, ${result.verified ? "verified" : "not verified"}`],
    ["Solve time", showTime(result.solve_seconds)],
  ];
  byId("incumbent").textContent = showTime(result.finish_time_s);
  byId("bound").textContent = showTime(result.physical_bound_s);
  byId("gap").textContent = showGap(result.physical_gap);
  byId("elapsed").textContent = showTime(result.solve_seconds);
  byId("phase").textContent = result.status;
  say("message", "");
  byId("figures").replaceChildren(...rows.map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, value))));
  const base = `/api/jobs/${job.id}`;
  byId("downloads").replaceChildren(
    el("a", { class: "button", href: `${base}/schedule`, download: "schedule.json.gz" }, "Schedule"),
    el("a", { class: "button", href: `${base}/report`, download: "report.html" }, "Report"),
    ...state.options.targets.map(({ name, summary }) => el("button", { type: "button", title: summary, "data-export": name, onclick: () => save(job, name) }, name)),
  );
  say("export-note", "");
  byId("result").hidden = false;
  showReport(`${base}/report`, "Report");
}

/** Fetch an export; where the schedule cannot be exported, the reason is shown instead. */
async function save(job, target) {
  say("export-note", "");
  try {
    const answer = await fetch(`/api/jobs/${job.id}/export/${target}`);
    if (!answer.ok) throw new Error((await answer.json()).error);
    const name = /filename="([^"]+)"/.exec(answer.headers.get("Content-Disposition") ?? "")?.[1] ?? target;
    const address = URL.createObjectURL(await answer.blob());
    el("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  } catch (problem) {
    say("export-note", `${target}: ${problem.message}`);
  }
}

function showReport(address, title) {
  byId("report-title").textContent = title;
  byId("report-link").href = address;
  byId("frame").src = address;
  byId("report").hidden = false;
}

/** Solve the same problem by every baseline and list them beside the schedule. */
async function compare() {
  const parent = state.job;
  byId("compare").disabled = true;
  say("compare-note", "solving by the baselines");
  try {
    const { jobs } = await ask("POST", `/api/jobs/${parent}/baselines`);
    let known = jobs;
    while (state.job === parent) {
      showBaselines(parent, known);
      if (known.every(({ state: each }) => ["done", "failed", "cancelled"].includes(each))) break;
      await new Promise((resolve) => setTimeout(resolve, 400));
      known = await Promise.all(known.map(({ id }) => ask("GET", `/api/jobs/${id}`)));
    }
    if (state.job === parent) say("compare-note", jobs.length ? "" : "no baseline serves this problem");
  } catch (problem) {
    say("compare-note", problem.message);
  } finally {
    byId("compare").disabled = false;
  }
}

async function showBaselines(parent, jobs) {
  const own = await ask("GET", `/api/jobs/${parent}`);
  const rows = [{ ...own, title: `${own.result.method} (this schedule)` }, ...jobs];
  rows.sort((a, b) => (a.result?.finish_time_s ?? Infinity) - (b.result?.finish_time_s ?? Infinity));
  const best = own.result.finish_time_s;
  byId("baselines").replaceChildren(el("table", { id: "baseline-table" },
    el("thead", {}, el("tr", {}, ...["Method", "Finish time", "Against this", "busbw", ""].map((head) => el("th", { scope: "col" }, head || el("span", { class: "hidden" }, "Show"))))),
    el("tbody", {}, ...rows.map((job) => el("tr", { class: job.id === parent ? "best" : null },
      el("td", {}, job.title),
      el("td", {}, job.result?.finish_time_s ? showTime(job.result.finish_time_s) : (job.error ?? job.state)),
      el("td", {}, job.result?.finish_time_s ? `${Number((job.result.finish_time_s / best).toPrecision(4))} ×` : "–"),
      el("td", {}, showRate(job.result?.busbw_GBps)),
      el("td", {}, job.id !== parent && job.has_schedule
        ? el("button", { type: "button", onclick: () => showReport(`/api/jobs/${parent}/report?against=${job.id}`, `Side by side with ${job.title}`) }, "Side by side") : null),
    )))));
  byId("baselines").hidden = false;
}

start().catch((problem) => say("problem", problem.message));
