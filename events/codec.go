package events

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/proto/protoscan"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Limits of an envelope. A larger envelope in the log yields no events (I11).
const (
	MaxEnvelopeEvents = 1000
	MaxEnvelopeBytes  = 768 << 10
)

// EnvelopeVersion is the version of the encoding of envelopes. Readers read version 0 as 1, and
// refuse later versions.
const EnvelopeVersion = 1

// Errors of [EncodeCall].
var (
	ErrEnvelopeEmpty    = errors.New("events: an envelope needs an event")
	ErrEnvelopeTooLarge = errors.New("events: the envelope is too large")
)

// The fields of an EventBatch.
const (
	envelopeVersionField = 1
	envelopeKindsField   = 2
	envelopeEventsField  = 3

	// envelopeHeadBytes is the encoded size of version and kinds: a tag and a varint of one byte
	// each, a tag, and a fixed64.
	envelopeHeadBytes = 1 + 1 + 1 + 8
)

// EncodedCall holds the events of one call as an envelope encodes them.
type EncodedCall struct {
	// Events is the number of events.
	Events  int
	kinds   KindSet
	records []byte
}

// EncodeCall encodes the events of one call. It does not [Validate] them. It returns
// [ErrEnvelopeEmpty] without events, and [ErrEnvelopeTooLarge] above [MaxEnvelopeEvents] or
// [MaxEnvelopeBytes]. The publisher calls it on the goroutine of the caller, so that its own
// goroutine, which all callers share, only copies bytes.
func EncodeCall(evs []*skeinv1.Event) (EncodedCall, error) {
	if len(evs) == 0 {
		return EncodedCall{}, ErrEnvelopeEmpty
	}
	if len(evs) > MaxEnvelopeEvents {
		return EncodedCall{}, fmt.Errorf("%w: %d events, at most %d", ErrEnvelopeTooLarge, len(evs), MaxEnvelopeEvents)
	}

	opts := proto.MarshalOptions{Deterministic: true}
	size := 0
	for _, ev := range evs {
		size += protowire.SizeTag(envelopeEventsField) + protowire.SizeBytes(opts.Size(ev))
	}
	if n := envelopeHeadBytes + size; n > MaxEnvelopeBytes {
		return EncodedCall{}, fmt.Errorf("%w: %d bytes, at most %d", ErrEnvelopeTooLarge, n, MaxEnvelopeBytes)
	}

	opts.UseCachedSize = true // opts.Size has computed the sizes above, and nothing has changed since
	c := EncodedCall{Events: len(evs), records: make([]byte, 0, size)}
	for _, ev := range evs {
		c.kinds |= Kinds(KindOf(ev)) & AllKinds // a message without a kind has the kind 0, which is no kind
		c.records = protowire.AppendTag(c.records, envelopeEventsField, protowire.BytesType)
		c.records = protowire.AppendVarint(c.records, uint64(opts.Size(ev)))
		var err error
		if c.records, err = opts.MarshalAppend(c.records, ev); err != nil {
			return EncodedCall{}, fmt.Errorf("events: encode: %w", err)
		}
	}
	return c, nil
}

// Bytes returns the number of bytes that the events take in an envelope.
func (c *EncodedCall) Bytes() int { return len(c.records) }

// EnvelopeSize adds up the sizes of the calls that share an envelope. The zero value is that of an
// envelope without calls.
type EnvelopeSize struct{ events, records int }

// Add adds a call. It returns false if the envelope would exceed a limit with the call. The
// EnvelopeSize must not be used after that.
func (s *EnvelopeSize) Add(c *EncodedCall) bool {
	s.events += c.Events
	s.records += len(c.records)
	return s.events <= MaxEnvelopeEvents && envelopeHeadBytes+s.records <= MaxEnvelopeBytes
}

// EncodeEnvelope returns the body of a log message with the events of one call. It combines
// [EncodeCall] and [JoinCalls].
func EncodeEnvelope(evs []*skeinv1.Event) ([]byte, error) {
	c, err := EncodeCall(evs)
	if err != nil {
		return nil, err
	}
	return JoinCalls(&c), nil
}

// JoinCalls returns the body of a log message with the events of several calls, in order. The calls
// must fit into one envelope; [EnvelopeSize.Add] checks that.
func JoinCalls(calls ...*EncodedCall) []byte {
	size := envelopeHeadBytes
	var kinds KindSet
	for _, c := range calls {
		size += len(c.records)
		kinds |= c.kinds
	}

	data := make([]byte, 0, size)
	data = protowire.AppendTag(data, envelopeVersionField, protowire.VarintType)
	data = protowire.AppendVarint(data, EnvelopeVersion)
	data = protowire.AppendTag(data, envelopeKindsField, protowire.Fixed64Type)
	data = protowire.AppendFixed64(data, uint64(kinds))
	for _, c := range calls {
		data = append(data, c.records...)
	}
	return data
}

// KindOf returns the kind of a message, or 0 if the message has none that this version knows.
func KindOf(ev *skeinv1.Event) Kind {
	if f := ev.ProtoReflect().WhichOneof(kindOneof); f != nil {
		return Kind(f.Number())
	}
	return 0
}

// span is the part [from, to) of the body of an envelope, in bytes.
type span struct{ from, to int }

// splitEnvelope appends the spans of the events of an envelope to dst. It does not decode the
// events. Apart from them it accepts what a standard protobuf decoder accepts.
func splitEnvelope(dst []span, data []byte) ([]span, *Rejection) {
	if len(data) > MaxEnvelopeBytes {
		return dst, envelopeRejection(skeinv1.Reason_REASON_TOO_LARGE, "has %d bytes: at most %d",
			len(data), MaxEnvelopeBytes)
	}

	var version uint32
	for i := 0; i < len(data); {
		f, next := protoscan.Next(data, i)
		if next < 0 {
			return dst, undecodableEnvelope()
		}
		i = next
		switch {
		case f.Number == envelopeVersionField && f.Type == protowire.VarintType:
			// As in every protobuf decoder, the last occurrence counts, and only its lower 32 bits.
			v, _ := protowire.ConsumeVarint(data[f.From:])
			version = uint32(v)
		case f.Number == envelopeEventsField && f.Type == protowire.BytesType:
			if len(dst) == MaxEnvelopeEvents {
				return dst, envelopeRejection(skeinv1.Reason_REASON_TOO_LARGE, "has more than %d events",
					MaxEnvelopeEvents)
			}
			dst = append(dst, span{f.From, f.To})
		}
	}

	// The version may be encoded after the events, so it is checked at the end.
	if version > EnvelopeVersion {
		return dst, envelopeRejection(skeinv1.Reason_REASON_INVALID_FIELD, "has version %d: this reader knows %d",
			version, EnvelopeVersion)
	}
	return dst, nil
}

// undecodableEnvelope returns the rejection of an envelope that is not even an EventBatch.
func undecodableEnvelope() *Rejection {
	return envelopeRejection(skeinv1.Reason_REASON_INVALID_FIELD, "is not a skein.v1.EventBatch")
}

// envelopeRejection returns the rejection of a whole envelope.
func envelopeRejection(reason skeinv1.Reason, format string, args ...any) *Rejection {
	return &Rejection{Reason: reason, Message: "the envelope " + fmt.Sprintf(format, args...)}
}

// body is the body of an envelope, as bytes and as a string. The strings of events are parts of
// text, so they all share one allocation.
type body struct {
	data []byte
	text string
}

// decodeEvent decodes one event into ev, which must be zero, and checks it. It sets the Time of a
// backfill to its occurred_at.
//
// Events in the usual encoding take the fast path. The standard decoder and [Validate] decide about
// all others: malformed events, and valid ones in an unusual encoding, such as a message in two
// parts. So the fast path must never accept an event that they refuse, or decode one to other
// values.
//
// If decoded is false, the bytes are not an Event message at all, so the envelope is not a valid
// EventBatch either.
func (b *body) decodeEvent(s span, ev *Event) (r *Rejection, decoded bool) {
	if b.decodeEventFast(s.from, s.to, ev) {
		return nil, true
	}

	var msg skeinv1.Event
	err := proto.Unmarshal(b.data[s.from:s.to], &msg)
	if err == nil {
		err = replaceFormerKind(&msg)
	}
	if err != nil {
		*ev = Event{} // the fast path may have set some fields
		return undecodableEnvelope(), false
	}
	*ev, r = FromProto(&msg)
	return r, true
}
