import { type DescField, type DescMessage, type MessageInitShape, type MessageShape, ScalarType, clone, create } from "@bufbuild/protobuf";
import { reflect } from "@bufbuild/protobuf/reflect";
import type { Transport } from "@connectrpc/connect";
import { type Position, isLater, parsePosition } from "./position.js";

/**
 * A session reads its own writes, and no read of it comes from an older state than one before it, whichever process of the
 * service answers. It remembers the latest position that any of its calls was answered with, and demands it of every read
 * that demands nothing itself. A read waits where the process that answers is behind.
 */
export class Session {
  #text = "";
  #last: Position | undefined;

  /** The latest position that was seen; empty means none. Note it in another session, and that one continues from here. */
  get position(): string {
    return this.#text;
  }

  /**
   * Remembers a position, unless the session knows a later one. Text that is no position is ignored. A position of another
   * log replaces what was known.
   */
  remember(position: string): void {
    const found = parsePosition(position);
    if (found === undefined) return;
    if (this.#last === undefined || this.#last.log !== found.log || isLater(found, this.#last)) {
      this.#last = found;
      this.#text = position;
    }
  }

  /** Returns a transport whose calls belong to this session. */
  wrap(transport: Transport): Transport {
    return {
      unary: async (method, signal, timeoutMs, header, input, contextValues) => {
        const demanding = this.#demand(method.input, input);
        const response = await transport.unary(method, signal, timeoutMs, header, demanding, contextValues);
        this.#noteAnswer(method.output, response.message);
        return response;
      },
      stream: async (method, signal, timeoutMs, header, input, contextValues) => {
        const demanding = mapped(input, (message) => this.#demand(method.input, message));
        const response = await transport.stream(method, signal, timeoutMs, header, demanding, contextValues);
        const message = mapped(response.message, (answer) => {
          this.#noteAnswer(method.output, answer);
          return answer;
        });
        return { ...response, message };
      },
    };
  }

  /** Returns the request with the position, if it has room for one and none in it. The message of the caller stays as it is. */
  #demand<I extends DescMessage>(schema: I, input: MessageInitShape<I>): MessageInitShape<I> {
    const field = textField(schema, "at_least");
    if (field === undefined || this.#text === "") return input;
    const message = clone(schema, create(schema, input));
    const fields = reflect(schema, message);
    if (fields.get(field) === "") fields.set(field, this.#text);
    return message;
  }

  #noteAnswer<O extends DescMessage>(schema: O, answer: MessageShape<O>): void {
    const field = textField(schema, "position");
    if (field !== undefined) this.remember(reflect(schema, answer).get(field) as string);
  }
}

function textField(schema: DescMessage, name: string): DescField | undefined {
  return schema.fields.find((f) => f.name === name && f.fieldKind === "scalar" && f.scalar === ScalarType.STRING);
}

async function* mapped<A, B>(messages: AsyncIterable<A>, change: (message: A) => B): AsyncIterable<B> {
  for await (const message of messages) yield change(message);
}
