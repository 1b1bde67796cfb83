package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

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

// TestOpenAPI: every method that is no stream is in the document, every field is a property of its message, and what is referred to is
// there.
func TestOpenAPI(t *testing.T) {
	files := api(t)
	text, err := openAPI(files)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths      map[string]any `yaml:"paths"`
		Components struct {
			Schemas map[string]schema `yaml:"schemas"`
		} `yaml:"components"`
	}
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
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
							t.Errorf("%s is missing", field.FullName())
						}
					}
				}
			}
		}
	}
	slices.Sort(paths)
	if got := slices.Sorted(maps.Keys(doc.Paths)); !slices.Equal(got, paths) {
		t.Errorf("paths %q, want %q", got, paths)
	}
	refs := 0
	for line := range strings.Lines(text) {
		if _, name, ok := strings.Cut(line, "#/components/schemas/"); ok {
			refs++
			if _, ok := schemas[strings.Trim(name, "'\n")]; !ok {
				t.Errorf("nothing is called %s", name)
			}
		}
	}
	if refs < 100 {
		t.Errorf("only %d references", refs)
	}
}

// TestOpenAPIRules: limits and oneofs say in the document what they say in the protos.
func TestOpenAPIRules(t *testing.T) {
	text, err := openAPI(api(t))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Components struct {
			Schemas map[string]schema `yaml:"schemas"`
		} `yaml:"components"`
	}
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	schemas := doc.Components.Schemas
	read := schemas["ReadFeedRequest"]
	if !slices.Equal(read.Required, []string{"readerId"}) {
		t.Errorf("required: %q", read.Required)
	}
	if reader := read.Properties["readerId"]; reader.Type != "string" || reader.MinLength != 1 || reader.MaxLength != 128 {
		t.Errorf("readerId: %+v", reader)
	}
	if read.Not == nil || len(read.Not.AnyOf) != 1 || !slices.Equal(read.Not.AnyOf[0].Required, []string{"pageToken", "newerThan"}) {
		t.Errorf("a oneof that may be left out: %+v", read.Not)
	}
	if kinds := schemas["Event"].OneOf; len(kinds) != 25 || !slices.Equal(kinds[0].Required, []string{"userFollowed"}) {
		t.Errorf("a oneof that must be set: %+v", kinds)
	}
	counters := schemas["Counters"].Properties
	if counters["playCount"].Type != "string" || counters["playCount"].Format != "int64" || counters["repinCount"].Type != "integer" {
		t.Errorf("numbers: %+v", counters)
	}
	if at := schemas["FeedEntry"].Properties["createTime"]; at.Format != "date-time" {
		t.Errorf("a time: %+v", at)
	}
	if order := schemas["FeedOrder"].Enum; !slices.Contains(order, "FEED_ORDER_TRENDING") {
		t.Errorf("an enum: %q", order)
	}
}
