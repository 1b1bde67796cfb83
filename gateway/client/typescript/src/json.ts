import { type DescMessage, type Message, toJson } from "@bufbuild/protobuf";

/** Adds toJSON to one message and to those in it. */
type Adder = (message: Message) => void;

const adders = new WeakMap<DescMessage, Adder>();

/**
 * Gives a message, and every message in it, a method toJSON, so that JSON.stringify accepts them: alone it refuses the BigInts that
 * protobuf has for 64-bit numbers and in times. The method is not enumerable, so a message still has its fields and nothing else for loops,
 * copies and comparisons.
 */
export function addToJSON<M extends Message>(schema: DescMessage, message: M): M {
  adderOf(schema)(message);
  return message;
}

/** Returns the adder of a kind of messages. It is made once, so that a call does not look through descriptors. */
function adderOf(schema: DescMessage): Adder {
  const known = adders.get(schema);
  if (known !== undefined) return known;

  const ofFields: Adder[] = [];
  // The adder is stored before those of its fields are made, because a message may hold others of its own kind.
  const add: Adder = (message) => {
    if (Object.hasOwn(message, "toJSON")) return;
    Object.defineProperty(message, "toJSON", property);
    for (const ofField of ofFields) ofField(message);
  };
  const property: PropertyDescriptor = {
    configurable: true,
    writable: true,
    value(this: Message) {
      return toJson(schema, this, { alwaysEmitImplicit: true });
    },
  };
  adders.set(schema, add);

  for (const member of schema.members) {
    const name = member.localName;
    if (member.kind === "oneof") {
      const byCase = new Map(member.fields.flatMap((f) => (f.fieldKind === "message" ? [[f.localName, adderOf(f.message)] as const] : [])));
      if (byCase.size === 0) continue;
      ofFields.push((message) => {
        const chosen = valueOf<{ case?: string; value?: Message }>(message, name);
        if (chosen?.value !== undefined) byCase.get(chosen.case ?? "")?.(chosen.value);
      });
    } else if (member.fieldKind === "message") {
      const addToOne = adderOf(member.message);
      ofFields.push((message) => {
        const value = valueOf<Message>(message, name);
        if (value !== undefined) addToOne(value);
      });
    } else if (member.fieldKind === "list" && member.listKind === "message") {
      const addToOne = adderOf(member.message);
      ofFields.push((message) => valueOf<Message[]>(message, name)?.forEach(addToOne));
    }
  }
  return add;
}

function valueOf<V>(message: Message, name: string): V | undefined {
  return (message as unknown as Record<string, V | undefined>)[name];
}
