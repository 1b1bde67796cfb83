package request

import (
	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/proto/protoscan"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// The messages of the frequent calls are decoded and encoded by hand, for what reflection and an allocation for each of their
// strings would cost (docs/decisions/0017). The code here knows the plain shape of a message: the fields that it
// names, in any order, each of its type. A message with anything else in it (unknown fields, text that is no UTF-8, half a field)
// goes to the general decoder, which reports the error or accepts it; so a field that is added to a proto and
// forgotten here costs time, and loses nothing, in a request. In an answer it would be lost: TestWireKnowsAllFields fails.

// UnmarshalProto decodes a message into an empty one.
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

// AppendProto encodes a message of ours: one without unknown fields.
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

// The tags of fields: eight times the number, and 2 for what has its length before it.
const (
	tagVarint1, tagText1 = 1 << 3, 1<<3 | 2
	tagVarint2, tagText2 = 2 << 3, 2<<3 | 2
	tagVarint3, tagText3 = 3 << 3, 3<<3 | 2
	tagVarint4, tagText4 = 4 << 3, 4<<3 | 2
	tagText5             = 5<<3 | 2
)

// pairRoom is a pair of a follower and a user, in one allocation for all.
type pairAllocation struct {
	pair skeinv1.FollowPair
	user skeinv1.FollowPair_TargetUserId
}

// decodeCheckFollows decodes a request of good shape, and reports whether it is one.
func decodeCheckFollows(data []byte, m *skeinv1.CheckFollowsRequest) bool {
	r := protoscan.NewCursor(data)
	n := r.Count(tagText1)
	if n > maxItems {
		return false
	}
	rooms, pairs := make([]pairAllocation, n), make([]*skeinv1.FollowPair, 0, n)
	var times bool
	var least string
	for r.More() {
		switch tag := r.Tag(); tag {
		case tagText1:
			room := &rooms[len(pairs)]
			if pairs = append(pairs, &room.pair); !room.decode(r.Message(tag)) {
				return false
			}
		case tagVarint2:
			times = r.Varint() != 0
		case tagText3:
			least = r.Text(tag)
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
	m.IncludeTimes, m.AtLeast = times, least
	return true
}

func (p *pairAllocation) decode(r protoscan.Cursor) bool {
	for r.More() {
		switch tag := r.Tag(); {
		case tag == tagText1:
			p.pair.UserId = r.Text(tag)
		case tag == tagText2:
			p.user.TargetUserId = r.Text(tag)
			p.pair.Target = &p.user
		case tag == tagText3 && p.pair.Target == nil:
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

// decodeFilterFollowed decodes a request of good shape about users, and reports whether it is one.
func decodeFilterFollowed(data []byte, m *skeinv1.FilterFollowedRequest) bool {
	r := protoscan.NewCursor(data)
	n := r.Count(tagText2)
	if n > maxItems {
		return false
	}
	var (
		viewer, least string
		direction     skeinv1.FollowDirection
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
			least = r.Text(tag)
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
	m.ViewerId, m.Direction, m.AtLeast = viewer, direction, least
	return true
}
