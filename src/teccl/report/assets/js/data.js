// The packed data, and what can be asked of a schedule.

const CRITICAL = 1;
const REDUCE = 2;
const FINAL = 4;
const ARRAYS = { int32: Int32Array, float64: Float64Array, uint8: Uint8Array };

async function unpack(text) {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  const size = Number(new DataView(buffer).getBigUint64(0, true));
  const document = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, size)));
  const columns = {};
  for (const [name, [kind, offset, length]] of Object.entries(document.columns)) {
    columns[name] = new ARRAYS[kind](buffer, 8 + size + offset, length);
  }
  return { document, columns };
}

class Network {
  constructor(document, columns) {
    Object.assign(this, document);
    this.src = columns.linkSrc;
    this.dst = columns.linkDst;
    this.kind = columns.linkKind;
    this.size = this.src.length;
    this.gpus = this.nodes.flatMap((node, i) => (node.kind === "gpu" ? [i] : []));
  }

  isGpu(node) {
    return this.nodes[node].kind === "gpu";
  }

  linkName(link) {
    return `${this.nodes[this.src[link]].name} > ${this.nodes[this.dst[link]].name}`;
  }
}

/** Rows grouped by a key: rows of key k are order[first[k]] ... order[first[k + 1] - 1]. */
class Groups {
  constructor(keys, size) {
    this.first = new Int32Array(size + 1);
    for (const key of keys) this.first[key + 1]++;
    for (let k = 0; k < size; k++) this.first[k + 1] += this.first[k];
    this.order = new Int32Array(keys.length);
    const next = this.first.slice(0, size);
    for (let row = 0; row < keys.length; row++) this.order[next[keys[row]]++] = row;
  }

  of(key) {
    return this.order.subarray(this.first[key], this.first[key + 1]);
  }
}

class Plan {
  constructor(document, columns, prefix, network) {
    Object.assign(this, document);
    for (const [name, column] of Object.entries(columns)) {
      if (name.startsWith(prefix)) this[name.slice(prefix.length)] = column;
    }
    this.network = network;
    this.numSends = this.chunk.length;
    this.numChunks = this.chunkHue.length;
    this.byLink = new Groups(this.link, network.size);
    this.byChunk = new Groups(this.chunk, this.numChunks);
    this.byHue = new Groups(this.chunkHue, this.hues.length);
    this.load = new Float64Array(network.size);
    for (let row = 0; row < this.numSends; row++) this.load[this.link[row]] += this.busy[row];
    for (let link = 0; link < network.size; link++) this.load[link] /= Math.max(1, this.finish);
    this.bottleneck = this.numSends ? this.load.indexOf(Math.max(...peaks(this.load))) : null;
    this.wanted = new Int32Array(network.nodes.length);
    for (let row = 0; row < this.numSends; row++) {
      if (this.flags[row] & FINAL) this.wanted[network.dst[this.link[row]]]++;
    }
    this.numDeliveries = this.wanted.reduce((sum, wanted) => sum + wanted, 0);
  }

  colour(row) {
    return hueColour(this.chunkHue[this.chunk[row]], this.hues.length);
  }

  bytes(chunk) {
    return this.sizes[this.chunkSize[chunk]];
  }

  /** A chunk as people read it: whose it is and which piece. */
  chunkName(chunk) {
    const wants = this.sets[this.chunkWants[chunk]];
    const hue = this.hues[this.chunkHue[chunk]];
    let text = `chunk ${chunk} (`;
    if (this.chunkReduce[chunk]) text += `sum, ${this.huesBy} ${hue}`.replace("block block", "block");
    else text += this.huesBy === "source" ? hue : this.network.nodes[this.sets[this.chunkSources[chunk]][0]].name;
    if (wants.length === 1 && !this.chunkReduce[chunk]) text += ` to ${this.network.nodes[wants[0]].name}`;
    return `${text}, piece ${this.chunkPiece[chunk]})`;
  }

  end(row) {
    return this.start[row] + this.busy[row];
  }

  /** How many sends have begun by a time. */
  begun(time) {
    let low = 0;
    let high = this.numSends;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.start[middle] <= time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Rows on the wire and rows only in flight at a time, and deliveries done by then per node. */
  at(time) {
    const busy = [];
    const flying = [];
    const done = new Int32Array(this.network.nodes.length);
    const begun = this.begun(time);
    for (let row = 0; row < begun; row++) {
      if (this.arrival[row] <= time) {
        if (this.flags[row] & FINAL) done[this.network.dst[this.link[row]]]++;
      } else if (this.end(row) > time) busy.push(row);
      else flying.push(row);
    }
    return { busy, flying, done };
  }

  /** When each GPU first holds a chunk, a sum when it is complete; GPUs that never do are absent. */
  holders(chunk) {
    if (this.chunkReduce[chunk]) {
      const whole = Array.from(this.byChunk.of(chunk)).filter((row) => this.flags[row] & FINAL);
      return new Map(whole.map((row) => [this.network.dst[this.link[row]], this.arrival[row]]));
    }
    const since = new Map(this.sets[this.chunkSources[chunk]].map((node) => [node, 0]));
    for (const row of this.byChunk.of(chunk)) {
      const node = this.network.dst[this.link[row]];
      if (!this.network.isGpu(node)) continue;
      const known = since.get(node);
      if (known === undefined || this.arrival[row] < known) since.set(node, this.arrival[row]);
    }
    return since;
  }

  /** The sends of a chunk in time order, each with the one that fed it and its depth. */
  hops(chunk) {
    const rows = [...this.byChunk.of(chunk)];
    const hops = rows.map((row) => ({ row, parent: null, depth: 0 }));
    hops.forEach((hop, i) => {
      const src = this.network.src[this.link[hop.row]];
      let best = null;
      for (let j = 0; j < hops.length; j++) {
        if (j === i || this.network.dst[this.link[hops[j].row]] !== src) continue;
        const isPassage = !this.network.isGpu(src);
        const feeds = isPassage
          ? this.transfer[hops[j].row] === this.transfer[hop.row]
          : this.arrival[hops[j].row] <= this.start[hop.row];
        if (feeds && (best === null || this.arrival[hops[j].row] > this.arrival[hops[best].row])) best = j;
      }
      const isOwn = !this.chunkReduce[chunk] && this.sets[this.chunkSources[chunk]].includes(src);
      hop.parent = isOwn ? null : best;
    });
    const depth = (i, guard = hops.length) =>
      hops[i].parent === null || guard === 0 ? 0 : 1 + depth(hops[i].parent, guard - 1);
    hops.forEach((hop, i) => { hop.depth = depth(i); });
    return hops;
  }

  /**
   * Waits of received chunks: node, from its arrival, until its last departure.
   *
   * A forward of a copied chunk draws on the latest arrival up to its start, one of a sum on all
   * arrivals since something was last stored in its place. Own data of a copied chunk never waits.
   */
  waits() {
    const waits = [];
    // Chunk by chunk, so that what is sorted stays small.
    for (let chunk = 0; chunk < this.numChunks; chunk++) waits.push(...this.waitsOf(chunk));
    return waits;
  }

  waitsOf(chunk) {
    const visits = [];
    for (const row of this.byChunk.of(chunk)) {
      const [src, dst] = [this.network.src[this.link[row]], this.network.dst[this.link[row]]];
      if (this.mayWait(row, dst)) visits.push({ node: dst, row, time: this.arrival[row], leaves: 0 });
      if (this.mayWait(row, src)) visits.push({ node: src, row, time: this.start[row], leaves: 1 });
    }
    const stores = (visit) => (!visit.leaves && !(this.flags[visit.row] & REDUCE) ? 1 : 0);
    visits.sort((a, b) => a.node - b.node || a.time - b.time || a.leaves - b.leaves || stores(a) - stores(b));
    const waits = [];
    let wait = null;
    let node = null;
    for (const visit of visits) {
      if (visit.node !== node) wait = null;
      node = visit.node;
      if (visit.leaves && wait !== null) {
        if (wait.until < 0) waits.push(wait);
        wait.until = visit.time;
      } else if (!visit.leaves && (wait === null || stores(visit))) {
        wait = { node, from: visit.time, until: -1 };
      }
    }
    return waits.filter((each) => each.until > each.from);
  }

  mayWait(row, node) {
    if (!this.network.isGpu(node)) return false;
    const chunk = this.chunk[row];
    if (this.chunkReduce[chunk]) return true;
    return !this.sets[this.chunkSources[chunk]].includes(node);
  }

  /** The times at which something begins or arrives, each once. */
  events() {
    const times = new Float64Array(2 * this.numSends + 1);
    times.set(this.start, 1);
    times.set(this.arrival, 1 + this.numSends);
    times.sort();
    return times.filter((time, i) => i === 0 || time !== times[i - 1]);
  }
}

/** Maxima of pieces of an array: a call cannot take more arguments than fit the stack. */
function peaks(values) {
  const found = [0];
  for (let i = 0; i < values.length; i += 10000) found.push(Math.max(...values.subarray(i, i + 10000)));
  return found;
}
