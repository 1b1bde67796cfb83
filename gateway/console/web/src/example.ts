import { type DescField, type DescMessage, type JsonObject, type JsonValue, ScalarType } from "@bufbuild/protobuf";
import { FeatureSet_FieldPresence } from "@bufbuild/protobuf/wkt";

/** What a field holds in an example, by its name: users and pins of `skein demo`. */
const texts: Record<string, string> = {
  user_id: "ada",
  viewer_id: "ada",
  reader_id: "ada",
  target_user_id: "greta",
  owner_id: "greta",
  board_id: "sourdough",
  pin_id: "crust",
  item_id: "crust",
  user_ids: "greta",
  item_ids: "crust",
  kinds: "user_followed",
  projection: "graph",
  operation_id: "op-1",
  title: "Bread",
};

/** Fields that an example is better without: pages that come later, history of other systems, choices with a good default. */
const left = new Set(["event_id", "occurred_at", "source", "offset", "repin_of", "numeric_ids", "partitions", "share", "kind", "score", "projections"]);

/** Makes a request of a kind, as JSON. */
export function example(of: DescMessage): JsonObject {
  const json: JsonObject = {};
  for (const field of of.fields) {
    if (left.has(field.name) || (field.oneof && field.oneof.fields[0] !== field)) continue;
    if (field.name === "boards" && "userIds" in json) continue; // one of the two is enough, and at times all that is allowed
    const value = exampleOf(field);
    if (value !== undefined) json[field.jsonName] = value;
  }
  return json;
}

function exampleOf(field: DescField): JsonValue | undefined {
  switch (field.fieldKind) {
    case "message":
      return field.message.typeName.startsWith("google.") ? undefined : example(field.message);
    case "list": {
      const one = field.listKind === "message" ? example(field.message) : texts[field.name];
      return one === undefined ? undefined : [one];
    }
    case "enum":
      return field.enum.values[1]?.name;
    case "scalar":
      if (field.presence === FeatureSet_FieldPresence.EXPLICIT && !field.oneof) return undefined;
      if (field.scalar === ScalarType.STRING) return texts[field.name];
      if (field.scalar === ScalarType.BOOL) return false;
      return field.name === "page_size" ? 5 : undefined;
    default:
      return undefined;
  }
}
