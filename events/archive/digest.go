package archive

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"

	"github.com/skein-feed/skein/events"
)

// digest is a running hash of the content of records. It covers everything that is archived, in an
// encoding that differs from that of the file. [Writer.Seal] compares the digest of the added
// records with that of the records it reads back, and so also finds mistakes in the encoder and the
// decoder.
type digest struct {
	hash xxh3.Hasher
	buf  []byte
}

// sum returns the hash of the records that were added.
func (d *digest) sum() uint64 { return d.hash.Sum64() }

// addNumber adds a number to the encoding of the record.
func (d *digest) addNumber(v uint64) { d.buf = binary.AppendUvarint(d.buf, v) }

// addText adds a text, after its length.
func (d *digest) addText(s string) {
	d.addNumber(uint64(len(s)))
	d.buf = append(d.buf, s...)
}

// addRecord adds all fields of a record. Texts have their length before them, so that no two
// records give the same bytes.
func (d *digest) addRecord(r *record) {
	d.buf = d.buf[:0]
	d.addNumber(r.seq)
	d.addNumber(uint64(r.lastTime))
	d.addNumber(uint64(r.bytes))
	d.addNumber(uint64(r.repeats))

	d.addNumber(uint64(len(r.events)))
	for i := range r.events {
		ev := &r.events[i]
		d.addNumber(uint64(ev.Kind))
		if ev.Backfill {
			d.addNumber(1)
		} else {
			d.addNumber(0)
		}
		d.addNumber(uint64(ev.Slot))
		d.addNumber(ev.Seq)
		d.addNumber(uint64(ev.Time))
		d.addText(ev.Source)
		d.addNumber(ev.Offset)
		d.addText(ev.User)
		d.addText(ev.Peer)
		d.addText(ev.Board)
		d.addText(ev.Pin)
		d.addText(ev.Item)
		d.addNumber(uint64(len(ev.Items)))
		for _, item := range ev.Items {
			d.addText(item)
		}
		d.addText(ev.RepinUser)
		d.addText(ev.RepinPin)
		d.addText(ev.Title)
		d.addText(string(ev.Attributes))
		d.addNumber(uint64(ev.Score))
		d.addText(string(ev.Encoded))
		// The kind says which of these fields an event may have, so leaving one out is not
		// ambiguous.
		if ev.Reaction != "" {
			d.addText(ev.Reaction)
		}
		if ev.Group != "" {
			d.addText(ev.Group)
		}
		if ev.Kind.Fields().Has(events.FieldRead) {
			d.addNumber(uint64(ev.Read))
		}
		d.addNumber(uint64(ev.Settings))
		d.addNumber(uint64(ev.Until))
	}

	d.addNumber(uint64(len(r.rejects)))
	for i := range r.rejects {
		j := &r.rejects[i]
		d.addNumber(j.Seq)
		d.addNumber(uint64(j.Slot))
		d.addNumber(uint64(j.Rejection.Index))
		d.addNumber(uint64(j.Rejection.Reason))
		d.addText(j.Rejection.Field)
		d.addText(j.Rejection.Message)
		d.addText(string(j.Data))
	}

	_, _ = d.hash.Write(d.buf) // writing to a hash never fails
}
