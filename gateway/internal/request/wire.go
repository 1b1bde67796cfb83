package request

import (
	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/proto/protoscan"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Hand-written code decodes and encodes the messages of frequent calls. It saves the cost of
// reflection, and of one allocation per string (docs/decisions/0017-http-loop.md).
//
// The hand-written decoders accept only messages whose fields they all know, in any order, each
// with its own wire type. If a message has anything else, such as an unknown field, invalid UTF-8
// or an incomplete field, they give up, and the protobuf library (the "general" decoder) decodes
// the message or reports the error. So if someone adds a field to a request's proto but not to its
// decoder here, requests with that field become slower, but nothing is lost.
//
// The hand-written encoders have no such fallback: a field that they do not know would be missing
// in every answer. TestWireCodeEncodesAllFields fails if a proto has such a field.

// UnmarshalProto decodes a message in the binary encoding into m, which must be empty.
func UnmarshalProto(data []byte, m proto.Message) error {
	switch m := m.(type) {
	case *skeinv1.CheckFollowsRequest:
		if decodeCheckFollows(data, m) {
			return nil
		}
	case *skeinv1.FilterFollowedRequest:
		if decodeFilterFollowed(data, m) {
			return nil
		}
	}

	// The hand-written decoders above limit their lists themselves.
	if err := countProto(data, m); err != nil {
		return err
	}
	return proto.Unmarshal(data, m)
}

// AppendProto appends a message in the binary encoding to dst. The message must have no unknown
// fields, because the hand-written encoders drop them.
func AppendProto(dst []byte, m proto.Message) ([]byte, error) {
	switch m := m.(type) {
	case *skeinv1.CheckFollowsResponse:
		return appendCheckFollows(dst, m), nil
	case *skeinv1.FilterFollowedResponse:
		return appendFilterFollowed(dst, m), nil
	case *skeinv1.ListFollowersResponse:
		if b, ok := appendFollowList(dst, m); ok {
			return b, nil
		}
	case *skeinv1.ListFollowingResponse:
		if b, ok := appendFollowList(dst, m); ok {
			return b, nil
		}
	}
	return proto.MarshalOptions{}.MarshalAppend(dst, m)
}

// In the binary encoding, a tag precedes the value of each field. The tag is the number of the
// field times 8, plus the wire type: 0 for a varint, 2 for a text or a message.
const (
	tagVarint1, tagText1 = 1 << 3, 1<<3 | 2
	tagVarint2, tagText2 = 2 << 3, 2<<3 | 2
	tagVarint3, tagText3 = 3 << 3, 3<<3 | 2
	tagVarint4, tagText4 = 4 << 3, 4<<3 | 2
	tagText5             = 5<<3 | 2
)

// pairWithTarget holds a FollowPair next to the wrapper struct of its target, which the generated
// code would allocate separately. A slice of them holds all pairs of a request in one allocation.
type pairWithTarget struct {
	pair   skeinv1.FollowPair
	target skeinv1.FollowPair_TargetUserId
}

// decodeCheckFollows decodes a request. It returns false, and leaves m unchanged, if the general
// decoder must decode the request.
func decodeCheckFollows(data []byte, m *skeinv1.CheckFollowsRequest) bool {
	r := protoscan.NewCursor(data)

	// Count the pairs first, so that one allocation has space for all of them. The general decoder
	// refuses a list that is too long.
	n := r.Count(tagText1)
	if n > maxItems {
		return false
	}
	storage := make([]pairWithTarget, n)
	pairs := make([]*skeinv1.FollowPair, 0, n)

	var includeTimes bool
	var atLeast string
	for r.More() {
		switch tag := r.Tag(); tag {
		case tagText1:
			p := &storage[len(pairs)]
			pairs = append(pairs, &p.pair)
			if !p.decode(r.Message(tag)) {
				return false
			}
		case tagVarint2:
			includeTimes = r.Varint() != 0
		case tagText3:
			atLeast = r.Text(tag)
		default:
			return false
		}
	}
	if !r.OK() {
		return false
	}

	if n > 0 { // an empty list stays nil, as the general decoder leaves it
		m.Pairs = pairs
	}
	m.IncludeTimes = includeTimes
	m.AtLeast = atLeast
	return true
}

// decode decodes one pair. It returns false if the general decoder must decode the request.
func (p *pairWithTarget) decode(r protoscan.Cursor) bool {
	for r.More() {
		switch tag := r.Tag(); {
		case tag == tagText1:
			p.pair.UserId = r.Text(tag)
		case tag == tagText2:
			p.target.TargetUserId = r.Text(tag)
			p.pair.Target = &p.target
		case tag == tagText3 && p.pair.Target == nil:
			// A board that follows another board must be merged with it. Only the general decoder
			// does that, so a pair that already has a target is left to it.
			b := &skeinv1.Board{}
			if !decodeBoard(r.Message(tag), b) {
				return false
			}
			p.pair.Target = &skeinv1.FollowPair_Board{Board: b}
		default:
			return false
		}
	}
	return r.OK()
}

// decodeBoard decodes a board into b. It returns false if the general decoder must decode the
// request.
func decodeBoard(r protoscan.Cursor, b *skeinv1.Board) bool {
	for r.More() {
		switch tag := r.Tag(); tag {
		case tagText1:
			b.OwnerId = r.Text(tag)
		case tagText2:
			b.BoardId = r.Text(tag)
		default:
			return false
		}
	}
	return r.OK()
}

// decodeFilterFollowed decodes a request about users. It returns false, and leaves m unchanged, if
// the general decoder must decode the request. That is always so for a request about boards.
func decodeFilterFollowed(data []byte, m *skeinv1.FilterFollowedRequest) bool {
	r := protoscan.NewCursor(data)

	// As in decodeCheckFollows, count first, and leave a list that is too long to the general
	// decoder.
	n := r.Count(tagText2)
	if n > maxItems {
		return false
	}
	users := make([]string, 0, n)

	var viewer, atLeast string
	var direction skeinv1.FollowDirection
	for r.More() {
		switch tag := r.Tag(); tag {
		case tagText1:
			viewer = r.Text(tag)
		case tagText2:
			users = append(users, r.Text(tag))
		case tagVarint4:
			direction = skeinv1.FollowDirection(r.Varint())
		case tagText5:
			atLeast = r.Text(tag)
		default:
			return false
		}
	}
	if !r.OK() {
		return false
	}

	if n > 0 { // an empty list stays nil, as the general decoder leaves it
		m.UserIds = users
	}
	m.ViewerId = viewer
	m.Direction = direction
	m.AtLeast = atLeast
	return true
}
