import { type DescField, type DescMessage, type DescMethodUnary, type MessageInitShape, type MessageShape, clone, create } from "@bufbuild/protobuf";
import { reflect } from "@bufbuild/protobuf/reflect";
import type { CallOptions, Transport } from "@connectrpc/connect";

/** The names of the lists in an answer. */
type ListsOf<T> = { [K in keyof T]-?: T[K] extends readonly unknown[] ? K : never }[keyof T];

/** A name for the only list of an answer; never: it has none or several. */
type OnlyListOf<T, K = ListsOf<T>> = K extends unknown ? ([ListsOf<T>] extends [K] ? K : never) : never;

// Where a method does not fit, the compiler prints these texts, because no method is one of them.

/** A method whose answers are pages. */
export type Paged<I extends DescMessage, O extends DescMessage> = DescMethodUnary<I, O> &
  (MessageShape<O> extends { nextPageToken: string } ? unknown : "this method has no pages: call it once, with the generated client");

/** A method whose answers are pages of one list. */
export type Listed<I extends DescMessage, O extends DescMessage> = Paged<I, O> &
  ([OnlyListOf<MessageShape<O>>] extends [never] ? "a page of this method has several lists: read its pages with pages()" : unknown);

/** An entry of the list in a page. */
export type Entry<O extends DescMessage> =
  OnlyListOf<MessageShape<O>> extends infer K extends keyof MessageShape<O> ? (MessageShape<O>[K] extends readonly (infer E)[] ? E : never) : never;

/** Reads page after page, each when the caller asks for it. */
export async function* pages<I extends DescMessage, O extends DescMessage>(
  transport: Transport,
  method: DescMethodUnary<I, O>,
  request: MessageInitShape<I>,
  { signal, timeoutMs, headers }: CallOptions = {},
): AsyncGenerator<MessageShape<O>, void, undefined> {
  const { token, next } = pageFields(method);
  const input = clone(method.input, create(method.input, request));
  for (;;) {
    const { message } = await transport.unary(method, signal, timeoutMs, headers, input as MessageInitShape<I>);
    yield message;
    const begin = reflect(method.output, message).get(next);
    if (begin === "") return;
    reflect(method.input, input).set(token, begin);
  }
}

/** Reads the entries of page after page. */
export async function* readEntries<I extends DescMessage, O extends DescMessage>(
  transport: Transport,
  method: DescMethodUnary<I, O>,
  request: MessageInitShape<I>,
  options?: CallOptions,
): AsyncGenerator<Entry<O>, void, undefined> {
  pageFields(method);
  const lists = method.output.fields.filter((f) => f.fieldKind === "list");
  if (lists.length !== 1) {
    const names = lists.map((f) => f.localName).join(", ");
    throw new TypeError(`${method.name} answers pages with several lists, ${names}: read its pages with pages()`);
  }
  const list = lists[0]!.localName;
  for await (const page of pages(transport, method, request, options)) yield* (page as unknown as Record<string, Entry<O>[]>)[list]!;
}

/** Returns the fields that lead from page to page. The types say the same, but not in plain JavaScript. */
function pageFields(method: DescMethodUnary): { token: DescField; next: DescField } {
  if ((method as { kind?: unknown } | undefined)?.kind !== "rpc") {
    const given = typeof method === "function" ? "a function of a generated client" : String(method);
    throw new TypeError(`a method is given by its description, such as GraphService.method.listFollowers, and not by ${given}`);
  }
  const token = method.input.fields.find((f) => f.name === "page_token");
  const next = method.output.fields.find((f) => f.name === "next_page_token");
  if (token === undefined || next === undefined) {
    const stream = (method.methodKind as string) === "unary" ? "" : ", and is a stream";
    throw new TypeError(`${method.name} has no pages${stream}: call it with the generated client`);
  }
  return { token, next };
}
