import { type DescField, type DescMessage, type DescMethodUnary, type MessageInitShape, type MessageShape, clone, create } from "@bufbuild/protobuf";
import { reflect } from "@bufbuild/protobuf/reflect";
import type { CallOptions, Transport } from "@connectrpc/connect";

/** A method whose answers are pages. */
export type Paged<I extends DescMessage, O extends DescMessage> = DescMethodUnary<I, O> &
  (MessageShape<O> extends { nextPageToken: string } ? unknown : never);

/** A method whose answers are pages of entries. */
export type Listed<I extends DescMessage, O extends DescMessage> = Paged<I, O> &
  (MessageShape<O> extends { entries: unknown[] } ? unknown : never);

/** The entries of a page. */
export type Entry<O extends DescMessage> = MessageShape<O> extends { entries: (infer E)[] } ? E : never;

/** Reads page after page, each when the caller asks for it. */
export async function* pages<I extends DescMessage, O extends DescMessage>(
  transport: Transport,
  method: DescMethodUnary<I, O>,
  request: MessageInitShape<I>,
  { signal, timeoutMs, headers }: CallOptions = {},
): AsyncGenerator<MessageShape<O>, void, undefined> {
  const token = fieldNamed(method.input, "page_token");
  const next = fieldNamed(method.output, "next_page_token");
  const input = clone(method.input, create(method.input, request));
  for (;;) {
    const { message } = await transport.unary(method, signal, timeoutMs, headers, input as MessageInitShape<I>);
    yield message;
    const begin = reflect(method.output, message).get(next);
    if (begin === "") return;
    reflect(method.input, input).set(token, begin);
  }
}

function fieldNamed(schema: DescMessage, name: string): DescField {
  const field = schema.fields.find((f) => f.name === name);
  if (field === undefined) throw new TypeError(`${schema.typeName} has no field ${name}: the method has no pages`);
  return field;
}
