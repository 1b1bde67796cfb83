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

// firstItem is the id of item 0, a number of 13 digits as the ids of users are.
const firstItem = 5 * workload.FirstID

// eventMix is how many events of a log are of each kind, of their sum.
type eventMix struct{ plays, likes, follows, pins, scores int }

// product is what a log is made up of. Plays, likes and followed users are drawn by power laws, items of pins and scores evenly.
type productLog struct {
	users, items int
	mix          eventMix
	// ids gives every event an event id.
	withEventIDs bool
}

// generator makes the envelopes of a log, always the same ones from a seed. It writes their encoding itself, so that 10⁸ events take
// seconds and leave no garbage that would be collected while others are measured.
type generator struct {
	productLog
	r *rand.Rand
	// kinds has each kind as often as the eventMix says, and pin is the number of the last one.
	kinds []events.Kind
	pin   uint64
	// body and inner are scratch.
	body, inner []byte
}

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

// envelope makes the next envelope.
func (g *generator) envelope() []byte {
	var (
		data  = make([]byte, 0, 64*eventsPerEnvelope)
		kinds events.KindSet
	)
	data = protowire.AppendVarint(protowire.AppendTag(data, 1, protowire.VarintType), events.EnvelopeVersion)
	data = protowire.AppendTag(data, 2, protowire.Fixed64Type)
	at := len(data)
	data = append(data, make([]byte, 8)...)
	for range eventsPerEnvelope {
		kind := g.kinds[g.r.IntN(len(g.kinds))]
		kinds |= events.Kinds(kind)
		g.event(kind)
		data = appendBytes(data, 3, g.body)
	}
	binary.LittleEndian.PutUint64(data[at:], uint64(kinds))
	return data
}

// event makes an event of a kind: the body.
func (g *generator) event(kind events.Kind) {
	in := g.inner[:0]
	user := uint64(workload.PowerLaw(g.r, g.users, workload.FollowerSkew))
	switch kind {
	case events.ItemScored:
		in = appendID(in, 1, firstItem+uint64(g.r.IntN(g.items)))
		in = protowire.AppendTag(in, 2, protowire.VarintType)
		in = protowire.AppendVarint(in, protowire.EncodeZigZag(int64(1+g.r.IntN(1000))))
	case events.PinCreated:
		g.pin++
		pin := appendID(appendID(g.body[:0], 1, workload.FirstID+user), 2, workload.FirstID+g.pin)
		in = appendID(appendBytes(in, 1, pin), 3, firstItem+uint64(g.r.IntN(g.items)))
	default:
		in = appendID(in, 1, workload.FirstID+user)
		switch kind {
		case events.UserFollowed:
			// Who is followed much is not who does much.
			followee := uint64(g.users-1) - uint64(workload.PowerLaw(g.r, g.users, workload.FolloweeSkew))
			if followee == user {
				followee = (user + 1) % uint64(g.users)
			}
			in = appendID(in, 2, workload.FirstID+followee)
		case events.Played, events.Reacted:
			in = appendID(in, 2, firstItem+uint64(workload.PowerLaw(g.r, g.items, workload.PlaySkew)))
		}
	}
	body := g.body[:0]
	if g.withEventIDs {
		body = protowire.AppendVarint(protowire.AppendTag(body, 1, protowire.BytesType), 16)
		body = hex.AppendEncode(body, binary.BigEndian.AppendUint64(nil, g.r.Uint64()))
	}
	g.inner, g.body = in, appendBytes(body, protowire.Number(kind), in)
}

// appendID appends a field whose value is an id: a decimal number of 13 digits.
func appendID(dst []byte, field protowire.Number, id uint64) []byte {
	dst = protowire.AppendVarint(protowire.AppendTag(dst, field, protowire.BytesType), 13)
	return strconv.AppendUint(dst, id, 10)
}

func appendBytes(dst []byte, field protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, field, protowire.BytesType), value)
}
