package nodes

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
)

// firstItem is the id of item 0. It has 13 digits, as the ids of users have.
const firstItem = 5 * workload.FirstID

// eventMix has the proportions of the kinds of events in a log.
type eventMix struct{ plays, likes, follows, pins, scores int }

// productLog says what an invented log contains. Users, followees and the items of plays and likes
// are drawn by power laws, the items of pins and scores evenly.
type productLog struct {
	users, items int
	mix          eventMix
	// withEventIDs gives every event an event id.
	withEventIDs bool
}

// generator makes the encoded envelopes of a log. The same seed always gives the same log. The
// generator writes the encoding itself instead of encoding messages, so that 10⁸ events take
// seconds, and leave no garbage that would be collected while nodes are measured.
type generator struct {
	productLog
	r *rand.Rand
	// kinds has each kind as often as the mix says. The kind of an event is drawn from it.
	kinds []events.Kind
	// lastPin is the number of the last pin.
	lastPin uint64
	// event has the encoding of the last event, and content is a buffer for the message of its
	// kind.
	event, content []byte
}

// newGenerator returns a generator of the log.
func (p productLog) newGenerator(seed uint64) *generator {
	g := &generator{productLog: p, r: rand.New(rand.NewPCG(seed, 0))}
	for _, k := range []struct {
		kind events.Kind
		n    int
	}{
		{events.Played, p.mix.plays},
		{events.Reacted, p.mix.likes},
		{events.UserFollowed, p.mix.follows},
		{events.PinCreated, p.mix.pins},
		{events.ItemScored, p.mix.scores},
	} {
		for range k.n {
			g.kinds = append(g.kinds, k.kind)
		}
	}
	return g
}

// envelope makes the next envelope: its format version, the set of kinds that its events have, and
// the events.
func (g *generator) envelope() []byte {
	data := make([]byte, 0, 64*eventsPerEnvelope)
	data = protowire.AppendVarint(protowire.AppendTag(data, 1, protowire.VarintType), events.EnvelopeVersion)
	data = protowire.AppendTag(data, 2, protowire.Fixed64Type)
	// The kinds are known only after the events, so their place is filled in at the end.
	kindsOffset := len(data)
	data = append(data, make([]byte, 8)...)

	var kinds events.KindSet
	for range eventsPerEnvelope {
		kind := g.kinds[g.r.IntN(len(g.kinds))]
		kinds |= events.Kinds(kind)
		g.makeEvent(kind)
		data = appendBytes(data, 3, g.event)
	}
	binary.LittleEndian.PutUint64(data[kindsOffset:], uint64(kinds))
	return data
}

// makeEvent makes a random event of a kind, and puts its encoding into g.event.
func (g *generator) makeEvent(kind events.Kind) {
	// The numbers of fields are those of proto/skein/v1/event.proto. A test compares the result
	// with what the encoder of the log makes.
	content := g.content[:0]
	user := uint64(workload.PowerLaw(g.r, g.users, workload.FollowerSkew))
	switch kind {
	case events.ItemScored:
		content = appendID(content, 1, firstItem+uint64(g.r.IntN(g.items)))
		content = protowire.AppendTag(content, 2, protowire.VarintType)
		content = protowire.AppendVarint(content, protowire.EncodeZigZag(int64(1+g.r.IntN(1000))))
	case events.PinCreated:
		g.lastPin++
		pin := appendID(g.event[:0], 1, workload.FirstID+user) // g.event is not needed yet
		pin = appendID(pin, 2, workload.FirstID+g.lastPin)
		content = appendBytes(content, 1, pin)
		content = appendID(content, 3, firstItem+uint64(g.r.IntN(g.items)))
	default:
		content = appendID(content, 1, workload.FirstID+user)
		switch kind {
		case events.UserFollowed:
			// Users who act often have low numbers. Users with many followers have high ones,
			// because they are not the same users.
			followee := uint64(g.users-1) - uint64(workload.PowerLaw(g.r, g.users, workload.FolloweeSkew))
			if followee == user {
				followee = (user + 1) % uint64(g.users)
			}
			content = appendID(content, 2, workload.FirstID+followee)
		case events.Played, events.Reacted:
			content = appendID(content, 2, firstItem+uint64(workload.PowerLaw(g.r, g.items, workload.PlaySkew)))
		}
	}

	event := g.event[:0]
	if g.withEventIDs {
		const idBytes = 16 // 8 random bytes in hexadecimal digits
		event = protowire.AppendTag(event, 1, protowire.BytesType)
		event = protowire.AppendVarint(event, idBytes)
		event = hex.AppendEncode(event, binary.BigEndian.AppendUint64(nil, g.r.Uint64()))
	}
	g.content = content
	g.event = appendBytes(event, protowire.Number(kind), content)
}

// appendID appends a field whose value is the id of a user, an item or a pin, a decimal number of
// 13 digits.
func appendID(dst []byte, field protowire.Number, id uint64) []byte {
	dst = protowire.AppendVarint(protowire.AppendTag(dst, field, protowire.BytesType), 13)
	return strconv.AppendUint(dst, id, 10)
}

// appendBytes appends a field whose value is a string or a message.
func appendBytes(dst []byte, field protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, field, protowire.BytesType), value)
}
