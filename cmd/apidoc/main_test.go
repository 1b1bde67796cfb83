package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	protoregistry.GlobalFiles.RangeFilesByPackage(documentedPackage, func(f protoreflect.FileDescriptor) bool {
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
	files, err := parseImage(apiImage(t))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// The reference has every service, method, field and limit of the API. Compiled code has no
// comments of the protos: CI compares docs/api.md with what `task generate` makes from the sources.
func TestReferenceHasTheWholeAPI(t *testing.T) {
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
	text := markdown(files)
	for _, part := range append(want, "*Limits: min_bytes 1, max_bytes 128*", "max_items 256, each lte 255") {
		if !strings.Contains(text, part) {
			t.Errorf("expected %q in the reference", part)
		}
	}
	if len(want) < 200 {
		t.Errorf("expected an API with at least 200 methods and fields, got %d", len(want))
	}
	if _, err := parseImage(nil); err == nil {
		t.Error("expected an error for an image without the API")
	}
}

// serviceOrder has all services, and their files are described in this order.
func TestServicesAreDescribedInOrder(t *testing.T) {
	var got []string
	for _, f := range api(t) {
		for s := range each(f.Services().Len(), f.Services().Get) {
			got = append(got, string(s.Name()))
		}
	}
	if diff := cmp.Diff(serviceOrder, got); diff != "" {
		t.Errorf("order of the services (-expected +got):\n%s", diff)
	}
}
