package archive

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"

	"github.com/skein-feed/skein/events"
)

// digest is a running hash of the content of records. It covers everything that is archived, but not in the encoding of the file:
// Seal compares the digest of what was added with the digest of what was read back, so a mistake in encoder or decoder is found
// too.
type digest struct {
	hash xxh3.Hasher
	buf  []byte
}

func (d *digest) sum() uint64 { return d.hash.Sum64() }

func (d *digest) number(v uint64) { d.buf = binary.AppendUvarint(d.buf, v) }

func (d *digest) text(s string) {
	d.number(uint64(len(s)))
	d.buf = append(d.buf, s...)
}

func (d *digest) add(r *record) {
	d.buf = d.buf[:0]
	d.number(r.seq)
	d.number(uint64(r.lastTime))
	d.number(uint64(r.bytes))
	d.number(uint64(r.repeats))
	d.number(uint64(len(r.events)))
	for i := range r.events {
		ev := &r.events[i]
		d.number(uint64(ev.Kind))
		if ev.Backfill {
			d.number(1)
		} else {
			d.number(0)
		}
		d.number(uint64(ev.Slot))
		d.number(ev.Seq)
		d.number(uint64(ev.Time))
		d.text(ev.Source)
		d.number(ev.Offset)
		d.text(ev.User)
		d.text(ev.Peer)
		d.text(ev.Board)
		d.text(ev.Pin)
		d.text(ev.Item)
		d.number(uint64(len(ev.Items)))
		for _, item := range ev.Items {
			d.text(item)
		}
		d.text(ev.RepinUser)
		d.text(ev.RepinPin)
		d.text(ev.Title)
		d.text(string(ev.Attributes))
		d.number(uint64(ev.Score))
		d.text(string(ev.Encoded))
		if ev.Kind.Fields().Has(events.FieldRead) {
			d.number(uint64(ev.Read))
		}
	}
	d.number(uint64(len(r.rejects)))
	for i := range r.rejects {
		j := &r.rejects[i]
		d.number(j.Seq)
		d.number(uint64(j.Slot))
		d.number(uint64(j.Rejection.Index))
		d.number(uint64(j.Rejection.Reason))
		d.text(j.Rejection.Field)
		d.text(j.Rejection.Message)
		d.text(string(j.Data))
	}
	_, _ = d.hash.Write(d.buf) // a hash takes everything
}
