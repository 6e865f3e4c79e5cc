// A model as state of a component.

import { useEffect, useState } from 'react';
import { Module } from 'rushlight';

/** Loads a model when a component is shown, and frees it when it goes away. */
export function useModule(url) {
  const [state, setState] = useState({ module: null, error: null });
  useEffect(() => {
    const controller = new AbortController();
    const loaded = Module.load(url, { cache: true, signal: controller.signal });
    loaded.then(module => !controller.signal.aborted && setState({ module, error: null }))
      .catch(error => !controller.signal.aborted && setState({ module: null, error }));
    return () => {
      controller.abort();
      loaded.then(module => module.dispose(), () => {});
    };
  }, [url]);
  return state;
}
