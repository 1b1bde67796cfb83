package events

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/proto/protoscan"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Bounds of an envelope. A larger one in the log has no events (I11).
const (
	MaxEnvelopeEvents = 1000
	MaxEnvelopeBytes  = 768 << 10
)

// EnvelopeVersion is the version of the envelope's encoding. Zero is read as 1, more is not read.
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
	// envelopeHeadBytes is the encoded size of version and kinds: a tag and a varint of one byte each, a tag, and a fixed64.
	envelopeHeadBytes = 1 + 1 + 1 + 8
)

// EncodedCall has the events of one call as they stand in an envelope.
type EncodedCall struct {
	// Events is the number of events.
	Events  int
	kinds   KindSet
	records []byte
}

// EncodeCall encodes the events of one call, 1 to 1000 and at most 768 KiB. It does not [Validate] them. The publisher calls it on the
// goroutine of the caller, and only copies bytes on its own.
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

	c := EncodedCall{Events: len(evs), records: make([]byte, 0, size)}
	opts.UseCachedSize = true // the sizes were computed above
	for _, ev := range evs {
		c.kinds |= Kinds(KindOf(ev)) & AllKinds
		c.records = protowire.AppendTag(c.records, envelopeEventsField, protowire.BytesType)
		c.records = protowire.AppendVarint(c.records, uint64(opts.Size(ev)))
		var err error
		if c.records, err = opts.MarshalAppend(c.records, ev); err != nil {
			return EncodedCall{}, fmt.Errorf("events: encode: %w", err)
		}
	}
	return c, nil
}

// Bytes is the size of the events in an envelope.
func (c *EncodedCall) Bytes() int { return len(c.records) }

// EnvelopeSize counts what an envelope of several calls has. The zero value is an envelope without a call.
type EnvelopeSize struct{ events, records int }

// Add adds a call. It returns false, and the envelope must go without the call, if together they exceed a bound.
func (s *EnvelopeSize) Add(c *EncodedCall) bool {
	s.events += c.Events
	s.records += len(c.records)
	return s.events <= MaxEnvelopeEvents && envelopeHeadBytes+s.records <= MaxEnvelopeBytes
}

// EncodeEnvelope returns the body of a log message with the events of one call. It is [EncodeCall] and [JoinCalls].
func EncodeEnvelope(evs []*skeinv1.Event) ([]byte, error) {
	c, err := EncodeCall(evs)
	if err != nil {
		return nil, err
	}
	return JoinCalls(&c), nil
}

// JoinCalls returns the body of a log message with the events of calls, in order. The calls must fit into one envelope, as
// [EnvelopeSize.Add] says.
func JoinCalls(calls ...*EncodedCall) []byte {
	size := envelopeHeadBytes
	var kinds KindSet
	for _, c := range calls {
		size += len(c.records)
		kinds |= c.kinds
	}
	data := make([]byte, 0, size)
	data = protowire.AppendVarint(protowire.AppendTag(data, envelopeVersionField, protowire.VarintType), EnvelopeVersion)
	data = protowire.AppendFixed64(protowire.AppendTag(data, envelopeKindsField, protowire.Fixed64Type), uint64(kinds))
	for _, c := range calls {
		data = append(data, c.records...)
	}
	return data
}

// KindOf returns the kind of a message, 0 for none.
func KindOf(ev *skeinv1.Event) Kind {
	if f := ev.ProtoReflect().WhichOneof(kindOneof); f != nil {
		return Kind(f.Number())
	}
	return 0
}

// span is a part of an envelope's body, by byte offsets.
type span struct{ from, to int }

// splitEnvelope appends the spans of the events of an envelope to dst, without looking into them. It accepts what
// a standard protobuf decoder would, up to the events themselves.
func splitEnvelope(dst []span, data []byte) ([]span, *Rejection) {
	if len(data) > MaxEnvelopeBytes {
		return dst, envelopeRejection(skeinv1.Reason_REASON_TOO_LARGE, "has %d bytes: at most %d",
			len(data), MaxEnvelopeBytes)
	}
	var version uint32
	for i := 0; i < len(data); {
		f, next := protoscan.Next(data, i)
		if next < 0 {
			return dst, undecodable()
		}
		i = next
		switch {
		case f.Number == envelopeVersionField && f.Type == protowire.VarintType:
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
	if version > EnvelopeVersion {
		return dst, envelopeRejection(skeinv1.Reason_REASON_INVALID_FIELD, "has version %d: this reader knows %d",
			version, EnvelopeVersion)
	}
	return dst, nil
}

func undecodable() *Rejection {
	return envelopeRejection(skeinv1.Reason_REASON_INVALID_FIELD, "is not a skein.v1.EventBatch")
}

func envelopeRejection(reason skeinv1.Reason, format string, args ...any) *Rejection {
	return &Rejection{Reason: reason, Message: "the envelope " + fmt.Sprintf(format, args...)}
}

// body is the body of an envelope, twice: the strings of events are parts of text, one allocation for all.
type body struct {
	data []byte
	text string
}

// decodeEvent decodes and checks one event into ev, which must be zero. Its Time is the occurred_at of a backfill.
//
// Events as producers write them take the fast path. Whatever it does not accept (malformed ones, but also
// unusual spellings such as a message in two parts) is left to the standard decoder and [Validate], whose word
// is final; so the fast path must never accept more than they do, or other values.
//
// A rejection with decoded false means that the bytes are no message at all: then neither is the envelope.
func (b *body) decodeEvent(s span, ev *Event) (r *Rejection, decoded bool) {
	if b.fastEvent(s.from, s.to, ev) {
		return nil, true
	}
	var msg skeinv1.Event
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b.data[s.from:s.to], &msg); err != nil {
		*ev = Event{}
		return undecodable(), false
	}
	*ev, r = FromProto(&msg)
	return r, true
}
