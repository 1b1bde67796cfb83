package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"connectrpc.com/connect"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const openAPIIntroduction = `# Generated from proto/skein/v1 by ` + "`task generate`" + `: edit the comments there.
`

const openAPIDescription = "The follow graph, the home feed, the filter for what a user has already seen, and counts: the JSON side of " +
	"the API. Streams are not part of this document: they need a client of Connect or gRPC."

// openAPI returns an OpenAPI 3.1 document of the JSON that the API reads and writes. It is not made
// by protoc-gen-connect-openapi: the schemas that its version 0.25.7 writes for messages with
// oneofs reject every message.
func openAPI(files []protoreflect.FileDescriptor) (string, error) {
	a := &schemas{referenced: map[protoreflect.FullName]bool{}}

	// Methods refer to the messages that need a schema, so their paths are made before the schemas.
	var tags []object
	paths := object{}
	for _, f := range files {
		for s := range each(f.Services().Len(), f.Services().Get) {
			tags = append(tags, object{{"name", s.Name()}, {"description", comment(s)}})
			for m := range each(s.Methods().Len(), s.Methods().Get) {
				if !m.IsStreamingServer() && !m.IsStreamingClient() {
					paths = append(paths, member{fmt.Sprintf("/%s/%s", s.FullName(), m.Name()), object{{"post", a.operation(m)}}})
				}
			}
		}
	}
	components, err := a.build()
	if err != nil {
		return "", err
	}

	var out bytes.Buffer
	out.WriteString(openAPIIntroduction)
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	err = e.Encode(object{
		{"openapi", "3.1.0"},
		{"info", object{
			{"title", "skein"},
			{"version", "v1"},
			{"description", openAPIDescription},
			{"license", object{{"name", "Apache-2.0"}, {"identifier", "Apache-2.0"}}},
		}},
		{"servers", []object{{{"url", "http://127.0.0.1:7411"}}}},
		// A service without access control accepts calls of any caller.
		{"security", []object{{}, {{"bearer", []string{}}}}},
		{"tags", tags},
		{"paths", paths},
		{"components", object{
			{"securitySchemes", object{{"bearer", object{{"type", "http"}, {"scheme", "bearer"}}}}},
			{"parameters", object{{"Timeout", object{
				{"name", "Connect-Timeout-Ms"},
				{"in", "header"},
				{"description", "The deadline of the call, in milliseconds."},
				{"schema", object{{"type", "integer"}, {"minimum", 0}}},
			}}}},
			{"responses", object{{"Error", object{
				{"description", "The call was refused, or failed."},
				{"content", jsonOf(ref("schemas", "Error"))},
			}}}},
			{"schemas", components},
		}},
	})
	return out.String(), err
}

// object is a mapping whose members keep their order in the document.
type object []member

type member struct {
	key   string
	value any
}

// MarshalYAML is part of yaml.Marshaler.
func (o object) MarshalYAML() (any, error) {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, m := range o {
		var key, value yaml.Node
		key.SetString(m.key)
		if name, ok := m.value.(protoreflect.Name); ok {
			m.value = string(name)
		}
		if err := value.Encode(m.value); err != nil {
			return nil, err
		}
		n.Content = append(n.Content, &key, &value)
	}
	if len(o) == 0 {
		n.Style = yaml.FlowStyle
	}
	return n, nil
}

func ref(kind, name string) object { return object{{"$ref", "#/components/" + kind + "/" + name}} }

func jsonOf(schema object) object {
	return object{{"application/json", object{{"schema", schema}}}}
}

// schemas collects the messages and enums to which the document refers. Each needs a schema, which
// may refer to others.
type schemas struct {
	referenced map[protoreflect.FullName]bool
	// pending are those of which the schema was not made yet.
	pending []protoreflect.Descriptor
}

// refer returns a reference to a message or an enum.
func (a *schemas) refer(d protoreflect.Descriptor) object {
	if !a.referenced[d.FullName()] {
		a.referenced[d.FullName()] = true
		a.pending = append(a.pending, d)
	}
	return ref("schemas", schemaName(d))
}

func schemaName(d protoreflect.Descriptor) string {
	return strings.TrimPrefix(string(d.FullName()), documentedPackage+".")
}

func (a *schemas) operation(m protoreflect.MethodDescriptor) object {
	service := m.Parent().Name()
	return object{
		{"tags", []string{string(service)}},
		{"operationId", fmt.Sprintf("%s_%s", service, m.Name())},
		{"description", comment(m)},
		{"parameters", []object{ref("parameters", "Timeout")}},
		{"requestBody", object{{"required", true}, {"content", jsonOf(a.refer(m.Input()))}}},
		{"responses", object{
			{"200", object{{"description", comment(m.Output())}, {"content", jsonOf(a.refer(m.Output()))}}},
			{"default", ref("responses", "Error")},
		}},
	}
}

// build returns the schemas of all messages and enums to which the document refers, in the order of
// their names.
func (a *schemas) build() (object, error) {
	named := object{{"Error", errorSchema()}}
	for len(a.pending) > 0 {
		d := a.pending[0]
		a.pending = a.pending[1:]
		if d.ParentFile().Package() != documentedPackage {
			return nil, fmt.Errorf("%s has no schema", d.FullName())
		}
		switch d := d.(type) {
		case protoreflect.MessageDescriptor:
			named = append(named, member{schemaName(d), a.message(d)})
		case protoreflect.EnumDescriptor:
			named = append(named, member{schemaName(d), enumSchema(d)})
		}
	}
	slices.SortFunc(named, func(x, y member) int { return strings.Compare(x.key, y.key) })
	return named, nil
}

func errorSchema() object {
	var codes []string
	for c := connect.CodeCanceled; c <= connect.CodeUnauthenticated; c++ {
		codes = append(codes, c.String())
	}
	return object{
		{"type", "object"},
		{"description", "Why a call was refused."},
		{"properties", object{
			{"code", object{{"type", "string"}, {"enum", codes}}},
			{"message", object{{"type", "string"}, {"description", "For people: names the limit, or what would be right."}}},
			{"details", object{{"type", "array"}, {"items", object{
				{"type", "object"},
				{"properties", object{
					{"type", object{{"type", "string"}, {"description", "google.rpc.ErrorInfo, google.rpc.BadRequest or google.rpc.RetryInfo."}}},
					{"value", object{{"type", "string"}, {"contentEncoding", "base64"}, {"description", "The detail, as binary protobuf."}}},
					{"debug", object{
						{"type", "object"},
						{"description", "The same as JSON. In an ErrorInfo of the domain skein, reason is the name of a Reason without REASON_."},
					}},
				}},
				{"required", []string{"type", "value"}},
			}}}},
		}},
		{"required", []string{"code"}},
	}
}

func enumSchema(e protoreflect.EnumDescriptor) object {
	var values, text []string
	for v := range each(e.Values().Len(), e.Values().Get) {
		values = append(values, string(v.Name()))
		text = append(text, fmt.Sprintf("- %s: %s", v.Name(), strings.ReplaceAll(comment(v), "\n", " ")))
	}
	return object{
		{"type", "string"},
		{"description", comment(e) + "\n\n" + strings.Join(text, "\n")},
		{"enum", values},
	}
}

// message returns the schema of a message. A field is required if its rules do not allow it to be
// empty.
func (a *schemas) message(m protoreflect.MessageDescriptor) object {
	properties := object{}
	required := []string{}
	for f := range each(m.Fields().Len(), m.Fields().Get) {
		properties = append(properties, member{f.JSONName(), a.field(f)})
		if f.ContainingOneof() == nil && mustBeSet(rulesOf(f)) {
			required = append(required, f.JSONName())
		}
	}
	s := object{{"type", "object"}, {"description", comment(m)}, {"properties", properties}}
	if len(required) > 0 {
		s = append(s, member{"required", required})
	}

	// Several oneofs would each have a member "oneOf" or "not", so they go into a list.
	var groups []object
	for o := range each(m.Oneofs().Len(), m.Oneofs().Get) {
		if !o.IsSynthetic() {
			groups = append(groups, oneofSchema(o))
		}
	}
	switch len(groups) {
	case 0:
		return s
	case 1:
		return append(s, groups[0]...)
	}
	return append(s, member{"allOf", groups})
}

// oneofSchema returns what a oneof demands: exactly one of its fields if it is required, otherwise
// not two of them.
func oneofSchema(o protoreflect.OneofDescriptor) object {
	var singles, pairs []object
	for i := range o.Fields().Len() {
		name := o.Fields().Get(i).JSONName()
		singles = append(singles, object{{"required", []string{name}}})
		for j := range i {
			pairs = append(pairs, object{{"required", []string{o.Fields().Get(j).JSONName(), name}}})
		}
	}

	rules, _ := proto.GetExtension(o.Options(), validate.E_Oneof).(*validate.OneofRules)
	if rules.GetRequired() {
		return object{{"oneOf", singles}}
	}
	return object{{"not", object{{"anyOf", pairs}}}}
}

func rulesOf(f protoreflect.FieldDescriptor) *validate.FieldRules {
	rules, _ := proto.GetExtension(f.Options(), validate.E_Field).(*validate.FieldRules)
	return rules
}

func mustBeSet(r *validate.FieldRules) bool {
	return r.GetRequired() || r.GetString().GetMinBytes() > 0 || r.GetRepeated().GetMinItems() > 0
}

// field returns the schema of a field, with its comment and limits.
func (a *schemas) field(f protoreflect.FieldDescriptor) object {
	description := member{"description", comment(f)}
	switch rules := rulesOf(f); {
	case f.IsMap():
		return object{{"type", "object"}, description, {"additionalProperties", a.value(f.MapValue(), nil)}}
	case f.IsList():
		s := object{{"type", "array"}, description, {"items", a.value(f, rules.GetRepeated().GetItems())}}
		if n := rules.GetRepeated().GetMinItems(); n > 0 {
			s = append(s, member{"minItems", n})
		}
		if n := rules.GetRepeated().GetMaxItems(); n > 0 {
			s = append(s, member{"maxItems", n})
		}
		return s
	default:
		return append(a.value(f, rules), description)
	}
}

// value returns the schema of one value of a field: of an element if the field is a list or a map.
func (a *schemas) value(f protoreflect.FieldDescriptor, rules *validate.FieldRules) object {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return object{{"type", "boolean"}}
	case protoreflect.StringKind:
		return stringSchema(rules.GetString())
	case protoreflect.BytesKind:
		return object{{"type", "string"}, {"contentEncoding", "base64"}}
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return object{{"type", "number"}, {"format", f.Kind().String()}}
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		s := object{{"type", "integer"}, {"format", "int32"}}
		if r := rules.GetInt32(); r.HasGte() {
			s = append(s, member{"minimum", r.GetGte()})
		}
		return s
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return object{{"type", "integer"}, {"format", "uint32"}, {"minimum", 0}}
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return object{{"type", "string"}, {"format", "int64"}}
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return object{{"type", "string"}, {"format", "uint64"}}
	case protoreflect.EnumKind:
		return a.refer(f.Enum())
	default:
		switch f.Message().FullName() {
		case "google.protobuf.Timestamp":
			return object{{"type", "string"}, {"format", "date-time"}}
		case "google.protobuf.Duration": // "1.5s"
			return object{{"type", "string"}, {"pattern", `^-?[0-9]+(\.[0-9]+)?s$`}}
		}
		return a.refer(f.Message())
	}
}

// stringSchema returns the schema of a string. The rules limit bytes, and the schema limits
// characters. A string has at most as many characters as bytes, so the schema accepts all valid
// strings, and also some that the rules reject.
func stringSchema(r *validate.StringRules) object {
	s := object{{"type", "string"}}
	if r.GetMinBytes() > 0 {
		s = append(s, member{"minLength", 1})
	}
	if r.GetMaxBytes() > 0 {
		s = append(s, member{"maxLength", r.GetMaxBytes()})
	}
	if r.GetPattern() != "" {
		s = append(s, member{"pattern", r.GetPattern()})
	}
	return s
}
