import { type DescEnum, type DescField, type DescMethod, type Message, ScalarType, fromJson } from "@bufbuild/protobuf";
import { type ReflectMessage, reflect } from "@bufbuild/protobuf/reflect";
import { FeatureSet_FieldPresence } from "@bufbuild/protobuf/wkt";
import { name } from "./format.js";

/** The clients of a service in both libraries, by the name of the service. */
const clients: Record<string, [typescript: string, go: string]> = {
  EventService: ["events", "Events"],
  GraphService: ["graph", "Graph"],
  FeedService: ["feed", "Feed"],
  NotificationService: ["notifications", "Notifications"],
  SeenService: ["seen", "Seen"],
  CounterService: ["counters", "Counters"],
  AdminService: ["admin", "Admin"],
};

/** A call as others make it. The token, where one is needed, comes from the environment. */
interface Call {
  url: string;
  method: DescMethod;
  json: string;
  authorized: boolean;
}

export const languages: Record<string, (call: Call) => string> = { curl, TypeScript: typescript, Go: go };

function curl({ url, method, json, authorized }: Call): string {
  const target = `${url}/${method.parent.typeName}/${method.name}`;
  const header = authorized ? ` \\\n  -H "Authorization: Bearer $SKEIN_TOKEN"` : "";
  const body = JSON.stringify(JSON.parse(json)).replaceAll("'", "'\\''");
  if (method.methodKind === "unary") return `curl -s ${target}${header} \\\n  -H 'Content-Type: application/json' \\\n  -d '${body}'`;
  // In a stream the message follows its length, in 5 bytes.
  const length = new TextEncoder().encode(JSON.stringify(JSON.parse(json))).length;
  const octal = [0, length >> 24, length >> 16, length >> 8, length].map((b) => `\\${(b & 255).toString(8).padStart(3, "0")}`).join("");
  return `{ printf '${octal}'; printf %s '${body}'; } |\n  curl -sN ${target}${header} \\\n  -H 'Content-Type: application/connect+json' --data-binary @-`;
}

function parsed({ method, json }: Call): ReflectMessage {
  return reflect(method.input, fromJson(method.input, JSON.parse(json)) as Message);
}

/** What the literals of a call name, and so has to be imported. */
type Names = Set<string>;

function typescript(call: Call): string {
  const names: Names = new Set(["Skein"]);
  const request = tsMessage(parsed(call), names, "");
  const options = `{ baseUrl: "${call.url}"${call.authorized ? ", token: process.env.SKEIN_TOKEN" : ""} }`;
  const target = `skein.${clients[call.method.parent.name]![0]}.${call.method.localName}(${request})`;
  const use =
    call.method.methodKind === "unary"
      ? `const answer = await ${target};\nconsole.log(answer);`
      : `for await (const part of ${target}) {\n  console.log(part);\n}`;
  return `import { ${[...names].sort().join(", ")} } from "@skein-feed/client";\n\nconst skein = new Skein(${options});\n${use}`;
}

function tsMessage(message: ReflectMessage, names: Names, indent: string): string {
  const inner = `${indent}  `;
  const lines = message.sortedFields
    .filter((f) => message.isSet(f))
    .map((f) => {
      const value = tsField(message, f, names, inner);
      return f.oneof ? `${f.oneof.localName}: { case: "${f.localName}", value: ${value} }` : `${f.localName}: ${value}`;
    });
  return lines.length === 0 ? "{}" : `{\n${lines.map((l) => inner + l).join(",\n")},\n${indent}}`;
}

function tsField(message: ReflectMessage, field: DescField, names: Names, indent: string): string {
  const value = (v: unknown): string => {
    switch (field.fieldKind === "list" ? field.listKind : field.fieldKind) {
      case "message":
        return tsMessage(v as ReflectMessage, names, indent);
      case "enum": {
        const of = (field as { enum: DescEnum }).enum;
        names.add(of.name);
        return `${of.name}.${name(of, v as number)}`;
      }
      default:
        if (typeof v === "bigint") return `${v}n`;
        return v instanceof Uint8Array ? `new Uint8Array([${v}])` : JSON.stringify(v);
    }
  };
  if (field.fieldKind === "list") return `[${[...message.get(field)].map(value).join(", ")}]`;
  return value(message.get(field));
}

function go(call: Call): string {
  const [, client] = clients[call.method.parent.name]!;
  const options = call.authorized ? `client.Options{Token: os.Getenv("SKEIN_TOKEN")}` : "client.Options{}";
  const target = `c.${client}.${call.method.name}(ctx, connect.NewRequest(${goMessage(parsed(call), "")}))`;
  const use =
    call.method.methodKind === "unary"
      ? `answer, err := ${target}\nif err != nil {\n\treturn err\n}\nfmt.Println(answer.Msg)`
      : `stream, err := ${target}\nif err != nil {\n\treturn err\n}\ndefer stream.Close()\nfor stream.Receive() {\n\tfmt.Println(stream.Msg())\n}\nreturn stream.Err()`;
  return `c, err := client.Dial("${call.url}", ${options})\nif err != nil {\n\treturn err\n}\ndefer c.Close()\n${use}`;
}

/** The name of a field in Go: UserId of user_id. */
function camel(text: string): string {
  return text.replace(/(?:^|_)([a-z0-9])/g, (_, c: string) => c.toUpperCase());
}

function goMessage(message: ReflectMessage, indent: string): string {
  const inner = `${indent}\t`;
  const type = message.desc.name;
  const from = message.desc.typeName.startsWith("google.") ? "timestamppb" : "skeinv1"; // no other message of Google's is in a request
  const lines = message.sortedFields
    .filter((f) => message.isSet(f))
    .map((f) => {
      const value = goField(message, f, inner);
      if (f.oneof) return `${camel(f.oneof.name)}: &skeinv1.${type}_${camel(f.name)}{${camel(f.name)}: ${value}}`;
      return `${camel(f.name)}: ${value}`;
    });
  return `&${from}.${type}{${lines.length === 0 ? "" : `\n${lines.map((l) => inner + l).join(",\n")},\n${indent}`}}`;
}

const goTypes: Partial<Record<ScalarType, string>> = {
  [ScalarType.STRING]: "string",
  [ScalarType.UINT32]: "uint32",
  [ScalarType.FIXED64]: "uint64",
};

function goField(message: ReflectMessage, field: DescField, indent: string): string {
  const value = (v: unknown): string => {
    switch (field.fieldKind === "list" ? field.listKind : field.fieldKind) {
      case "message":
        return goMessage(v as ReflectMessage, indent);
      case "enum": {
        const of = (field as { enum: DescEnum }).enum;
        const optional = field.fieldKind === "enum" && field.presence === FeatureSet_FieldPresence.EXPLICIT && !field.oneof;
        return `skeinv1.${of.name}_${of.value[v as number]?.name}${optional ? ".Enum()" : ""}`;
      }
      default:
        return v instanceof Uint8Array ? `[]byte{${v}}` : typeof v === "string" ? JSON.stringify(v) : String(v);
    }
  };
  if (field.fieldKind !== "list") return value(message.get(field));
  const type = field.listKind === "message" ? `*skeinv1.${field.message.name}` : (field.listKind === "scalar" && goTypes[field.scalar]) || "string";
  return `[]${type}{${[...message.get(field)].map(value).join(", ")}}`;
}
