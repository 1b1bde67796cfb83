import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";

export const folder = mkdtempSync(join(tmpdir(), "skein-console-"));
export const program = resolve("build/bin/skein"); // npm runs scripts in the folder of the package
const natsProgram = resolve("build/bin/nats-server");

export function remove(): void {
  rmSync(folder, { recursive: true });
}

export interface Service {
  url: string;
  /** What the program had printed when it said where it serves, line by line. */
  printed: string[];
  /** Sends a signal to the process. */
  kill(signal: NodeJS.Signals): void;
  stop(): Promise<void>;
}

/** Starts a command of skein that serves, and resolves when it is ready. */
export function start(...args: string[]): Promise<Service> {
  // A demo says on its output where it serves, `serve` in its log.
  return args[0] === "demo" ? run(program, args, "stdout", /^Serving (\S+) until/) : run(program, args, "stderr", /msg=ready url=(\S+)/);
}

/** Starts a NATS server with JetStream. */
export async function startNATS(): Promise<Service> {
  const config = join(folder, "nats.conf");
  writeFileSync(config, `listen: "127.0.0.1:-1"\njetstream { store_dir: ${JSON.stringify(join(folder, "nats"))}, sync_interval: always }\n`);
  const service = await run(natsProgram, ["--config", config], "stderr", /Listening for client connections on (\S+)/);
  return { ...service, url: `nats://${service.url}` };
}

/** Starts a program, and resolves when it has printed where it serves. */
async function run(name: string, args: string[], where: "stdout" | "stderr", ready: RegExp): Promise<Service> {
  const service = spawn(name, args, { cwd: folder, stdio: ["ignore", "pipe", "pipe"] });
  const kill = (signal: NodeJS.Signals) => void service.kill(signal);
  const stop = async () => {
    service.kill("SIGCONT"); // a process that is stopped would not see the next signal
    service.kill();
    if (service.exitCode === null && service.signalCode === null) await once(service, "exit");
  };
  const said = service[where];
  service[where === "stdout" ? "stderr" : "stdout"].resume();
  const printed: string[] = [];
  for await (const line of createInterface(said)) {
    printed.push(line);
    const url = ready.exec(line)?.[1];
    if (url !== undefined) {
      said.resume();
      return { url, printed, kill, stop };
    }
  }
  await stop();
  throw new Error(`${name} ${args.join(" ")} ended:\n${printed.join("\n")}`);
}

/** Returns an address that stays the same while the service behind it is replaced. Each new connection goes to the address that present returns. */
export async function stableAddress(present: () => string): Promise<string> {
  const server = createServer((near) => {
    const { hostname, port } = new URL(present());
    const far = connect(Number(port), hostname);
    for (const [from, to] of [[near, far], [far, near]] as const) {
      from.on("error", () => {}); // "close" follows
      from.on("close", () => to.end());
      from.pipe(to);
    }
  });
  server.listen(0, "127.0.0.1").unref();
  await once(server, "listening");
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Calls a method with JSON, as any program may. */
export async function call(url: string, method: string, request: object): Promise<Record<string, unknown>> {
  const body = JSON.stringify(request);
  const answer = await fetch(`${url}/skein.v1.${method}`, { method: "POST", headers: { "Content-Type": "application/json" }, body });
  if (!answer.ok) throw new Error(`${method}: ${answer.status} ${await answer.text()}`);
  return (await answer.json()) as Record<string, unknown>;
}

/** Items of the demo, some more than once. */
const items = "frame-1952 crust saturn frame-1952 tomatoes crust frame-1952 al-pastor rokkaku lucena frame-1952 crust saturn".split(" ");

/** Publishes and reads until it is stopped, so that there is something to see. */
export function traffic(url: string): { stop(): Promise<void> } {
  let going = true;
  const run = async () => {
    for (let n = 0; going; n++) {
      const events = Array.from({ length: 5 }, (_, i) => ({ played: { userId: `user-${(n * 5 + i) % 90}`, itemId: items[(n * i) % items.length]! } }));
      await call(url, "EventService/Publish", { events: [...events, { userFollowed: { userId: `user-${n % 90}`, targetUserId: "greta" } }] });
      await call(url, "FeedService/ReadFeed", { readerId: "ada" });
      await new Promise((done) => setTimeout(done, 20));
    }
  };
  const done = run().catch((err: unknown) => console.error(err)); // the screens then show nothing, and their test fails
  return {
    stop: async () => {
      going = false;
      await done;
    },
  };
}

/** Publishes so many follows of users who follow nobody else, a thousand a call: work for a rebuild. */
export async function crowd(url: string, thousands: number): Promise<void> {
  for (let n = 0; n < thousands; n++) {
    const events = Array.from({ length: 1000 }, (_, i) => ({ userFollowed: { userId: `fan-${n}-${i}`, targetUserId: `star-${i % 50}` } }));
    await call(url, "EventService/Publish", { events, wait: n === thousands - 1 ? "PUBLISH_WAIT_VISIBLE" : "PUBLISH_WAIT_LOGGED" });
  }
}
