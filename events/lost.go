package events

import (
	"github.com/zeebo/xxh3"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// lostText is what the reject of an accepted hole says.
const lostText = "the envelope was lost with the file that held it, and an operator accepted that"

// lostChecksum stands in cursors at a sequence that is lost.
var lostChecksum = xxh3.HashString("skein: lost") //nolint:gochecknoglobals // a constant that is computed

// Lost is [Decoder.Decode] for a sequence that the log has lost, which an operator has accepted: an envelope without events
// that takes no time.
func (d *Decoder) Lost(seq uint64) (*Envelope, error) {
	if err := d.admit(seq); err != nil {
		return nil, err
	}
	env := &Envelope{}
	env.refuse(seq, -1, &Rejection{Reason: skeinv1.Reason_REASON_LOG_HOLE, Message: lostText}, nil)
	if len(d.warmStarts) == 0 {
		d.warmStarts = append(d.warmStarts, warmStart{seq, d.cur.LastTime})
	}
	d.cur.Seq, d.cur.Checksum, d.lost = seq, lostChecksum, true
	env.Cursor = d.cursor()
	if d.warming {
		return nil, d.warmed(env.Cursor)
	}
	return env, nil
}

// PassedLost reports whether the decoder was told of a sequence that is lost.
func (d *Decoder) PassedLost() bool { return d.lost }
