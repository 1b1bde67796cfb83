package events

import (
	"github.com/zeebo/xxh3"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// lostText is the message of the reject of an accepted hole.
const lostText = "the envelope was lost with the file that held it, and an operator accepted that"

// lostChecksum is the checksum of a cursor at a lost sequence, which has no bytes to hash.
var lostChecksum = xxh3.HashString("skein: lost") //nolint:gochecknoglobals // a constant that is computed

// DecodeLost takes the place of [Decoder.Decode] for a sequence that the log has lost and whose
// loss an operator has accepted. It returns an envelope that has one reject, no events, and takes
// no log time.
func (d *Decoder) DecodeLost(seq uint64) (*Envelope, error) {
	if err := d.checkOrder(seq); err != nil {
		return nil, err
	}

	env := &Envelope{}
	env.addReject(seq, -1, &Rejection{Reason: skeinv1.Reason_REASON_LOG_HOLE, Message: lostText}, nil)
	// A cursor always names a start of the warm-up, also before the first event.
	if len(d.warmStarts) == 0 {
		d.warmStarts = append(d.warmStarts, warmStart{seq, d.reached.LastTime})
	}
	d.reached.Seq = seq
	d.reached.Checksum = lostChecksum
	d.passedLost = true

	env.Cursor = d.takeCursor()
	if d.warming {
		return nil, d.checkWarmUp(env.Cursor)
	}
	return env, nil
}

// HasDecodedLost reports whether [Decoder.DecodeLost] was called.
func (d *Decoder) HasDecodedLost() bool { return d.passedLost }
