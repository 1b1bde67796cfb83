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

// KeptRejects is how many malformed events are kept for inspection: the last ones (I11).
const KeptRejects = 1024

// KeptReject is a malformed event that was skipped.
type KeptReject struct {
	// Number counts the rejects of the log, from 1.
	Number uint64
	events.Reject
}

func rejectKey(number uint64) []byte {
	return binary.BigEndian.AppendUint16(projections.AppendPrefix(nil, projections.StoreShard, tagReject), uint16((number-1)%KeptRejects))
}

const rejectVersion = 1

// encode returns the encoding of a kept reject: version, number, sequence, slot, reason, then field, message and data,
// each with its length.
func (r KeptReject) encode() []byte {
	dst := []byte{rejectVersion}
	dst = binary.AppendUvarint(dst, r.Number)
	dst = binary.AppendUvarint(dst, r.Seq)
	dst = binary.AppendVarint(dst, int64(r.Slot))
	dst = binary.AppendUvarint(dst, uint64(r.Rejection.Reason))
	for _, s := range []string{r.Rejection.Field, r.Rejection.Message, string(r.Data)} {
		dst = append(binary.AppendUvarint(dst, uint64(len(s))), s...)
	}
	return dst
}

func parseReject(b []byte) (r KeptReject, err error) {
	bad := fmt.Errorf("%w: reject", projections.ErrCorrupt)
	if len(b) == 0 || b[0] != rejectVersion {
		return r, bad
	}
	b = b[1:]
	number := func() (v uint64) {
		var n int
		if v, n = binary.Uvarint(b); n <= 0 {
			err, b = bad, nil
			return 0
		}
		b = b[n:]
		return v
	}
	text := func() string {
		n := number()
		if n > uint64(len(b)) {
			err, b = bad, nil
			return ""
		}
		s := string(b[:n])
		b = b[n:]
		return s
	}
	r.Number, r.Seq = number(), number()
	zigzag := number()
	r.Slot = int(int64(zigzag>>1) ^ -int64(zigzag&1))
	r.Rejection.Index = r.Slot
	r.Rejection.Reason = skeinv1.Reason(number())
	r.Rejection.Field, r.Rejection.Message, r.Data = text(), text(), []byte(text())
	if err == nil && len(b) > 0 {
		err = bad
	}
	return r, err
}

// writeRejects keeps the malformed events of an envelope and counts them.
func (f *fold) writeRejects(rejects []events.Reject) {
	if len(rejects) == 0 {
		return
	}
	for _, r := range rejects {
		f.rejects++
		f.batch.SetRow(rejectKey(f.rejects), KeptReject{f.rejects, r}.encode())
	}
	f.batch.SetRow(rejectCountKey, binary.BigEndian.AppendUint64(nil, f.rejects))
}

// eraseRejects takes out of the kept rejects what names a user who was deleted (I12).
func (f *fold) eraseRejects(user string) error {
	for number := f.rejects - min(f.rejects, KeptRejects) + 1; number <= f.rejects; number++ {
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
		if r, named := kept.RedactUser(user); named {
			kept.Reject = r
			f.batch.SetRow(key, kept.encode())
		}
	}
	return nil
}

// loadRejects returns how many rejects the rows have counted.
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

// Rejects lists at most n kept rejects with numbers above after, in order, and returns how many there were in all.
func (s *Store) Rejects(after uint64, n int) (rejects []KeptReject, total uint64, err error) {
	v, err := s.View()
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	if total, err = loadRejects(v); err != nil {
		return nil, 0, err
	}
	if total > KeptRejects {
		after = max(after, total-KeptRejects)
	}
	for after < total && len(rejects) < n {
		after++
		number := after
		value, ok, err := v.Get(rejectKey(number))
		if err != nil {
			return nil, 0, err
		}
		if !ok {
			return nil, 0, fmt.Errorf("%w: reject %d is missing", projections.ErrCorrupt, number)
		}
		r, err := parseReject(value)
		if err == nil && r.Number != number {
			err = fmt.Errorf("%w: reject %d stands in place of %d", projections.ErrCorrupt, r.Number, number)
		}
		if err != nil {
			return nil, 0, err
		}
		rejects = append(rejects, r)
	}
	return rejects, total, nil
}
