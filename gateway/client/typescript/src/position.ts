import { BinaryReader, base64Decode, base64Encode } from "@bufbuild/protobuf/wire";

/** What the client understands of a position, whose string is opaque for everybody else. */
export interface Position {
  readonly log: string;
  readonly epoch: bigint;
  readonly seq: bigint;
}

/**
 * Reads a position as events.ParsePosition does: a version, four bytes of the log's id, epoch and sequence as varints, and
 * in version 2 the number of slots. Returns undefined for any other text.
 */
export function parsePosition(text: string): Position | undefined {
  try {
    const bytes = base64Decode(text);
    const version = bytes[0];
    if ((version !== 1 && version !== 2) || base64Encode(bytes, "url") !== text) return undefined;
    const rest = new BinaryReader(bytes.subarray(5));
    const epoch = BigInt(rest.uint64());
    const seq = BigInt(rest.uint64());
    if (version === 2) rest.uint64();
    if (rest.pos !== rest.len) return undefined;
    return { log: bytes.subarray(1, 5).join(), epoch, seq };
  } catch {
    return undefined;
  }
}

/** Reports whether a position comes after another one of the same log. */
export function isLater(a: Position, b: Position): boolean {
  return a.epoch > b.epoch || (a.epoch === b.epoch && a.seq > b.seq);
}
