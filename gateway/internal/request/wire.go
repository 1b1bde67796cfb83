package request

import (
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// The messages of the frequent calls are decoded and encoded by hand, for what reflection and an allocation for each of their
// strings would cost (docs/decisions/0013). The code here knows the plain shape of a message: the fields that it
// names, in any order, each of its type. A message with anything else in it (unknown fields, text that is no UTF-8, half a field)
// goes to the general decoder, which reports the error or accepts it; so a field that is added to a proto and
// forgotten here costs time, and loses nothing, in a request. In an answer it would be lost: TestWireKnowsAllFields fails.

// UnmarshalProto decodes a message into an empty one.
func UnmarshalProto(data []byte, m proto.Message) error {
	switch m := m.(type) {
	case *skeinv1.CheckFollowsRequest:
		if decodeCheckFollows(string(data), m) {
			return nil
		}
	case *skeinv1.FilterFollowedRequest:
		if decodeFilterFollowed(string(data), m) {
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

// wireReader reads an encoded message. All its strings are parts of one.
type wireReader struct {
	data string
	// bad is set by what is not well formed. Whatever is read then means nothing.
	bad bool
}

// The tags of fields: eight times the number, and 2 for what has its length before it.
const (
	tagVarint1, tagText1 = 1 << 3, 1<<3 | 2
	tagVarint2, tagText2 = 2 << 3, 2<<3 | 2
	tagVarint3, tagText3 = 3 << 3, 3<<3 | 2
	tagVarint4, tagText4 = 4 << 3, 4<<3 | 2
	tagText5             = 5<<3 | 2
)

func (r *wireReader) more() bool { return len(r.data) > 0 && !r.bad }

func (r *wireReader) varint() uint64 {
	if len(r.data) > 0 && r.data[0] < 0x80 {
		v := uint64(r.data[0])
		r.data = r.data[1:]
		return v
	}
	var v uint64
	for i := 0; i < len(r.data) && i < 9; i++ {
		c := r.data[i]
		v |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			r.data = r.data[i+1:]
			return v
		}
	}
	r.bad = true
	return 0
}

// part reads what has its length before it.
func (r *wireReader) part() string {
	n := r.varint()
	if n > uint64(len(r.data)) {
		r.bad = true
		return ""
	}
	p := r.data[:n]
	r.data = r.data[n:]
	return p
}

func (r *wireReader) text() string {
	s := r.part()
	r.bad = r.bad || !utf8.ValidString(s)
	return s
}

// count returns how many fields have a tag, in a message in which every field is a varint or has its length before it.
func (r wireReader) count(tag uint64) (n int) {
	for r.more() {
		t := r.varint()
		if t == tag {
			n++
		}
		if t&7 == tagText1&7 {
			r.part()
		} else {
			r.varint()
		}
	}
	return n
}

// pairRoom is a pair of a follower and a user, in one allocation for all.
type pairRoom struct {
	pair skeinv1.FollowPair
	user skeinv1.FollowPair_TargetUserId
}

// decodeCheckFollows decodes a request of good shape, and reports whether it is one.
func decodeCheckFollows(data string, m *skeinv1.CheckFollowsRequest) bool {
	r := wireReader{data: data}
	n := r.count(tagText1)
	if n > maxItems {
		return false
	}
	rooms, pairs := make([]pairRoom, n), make([]*skeinv1.FollowPair, 0, n)
	var times bool
	var least string
	for r.more() {
		switch r.varint() {
		case tagText1:
			room := &rooms[len(pairs)]
			if pairs = append(pairs, &room.pair); !room.decode(r.part()) {
				return false
			}
		case tagVarint2:
			times = r.varint() != 0
		case tagText3:
			least = r.text()
		default:
			return false
		}
	}
	if r.bad {
		return false
	}
	if n > 0 {
		m.Pairs = pairs
	}
	m.IncludeTimes, m.AtLeast = times, least
	return true
}

func (p *pairRoom) decode(data string) bool {
	r := wireReader{data: data}
	for r.more() {
		switch tag := r.varint(); {
		case tag == tagText1:
			p.pair.UserId = r.text()
		case tag == tagText2:
			p.user.TargetUserId = r.text()
			p.pair.Target = &p.user
		case tag == tagText3 && p.pair.Target == nil:
			b := &skeinv1.Board{}
			if !decodeBoard(r.part(), b) {
				return false
			}
			p.pair.Target = &skeinv1.FollowPair_Board{Board: b}
		default:
			return false
		}
	}
	return !r.bad
}

func decodeBoard(data string, b *skeinv1.Board) bool {
	r := wireReader{data: data}
	for r.more() {
		switch r.varint() {
		case tagText1:
			b.OwnerId = r.text()
		case tagText2:
			b.BoardId = r.text()
		default:
			return false
		}
	}
	return !r.bad
}

// decodeFilterFollowed decodes a request of good shape about users, and reports whether it is one.
func decodeFilterFollowed(data string, m *skeinv1.FilterFollowedRequest) bool {
	r := wireReader{data: data}
	n := r.count(tagText2)
	if n > maxItems {
		return false
	}
	var (
		viewer, least string
		direction     skeinv1.FollowDirection
	)
	users := make([]string, 0, n)
	for r.more() {
		switch r.varint() {
		case tagText1:
			viewer = r.text()
		case tagText2:
			users = append(users, r.text())
		case tagVarint4:
			direction = skeinv1.FollowDirection(r.varint())
		case tagText5:
			least = r.text()
		default:
			return false
		}
	}
	if r.bad {
		return false
	}
	if n > 0 {
		m.UserIds = users
	}
	m.ViewerId, m.Direction, m.AtLeast = viewer, direction, least
	return true
}
