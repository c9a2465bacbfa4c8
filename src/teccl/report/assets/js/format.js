// Text, elements and colours.

const UNITS = [["s", 1], ["ms", 1e-3], ["us", 1e-6], ["ns", 1e-9], ["ps", 1e-12]];

/** Some digits, without trailing zeros; halves go to the even digit, as the command line has it. */
function digits(value, places = 4) {
  const [mantissa, exponent] = value.toExponential(places + 24).split("e");
  const all = mantissa.replace(".", "");
  const isHalf = /^50*$/.test(all.slice(places)) && all[places - 1] % 2 === 0;
  const kept = isHalf ? `${mantissa.slice(0, places + 1)}e${exponent}` : value.toPrecision(places);
  return String(Number(kept));
}

/** Picoseconds for people. */
function showTime(ps) {
  if (!(ps > 0)) return "0 s";
  const [unit, scale] = unitOf(ps);
  return `${digits(ps / 1e12 / scale)} ${unit}`;
}

/** A formatter for an axis of this length: one unit for all its labels. */
function axisTime(span, places = 5) {
  const [unit, scale] = unitOf(span);
  return (ps) => `${digits(ps / 1e12 / scale, places)} ${unit}`;
}

function unitOf(ps) {
  return UNITS.find(([, scale]) => ps / 1e12 >= scale) ?? UNITS[4];
}

function percent(part) {
  return `${digits(100 * part, 3)} %`;
}

function count(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

const SVG = "http://www.w3.org/2000/svg";

/** An element; text always goes in as text, so that names cannot become markup. */
function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

function byId(id) {
  return document.getElementById(id);
}

function short(text, limit) {
  const letters = [...text];
  return letters.length <= limit ? text : letters.slice(0, limit - 1).join("") + "…";
}

function table(heads, rows, { caption = null } = {}) {
  const cell = (tag, head, value) =>
    el(tag, { class: head.startsWith(">") ? "num" : null, scope: tag === "th" ? "col" : null }, value);
  return el(
    "table",
    {},
    caption === null ? null : el("caption", { class: "hidden" }, caption),
    el("thead", {}, el("tr", {}, ...heads.map((head) => cell("th", head, head.replace(">", ""))))),
    el(
      "tbody",
      {},
      ...rows.map((row) => el("tr", {}, ...row.map((value, i) => cell("td", heads[i], value)))),
    ),
  );
}

function isDark() {
  return document.documentElement.dataset.theme === "dark";
}

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function heatColours() {
  return css("heat").split(",").map((colour) => colour.trim());
}

/** The colour of a part of one on the scale of loads. */
function heatColour(part) {
  const colours = heatColours();
  const place = Math.min(1, Math.max(0, part)) * (colours.length - 1);
  const low = Math.min(colours.length - 2, Math.floor(place));
  return mix(colours[low], colours[low + 1], place - low);
}

function mix(one, two, part) {
  const channel = (colour, i) => parseInt(colour.slice(1 + 2 * i, 3 + 2 * i), 16);
  const mixed = [0, 1, 2].map((i) =>
    Math.round(channel(one, i) * (1 - part) + channel(two, i) * part));
  return toHex(mixed);
}

function toHex(channels) {
  return "#" + channels.map((value) => value.toString(16).padStart(2, "0")).join("");
}

/** Colours that differ in hue, neighbours in lightness too, from the perceptual space OKLCH. */
function hueColour(number, total) {
  const hue = (2 * Math.PI * number) / Math.max(total, 1) + 0.5;
  const base = isDark() ? 0.7 : 0.64;
  return oklch(total > 6 ? base + (number % 2 ? 0.07 : -0.05) : base, 0.135, hue);
}

function oklch(lightness, chroma, hue) {
  const a = chroma * Math.cos(hue);
  const b = chroma * Math.sin(hue);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return toHex(linear.map((value) => {
    const gamma = value <= 0.0031308 ? 12.92 * value : 1.055 * value ** (1 / 2.4) - 0.055;
    return Math.round(255 * Math.min(1, Math.max(0, gamma)));
  }));
}
