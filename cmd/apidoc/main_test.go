package main

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// apiImage returns the descriptors of the API, as buf makes them, without comments.
func apiImage(t *testing.T) []byte {
	t.Helper()
	_ = skeinv1.File_skein_v1_feed_service_proto // registers all of the package
	var set descriptorpb.FileDescriptorSet
	done := map[string]bool{}
	var add func(f protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if done[f.Path()] {
			return
		}
		done[f.Path()] = true
		for i := range each(f.Imports().Len(), f.Imports().Get) {
			add(i)
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(f))
	}
	protoregistry.GlobalFiles.RangeFilesByPackage(documented, func(f protoreflect.FileDescriptor) bool {
		add(f)
		return true
	})
	image, err := proto.Marshal(&set)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func api(t *testing.T) []protoreflect.FileDescriptor {
	t.Helper()
	files, err := describedBy(apiImage(t))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestDocument: every service, method, field and limit of the API is in the reference. (Its comments are not in compiled code; CI
// compares docs/api.md with what `task generate` makes of the sources.)
func TestDocument(t *testing.T) {
	files := api(t)
	var want []string
	for _, f := range files {
		for s := range each(f.Services().Len(), f.Services().Get) {
			want = append(want, "# "+string(s.Name())+"\n")
			for m := range each(s.Methods().Len(), s.Methods().Get) {
				want = append(want, "## "+string(m.Name())+"\n", "`"+string(m.Input().Name())+"`")
			}
		}
		for m := range each(f.Messages().Len(), f.Messages().Get) {
			for field := range each(m.Fields().Len(), m.Fields().Get) {
				want = append(want, "| `"+string(field.Name())+"` |")
			}
		}
	}
	text := document(files)
	for _, part := range append(want, "*Limits: min_bytes 1, max_bytes 128*", "max_items 256, each lte 255") {
		if !strings.Contains(text, part) {
			t.Errorf("the reference lacks %q", part)
		}
	}
	if len(want) < 200 {
		t.Errorf("only %d parts were looked for", len(want))
	}
	if _, err := describedBy(nil); err == nil {
		t.Error("nothing was documented")
	}
}

// TestOrder: no service is forgotten in the order, and files of services come as it says.
func TestOrder(t *testing.T) {
	var got []string
	for _, f := range api(t) {
		for s := range each(f.Services().Len(), f.Services().Get) {
			got = append(got, string(s.Name()))
		}
	}
	if !slices.Equal(got, order) {
		t.Errorf("the services are %v, the order is %v", got, order)
	}
}
