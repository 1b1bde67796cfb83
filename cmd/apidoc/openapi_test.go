package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
)

type schema struct {
	Ref        string            `yaml:"$ref"`
	Type       string            `yaml:"type"`
	Format     string            `yaml:"format"`
	MinLength  int               `yaml:"minLength"`
	MaxLength  int               `yaml:"maxLength"`
	Properties map[string]schema `yaml:"properties"`
	Required   []string          `yaml:"required"`
	OneOf      []schema          `yaml:"oneOf"`
	Not        *schema           `yaml:"not"`
	AnyOf      []schema          `yaml:"anyOf"`
	Items      *schema           `yaml:"items"`
	Enum       []string          `yaml:"enum"`
}

// document is what the tests read of an OpenAPI document.
type document struct {
	Paths      map[string]any `yaml:"paths"`
	Components struct {
		Schemas map[string]schema `yaml:"schemas"`
	} `yaml:"components"`
}

// mustMakeOpenAPI returns the OpenAPI document of the files, as text and parsed.
func mustMakeOpenAPI(t *testing.T, files []protoreflect.FileDescriptor) (text string, doc document) {
	t.Helper()
	text, err := openAPI(files)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	return text, doc
}

// The document has every method that is not a stream, every field of its messages, and every schema
// to which it refers.
func TestOpenAPIHasTheWholeAPI(t *testing.T) {
	files := api(t)
	text, doc := mustMakeOpenAPI(t, files)
	schemas := doc.Components.Schemas

	var paths []string
	for _, f := range files {
		for s := range each(f.Services().Len(), f.Services().Get) {
			for m := range each(s.Methods().Len(), s.Methods().Get) {
				if m.IsStreamingServer() {
					continue
				}
				paths = append(paths, "/"+string(s.FullName())+"/"+string(m.Name()))
				for _, message := range []protoreflect.MessageDescriptor{m.Input(), m.Output()} {
					properties := schemas[string(message.Name())].Properties
					for field := range each(message.Fields().Len(), message.Fields().Get) {
						if _, ok := properties[field.JSONName()]; !ok {
							t.Errorf("expected a property for %s", field.FullName())
						}
					}
				}
			}
		}
	}
	slices.Sort(paths)
	if diff := cmp.Diff(paths, slices.Sorted(maps.Keys(doc.Paths))); diff != "" {
		t.Errorf("paths (-expected +got):\n%s", diff)
	}

	refs := 0
	for line := range strings.Lines(text) {
		if _, name, ok := strings.Cut(line, "#/components/schemas/"); ok {
			refs++
			if _, ok := schemas[strings.Trim(name, "'\n")]; !ok {
				t.Errorf("expected a schema with the name %s", name)
			}
		}
	}
	if refs < 100 {
		t.Errorf("expected at least 100 references, got %d", refs)
	}
}

// The limits, oneofs and types of fields in the document are those of the protos.
func TestOpenAPIHasTheRulesOfTheProtos(t *testing.T) {
	_, doc := mustMakeOpenAPI(t, api(t))
	schemas := doc.Components.Schemas

	read := schemas["ReadFeedRequest"]
	if !slices.Equal(read.Required, []string{"readerId"}) {
		t.Errorf("required fields of ReadFeedRequest: expected readerId, got %q", read.Required)
	}
	if reader := read.Properties["readerId"]; reader.Type != "string" || reader.MinLength != 1 || reader.MaxLength != 128 {
		t.Errorf("readerId: expected a string of 1 to 128 characters, got %+v", reader)
	}
	if read.Not == nil || len(read.Not.AnyOf) != 1 || !slices.Equal(read.Not.AnyOf[0].Required, []string{"pageToken", "newerThan"}) {
		t.Errorf("an optional oneof: expected that pageToken and newerThan exclude each other, got %+v", read.Not)
	}
	if kinds := schemas["Event"].OneOf; len(kinds) != 28 || !slices.Equal(kinds[0].Required, []string{"userFollowed"}) {
		t.Errorf("a required oneof: expected 28 fields, got %d", len(kinds))
	}
	counters := schemas["Counters"].Properties
	if counters["playCount"].Type != "string" || counters["playCount"].Format != "int64" || counters["repinCount"].Type != "integer" {
		t.Errorf("expected 64-bit numbers as strings and 32-bit numbers as integers, got %+v", counters)
	}
	if at := schemas["FeedEntry"].Properties["createTime"]; at.Format != "date-time" {
		t.Errorf("expected a time as a string of format date-time, got %+v", at)
	}
	if order := schemas["FeedOrder"].Enum; !slices.Contains(order, "FEED_ORDER_TRENDING") {
		t.Errorf("expected FEED_ORDER_TRENDING among the values of FeedOrder, got %q", order)
	}
}
