package inbox

import (
	"bytes"
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// reader is the row of a user who reads a feed.
type reader struct {
	// active is the time of the latest event that says that the reader is active.
	active events.Micros
	// read is the read marker: the feed was read up to this time. 0 means never.
	read events.Micros
	// ready is set if the reader may have an inbox: above the floor, pull rows lead to what has not been pushed since. Without one,
	// all outboxes are merged for each page.
	ready bool
	// floor is a time as in a sort key, so newer pins compare less. It is set only while ready is.
	floor [8]byte
}

func readReader(r projections.Reader, key []byte) (rd reader, ok bool, err error) {
	row, ok, err := r.Get(key)
	if err != nil || !ok {
		return rd, false, err
	}
	rd, err = decodeReader(row)
	return rd, err == nil, err
}

// reader returns what a reader has now.
func (q *Queries) reader(name string) (reader, error) {
	r, _, err := readReader(q.r, projections.AppendKey(nil, tagReader, name))
	if err != nil {
		return r, err
	}
	horizon, err := readHorizon(q.r)
	return r.at(horizon), err
}

func decodeReader(row []byte) (rd reader, err error) {
	active, n := binary.Uvarint(row)
	read, m := binary.Uvarint(row[max(n, 0):])
	if n <= 0 || m <= 0 {
		return rd, errRow("reader", row)
	}
	rd.active, rd.read = events.Micros(active), events.Micros(read)
	if rest := row[n+m:]; len(rest) > 0 {
		if len(rest) != 8 {
			return rd, errRow("reader", row)
		}
		rd.ready, rd.floor = true, [8]byte(rest)
	}
	return rd, nil
}

func (f *Inbox) writeReader(name string, r reader) {
	f.key = projections.AppendKey(f.key[:0], tagReader, name)
	f.value = binary.AppendUvarint(binary.AppendUvarint(f.value[:0], uint64(r.active)), uint64(r.read))
	if r.ready {
		f.value = append(f.value, r.floor[:]...)
	}
	f.b.Set(f.key, f.value)
}

// at returns the row as it counts with a horizon. As the horizon moves, the floors of all inboxes rise, and readers who were not active
// since lose theirs. That is derived here on reading, so that moving the horizon writes one row and not one for each reader.
func (r reader) at(horizon events.Micros) reader {
	if !r.ready || r.active < horizon {
		r.ready, r.floor = false, [8]byte{}
		return r
	}
	var oldest [8]byte
	binary.BigEndian.PutUint64(oldest[:], ^uint64(horizon))
	if bytes.Compare(oldest[:], r.floor[:]) < 0 {
		r.floor = oldest
	}
	return r
}

// readerActive lets a reader have an inbox, which is complete from this event on, or notes that the reader is still active. Once a day it
// drops the pull rows that are not needed any more.
func (f *Inbox) readerActive() error {
	name := f.ev.User
	r, _, err := readReader(f.b, projections.AppendKey(f.key[:0], tagReader, name))
	if err != nil {
		return err
	}
	before := r.active
	if r = r.at(f.horizon); !r.ready {
		r.ready, r.floor = true, [8]byte(appendNewestFirst(nil, f.ev.Time))
	}
	r.active = f.ev.Time
	f.writeReader(name, r)
	if before/day == r.active/day {
		return nil
	}
	return f.dropPulls(name, r)
}

// feedRead moves the read marker of a reader forward. It never moves back, so a late event, or a repeated one, writes nothing.
func (f *Inbox) feedRead() error {
	name := f.ev.User
	r, _, err := readReader(f.b, projections.AppendKey(f.key[:0], tagReader, name))
	read := min(f.ev.Read, f.ev.Time)
	if err != nil || read <= r.read {
		return err
	}
	r.read = read
	f.writeReader(name, r)
	return nil
}
