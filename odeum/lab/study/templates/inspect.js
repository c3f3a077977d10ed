"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const play = $("play"), clock = $("clock"), depth = $("depth"), tip = $("tip"), names = $("names"), choice = $("sequence");
  const canvases = [...document.querySelectorAll("canvas.field")];
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const SECONDS_PER_LAYER = 0.8;
  let scene = data.scenes[0], now = 0, playing = false, last = 0, onPaper = false;
  const layers = () => Math.max(...scene.sides.map((side) => side.points.length - 1));
  const pictures = new Map();

  function pictureOf(side) {
    if (!side.image) return null;
    if (!pictures.has(side.image.data)) {
      const image = new Image();
      image.onload = draw;
      image.src = side.image.data;
      pictures.set(side.image.data, image);
    }
    const image = pictures.get(side.image.data);
    return image.complete && image.naturalWidth ? image : null;
  }

  // All sides share one clock: `now` runs from 0 (the input) to 1 (after the last layer).
  function place(side, token) {
    const at = now * (side.points.length - 1), from = Math.min(Math.floor(at + 1e-9), side.points.length - 1);
    const to = Math.min(from + 1, side.points.length - 1), part = at - from;
    const a = side.points[from][token], b = side.points[to][token];
    return [a[0] + (b[0] - a[0]) * part, a[1] + (b[1] - a[1]) * part];
  }

  function scaled(canvas, point) {
    const w = canvas.clientWidth, h = canvas.clientHeight, size = Math.min(w, h) - 60;
    return [w / 2 + (point[0] / 10000 - 0.5) * size * (w > h ? Math.min(w / h, 1.35) : 1), h / 2 - (point[1] / 10000 - 0.5) * size];
  }

  function drawSide(canvas, side) {
    const dark = !onPaper && matchMedia("(prefers-color-scheme: dark)").matches;
    const ink = onPaper ? "#1b1f24" : getComputedStyle(document.documentElement).getPropertyValue("--ink");
    const ratio = window.devicePixelRatio || 1, w = canvas.clientWidth, h = canvas.clientHeight;
    if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
      canvas.width = Math.round(w * ratio);
      canvas.height = Math.round(h * ratio);
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, w, h);
    const count = side.names.length;
    const colour = (i) => `hsl(${Math.round((300 * i) / Math.max(1, count))} 70% ${dark ? 66 : 42}%)`;
    for (let i = 0; i < count; i++) {
      pen.strokeStyle = colour(i);
      pen.globalAlpha = 0.35;
      pen.beginPath();
      side.points.forEach((state, t) => {
        const [x, y] = scaled(canvas, state[i]);
        if (t) pen.lineTo(x, y); else pen.moveTo(x, y);
      });
      pen.stroke();
    }
    const image = pictureOf(side), patch = image && Math.max(9, Math.min(26, w / 24));
    pen.font = "11px system-ui, sans-serif";
    const taken = [];
    for (let i = 0; i < count; i++) {
      const [x, y] = scaled(canvas, place(side, i)), number = image ? side.places[i] - side.image.extra : -1;
      pen.globalAlpha = 1;
      pen.fillStyle = pen.strokeStyle = colour(i);
      if (image && number >= 0) {
        const cut = side.image.side, step = [image.naturalWidth / cut, image.naturalHeight / cut];
        pen.imageSmoothingEnabled = false;
        pen.drawImage(image, (number % cut) * step[0], Math.floor(number / cut) * step[1], step[0], step[1], x - patch / 2, y - patch / 2, patch, patch);
        pen.strokeRect(x - patch / 2, y - patch / 2, patch, patch);
      } else {
        pen.beginPath();
        pen.arc(x, y, 4.2, 0, 7);
        pen.fill();
      }
      if (names.checked && !(image && number >= 0)) {
        const text = side.names[i], wide = pen.measureText(text).width, left = x + 7 + wide > w ? x - 7 - wide : x + 7;
        if (!taken.some((box) => left < box[0] + box[2] && box[0] < left + wide && Math.abs(y - box[1]) < 11)) {
          taken.push([left, y, wide]);
          pen.fillStyle = ink;
          pen.fillText(text, left, y + 4);
        }
      }
    }
    canvas.dataset.first = scaled(canvas, place(side, 0)).map((v) => v.toFixed(1)).join(" ");
  }

  function draw() {
    scene.sides.forEach((side, i) => drawSide(canvases[i], side));
    const side = scene.sides[0], at = now * (side.points.length - 1), whole = Math.round(at);
    depth.value = Math.abs(at - whole) > 0.02 ? `in layer ${side.first + Math.floor(at)}` : side.first + whole === 0 ? "input" : `after layer ${side.first + whole - 1}`;
    clock.value = String(Math.round(now * 1000));
    clock.setAttribute("aria-valuetext", depth.value);
    document.querySelectorAll(".chart .now").forEach((line) => {
      line.setAttribute("x1", String(220 * now));
      line.setAttribute("x2", String(220 * now));
    });
  }

  function set(value) {
    now = Math.max(0, Math.min(1, value));
    draw();
  }

  function toggle(on) {
    playing = on;
    play.textContent = on ? "❚❚ Pause" : "▶ Play";
    play.setAttribute("aria-pressed", String(on));
    if (on) {
      if (now >= 1) now = 0;
      last = performance.now();
      requestAnimationFrame(frame);
    }
  }

  function frame(time) {
    if (!playing) return;
    const passed = (time - last) / 1000;
    if (!still.matches) {
      last = time;
      set(now + Math.max(0, passed) / (SECONDS_PER_LAYER * layers()));
    } else if (passed >= SECONDS_PER_LAYER) {  // no motion: one layer at a time
      last = time;
      step(1);
    }
    if (now >= 1) toggle(false); else requestAnimationFrame(frame);
  }

  function step(by) {
    const n = layers();
    set((by > 0 ? Math.floor(now * n + 1e-6) + 1 : Math.ceil(now * n - 1e-6) - 1) / n);
  }

  function hover(event) {
    const canvas = event.currentTarget, side = scene.sides[Number(canvas.dataset.side)], box = canvas.getBoundingClientRect();
    let best = -1, near = 16;
    side.names.forEach((_, i) => {
      const [x, y] = scaled(canvas, place(side, i)), far = Math.hypot(event.clientX - box.left - x, event.clientY - box.top - y);
      if (far < near) { near = far; best = i; }
    });
    tip.hidden = best < 0;
    if (best < 0) return;
    const at = Math.round(now * (side.points.length - 1)), lens = side.lens && side.lens[at];
    const answer = lens ? `\nanswer here: ${lens.length === 1 ? lens[0] : lens[best]}` : "";
    tip.textContent = `${side.names[best]} (position ${side.places[best] + 1})${answer}`;
    tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${event.clientY + 14}px`;
  }

  play.addEventListener("click", () => toggle(!playing));
  clock.addEventListener("input", () => { toggle(false); set(Number(clock.value) / 1000); });
  names.addEventListener("change", draw);
  if (choice) choice.addEventListener("change", () => { scene = data.scenes[Number(choice.value)]; draw(); });
  canvases.forEach((canvas) => {
    canvas.addEventListener("pointermove", hover);
    canvas.addEventListener("pointerdown", hover);
    canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  });
  document.addEventListener("keydown", (event) => {
    const target = event.target.tagName;
    if (event.altKey || event.ctrlKey || event.metaKey || target === "SELECT") return;
    if (event.key === " " && target !== "BUTTON" && event.target.type !== "checkbox") toggle(!playing);
    else if (event.key === "ArrowRight") { toggle(false); step(1); }
    else if (event.key === "ArrowLeft") { toggle(false); step(-1); }
    else if (event.key === "Home") { toggle(false); set(0); }
    else if (event.key === "End") { toggle(false); set(1); }
    else return;
    event.preventDefault();
  });
  addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  addEventListener("beforeprint", () => { onPaper = true; set(1); });
  addEventListener("afterprint", () => { onPaper = false; draw(); });
  set(1);  // the ends of the paths say more than their common start; play begins at the input
})();
