package request

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/skein-feed/skein/gateway/internal/request/requesttest"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// wireMessages returns an empty message of each type that has a hand-written decoder or encoder.
func wireMessages() []proto.Message {
	return []proto.Message{
		&skeinv1.CheckFollowsRequest{}, &skeinv1.FilterFollowedRequest{}, &skeinv1.CheckFollowsResponse{},
		&skeinv1.FilterFollowedResponse{}, &skeinv1.ListFollowersResponse{}, &skeinv1.ListFollowingResponse{},
	}
}

// mustDecodeLikeLibrary stops the test if UnmarshalProto and the library decode data differently.
// The texts of their errors may differ.
func mustDecodeLikeLibrary(t *testing.T, data []byte, empty proto.Message) {
	t.Helper()
	got := proto.Clone(empty)
	gotErr := UnmarshalProto(data, got)
	want := proto.Clone(empty)
	wantErr := proto.Unmarshal(data, want)

	if (gotErr == nil) != (wantErr == nil) {
		t.Fatalf("UnmarshalProto of %T %x: got the error %v, want %v as from the library", empty, data, gotErr, wantErr)
	}
	if wantErr == nil && !proto.Equal(got, want) {
		t.Fatalf("UnmarshalProto of %T %x (-library +hand-written):\n%s", empty, data, cmp.Diff(want, got, protocmp.Transform()))
	}
}

// TestWireCodeAgreesWithTheLibrary checks that the library can decode what the hand-written code
// has encoded, and that both decode the same message from the same bytes, however the bytes are
// changed.
func TestWireCodeAgreesWithTheLibrary(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, empty := range wireMessages() {
		t.Run(messageName(empty), func(t *testing.T) {
			for range 3000 {
				m := proto.Clone(empty)
				probability := []float64{1, 0.8, 0.3}[r.IntN(3)]
				requesttest.Fill(r, m.ProtoReflect(), probability)

				// The encoder appends to a buffer that already contains something.
				const before = "before"
				buffer, err := AppendProto([]byte(before), m)
				if err != nil {
					t.Fatal(err)
				}
				data := buffer[len(before):]
				mustDecodeWithLibrary(t, data, m)
				mustDecodeLikeLibrary(t, data, empty)

				withEachFieldTwice := slices.Concat(data, data)
				mustDecodeLikeLibrary(t, withEachFieldTwice, empty)
				truncated := data[:r.IntN(len(data)+1)]
				mustDecodeLikeLibrary(t, truncated, empty)
				withUnknownField := protowire.AppendTag(slices.Clone(data), 99, protowire.VarintType)
				withUnknownField = protowire.AppendVarint(withUnknownField, 1)
				mustDecodeLikeLibrary(t, withUnknownField, empty)

				// Change one byte after the other at random places.
				changed := slices.Clone(data)
				for range 3 {
					if len(changed) > 0 {
						changed[r.IntN(len(changed))] = byte(r.Uint32())
						mustDecodeLikeLibrary(t, changed, empty)
					}
				}
			}
		})
	}
}

func messageName(m proto.Message) string { return string(m.ProtoReflect().Descriptor().Name()) }

// mustDecodeWithLibrary stops the test unless the library decodes data as the message.
func mustDecodeWithLibrary(t *testing.T, data []byte, want proto.Message) {
	t.Helper()
	got := want.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(data, got); err != nil {
		t.Fatalf("%T was encoded as %x, which the library does not decode: %v", want, data, err)
	}
	if !proto.Equal(want, got) {
		t.Fatalf("%T was encoded as %x (-message +decoded):\n%s", want, data, cmp.Diff(want, got, protocmp.Transform()))
	}
}

// TestWireCodeEncodesAllFields reports fields that were added to a message but not to its
// hand-written encoder. They would be missing in every answer.
func TestWireCodeEncodesAllFields(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, empty := range wireMessages() {
		t.Run(messageName(empty), func(t *testing.T) {
			m := proto.Clone(empty)
			// A random value may be the default value, which is not encoded. After several rounds
			// every field has another value.
			for range 50 {
				requesttest.Fill(r, m.ProtoReflect(), 1)
			}
			data, err := AppendProto(nil, m)
			if err != nil {
				t.Fatal(err)
			}
			mustDecodeWithLibrary(t, data, m)
		})
	}
}

// TestWireDecodesFrequentRequests checks that the hand-written decoders accept the requests of
// frequent calls.
func TestWireDecodesFrequentRequests(t *testing.T) {
	requests := map[string]proto.Message{
		"CheckFollows of a user": &skeinv1.CheckFollowsRequest{
			Pairs: []*skeinv1.FollowPair{newUserPair("ann", "bob")}, IncludeTimes: true, AtLeast: "x",
		},
		"CheckFollows of a board": &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{
			{UserId: "ann", Target: &skeinv1.FollowPair_Board{Board: newBoard("bob", "cats")}},
		}},
		"FilterFollowed of users": &skeinv1.FilterFollowedRequest{
			ViewerId: "ann", UserIds: []string{"bob", "cid"}, Direction: skeinv1.FollowDirection_FOLLOW_DIRECTION_MUTUAL, AtLeast: "x",
		},
	}
	for name, want := range requests {
		t.Run(name, func(t *testing.T) {
			data := mustMarshal(t, want)
			got := want.ProtoReflect().New().Interface()
			var isDecoded bool
			switch m := got.(type) {
			case *skeinv1.CheckFollowsRequest:
				isDecoded = decodeCheckFollows(data, m)
			case *skeinv1.FilterFollowedRequest:
				isDecoded = decodeFilterFollowed(data, m)
			default:
				t.Fatalf("the test has no decoder for %T", m)
			}

			if !isDecoded {
				t.Fatalf("the hand-written decoder leaves %v to the library, want it decoded", want)
			}
			if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
				t.Errorf("decoded (-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzWire checks that the hand-written decoders and the library decode any bytes alike.
func FuzzWire(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for i, empty := range wireMessages() {
		m := proto.Clone(empty)
		requesttest.Fill(r, m.ProtoReflect(), 1)
		f.Add(byte(i), mustMarshal(f, m))
	}
	f.Fuzz(func(t *testing.T, messageIndex byte, data []byte) {
		messages := wireMessages()
		mustDecodeLikeLibrary(t, data, messages[int(messageIndex)%len(messages)])
	})
}
