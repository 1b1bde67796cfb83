import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { type AddressInfo, type Socket, connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const folder = mkdtempSync(join(tmpdir(), "skein-client-"));
const program = join(folder, "skein");

/** Builds skein. npm runs scripts in the folder of the package. */
export function build(): void {
  execFileSync("go", ["build", "-o", program, "./cmd/skein"], {
    cwd: "../../..",
    env: { ...process.env, CGO_ENABLED: "0" },
    stdio: "inherit",
  });
}

export function remove(): void {
  rmSync(folder, { recursive: true });
}

export interface Service {
  url: string;
  stop(): Promise<void>;
}

/** Serves an empty store on a free port. Resolves when the service is ready. */
export function serve(): Promise<Service> {
  return start(["serve", "--ephemeral"], "stderr", /msg=ready url=(\S+)/);
}

/** Serves the users of the demo. */
export function serveDemo(): Promise<Service> {
  return start(["demo", "--port", "0"], "stdout", /^Serving (\S+) until/);
}

/** Starts a command of skein, and resolves when it has printed where it serves. */
async function start(args: string[], output: "stdout" | "stderr", ready: RegExp): Promise<Service> {
  const service = spawn(program, args, { cwd: folder, stdio: ["ignore", "pipe", "pipe"] });
  const stop = async () => {
    service.kill();
    if (service.exitCode === null && service.signalCode === null) await once(service, "exit");
  };
  service[output === "stdout" ? "stderr" : "stdout"].resume();
  const printed: string[] = [];
  for await (const line of createInterface(service[output])) {
    printed.push(line);
    const url = ready.exec(line)?.[1];
    if (url !== undefined) {
      service[output].resume();
      return { url, stop };
    }
  }
  await stop();
  throw new Error(`skein ${args.join(" ")} ended:\n${printed.join("\n")}`);
}

/** A network between client and service that breaks when it is told to. */
export class Network {
  readonly #sockets = new Set<Socket>();
  readonly #silent = new WeakSet<Socket>();
  readonly #server = createServer((near) => this.#join(near));
  readonly #target: URL;
  /** Where clients connect to. */
  url = "";
  /** How many connections break as soon as the service answers, so that the answer is lost. */
  answersToLose = 0;

  private constructor(target: string) {
    this.#target = new URL(target);
  }

  static async to(target: string): Promise<Network> {
    const network = new Network(target);
    network.#server.listen(0, "127.0.0.1");
    await once(network.#server, "listening");
    network.url = `http://127.0.0.1:${(network.#server.address() as AddressInfo).port}`;
    return network;
  }

  /** Lets nothing pass any more on the connections there are, and keeps them open. */
  silence(): void {
    for (const socket of this.#sockets) this.#silent.add(socket);
  }

  /** Breaks all connections there are. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  close(): void {
    this.#server.close();
    this.cut();
  }

  #join(near: Socket): void {
    const far = connect(Number(this.#target.port), this.#target.hostname);
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ] as const) {
      this.#sockets.add(socket);
      socket.on("error", () => {}); // "close" follows
      socket.on("close", () => {
        this.#sockets.delete(socket);
        other.destroy();
      });
    }
    near.on("data", (data) => far.write(data));
    far.on("data", (data) => {
      if (this.answersToLose > 0) {
        this.answersToLose--;
        near.destroy();
      } else if (!this.#silent.has(far)) {
        near.write(data);
      }
    });
  }
}
