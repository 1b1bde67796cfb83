import { defineConfig } from "vite";

// What is built is committed: nothing in it may depend on the time or the machine.
export default defineConfig({
  base: "./", // a proxy may serve the console below another path
  resolve: { dedupe: ["@bufbuild/protobuf", "@connectrpc/connect"] },
  build: { outDir: "../dist", emptyOutDir: true, target: "es2022", modulePreload: false, assetsInlineLimit: 0 },
  // With `npm run dev`, `skein demo` answers the calls.
  server: { proxy: { "^/(skein\\.v1|metrics|grpc)": { target: "http://127.0.0.1:7411", headers: { origin: "http://127.0.0.1:7411" } } } },
});
