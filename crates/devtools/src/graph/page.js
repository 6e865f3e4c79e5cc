// Draws the graph on a canvas, only what is in view, and answers to the mouse. All text is drawn or set as text.
const data = JSON.parse(document.getElementById("data").textContent);
const canvas = document.getElementById("graph"), pen = canvas.getContext("2d");
const panel = document.getElementById("details"), found = document.getElementById("found");
const search = document.getElementById("search"), chooser = document.getElementById("method");
let nodes = [], users = [], collapsed = new Set(), drawn = null, selected = -1, view = { scale: 1, x: 0, y: 0 }, depth = 0;

const short = name => name.replace(/^aten::/, "");
const size = bytes => bytes == null ? "" : bytes < 1e3 ? `${bytes} B` : bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB`
  : bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(2)} GB`;
const titleOf = box => box.prefix !== null && box.nodes.length > 1 ? box.prefix : short(nodes[box.nodes[0]].operator);
const lineOf = box => {
  if (box.prefix !== null && box.nodes.length > 1) return `${box.nodes.length} nodes`;
  const node = nodes[box.nodes[0]];
  return node.kind === "operator" ? node.results.map(result => result.type).join(", ") : node.name;
};
const hue = text => [...text].reduce((hash, c) => (hash * 31 + c.codePointAt(0)) >>> 0, 0) % 360;
const layerY = at => at * (ROW + GAP_Y);

function show(method) {
  nodes = data.methods[method]?.nodes ?? [];
  users = nodes.map(() => []);
  nodes.forEach((node, index) => new Set(node.inputs.map(([source]) => source)).forEach(source => users[source].push(index)));
  selected = -1;
  depth = deepest();
  // Many nodes are first shown as their modules.
  while (depth > 1 && boxesOf(nodes, atDepth(depth)).boxes.length > 400) depth--;
  collapsed = depth < deepest() || nodes.length > 400 ? atDepth(depth) : new Set();
  details();
  arrange(true);
}

const deepest = () => nodes.reduce((most, node) => Math.max(most, prefixes(node.group).length), 0);

function atDepth(depth) {
  const chosen = new Set();
  for (const node of nodes) {
    const all = prefixes(node.group);
    if (all.length >= depth && depth > 0) chosen.add(all[depth - 1]);
  }
  return chosen;
}

function arrange(fit) {
  pen.font = "12px system-ui, sans-serif";
  const width = box => Math.min(300, Math.max(70, 16 + Math.max(pen.measureText(titleOf(box).slice(0, 60)).width,
    pen.measureText(lineOf(box).slice(0, 60)).width)));
  drawn = layout(nodes, collapsed, width);
  document.getElementById("count").textContent = `${nodes.length} nodes, ${drawn.boxes.length} shown`;
  if (fit) fitAll();
  draw();
}

function fitAll() {
  let left = Infinity, right = -Infinity;
  drawn.boxes.forEach((_, item) => {
    left = Math.min(left, drawn.x[item] - drawn.widths[item] / 2);
    right = Math.max(right, drawn.x[item] + drawn.widths[item] / 2);
  });
  if (left > right) [left, right] = [0, 1];
  const height = layerY(drawn.layers.length);
  // A small graph is enlarged until it fills the window.
  const scale = Math.min(canvas.clientWidth / (right - left + 80), canvas.clientHeight / (height + 80), 2);
  // A long graph starts at its top, large enough to read.
  view.scale = Math.max(scale, Math.min(0.6, canvas.clientWidth / (right - left + 80)));
  view.x = canvas.clientWidth / 2 - view.scale * (left + right) / 2;
  view.y = 40;
}

function draw() {
  const style = getComputedStyle(document.body);
  const ink = style.color, accent = "#d33";
  const ratio = window.devicePixelRatio || 1;
  canvas.width = canvas.clientWidth * ratio;
  canvas.height = canvas.clientHeight * ratio;
  pen.setTransform(ratio * view.scale, 0, 0, ratio * view.scale, ratio * view.x, ratio * view.y);
  const top = -view.y / view.scale, bottom = (canvas.clientHeight - view.y) / view.scale;
  const left = -view.x / view.scale, right = (canvas.clientWidth - view.x) / view.scale;
  const first = Math.max(0, Math.floor(top / (ROW + GAP_Y)) - 1);
  const last = Math.min(drawn.layers.length - 1, Math.ceil(bottom / (ROW + GAP_Y)));
  const boxes = drawn.boxes.length;
  const line = (from, to) => {
    const y = layerY(drawn.layer[from]) + ROW, end = layerY(drawn.layer[to]), middle = (y + end) / 2;
    pen.moveTo(drawn.x[from], y);
    pen.bezierCurveTo(drawn.x[from], middle, drawn.x[to], middle, drawn.x[to], end);
  };
  const pass = lane => {
    pen.moveTo(drawn.x[lane], layerY(drawn.layer[lane]));
    pen.lineTo(drawn.x[lane], layerY(drawn.layer[lane]) + ROW);
  };
  pen.lineWidth = 1 / Math.min(view.scale, 1);
  pen.strokeStyle = ink;
  pen.globalAlpha = 0.35;
  pen.beginPath();
  for (let at = first; at <= last; at++) {
    for (const item of drawn.layers[at]) {
      if (item >= boxes) pass(item);
      for (const to of drawn.below[item]) line(item, to);
    }
  }
  for (const [from, to] of drawn.long) {
    if (drawn.layer[to] >= first && drawn.layer[from] <= last) line(from, to);
  }
  pen.stroke();
  pen.globalAlpha = 1;
  const chosen = selected < 0 ? -1 : drawn.boxOf[selected];
  if (chosen >= 0) {
    pen.strokeStyle = accent;
    pen.lineWidth = 2 / Math.min(view.scale, 1);
    pen.beginPath();
    for (let item of drawn.above[chosen]) {
      line(item, chosen);
      for (; item >= boxes; item = drawn.above[item][0]) {
        pass(item);
        line(drawn.above[item][0], item);
      }
    }
    const rest = [chosen];
    while (rest.length) {
      const item = rest.pop();
      if (item >= boxes) pass(item);
      for (const to of drawn.below[item]) {
        line(item, to);
        if (to >= boxes) rest.push(to);
      }
    }
    pen.stroke();
  }
  const hits = new Set(matches.map(node => drawn.boxOf[node]));
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  pen.textBaseline = "middle";
  for (let at = first; at <= last; at++) {
    for (const item of drawn.layers[at]) {
      if (item >= boxes) continue;
      const width = drawn.widths[item], x = drawn.x[item] - width / 2, y = layerY(at);
      if (x + width < left || x > right) continue;
      const box = drawn.boxes[item], isModule = box.prefix !== null && box.nodes.length > 1;
      const title = titleOf(box);
      pen.fillStyle = isModule ? (dark ? "#444" : "#ddd") : `hsl(${hue(title)} 45% ${dark ? 28 : 86}%)`;
      pen.fillRect(x, y, width, ROW);
      if (item === chosen || hits.has(item)) {
        pen.strokeStyle = item === chosen ? accent : "#07f";
        pen.lineWidth = 2.5 / Math.min(view.scale, 1);
        pen.strokeRect(x, y, width, ROW);
      }
      if (view.scale < 0.3) continue;
      pen.fillStyle = ink;
      pen.save();
      pen.beginPath();
      pen.rect(x, y, width, ROW);
      pen.clip();
      pen.font = `${isModule ? "bold " : ""}12px system-ui, sans-serif`;
      pen.fillText(title, x + 8, y + 11);
      pen.font = "11px system-ui, sans-serif";
      pen.globalAlpha = 0.7;
      pen.fillText(lineOf(box), x + 8, y + 25);
      pen.restore();
    }
  }
}

function element(name, text, parent) {
  const made = document.createElement(name);
  if (text != null) made.textContent = text;
  parent?.append(made);
  return made;
}

function link(index, parent) {
  const node = nodes[index], button = element("button", `${node.name} · ${short(node.operator)}`, parent);
  button.onclick = () => { selected = index; reveal(index); details(); };
  return button;
}

function details() {
  panel.replaceChildren();
  if (selected < 0) {
    element("p", "Click a node to see it. Double-click a module to open it. Drag to move, wheel to zoom, / to search.", panel);
    return;
  }
  const node = nodes[selected], list = element("dl", null, panel);
  const row = (name, text) => {
    if (text == null || text === "") return;
    element("dt", name, list);
    element("dd", text, list);
  };
  row(node.kind, node.name);
  row("operator", node.operator);
  for (const result of node.results) row("result", `${result.name} : ${result.type}  ${size(result.bytes)}`);
  row("module", node.module);
  row("source", node.source);
  for (const [name, text] of node.arguments) row(name, text);
  for (const constant of node.constants) row(constant.kind, `${constant.name} : ${constant.type}  ${size(constant.bytes)}`);
  const links = (name, indices) => {
    if (!indices.length) return;
    element("dt", name, list);
    const cell = element("dd", null, list);
    for (const index of indices.slice(0, 200)) link(index, cell);
    if (indices.length > 200) element("span", `and ${indices.length - 200} more`, cell);
  };
  links("takes from", [...new Set(node.inputs.map(([source]) => source))]);
  links("consumers", users[selected]);
  const modules = prefixes(node.group);
  if (modules.length) {
    element("dt", "collapse", list);
    const cell = element("dd", null, list);
    for (const prefix of modules) element("button", prefix, cell).onclick = () => { collapsed.add(prefix); arrange(false); center(selected); };
  }
}

// Opens the modules that hide a node, and moves to it.
function reveal(index) {
  let changed = false;
  for (const prefix of prefixes(nodes[index].group)) changed = collapsed.delete(prefix) || changed;
  if (changed) arrange(false);
  center(index);
}

function center(index) {
  const item = drawn.boxOf[index];
  view.scale = Math.max(view.scale, 0.7);
  view.x = canvas.clientWidth / 2 - view.scale * drawn.x[item];
  view.y = canvas.clientHeight / 2 - view.scale * (layerY(drawn.layer[item]) + ROW / 2);
  draw();
}

// Opens a module: what is directly in it is shown, the modules in it as boxes.
function open(box) {
  collapsed.delete(box.prefix);
  for (const index of box.nodes) {
    const inner = prefixes(nodes[index].group).find(prefix => prefix.length > box.prefix.length);
    if (inner) collapsed.add(inner);
  }
  arrange(false);
  center(box.nodes[0]);
}

function boxAt(event) {
  const bounds = canvas.getBoundingClientRect();
  const x = (event.clientX - bounds.left - view.x) / view.scale, y = (event.clientY - bounds.top - view.y) / view.scale;
  const at = Math.floor(y / (ROW + GAP_Y));
  if (y - layerY(at) > ROW) return -1;
  return (drawn.layers[at] ?? []).find(item => item < drawn.boxes.length && Math.abs(drawn.x[item] - x) <= drawn.widths[item] / 2) ?? -1;
}

function zoom(factor, x, y) {
  const scale = Math.min(4, Math.max(0.005, view.scale * factor));
  view.x = x - (x - view.x) * scale / view.scale;
  view.y = y - (y - view.y) * scale / view.scale;
  view.scale = scale;
  draw();
}

let drag = null;
canvas.addEventListener("pointerdown", event => {
  drag = { x: event.clientX, y: event.clientY, moved: false };
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointermove", event => {
  if (!drag) return;
  const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
  if (!drag.moved && Math.hypot(dx, dy) < 4) return;
  drag = { x: event.clientX, y: event.clientY, moved: true };
  view.x += dx;
  view.y += dy;
  draw();
});
canvas.addEventListener("pointerup", event => {
  if (drag && !drag.moved) {
    const item = boxAt(event);
    selected = item < 0 ? -1 : drawn.boxes[item].nodes[0];
    details();
    draw();
  }
  drag = null;
});
canvas.addEventListener("dblclick", event => {
  const box = drawn.boxes[boxAt(event)];
  if (box?.prefix != null && box.nodes.length > 1) open(box);
});
canvas.addEventListener("wheel", event => {
  event.preventDefault();
  const bounds = canvas.getBoundingClientRect();
  zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), event.clientX - bounds.left, event.clientY - bounds.top);
}, { passive: false });

let matches = [], at = -1;
search.addEventListener("input", () => {
  const words = search.value.toLowerCase().split(/\s+/).filter(word => word);
  const text = node => [node.name, node.operator, node.module, ...node.results.map(result => result.type)].join(" ").toLowerCase();
  matches = words.length ? nodes.flatMap((node, index) => words.every(word => text(node).includes(word)) ? [index] : []) : [];
  at = -1;
  found.replaceChildren();
  if (words.length) element("p", `${matches.length} found`, found);
  for (const index of matches.slice(0, 200)) link(index, found);
  draw();
});
search.addEventListener("keydown", event => {
  if (event.key !== "Enter" || !matches.length) return;
  at = (at + (event.shiftKey ? matches.length - 1 : 1)) % matches.length;
  selected = matches[at];
  reveal(selected);
  details();
});
document.addEventListener("keydown", event => {
  if (event.key === "/" && document.activeElement !== search) {
    event.preventDefault();
    search.focus();
  }
});
const onClick = (id, act) => document.getElementById(id).addEventListener("click", act);
onClick("in", () => zoom(1.4, canvas.clientWidth / 2, canvas.clientHeight / 2));
onClick("out", () => zoom(1 / 1.4, canvas.clientWidth / 2, canvas.clientHeight / 2));
onClick("fit", () => { fitAll(); draw(); });
onClick("fold", () => { depth = Math.max(1, Math.min(depth, deepest()) - 1); collapsed = atDepth(depth); arrange(true); });
onClick("unfold", () => {
  depth = Math.min(depth + 1, deepest() + 1);
  collapsed = depth > deepest() ? new Set() : atDepth(depth);
  arrange(true);
});
data.methods.forEach((method, index) => { element("option", method.name, chooser).value = index; });
chooser.hidden = data.methods.length < 2;
chooser.addEventListener("change", () => show(Number(chooser.value)));
window.addEventListener("resize", draw);
show(0);
