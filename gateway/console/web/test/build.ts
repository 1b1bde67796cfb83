import { execFileSync } from "node:child_process";
import { resolve } from "node:path";

// Builds skein, and the NATS server that it is built with, once for all tests. npm runs scripts in the folder of the package.
for (const name of ["./cmd/skein", "github.com/nats-io/nats-server/v2"]) {
  execFileSync("go", ["build", "-o", resolve("build/bin") + "/", name], {
    cwd: "../../..",
    env: { ...process.env, CGO_ENABLED: "0" },
    stdio: "inherit",
  });
}
