package request

import (
	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/proto/protoscan"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// The messages of frequent calls are decoded and encoded by hand-written code, which saves the cost
// of reflection and of an allocation for each string (docs/decisions/0017-http-loop.md). The
// decoders accept only messages that consist of the fields that they know, in any order, each with
// its own wire type. A message with anything else, such as unknown fields, invalid UTF-8 or an
// incomplete field, goes to the general decoder, which accepts it or reports the error. So a field
// that is added to a proto but not here makes requests slower, but is not lost. In an answer it
// would be lost, and TestWireCodeEncodesAllFields fails.

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
	if err := countProto(data, m); err != nil {
		return err
	}
	return proto.Unmarshal(data, m)
}

// AppendProto appends a message in the binary encoding to dst. The message must have no unknown
// fields.
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

// The tags of fields: the number of the field times 8, plus the wire type, which is 0 for a varint
// and 2 for a text or message.
const (
	tagVarint1, tagText1 = 1 << 3, 1<<3 | 2
	tagVarint2, tagText2 = 2 << 3, 2<<3 | 2
	tagVarint3, tagText3 = 3 << 3, 3<<3 | 2
	tagVarint4, tagText4 = 4 << 3, 4<<3 | 2
	tagText5             = 5<<3 | 2
)

// pairWithTarget has the parts of a pair of a follower and a user, so that one slice of them needs
// one allocation for all pairs.
type pairWithTarget struct {
	pair   skeinv1.FollowPair
	target skeinv1.FollowPair_TargetUserId
}

// decodeCheckFollows decodes a request. It returns false, and leaves m unchanged, if the general
// decoder must decode it.
func decodeCheckFollows(data []byte, m *skeinv1.CheckFollowsRequest) bool {
	r := protoscan.NewCursor(data)
	// The pairs are counted first, for one allocation. The general decoder refuses a longer list.
	n := r.Count(tagText1)
	if n > maxItems {
		return false
	}
	allocations := make([]pairWithTarget, n)
	pairs := make([]*skeinv1.FollowPair, 0, n)
	var includeTimes bool
	var atLeast string
	for r.More() {
		switch tag := r.Tag(); tag {
		case tagText1:
			a := &allocations[len(pairs)]
			pairs = append(pairs, &a.pair)
			if !a.decode(r.Message(tag)) {
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
	if n > 0 {
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
			// The general decoder decides what two targets of one pair mean.
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
// the general decoder must decode it, as it must if the request is about boards.
func decodeFilterFollowed(data []byte, m *skeinv1.FilterFollowedRequest) bool {
	r := protoscan.NewCursor(data)
	n := r.Count(tagText2)
	if n > maxItems {
		return false
	}
	var (
		viewer, atLeast string
		direction       skeinv1.FollowDirection
	)
	users := make([]string, 0, n)
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
	if n > 0 {
		m.UserIds = users
	}
	m.ViewerId = viewer
	m.Direction = direction
	m.AtLeast = atLeast
	return true
}
