package request

import (
	"fmt"
	"strings"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// wanted says what a rule demands, in words that follow the name of the field. The library's own texts name neither the
// values of an enum nor the choices of a oneof.
func ruleText(msg proto.Message, v *protovalidate.Violation) string {
	text := strings.TrimPrefix(v.Proto.GetMessage(), "value ")
	fd := v.FieldDescriptor
	if path := v.Proto.GetField().GetElements(); fd == nil && len(path) == 1 {
		// An item of a list has no descriptor of its own, nor has a oneof.
		fd = msg.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(path[0].GetFieldName()))
	}
	if fd == nil {
		return oneofRuleText(msg, v, text)
	}
	switch v.Proto.GetRuleId() {
	case "string.min_bytes":
		return fmt.Sprintf("must not be empty: %d to %d bytes", stringRulesOf(fd).GetMinBytes(), stringRulesOf(fd).GetMaxBytes())
	case "repeated.min_items":
		return fmt.Sprintf("has %d items: must have %d to %d", v.FieldValue.List().Len(), v.RuleValue.Uint(), maxItemsOf(fd))
	case "string.pattern":
		return "must match " + v.RuleValue.String()
	case "enum.in", "enum.defined_only":
		return enumRuleText(fd)
	}
	if limits := numberRuleText(fd); limits != "" {
		return fmt.Sprintf("is %v: %s", v.FieldValue.Interface(), limits)
	}
	return text
}

// numberWanted names the limits of a number, or of the numbers of a list; empty means it has none.
func numberRuleText(fd protoreflect.FieldDescriptor) string {
	rules := fieldRulesOf(fd)
	if fd.IsList() {
		rules = rules.GetRepeated().GetItems()
	}
	m := rules.ProtoReflect()
	of := m.WhichOneof(m.Descriptor().Oneofs().ByName("type"))
	if of == nil || of.Message() == nil {
		return ""
	}
	limits := m.Get(of).Message()
	var texts []string
	for _, limit := range [...]struct {
		name protoreflect.Name
		text string
	}{{"gt", "more than"}, {"gte", "at least"}, {"lt", "less than"}, {"lte", "at most"}} {
		if f := limits.Descriptor().Fields().ByName(limit.name); f != nil && limits.Has(f) {
			texts = append(texts, fmt.Sprintf("%s %v", limit.text, limits.Get(f).Interface()))
		}
	}
	if len(texts) == 0 {
		return ""
	}
	return "must be " + strings.Join(texts, " and ")
}

// choiceWanted names the fields of a oneof of the request.
func oneofRuleText(msg proto.Message, v *protovalidate.Violation, text string) string {
	choice := msg.ProtoReflect().Descriptor().Oneofs().ByName(protoreflect.Name(fieldPath(v.Proto)))
	if choice == nil {
		return text
	}
	names := make([]string, choice.Fields().Len())
	for i := range names {
		names[i] = string(choice.Fields().Get(i).Name())
	}
	return "must be given: " + OrList(names)
}

func fieldRulesOf(fd protoreflect.FieldDescriptor) *validate.FieldRules {
	rules, _ := proto.GetExtension(fd.Options(), validate.E_Field).(*validate.FieldRules)
	return rules
}

// stringRulesOf returns the rules of a string, or of the strings of a list.
func stringRulesOf(fd protoreflect.FieldDescriptor) *validate.StringRules {
	if fd.IsList() {
		return fieldRulesOf(fd).GetRepeated().GetItems().GetString()
	}
	return fieldRulesOf(fd).GetString()
}

// enumWanted names the values that a field takes.
func enumRuleText(fd protoreflect.FieldDescriptor) string {
	values := fd.Enum().Values()
	var names []string
	for _, number := range fieldRulesOf(fd).GetEnum().GetIn() {
		names = append(names, string(values.ByNumber(protoreflect.EnumNumber(number)).Name()))
	}
	for i := 0; i < values.Len() && len(fieldRulesOf(fd).GetEnum().GetIn()) == 0; i++ {
		// The unspecified value means the default, which has a name of its own.
		if name := string(values.Get(i).Name()); !strings.HasSuffix(name, "_UNSPECIFIED") {
			names = append(names, name)
		}
	}
	return "must be " + OrList(names)
}

// EnumWantedOf is for fields that are checked by hand.
func EnumWantedOf(msg proto.Message, field protoreflect.Name) string {
	return enumRuleText(msg.ProtoReflect().Descriptor().Fields().ByName(field))
}

// OrList writes "a, b or c".
func OrList(names []string) string {
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
