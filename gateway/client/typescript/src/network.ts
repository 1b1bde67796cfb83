import { Code, ConnectError } from "@connectrpc/connect";

/**
 * Returns the error of a call with a text that says where no answer came from, and why. fetch says "fetch failed" for everything, and has
 * the reason in its cause. Errors of the service stay as they are.
 */
export function explainNetworkError(err: unknown, baseUrl: string | undefined): unknown {
  if (baseUrl === undefined || !(err instanceof ConnectError)) return err;
  const { cause } = err;
  if (err.code === Code.Unknown && cause instanceof TypeError) {
    return new ConnectError(`no answer from ${baseUrl}: ${reasonOfFailedFetch(cause)}`, Code.Unavailable, err.metadata, undefined, cause);
  }
  // What is not skein has no details in its errors, and what is has the code in them.
  if (err.details.length === 0 && /^(HTTP \d|unsupported content type)/.test(err.rawMessage)) {
    const text = `${err.rawMessage} from ${baseUrl}: is this the address of skein?`;
    return new ConnectError(text, err.code, err.metadata, undefined, cause);
  }
  return err;
}

/** Returns why fetch failed. */
function reasonOfFailedFetch(failed: TypeError): string {
  const { cause } = failed;
  // localhost may be several addresses, each with its error.
  const errors = cause instanceof AggregateError ? cause.errors : cause === undefined ? [] : [cause];
  const texts = errors.map((e) => (e instanceof Error ? e.message : String(e)));
  if (texts.length > 0) return texts.join(", ");
  return `${failed.message}. A browser does not say why: the service is down, or does not permit this page (--cors-origin)`;
}
