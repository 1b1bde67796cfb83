import { Code, ConnectError } from "@connectrpc/connect";
import { failure } from "./errors.js";

const firstDelayMs = 50;
const longestDelayMs = 2_000;

/** Bounds the tries of one call. */
export class Tries {
  #tries = 0;
  #end: number;
  readonly #forMs: number;

  constructor(forMs: number) {
    this.#forMs = forMs;
    this.#end = performance.now() + forMs;
  }

  /** How much time is left, in milliseconds. */
  get leftMs(): number {
    return this.#end - performance.now();
  }

  /** Begins anew, after progress. */
  reset(): void {
    this.#tries = 0;
    this.#end = performance.now() + this.#forMs;
  }

  /** Waits until the call may be made again. Throws the error if that makes no sense or the time is up. */
  async again(err: unknown, signal: AbortSignal | undefined): Promise<void> {
    const backoff = Math.min(firstDelayMs * 2 ** this.#tries++, longestDelayMs) * (0.5 + Math.random() / 2);
    const delay = Math.max(backoff, retryableAfterMs(err));
    if (delay >= this.leftMs) throw err;
    await pause(delay, signal);
  }
}

/**
 * Returns after how many milliseconds the same call may succeed; Infinity means never. An error of the service says it. An
 * error of something else says so by its code: no connection, no answer in time, or an answer that was interrupted.
 */
function retryableAfterMs(err: unknown): number {
  const refused = failure(err);
  if (refused !== undefined) return refused.retryDelayMs ?? Infinity;
  const passing = [Code.Unavailable, Code.DeadlineExceeded, Code.Unknown];
  return err instanceof ConnectError && passing.includes(err.code) ? 0 : Infinity;
}

function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(ConnectError.from(signal?.reason, Code.Canceled));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, ms);
    signal?.addEventListener("abort", abort, { once: true });
  });
}
