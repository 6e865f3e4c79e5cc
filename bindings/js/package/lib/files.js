// Files that are read into the memory of an instance.

import { open } from './source.js';

/** Calls `use` with the bytes of all sources, and transfers their ownership. A damaged file is fetched again the next time. */
export async function withFiles(instance, sources, { progress, cache, signal }, use) {
  const opened = [];
  const handles = [];
  try {
    for (const source of sources) {
      const one = await open(source, { cache, signal });
      opened.push(one);
      handles.push(await instance.read(one, progress));
    }
    return await use(handles.splice(0));
  } catch (error) {
    handles.forEach(handle => instance.free(handle));
    await Promise.all(opened.map(one => one.forget?.()));
    throw error;
  } finally {
    await Promise.all(opened.map(one => one.close?.()));
  }
}
