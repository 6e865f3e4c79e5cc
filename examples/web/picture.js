// A square picture: drawn, opened, dropped, or of the camera.

import { element } from './dom.js';

const SIDE = 448;

/** Shows the picture in `place`, and calls `changed` when it has another. */
export function picture(place, changed) {
  const base = element('canvas', { class: 'draw', width: SIDE, height: SIDE, tabindex: 0, 'aria-label': 'Picture: draw here' });
  const over = element('canvas', { class: 'over', width: 1, height: 1 });
  const hint = element('p', {}, 'Draw here');
  const context = base.getContext('2d', { willReadFrequently: true });
  const input = element('input', { type: 'file', accept: 'image/*', onchange: () => input.files[0] && open(input.files[0]) });
  const camera = element('button', { type: 'button', onclick: () => (stream ? pause() : film()) }, 'Camera');
  place.replaceChildren(
    element('div', { class: 'stage' }, base, over, hint),
    element(
      'div',
      { class: 'buttons' },
      camera,
      element('label', { class: 'file' }, 'Picture', input),
      element('button', { type: 'button', onclick: () => clear() }, 'Clear'),
    ),
  );

  let stream = null;
  let isDrawing = false;

  const erase = () => {
    context.fillStyle = '#10141d';
    context.fillRect(0, 0, SIDE, SIDE);
    over.width = 1;
  };
  const clear = () => {
    pause();
    isDrawing = false;
    hint.hidden = false;
    erase();
    changed(null);
  };

  /** Draws the middle square of an image. */
  const show = (image, width, height) => {
    const side = Math.min(width, height);
    context.drawImage(image, (width - side) / 2, (height - side) / 2, side, side, 0, 0, SIDE, SIDE);
    hint.hidden = true;
    isDrawing = false;
  };

  async function open(file) {
    pause();
    const image = await createImageBitmap(file);
    show(image, image.width, image.height);
    await changed(base);
  }

  async function film() {
    try {
      stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: 'environment' } });
    } catch (error) {
      hint.textContent = `There is no camera: ${error.message}`;
      hint.hidden = false;
      return;
    }
    const video = element('video', { playsinline: true, muted: true });
    video.srcObject = stream;
    await video.play();
    camera.textContent = 'Stop';
    const own = stream;
    while (stream === own) {
      show(video, video.videoWidth, video.videoHeight);
      await changed(base);
      await new Promise(resolve => requestAnimationFrame(resolve));
    }
  }

  function pause() {
    stream?.getTracks().forEach(track => track.stop());
    stream = null;
    camera.textContent = 'Camera';
  }

  const at = event => {
    const { left, top, width, height } = base.getBoundingClientRect();
    return [((event.clientX - left) / width) * SIDE, ((event.clientY - top) / height) * SIDE];
  };
  base.addEventListener('pointerdown', event => {
    pause();
    if (!isDrawing) {
      erase();
      isDrawing = true;
      hint.hidden = true;
    }
    base.setPointerCapture(event.pointerId);
    Object.assign(context, { strokeStyle: '#fff', lineWidth: SIDE / 14, lineCap: 'round', lineJoin: 'round' });
    context.beginPath();
    context.moveTo(...at(event));
    context.lineTo(...at(event));
    context.stroke();
  });
  base.addEventListener('pointermove', event => {
    if (event.buttons && base.hasPointerCapture(event.pointerId)) {
      context.lineTo(...at(event));
      context.stroke();
      changed(base);
    }
  });
  base.addEventListener('pointerup', () => changed(base));

  erase();
  return { open, pause, over, canvas: base };
}

/**
 * The input of a model of ink: grey, bright on dark, with all of the contrast. With `fit`, the ink fills the height or the width.
 */
export function ink(canvas, [rows, columns], fit) {
  const side = fit ? 64 : Math.max(rows, columns);
  const grey = greys(canvas, 0, 0, canvas.width, side, side);
  const mean = grey.reduce((sum, value) => sum + value, 0) / grey.length;
  const isPaper = mean > 0.5;
  const bright = value => Math.max(0, Math.min(1, ((isPaper ? 1 - value : value) - 0.12) / 0.75));
  if (!fit) {
    return grey.map(bright);
  }
  const found = [...grey.keys()].filter(index => bright(grey[index]) > 0.35);
  if (found.length === 0) {
    return new Float32Array(rows * columns);
  }
  const [xs, ys] = [found.map(index => index % side), found.map(index => Math.floor(index / side))];
  const [left, right] = [Math.min(...xs), Math.max(...xs) + 1];
  const [top, bottom] = [Math.min(...ys), Math.max(...ys) + 1];
  const extent = Math.max(right - left, bottom - top);
  const scale = canvas.width / side;
  const [x, y] = [(left + right - extent) / 2, (top + bottom - extent) / 2];
  return greys(canvas, x * scale, y * scale, extent * scale, rows, columns).map(bright);
}

/** The luma of a square of a canvas, 0 to 1, in another size. */
function greys(canvas, x, y, side, rows, columns) {
  const small = new OffscreenCanvas(columns, rows).getContext('2d', { willReadFrequently: true });
  small.fillStyle = '#10141d';
  small.fillRect(0, 0, columns, rows);
  small.imageSmoothingQuality = 'high';
  // Halved first: a browser's smoothing looks at few pixels.
  let source = canvas;
  let [sx, sy, of] = [x, y, side];
  while (of > 2 * columns) {
    const half = new OffscreenCanvas(Math.ceil(of / 2), Math.ceil(of / 2));
    half.getContext('2d').drawImage(source, sx, sy, of, of, 0, 0, of / 2, of / 2);
    [source, sx, sy, of] = [half, 0, 0, of / 2];
  }
  small.drawImage(source, sx, sy, of, of, 0, 0, columns, rows);
  const { data } = small.getImageData(0, 0, columns, rows);
  return Float32Array.from({ length: rows * columns }, (_, at) => (0.299 * data[4 * at] + 0.587 * data[4 * at + 1] + 0.114 * data[4 * at + 2]) / 255);
}
