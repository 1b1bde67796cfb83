import { type DescField, type DescMessage, type MessageInitShape, isMessage } from "@bufbuild/protobuf";
import { TimestampSchema, timestampFromDate } from "@bufbuild/protobuf/wkt";

/** What a message is made of, with a Date wherever it has a Timestamp. */
export type WithDates<T> = T extends Uint8Array | bigint | boolean | string | number | undefined
  ? T
  : T extends readonly (infer E)[]
    ? WithDates<E>[]
    : "nanos" extends keyof T
      ? T | Date
      : { [K in keyof T]: WithDates<T[K]> };

type Fields = Record<string, unknown>;

const mayHoldTimes = new WeakMap<DescMessage, boolean>();

/** Reports whether a message may have a time in it. Most requests have none, and are not looked through. */
function holdsTimes(schema: DescMessage): boolean {
  const known = mayHoldTimes.get(schema);
  if (known !== undefined) return known;
  mayHoldTimes.set(schema, false); // for messages that hold others of their own kind
  const holds = schema.fields.some((f) => f.message !== undefined && (isTimestamp(f.message) || holdsTimes(f.message)));
  mayHoldTimes.set(schema, holds);
  return holds;
}

function isTimestamp(schema: DescMessage): boolean {
  return schema.typeName === TimestampSchema.typeName;
}

/**
 * Returns what a message is made of with a Timestamp in place of each Date, and leaves what is given as it is. Anything else that is no
 * Timestamp is refused: protobuf would take it for an empty one, which is 1970.
 */
export function convertDates<D extends DescMessage>(
  schema: D,
  init: MessageInitShape<D> | WithDates<MessageInitShape<D>>,
): MessageInitShape<D> {
  return convertMessage(schema, init, "") as MessageInitShape<D>;
}

function convertMessage(schema: DescMessage, init: unknown, path: string): unknown {
  if (!holdsTimes(schema) || typeof init !== "object" || init === null) return init;
  const fields = init as Fields;
  let copy: Fields | undefined;
  for (const member of schema.members) {
    const value = fields[member.localName];
    if (value === undefined || value === null) continue;
    const converted =
      member.kind === "oneof" ? convertOneof(member.fields, value as Fields, path) : convertField(member, value, path + member.localName);
    if (converted === value) continue;
    copy ??= Object.assign(Object.create(Object.getPrototypeOf(init) as object) as Fields, init);
    copy[member.localName] = converted;
  }
  return copy ?? init;
}

function convertOneof(fields: DescField[], chosen: Fields, path: string): unknown {
  const field = fields.find((f) => f.localName === chosen["case"]);
  if (field === undefined) return chosen;
  const value = convertField(field, chosen["value"], path + field.localName);
  return value === chosen["value"] ? chosen : { ...chosen, value };
}

function convertField(field: DescField, value: unknown, path: string): unknown {
  if (field.fieldKind === "list" && field.listKind === "message" && Array.isArray(value)) {
    const converted = value.map((v, i) => convertMessage(field.message, v, `${path}[${i}].`));
    return converted.some((v, i) => v !== value[i]) ? converted : value;
  }
  if (field.fieldKind !== "message") return value;
  return isTimestamp(field.message) ? convertTime(value, path) : convertMessage(field.message, value, `${path}.`);
}

function convertTime(value: unknown, path: string): unknown {
  if (value instanceof Date) {
    if (Number.isNaN(value.getTime())) throw new TypeError(`${path} is an invalid Date`);
    return timestampFromDate(value);
  }
  const isTime = isMessage(value, TimestampSchema) || (typeof value === "object" && value !== null && ("seconds" in value || "nanos" in value));
  if (!isTime) throw new TypeError(`${path} must be a Date, or a Timestamp with seconds and nanos; it is ${describe(value)}`);
  return value;
}

function describe(value: unknown): string {
  return typeof value === "string" ? JSON.stringify(value) : typeof value === "object" ? "an object without them" : String(value);
}
