import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

export default defineConfig({
  base: './',
  plugins: [react()],
  // The package finds its WebAssembly beside its files: the server must not move them.
  optimizeDeps: { exclude: ['rushlight'] },
  build: { target: 'esnext' },
  worker: { format: 'es' },
});
