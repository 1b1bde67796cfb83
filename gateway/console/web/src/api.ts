import { Code, ConnectError, type Transport } from "@connectrpc/connect";
import { signal } from "@preact/signals";
import { type GetStatusResponse, Session, Skein, failure } from "@skein-feed/client";
import { noteAnswer, noteLostConnection } from "./freshness.js";

/** Where the API is: the page is one level below it. */
export const root = new URL("..", document.baseURI).href.replace(/\/$/, "");

/** The token of the caller. It is kept in memory alone: a reload of the page forgets it. */
export const token = signal("");

/** Whether the service wants a token, or another one. */
export const wanted = signal(false);

/** Whether the service is a node of a cluster, as its last status said. */
export const isNode = signal(false);

/**
 * A session that demands no position, because the console shows how things are, also where a store is behind. It notes for the whole page
 * whether the service answers.
 */
class ObservingSession extends Session {
  override remember(): void {}

  override wrap(transport: Transport): Transport {
    const next = super.wrap(transport);
    return {
      unary: (method, signal, ms, header, input, values) => observed(next.unary(method, signal, ms, header, input, values)),
      stream: async (method, signal, ms, header, input, values) => {
        const response = await observed(next.stream(method, signal, ms, header, input, values));
        return { ...response, message: observedMessages(response.message) };
      },
    };
  }
}

const timeoutMs = 15_000;

export const skein = new Skein({ baseUrl: root, token: () => token.value, timeoutMs }, new ObservingSession());

/** Notes what the outcome of a call says about the service, and returns or throws it. */
async function observed<T>(call: Promise<T>): Promise<T> {
  try {
    const answer = await call;
    noteAnswer();
    return answer;
  } catch (err) {
    noteError(err);
    throw err;
  }
}

async function* observedMessages<T>(messages: AsyncIterable<T>): AsyncIterable<T> {
  try {
    for await (const message of messages) {
      noteAnswer();
      yield message;
    }
  } catch (err) {
    noteError(err);
    throw err;
  }
}

function noteError(err: unknown): void {
  const why = failure(err);
  if (why !== undefined) {
    noteAnswer();
    if (why.code === Code.Unauthenticated) wanted.value = true;
  } else if (isLost(err)) {
    noteLostConnection();
  }
}

/** Reports whether a call got no answer of the service: the connection broke, or something in between answered. */
function isLost(err: unknown): boolean {
  if (err instanceof ConnectError) return ![Code.Canceled, Code.DeadlineExceeded, Code.Unauthenticated, Code.PermissionDenied].includes(err.code);
  return err instanceof TypeError; // of fetch
}

/** Asks for the status of the service, with one rejected event at most. */
export async function readStatus(signal: AbortSignal): Promise<GetStatusResponse> {
  const status = await skein.admin.getStatus({ pageSize: 1 }, { signal });
  isNode.value = status.cluster !== undefined;
  return status;
}

/** Tries a token. Returns why the service does not know it; empty: it does, and each screen says what the token may not. */
export async function enter(text: string): Promise<string> {
  token.value = text;
  try {
    await skein.admin.getStatus({ pageSize: 1 });
  } catch (err) {
    if (failure(err)?.code !== Code.PermissionDenied) {
      token.value = "";
      return explain(err).text;
    }
  }
  wanted.value = false;
  return "";
}

export function leave(): void {
  token.value = "";
  wanted.value = true;
}

/** Asks whether the process answers at all. Nobody needs a token for that. An answer that takes longer than five seconds is not awaited. */
export async function alive(signal: AbortSignal): Promise<void> {
  await observed(readPage("/healthz", { signal: AbortSignal.any([signal, AbortSignal.timeout(5_000)]) }));
}

/** Returns the text of /metrics. */
export async function metricsText(signal: AbortSignal): Promise<string> {
  const headers: HeadersInit = token.value ? { Authorization: `Bearer ${token.value}` } : {};
  const answer = await observed(readPage("/metrics", { headers, signal }));
  return answer.text();
}

/** Reads a page of the service that is no method. */
async function readPage(path: string, init: RequestInit): Promise<Response> {
  const answer = await fetch(root + path, init);
  if (answer.ok) return answer;
  // A screen asks for metrics and calls a method at once: whichever is refused first must show that a token is wanted.
  if (answer.status === 401) wanted.value = true;
  const code = { 401: Code.Unauthenticated, 403: Code.PermissionDenied, 503: Code.Unavailable }[answer.status] ?? Code.Unknown;
  throw new ConnectError(`${path}: ${answer.status} ${answer.statusText}`, code);
}

/** Says what went wrong, and the reason for programs where the service gave one. */
export function explain(err: unknown): { text: string; reason?: string } {
  const why = failure(err);
  if (why !== undefined) {
    const fields = why.violations.map((v) => `${v.field}: ${v.description}`);
    return { text: [why.message, ...fields.filter((f) => !why.message.includes(f))].join("; "), reason: why.reason };
  }
  if (isLost(err)) {
    // The client says more about what fetch throws, for pages of other origins.
    const { cause, rawMessage } = ConnectError.from(err);
    return { text: `The service does not answer: ${cause instanceof TypeError ? cause.message : rawMessage}.` };
  }
  if (ConnectError.from(err).code === Code.DeadlineExceeded) return { text: `The service has not answered within ${timeoutMs / 1000} seconds.` };
  return { text: err instanceof Error ? err.message : String(err) };
}
