// Apidoc writes the reference of the API, docs/api.md, and its OpenAPI document, docs/openapi.yaml:
//
//	apidoc IMAGE MARKDOWN OPENAPI
//
// IMAGE is a file with the descriptors of the protos, which buf makes; the other two are the files
// to write. `task generate` runs it. Existing generators of references were last released in 2022,
// and ignore the validation rules of the fields.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// documentedPackage is the package of protos that is described.
const documentedPackage = "skein.v1"

// serviceOrder has the services in the order in which they are described: those that every
// application calls come first.
var serviceOrder = []string{"EventService", "GraphService", "FeedService", "SeenService", "CounterService", "NotificationService", "AdminService"}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "apidoc:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: apidoc IMAGE MARKDOWN OPENAPI")
	}
	image, err := os.ReadFile(args[0]) //nolint:gosec // whoever runs the program names the file
	if err != nil {
		return err
	}
	files, err := parseImage(image)
	if err != nil {
		return err
	}

	//nolint:gosec // documentation is public
	if err := os.WriteFile(args[1], []byte(markdown(files)), 0o644); err != nil {
		return err
	}
	text, err := openAPI(files)
	if err != nil {
		return err
	}
	//nolint:gosec // as above
	return os.WriteFile(args[2], []byte(text), 0o644)
}

const introduction = `# API reference

Generated from [proto/skein/v1](../proto/skein/v1) by ` + "`task generate`" + `: edit the comments there. How to call it
from your language stands in [clients.md](clients.md). The same as OpenAPI 3.1 is [openapi.yaml](openapi.yaml).

Every method is ` + "`POST /skein.v1.SERVICE/METHOD`" + ` on one port, as Connect (JSON or binary), gRPC and gRPC-Web. In JSON, names of
fields are lowerCamelCase, times are RFC 3339 and absent where there is none, and bytes are base64. Integers of 32 bits are numbers, those
of 64 bits are strings ("playCount": "3"): JavaScript has no numbers for them. The rules under *limits* are checked
before anything else: a message beyond them is refused with ` + "`invalid_argument`" + `, by name of field and limit.
`

// parseImage returns the descriptors of the files of the API, in the order of serviceOrder.
func parseImage(image []byte) ([]protoreflect.FileDescriptor, error) {
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(image, &set); err != nil {
		return nil, err
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		return nil, err
	}

	var found []protoreflect.FileDescriptor
	files.RangeFilesByPackage(documentedPackage, func(f protoreflect.FileDescriptor) bool {
		found = append(found, f)
		return true
	})
	if len(found) == 0 {
		return nil, fmt.Errorf("the image has no files of the package %s", documentedPackage)
	}
	slices.SortFunc(found, func(a, b protoreflect.FileDescriptor) int {
		return cmp.Or(cmp.Compare(fileOrder(a), fileOrder(b)), strings.Compare(a.Path(), b.Path()))
	})
	return found, nil
}

// fileOrder returns the index in serviceOrder of the first service of a file. Files without a
// service come last.
func fileOrder(f protoreflect.FileDescriptor) int {
	order := len(serviceOrder)
	for s := range each(f.Services().Len(), f.Services().Get) {
		if i := slices.Index(serviceOrder, string(s.Name())); i >= 0 {
			order = min(order, i)
		}
	}
	return order
}

// markdown returns the reference of the API.
func markdown(files []protoreflect.FileDescriptor) string {
	w := &writer{}
	w.line("%s", introduction)
	for _, f := range files {
		for s := range each(f.Services().Len(), f.Services().Get) {
			w.writeContents(s)
		}
	}
	for _, f := range files {
		for s := range each(f.Services().Len(), f.Services().Get) {
			w.writeService(s)
		}
	}
	w.line("\n# Messages")
	for _, f := range files {
		for m := range each(f.Messages().Len(), f.Messages().Get) {
			w.writeMessage(m)
		}
	}
	w.line("\n# Enums")
	for _, f := range files {
		for e := range each(f.Enums().Len(), f.Enums().Get) {
			w.writeEnum(e)
		}
	}
	return w.String()
}

// each returns an iterator over a list of descriptors, whose type depends on what it lists.
func each[D any](n int, get func(int) D) func(func(D) bool) {
	return func(yield func(D) bool) {
		for i := range n {
			if !yield(get(i)) {
				return
			}
		}
	}
}

// writer collects the text of the reference.
type writer struct{ strings.Builder }

func (w *writer) line(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

// writeContents writes a line with links to the methods of a service.
func (w *writer) writeContents(s protoreflect.ServiceDescriptor) {
	var links []string
	for m := range each(s.Methods().Len(), s.Methods().Get) {
		links = append(links, fmt.Sprintf("[%s](#%s)", m.Name(), strings.ToLower(string(m.Name()))))
	}
	w.line("- **%s**: %s", s.Name(), strings.Join(links, ", "))
}

// writeService describes a service, its methods, and their requests and answers.
func (w *writer) writeService(s protoreflect.ServiceDescriptor) {
	w.line("\n# %s\n\n%s", s.Name(), comment(s))
	for m := range each(s.Methods().Len(), s.Methods().Get) {
		stream := ""
		if m.IsStreamingServer() {
			stream = ", a stream"
		}
		w.line("\n## %s\n\n`%s` → `%s`%s\n\n%s", m.Name(), m.Input().Name(), m.Output().Name(), stream, comment(m))
		w.line("\n*Request*\n")
		w.writeFields(m.Input())
		w.line("\n*Answer*\n")
		w.writeFields(m.Output())
	}
}

// writeMessage describes a message, unless it is the request or the answer of a method, with which
// writeService describes it.
func (w *writer) writeMessage(m protoreflect.MessageDescriptor) {
	for s := range each(m.ParentFile().Services().Len(), m.ParentFile().Services().Get) {
		for method := range each(s.Methods().Len(), s.Methods().Get) {
			if method.Input() == m || method.Output() == m {
				return
			}
		}
	}
	w.line("\n## %s\n\n%s\n", m.Name(), comment(m))
	w.writeFields(m)
}

// writeFields writes a table of the fields of a message.
func (w *writer) writeFields(m protoreflect.MessageDescriptor) {
	if m.Fields().Len() == 0 {
		w.line("Empty.")
		return
	}
	w.line("| field | type | |\n|---|---|---|")
	for f := range each(m.Fields().Len(), m.Fields().Get) {
		text := escapeCell(comment(f))
		// An optional field is in a synthetic oneof, which only the compiler of protos knows.
		if oneof := f.ContainingOneof(); oneof != nil && !oneof.IsSynthetic() {
			text = fmt.Sprintf("One of `%s`. %s", oneof.Name(), text)
		}
		if limits := fieldLimits(f); limits != "" {
			text += " *Limits: " + escapeCell(limits) + "*"
		}
		w.line("| `%s` | %s | %s |", f.Name(), typeOf(f), text)
	}
}

// writeEnum describes an enum and its values.
func (w *writer) writeEnum(e protoreflect.EnumDescriptor) {
	w.line("\n## %s\n\n%s\n\n| value | number | |\n|---|---|---|", e.Name(), comment(e))
	for v := range each(e.Values().Len(), e.Values().Get) {
		w.line("| `%s` | %d | %s |", v.Name(), v.Number(), escapeCell(comment(v)))
	}
}

// comment returns the comment before a declaration, or the one behind the declaration on its line.
func comment(d protoreflect.Descriptor) string {
	location := d.ParentFile().SourceLocations().ByDescriptor(d)
	text := location.LeadingComments
	if text == "" {
		text = location.TrailingComments
	}

	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, " ")
	}
	return strings.Join(lines, "\n")
}

// escapeCell returns a text in the form that a cell of a Markdown table can have, which is one
// line.
func escapeCell(text string) string {
	return strings.NewReplacer("\n\n", "<br>", "\n", " ", "|", `\|`).Replace(text)
}

// typeOf returns the type of a field for people, with a link to a message or enum of the API.
func typeOf(f protoreflect.FieldDescriptor) string {
	name := f.Kind().String()
	switch {
	case f.IsMap():
		return fmt.Sprintf("map of %s to %s", f.MapKey().Kind(), typeOf(f.MapValue()))
	case f.Message() != nil:
		name = link(f.Message())
	case f.Enum() != nil:
		name = link(f.Enum())
	}
	switch {
	case f.IsList():
		return "list of " + name
	case f.HasOptionalKeyword():
		return name + ", optional"
	}
	return name
}

// link returns the name of a message or enum, with a link if this page describes it.
func link(d protoreflect.Descriptor) string {
	if d.ParentFile().Package() != documentedPackage {
		return string(d.FullName())
	}
	return fmt.Sprintf("[%s](#%s)", d.Name(), strings.ToLower(string(d.Name())))
}

// fieldLimits returns the validation rules of a field, in the form "min_bytes 1, max_bytes 128".
func fieldLimits(f protoreflect.FieldDescriptor) string {
	var parts []string
	f.Options().ProtoReflect().Range(func(option protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if option.FullName().Parent() == "buf.validate" && option.Message() != nil {
			parts = append(parts, formatRules(v.Message())...)
		}
		return true
	})
	return strings.Join(parts, ", ")
}

// formatRules returns the rules in a message of buf.validate, one string each.
func formatRules(m protoreflect.Message) (parts []string) {
	for f := range each(m.Descriptor().Fields().Len(), m.Descriptor().Fields().Get) {
		v := m.Get(f)
		switch {
		case !m.Has(f):
		case f.IsList() || f.IsMap():
			parts = append(parts, fmt.Sprintf("%s of %d", f.Name(), lengthOf(f, v)))
		case f.Name() == "items": // the rules of the elements of a list
			for _, part := range formatRules(v.Message()) {
				parts = append(parts, "each "+part)
			}
		case f.Message() != nil: // the rules of a type, such as string
			parts = append(parts, formatRules(v.Message())...)
		default:
			parts = append(parts, fmt.Sprintf("%s %v", f.Name(), v.Interface()))
		}
	}
	return parts
}

func lengthOf(f protoreflect.FieldDescriptor, v protoreflect.Value) int {
	if f.IsMap() {
		return v.Map().Len()
	}
	return v.List().Len()
}
