import { Code, ConnectError } from "@connectrpc/connect";
import { Tries } from "./retry.js";

export interface StreamOptions {
  /** Ends the stream: it then throws an error with Code.Canceled. To leave the loop does the same without an error. */
  signal?: AbortSignal;
  /** For how long to try to continue a broken stream, in milliseconds: 30 000 by default, Infinity for ever. 0 means not at all. */
  retryForMs?: number;
}

export interface WatchOptions extends StreamOptions {
  /**
   * A stream that is silent for longer, in milliseconds, counts as broken: 20 000 by default, 90 000 for watchFeed. The service sends
   * something every 5 000, in watchFeed every 30 000.
   */
  idleTimeoutMs?: number;
}

interface Resumable<M> {
  /** Opens the stream after the last message; undefined means at its beginning. */
  open(last: M | undefined, signal: AbortSignal): AsyncIterable<M>;
  /** Reports whether the stream has an end. */
  ends: boolean;
}

/** Reads a stream, and continues after the last message where it breaks. */
export async function* resumed<M>(
  stream: Resumable<M>,
  { signal, retryForMs = 30_000, idleTimeoutMs }: WatchOptions = {},
): AsyncGenerator<M, void, undefined> {
  const tries = new Tries(retryForMs);
  let last: M | undefined;
  for (;;) {
    const attempt = new AbortController();
    const abort = () => attempt.abort(signal?.reason);
    signal?.addEventListener("abort", abort);
    let broken: unknown;
    try {
      signal?.throwIfAborted();
      const messages = stream.open(last, attempt.signal)[Symbol.asyncIterator]();
      for (;;) {
        const next = await awaited(messages.next(), attempt, idleTimeoutMs);
        if (next.done) break;
        last = next.value;
        yield last;
        tries.reset();
      }
      if (stream.ends) return;
      broken = new ConnectError("the stream ended", Code.Unavailable);
    } catch (err) {
      broken = signal?.aborted ? ConnectError.from(signal.reason, Code.Canceled) : err;
    } finally {
      signal?.removeEventListener("abort", abort);
      attempt.abort();
    }
    await tries.again(broken, signal);
  }
}

/** Awaits a message. Aborts the attempt if none comes in time. */
async function awaited<T>(next: Promise<T>, attempt: AbortController, idleTimeoutMs: number | undefined): Promise<T> {
  if (idleTimeoutMs === undefined) return next;
  const silent = new ConnectError(`nothing came for ${idleTimeoutMs} ms`, Code.Unavailable);
  const timer = setTimeout(() => attempt.abort(silent), idleTimeoutMs);
  try {
    return await next;
  } finally {
    clearTimeout(timer);
  }
}
