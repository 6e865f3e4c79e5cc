// Where the nodes of a graph stand: in layers by their longest way from an input, from top to bottom. Values that pass by
// layers get a place in each of them, so that lines go around nodes. Takes O((n + e) log n) steps.
"use strict";

const ROW = 34, GAP_X = 18, GAP_Y = 30, LANE = 10;
// A value that is used later than this many layers below gets a straight line instead of places on the way.
const LONGEST_LANE = 400;

// The prefixes of a group path, the shortest first: a, a.b, a.b.c.
function prefixes(group) {
  const all = [];
  for (let at = group.indexOf("."); at >= 0; at = group.indexOf(".", at + 1)) all.push(group.slice(0, at));
  if (group) all.push(group);
  return all;
}

// Boxes of consecutive nodes: each run of nodes under one collapsed prefix is a box, every other node is one of its own.
// Nodes are in the order in which they run, so boxes never depend on each other in a circle.
function boxesOf(nodes, collapsed) {
  const boxes = [], boxOf = new Int32Array(nodes.length);
  for (let i = 0; i < nodes.length; i++) {
    const prefix = prefixes(nodes[i].group).find(prefix => collapsed.has(prefix)) ?? null;
    const last = boxes[boxes.length - 1];
    if (prefix !== null && last && last.prefix === prefix) last.nodes.push(i);
    else boxes.push({ prefix, nodes: [i] });
    boxOf[i] = boxes.length - 1;
  }
  return { boxes, boxOf };
}

// The boxes that each box takes values from, each once.
function edgesOf(nodes, boxes, boxOf) {
  return boxes.map((box, index) => {
    const sources = new Set();
    for (const node of box.nodes) for (const [source] of nodes[node].inputs) sources.add(boxOf[source]);
    sources.delete(index);
    return [...sources];
  });
}

function layersOf(sources) {
  const layer = new Int32Array(sources.length);
  sources.forEach((from, index) => {
    for (const source of from) layer[index] = Math.max(layer[index], layer[source] + 1);
  });
  // What takes nothing stands just above the first box that takes from it.
  const first = new Int32Array(sources.length).fill(-1);
  sources.forEach((from, index) => {
    for (const source of from) {
      if (first[source] < 0 || layer[index] < first[source]) first[source] = layer[index];
    }
  });
  sources.forEach((from, index) => {
    if (!from.length && first[index] > 0) layer[index] = first[index] - 1;
  });
  return layer;
}

// Positions with the given distances between neighbours that are nearest to what each wants: isotonic regression.
function place(wanted, weights, widths) {
  const offsets = [];
  let offset = 0;
  widths.forEach((width, i) => {
    offset += i ? (widths[i - 1] + width) / 2 + GAP_X : 0;
    offsets.push(offset);
  });
  const blocks = [];
  for (let i = 0; i < wanted.length; i++) {
    let block = { sum: (wanted[i] - offsets[i]) * weights[i], weight: weights[i], count: 1 };
    while (blocks.length) {
      const last = blocks[blocks.length - 1];
      if (last.sum / last.weight <= block.sum / block.weight) break;
      blocks.pop();
      block = { sum: last.sum + block.sum, weight: last.weight + block.weight, count: last.count + block.count };
    }
    blocks.push(block);
  }
  const placed = [];
  for (const block of blocks) {
    for (let i = 0; i < block.count; i++) placed.push(block.sum / block.weight + offsets[placed.length]);
  }
  return placed;
}

// Everything that is drawn. Items 0..boxes.length are the boxes; the rest are places of values that pass by.
function layout(nodes, collapsed, widthOf) {
  const { boxes, boxOf } = boxesOf(nodes, collapsed);
  const sources = edgesOf(nodes, boxes, boxOf);
  const layer = [...layersOf(sources)];
  const widths = boxes.map(widthOf);
  const above = boxes.map(() => []), below = boxes.map(() => []);
  const consumers = boxes.map(() => []);
  sources.forEach((from, index) => from.forEach(source => consumers[source].push(index)));
  const long = [];
  boxes.forEach((_, source) => {
    const isNear = index => layer[index] - layer[source] <= LONGEST_LANE;
    const near = consumers[source].filter(isNear);
    for (const index of consumers[source]) if (!isNear(index)) long.push([source, index]);
    near.sort((a, b) => layer[a] - layer[b]);
    let tip = source;
    for (const index of near) {
      while (layer[tip] < layer[index] - 1) {
        const lane = layer.length;
        layer.push(layer[tip] + 1);
        widths.push(LANE);
        above.push([tip]);
        below.push([]);
        below[tip].push(lane);
        tip = lane;
      }
      above[index].push(tip);
      below[tip].push(index);
    }
  });
  const layers = [];
  layer.forEach((at, item) => { (layers[at] ??= []).push(item); });
  for (let at = 0; at < layers.length; at++) layers[at] ??= [];
  const x = order(layers, above, below, widths, boxes.length);
  return { boxes, boxOf, sources, consumers, layer, layers, widths, above, below, x, long };
}

// Sorts each layer by where its neighbours are, and gives every item its horizontal centre.
function order(layers, above, below, widths, boxes) {
  const x = new Float64Array(widths.length);
  const mean = (items, otherwise) => items.length ? items.reduce((sum, item) => sum + x[item], 0) / items.length : otherwise;
  for (const items of layers) items.forEach((item, index) => { x[item] = index; });
  const sort = (items, near) => {
    const wanted = new Map(items.map(item => [item, mean(near[item], x[item])]));
    items.sort((a, b) => wanted.get(a) - wanted.get(b));
    items.forEach((item, index) => { x[item] = index; });
  };
  for (let sweep = 0; sweep < 4; sweep++) {
    for (let at = 1; at < layers.length; at++) sort(layers[at], above);
    for (let at = layers.length - 2; at >= 0; at--) sort(layers[at], below);
  }
  for (const items of layers) {
    place(items.map(() => 0), items.map(() => 1), items.map(item => widths[item])).forEach((at, index) => { x[items[index]] = at; });
  }
  const settle = (items, near) => {
    const wanted = items.map(item => mean(near(item), x[item]));
    const weights = items.map(item => item >= boxes ? 4 : 1);
    place(wanted, weights, items.map(item => widths[item])).forEach((at, index) => { x[items[index]] = at; });
  };
  for (let sweep = 0; sweep < 4; sweep++) {
    for (let at = 1; at < layers.length; at++) settle(layers[at], item => above[item]);
    for (let at = layers.length - 2; at >= 0; at--) settle(layers[at], item => below[item]);
  }
  for (const items of layers) settle(items, item => [...above[item], ...below[item]]);
  return x;
}

if (typeof module !== "undefined") module.exports = { boxesOf, layersOf, layout, place, prefixes };
