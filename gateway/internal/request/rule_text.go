package request

import (
	"fmt"
	"strings"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// ruleText returns what a broken rule of msg requires, in words that follow the path of the field.
// It replaces most texts of protovalidate, which do not say, for example, which values an enum
// accepts or which fields a oneof has.
func ruleText(msg proto.Message, v *protovalidate.Violation) string {
	text := strings.TrimPrefix(v.Proto.GetMessage(), "value ")

	field := v.FieldDescriptor
	path := v.Proto.GetField().GetElements()
	if field == nil && len(path) == 1 {
		// protovalidate gives no descriptor for an item of a list or for a oneof.
		field = msg.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(path[0].GetFieldName()))
	}
	if field == nil {
		return oneofRuleText(msg, v, text)
	}

	switch v.Proto.GetRuleId() {
	case "string.min_bytes":
		rules := stringRulesOf(field)
		return fmt.Sprintf("must not be empty: %d to %d bytes", rules.GetMinBytes(), rules.GetMaxBytes())
	case "repeated.min_items":
		return fmt.Sprintf("has %d items: must have %d to %d", v.FieldValue.List().Len(), v.RuleValue.Uint(), maxItemsOf(field))
	case "string.pattern":
		return "must match " + v.RuleValue.String()
	case "enum.in", "enum.defined_only":
		return enumRequirement(field)
	}
	if limits := numberRuleText(field); limits != "" {
		return fmt.Sprintf("is %v: %s", v.FieldValue.Interface(), limits)
	}
	return text
}

// numberRuleText returns the limits of a number field, or of the numbers in a list, such as "must
// be at least 0 and at most 100". It returns "" if there are none.
func numberRuleText(field protoreflect.FieldDescriptor) string {
	rules := fieldRulesOf(field)
	if field.IsList() {
		rules = rules.GetRepeated().GetItems()
	}

	// protovalidate has one message of rules per type of number, such as Int32Rules and
	// DoubleRules, in the oneof "type". The fields for limits have the same names in all of them,
	// so the limits are read by name.
	m := rules.ProtoReflect()
	typeRules := m.WhichOneof(m.Descriptor().Oneofs().ByName("type"))
	if typeRules == nil || typeRules.Message() == nil {
		return ""
	}
	limits := m.Get(typeRules).Message()

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

// oneofRuleText lists the fields of a required oneof of msg. It returns otherText if the broken
// rule is not about a oneof.
func oneofRuleText(msg proto.Message, v *protovalidate.Violation, otherText string) string {
	oneof := msg.ProtoReflect().Descriptor().Oneofs().ByName(protoreflect.Name(fieldPath(v.Proto)))
	if oneof == nil {
		return otherText
	}
	names := make([]string, oneof.Fields().Len())
	for i := range names {
		names[i] = string(oneof.Fields().Get(i).Name())
	}
	return "must be given: " + OrList(names)
}

// fieldRulesOf returns the rules of a field, or nil if it has none.
func fieldRulesOf(field protoreflect.FieldDescriptor) *validate.FieldRules {
	rules, _ := proto.GetExtension(field.Options(), validate.E_Field).(*validate.FieldRules)
	return rules
}

// stringRulesOf returns the rules of a string, or those of the strings of a list.
func stringRulesOf(field protoreflect.FieldDescriptor) *validate.StringRules {
	if field.IsList() {
		return fieldRulesOf(field).GetRepeated().GetItems().GetString()
	}
	return fieldRulesOf(field).GetString()
}

// enumRequirement lists the values that an enum field accepts, such as "must be A, B or C": those
// that its rule names, or all values if it has no such rule.
func enumRequirement(field protoreflect.FieldDescriptor) string {
	values := field.Enum().Values()
	allowed := fieldRulesOf(field).GetEnum().GetIn()
	var names []string
	for _, number := range allowed {
		names = append(names, string(values.ByNumber(protoreflect.EnumNumber(number)).Name()))
	}
	if len(allowed) == 0 {
		for i := range values.Len() {
			// The unspecified value means the default. The list does not need it, because the
			// default has a name of its own.
			if name := string(values.Get(i).Name()); !strings.HasSuffix(name, "_UNSPECIFIED") {
				names = append(names, name)
			}
		}
	}
	return "must be " + OrList(names)
}

// EnumRequirement returns the text for an invalid value of an enum field of msg, which lists the
// values that the field accepts. Hand-written checks use it.
func EnumRequirement(msg proto.Message, field protoreflect.Name) string {
	return enumRequirement(msg.ProtoReflect().Descriptor().Fields().ByName(field))
}

// OrList joins names as in "a, b or c".
func OrList(names []string) string {
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
