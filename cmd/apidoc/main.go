// Apidoc writes the reference of the API, docs/api.md, and its OpenAPI document, docs/openapi.yaml, from the descriptors of the
// protos: apidoc IMAGE MARKDOWN OPENAPI. `task generate` runs it. (The generators of references that there are were last released in 2022,
// and know nothing of the limits that our fields name.)
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

const documented = "skein.v1"

// order is that of the services: first what every application calls, last what operators do.
var order = []string{"EventService", "GraphService", "FeedService", "SeenService", "CounterService", "NotificationService", "AdminService"}

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
	data, err := os.ReadFile(args[0]) //nolint:gosec // who runs it says which file
	if err != nil {
		return err
	}
	files, err := describedBy(data)
	if err != nil {
		return err
	}
	//nolint:gosec // documentation is public
	if err := os.WriteFile(args[1], []byte(document(files)), 0o644); err != nil {
		return err
	}
	text, err := openAPI(files)
	if err != nil {
		return err
	}
	//nolint:gosec // as above
	return os.WriteFile(args[2], []byte(text), 0o644)
}

const head = `# API reference

Generated from [proto/skein/v1](../proto/skein/v1) by ` + "`task generate`" + `: edit the comments there. How to call it
from your language stands in [clients.md](clients.md). The same as OpenAPI 3.1 is [openapi.yaml](openapi.yaml).

Every method is ` + "`POST /skein.v1.SERVICE/METHOD`" + ` on one port, as Connect (JSON or binary), gRPC and gRPC-Web. In JSON, names of
fields are lowerCamelCase, times are RFC 3339 and absent where there is none, and bytes are base64. Integers of 32 bits are numbers, those
of 64 bits are strings ("playCount": "3"): JavaScript has no numbers for them. The rules under *limits* are checked
before anything else: a message beyond them is refused with ` + "`invalid_argument`" + `, by name of field and limit.
`

// describedBy returns the files of the API that an image describes.
func describedBy(image []byte) ([]protoreflect.FileDescriptor, error) {
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(image, &set); err != nil {
		return nil, err
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		return nil, err
	}
	var found []protoreflect.FileDescriptor
	files.RangeFilesByPackage(documented, func(f protoreflect.FileDescriptor) bool {
		found = append(found, f)
		return true
	})
	if len(found) == 0 {
		return nil, fmt.Errorf("the image has nothing of %s", documented)
	}
	slices.SortFunc(found, func(a, b protoreflect.FileDescriptor) int {
		return cmp.Or(cmp.Compare(fileOrder(a), fileOrder(b)), strings.Compare(a.Path(), b.Path()))
	})
	return found, nil
}

// fileOrder returns where in the order the services of a file stand; files without any come last.
func fileOrder(f protoreflect.FileDescriptor) int {
	at := len(order)
	for s := range each(f.Services().Len(), f.Services().Get) {
		if i := slices.Index(order, string(s.Name())); i >= 0 {
			at = min(at, i)
		}
	}
	return at
}

// document returns the reference of the API.
func document(found []protoreflect.FileDescriptor) string {
	w := &writer{}
	w.line("%s", head)
	for _, f := range found {
		for s := range each(f.Services().Len(), f.Services().Get) {
			w.contents(s)
		}
	}
	for _, f := range found {
		for s := range each(f.Services().Len(), f.Services().Get) {
			w.service(s)
		}
	}
	w.line("\n# Messages")
	for _, f := range found {
		for m := range each(f.Messages().Len(), f.Messages().Get) {
			w.message(m)
		}
	}
	w.line("\n# Enums")
	for _, f := range found {
		for e := range each(f.Enums().Len(), f.Enums().Get) {
			w.enum(e)
		}
	}
	return w.String()
}

// each goes over a list of descriptors.
func each[D any](n int, get func(int) D) func(func(D) bool) {
	return func(yield func(D) bool) {
		for i := range n {
			if !yield(get(i)) {
				return
			}
		}
	}
}

type writer struct{ strings.Builder }

func (w *writer) line(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

// contents is a line with links to the methods of a service.
func (w *writer) contents(s protoreflect.ServiceDescriptor) {
	var links []string
	for m := range each(s.Methods().Len(), s.Methods().Get) {
		links = append(links, fmt.Sprintf("[%s](#%s)", m.Name(), strings.ToLower(string(m.Name()))))
	}
	w.line("- **%s**: %s", s.Name(), strings.Join(links, ", "))
}

func (w *writer) service(s protoreflect.ServiceDescriptor) {
	w.line("\n# %s\n\n%s", s.Name(), comment(s))
	for m := range each(s.Methods().Len(), s.Methods().Get) {
		stream := ""
		if m.IsStreamingServer() {
			stream = ", a stream"
		}
		w.line("\n## %s\n\n`%s` → `%s`%s\n\n%s", m.Name(), m.Input().Name(), m.Output().Name(), stream, comment(m))
		w.line("\n*Request*\n")
		w.fields(m.Input())
		w.line("\n*Answer*\n")
		w.fields(m.Output())
	}
}

// message describes one that is not the request or the answer of a method, which stand there.
func (w *writer) message(m protoreflect.MessageDescriptor) {
	for n := range each(m.ParentFile().Services().Len(), m.ParentFile().Services().Get) {
		for method := range each(n.Methods().Len(), n.Methods().Get) {
			if method.Input() == m || method.Output() == m {
				return
			}
		}
	}
	w.line("\n## %s\n\n%s\n", m.Name(), comment(m))
	w.fields(m)
}

func (w *writer) fields(m protoreflect.MessageDescriptor) {
	if m.Fields().Len() == 0 {
		w.line("Empty.")
		return
	}
	w.line("| field | type | |\n|---|---|---|")
	for f := range each(m.Fields().Len(), m.Fields().Get) {
		text := cell(comment(f))
		if one := f.ContainingOneof(); one != nil && !one.IsSynthetic() {
			text = fmt.Sprintf("One of `%s`. %s", one.Name(), text)
		}
		if limits := limits(f); limits != "" {
			text += " *Limits: " + cell(limits) + "*"
		}
		w.line("| `%s` | %s | %s |", f.Name(), typeOf(f), text)
	}
}

func (w *writer) enum(e protoreflect.EnumDescriptor) {
	w.line("\n## %s\n\n%s\n\n| value | number | |\n|---|---|---|", e.Name(), comment(e))
	for v := range each(e.Values().Len(), e.Values().Get) {
		w.line("| `%s` | %d | %s |", v.Name(), v.Number(), cell(comment(v)))
	}
}

// comment is what stands before a declaration, or after it in its line.
func comment(d protoreflect.Descriptor) string {
	at := d.ParentFile().SourceLocations().ByDescriptor(d)
	text := at.LeadingComments
	if text == "" {
		text = at.TrailingComments
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimPrefix(l, " ")
	}
	return strings.Join(lines, "\n")
}

// cell is a text in a table.
func cell(text string) string {
	return strings.NewReplacer("\n\n", "<br>", "\n", " ", "|", `\|`).Replace(text)
}

// typeOf is the type of a field, with a link where it is described here.
func typeOf(f protoreflect.FieldDescriptor) string {
	name := f.Kind().String()
	switch {
	case f.IsMap():
		return fmt.Sprintf("map of %s to %s", f.MapKey().Kind(), typeOf(f.MapValue()))
	case f.Message() != nil:
		name = linked(f.Message())
	case f.Enum() != nil:
		name = linked(f.Enum())
	}
	switch {
	case f.IsList():
		return "list of " + name
	case f.HasOptionalKeyword():
		return name + ", optional"
	}
	return name
}

func linked(d protoreflect.Descriptor) string {
	if d.ParentFile().Package() != documented {
		return string(d.FullName())
	}
	return fmt.Sprintf("[%s](#%s)", d.Name(), strings.ToLower(string(d.Name())))
}

// limits are the rules of a field, as "min_bytes 1, max_bytes 128".
func limits(f protoreflect.FieldDescriptor) string {
	var parts []string
	f.Options().ProtoReflect().Range(func(option protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if option.FullName().Parent() == "buf.validate" && option.Message() != nil {
			parts = append(parts, rules(v.Message())...)
		}
		return true
	})
	return strings.Join(parts, ", ")
}

func rules(m protoreflect.Message) (parts []string) {
	for f := range each(m.Descriptor().Fields().Len(), m.Descriptor().Fields().Get) {
		v := m.Get(f)
		switch {
		case !m.Has(f):
		case f.IsList() || f.IsMap():
			parts = append(parts, fmt.Sprintf("%s of %d", f.Name(), lengthOf(f, v)))
		case f.Name() == "items":
			for _, part := range rules(v.Message()) {
				parts = append(parts, "each "+part)
			}
		case f.Message() != nil:
			parts = append(parts, rules(v.Message())...)
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
