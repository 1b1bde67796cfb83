package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// MaxStoredRejects is the number of malformed events that a store keeps for inspection. A new one
// replaces the oldest (I11).
const MaxStoredRejects = 1024

// StoredReject is a malformed event that the fold has skipped and the store has kept.
type StoredReject struct {
	// Number is the number of the reject in the log, from 1.
	Number uint64
	events.Reject
}

// rejectKey returns the key of the row of a reject. The rows are a ring: numbers that differ by
// MaxStoredRejects share a row.
func rejectKey(number uint64) []byte {
	key := projections.AppendPrefix(nil, projections.StoreShard, tagReject)
	return binary.BigEndian.AppendUint16(key, uint16((number-1)%MaxStoredRejects))
}

const rejectVersion = 1

// encode returns the row of a kept reject: version, number, sequence, slot, reason, and then field,
// message and data, each after its length. All numbers are varints except the version, which is one
// byte.
func (r StoredReject) encode() []byte {
	dst := []byte{rejectVersion}
	dst = binary.AppendUvarint(dst, r.Number)
	dst = binary.AppendUvarint(dst, r.Seq)
	dst = binary.AppendVarint(dst, int64(r.Slot))
	dst = binary.AppendUvarint(dst, uint64(r.Rejection.Reason))
	for _, s := range []string{r.Rejection.Field, r.Rejection.Message, string(r.Data)} {
		dst = binary.AppendUvarint(dst, uint64(len(s)))
		dst = append(dst, s...)
	}
	return dst
}

// rejectDecoder cuts values off the encoding of a kept reject. err is the first error; after it,
// all values are zero.
type rejectDecoder struct {
	rest []byte
	err  error
}

var errRejectRow = fmt.Errorf("%w: reject", projections.ErrCorrupt)

func (d *rejectDecoder) fail() {
	d.err = errRejectRow
	d.rest = nil
}

func (d *rejectDecoder) uvarint() uint64 {
	v, n := projections.Uvarint(d.rest)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *rejectDecoder) varint() int64 {
	v, n := projections.Varint(d.rest)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *rejectDecoder) text() string {
	n := d.uvarint()
	if n > uint64(len(d.rest)) {
		d.fail()
		return ""
	}
	s := string(d.rest[:n])
	d.rest = d.rest[n:]
	return s
}

// parseReject decodes what [StoredReject.encode] wrote. It fails with [projections.ErrCorrupt].
func parseReject(row []byte) (r StoredReject, err error) {
	if len(row) == 0 || row[0] != rejectVersion {
		return r, errRejectRow
	}

	d := rejectDecoder{rest: row[1:]}
	r.Number = d.uvarint()
	r.Seq = d.uvarint()
	r.Slot = int(d.varint())
	r.Rejection.Index = r.Slot // both are the index of the event in the envelope
	r.Rejection.Reason = skeinv1.Reason(d.uvarint())
	r.Rejection.Field = d.text()
	r.Rejection.Message = d.text()
	r.Data = []byte(d.text())

	if d.err == nil && len(d.rest) > 0 {
		d.err = errRejectRow
	}
	return r, d.err
}

// writeRejects keeps the malformed events of an envelope and counts them.
func (f *fold) writeRejects(env *events.Envelope) {
	if len(env.Rejects) == 0 {
		return
	}
	for _, r := range env.Rejects {
		f.rejects++
		f.batch.SetRow(rejectKey(f.rejects), StoredReject{f.rejects, withoutDeletedUsers(r, env)}.encode())
	}
	f.batch.SetRow(rejectCountKey, binary.BigEndian.AppendUint64(nil, f.rejects))
}

// withoutDeletedUsers returns a reject of an envelope without what identifies users whom a later
// event of the same envelope deletes (I12). eraseRejects does not meet such a reject: the fold
// writes the rejects of an envelope after its events, so that a crash inside of the envelope does
// not make it count them twice.
func withoutDeletedUsers(r events.Reject, env *events.Envelope) events.Reject {
	if !env.Kinds.Has(events.UserDeleted) {
		return r
	}
	for i := range env.Events {
		ev := &env.Events[i]
		if ev.Kind == events.UserDeleted && int(ev.Slot) > r.Slot {
			r, _ = r.RedactUser(ev.User)
		}
	}
	return r
}

// eraseRejects removes from all kept rejects what identifies a user who was deleted (I12).
func (f *fold) eraseRejects(user string) error {
	oldest := f.rejects - min(f.rejects, MaxStoredRejects) + 1
	for number := oldest; number <= f.rejects; number++ {
		key := rejectKey(number)
		value, ok, err := f.batch.Get(key)
		if err != nil {
			return err
		}
		if !ok || !bytes.Contains(value, []byte(user)) {
			continue
		}

		kept, err := parseReject(value)
		if err != nil {
			return err
		}
		if redacted, changed := kept.RedactUser(user); changed {
			kept.Reject = redacted
			f.batch.SetRow(key, kept.encode())
		}
	}
	return nil
}

// loadRejects returns the number of rejects so far, including those that are no longer kept.
func loadRejects(rows projections.Reader) (uint64, error) {
	value, ok, err := rows.Get(rejectCountKey)
	if err != nil || !ok {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("%w: count of rejects", projections.ErrCorrupt)
	}
	return binary.BigEndian.Uint64(value), nil
}

// Rejects returns up to n kept rejects whose numbers are greater than after, in order. total is the
// number of rejects so far, including those that are no longer kept.
func (s *Store) Rejects(after uint64, n int) (rejects []StoredReject, total uint64, err error) {
	v, err := s.View()
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()

	if total, err = loadRejects(v); err != nil {
		return nil, 0, err
	}
	if total > MaxStoredRejects {
		after = max(after, total-MaxStoredRejects)
	}

	for after < total && len(rejects) < n {
		after++
		reject, err := readReject(v, after)
		if err != nil {
			return nil, 0, err
		}
		rejects = append(rejects, reject)
	}
	return rejects, total, nil
}

// readReject reads the row of a reject that must be kept. It fails with [projections.ErrCorrupt] if
// the row is missing or is that of another reject.
func readReject(rows projections.Reader, number uint64) (StoredReject, error) {
	value, ok, err := rows.Get(rejectKey(number))
	if err != nil {
		return StoredReject{}, err
	}
	if !ok {
		return StoredReject{}, fmt.Errorf("%w: reject %d is missing", projections.ErrCorrupt, number)
	}

	reject, err := parseReject(value)
	if err != nil {
		return StoredReject{}, err
	}
	if reject.Number != number {
		return StoredReject{}, fmt.Errorf("%w: reject %d stands in place of %d", projections.ErrCorrupt, reject.Number, number)
	}
	return reject, nil
}
