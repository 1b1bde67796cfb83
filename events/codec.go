package events

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Bounds of an envelope. A larger one in the log has no events (I11).
const (
	MaxEnvelopeEvents = 1000
	MaxEnvelopeBytes  = 768 << 10
)

// EnvelopeVersion is the version of the envelope's encoding. Zero is read as 1, more is not read.
const EnvelopeVersion = 1

// Errors of [EncodeEnvelope].
var (
	ErrEnvelopeEmpty    = errors.New("events: an envelope needs an event")
	ErrEnvelopeTooLarge = errors.New("events: the envelope is too large")
)

// EncodeEnvelope returns the body of a log message with the events, 1 to 1000 and at most 768 KiB encoded. It does
// not [Validate] them.
func EncodeEnvelope(evs []*skeinv1.Event) ([]byte, error) {
	if len(evs) == 0 {
		return nil, ErrEnvelopeEmpty
	}
	if len(evs) > MaxEnvelopeEvents {
		return nil, fmt.Errorf("%w: %d events, at most %d", ErrEnvelopeTooLarge, len(evs), MaxEnvelopeEvents)
	}
	batch := skeinv1.EventBatch{Version: EnvelopeVersion, Events: evs}
	for _, ev := range evs {
		batch.Kinds |= uint64(Kinds(KindOf(ev)) & AllKinds)
	}
	opts := proto.MarshalOptions{Deterministic: true}
	if n := opts.Size(&batch); n > MaxEnvelopeBytes {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrEnvelopeTooLarge, n, MaxEnvelopeBytes)
	}
	data, err := opts.Marshal(&batch)
	if err != nil {
		return nil, fmt.Errorf("events: encode envelope: %w", err)
	}
	return data, nil
}

// KindOf returns the kind of a message, 0 for none.
func KindOf(ev *skeinv1.Event) Kind {
	if f := ev.ProtoReflect().WhichOneof(kindOneof()); f != nil {
		return Kind(f.Number())
	}
	return 0
}

func kindOneof() protoreflect.OneofDescriptor {
	return (*skeinv1.Event)(nil).ProtoReflect().Descriptor().Oneofs().ByName("kind")
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
		num, typ, n := protowire.ConsumeTag(data[i:])
		if n < 0 || num > protowire.MaxValidNumber {
			return dst, undecodable()
		}
		i += n
		n = protowire.ConsumeFieldValue(num, typ, data[i:])
		if n < 0 {
			return dst, undecodable()
		}
		switch {
		case num == 1 && typ == protowire.VarintType:
			v, _ := protowire.ConsumeVarint(data[i:])
			version = uint32(v)
		case num == 3 && typ == protowire.BytesType:
			if len(dst) == MaxEnvelopeEvents {
				return dst, envelopeRejection(skeinv1.Reason_REASON_TOO_LARGE, "has more than %d events",
					MaxEnvelopeEvents)
			}
			body, _ := protowire.ConsumeBytes(data[i:])
			dst = append(dst, span{i + n - len(body), i + n})
		}
		i += n
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
