package inbox

import (
	"bytes"
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/heat"
)

// A like row has a byte with these bits.
const (
	// likeBackfilled: a backfilled like was accepted.
	likeBackfilled = 1 << iota
	// likeLive: the latest live fact is a like.
	likeLive
	// likeEnded: it is the end of one.
	likeEnded

	likeBits = 3
)

// liked adds to the heat of an item, unless the like repeats what holds already.
func (f *Inbox) liked() error {
	ev := f.ev
	if ev.Backfill {
		if erased, err := f.graph.Erased(*ev, f.b, ev.User); err != nil || erased {
			return err
		}
	}
	row, ok, err := f.b.Get(projections.AppendKey(f.key[:0], tagLike, ev.User, ev.Item))
	if err != nil {
		return err
	}
	var was byte
	if ok {
		if len(row) != 1 || row[0] == 0 || row[0] >= 1<<likeBits {
			return errRow("like", row)
		}
		was = row[0]
	}
	var is byte
	adds := false
	switch {
	case ev.Kind == events.Unliked:
		is = was&^likeLive | likeEnded
	case ev.Backfill:
		is, adds = was|likeBackfilled, was&(likeBackfilled|likeLive) == 0
	default:
		is = was&^likeEnded | likeLive
		adds = was&likeLive == 0 && (was&likeBackfilled == 0 || was&likeEnded != 0)
	}
	if f.b.BackfillsClosed() && is&likeEnded != 0 {
		is = 0 // it was kept for late history only
	}
	if is != was {
		f.value = f.value[:0]
		if is != 0 {
			f.value = append(f.value, is)
		}
		f.key = projections.AppendKey(f.key[:0], tagLike, ev.User, ev.Item)
		f.put(f.key, f.value)
	}
	if !adds {
		return nil
	}
	return f.addHeat(ev.Item, f.settings.LikeWeight)
}

func (f *Inbox) played() error {
	if f.ev.Backfill {
		if erased, err := f.graph.Erased(*f.ev, f.b, f.ev.User); err != nil || erased {
			return err
		}
	}
	return f.addHeat(f.ev.Item, f.settings.PlayWeight)
}

func readHeat(r projections.Reader, key []byte) (h heat.Item, ok bool, err error) {
	row, ok, err := r.Get(key)
	if err != nil || !ok {
		return h, false, err
	}
	h, err = decodeHeat(row)
	return h, err == nil, err
}

func decodeHeat(row []byte) (heat.Item, error) {
	h, err := heat.DecodeItem(row)
	if err != nil {
		err = errRow("heat", row)
	}
	return h, err
}

// addHeat adds to the heat of an item at the time of the event.
func (f *Inbox) addHeat(item string, weight uint32) error {
	key := projections.AppendKey(nil, tagHeat, item)
	h, ok, err := readHeat(f.b, key)
	if err != nil || h.Scored || weight == 0 {
		return err
	}
	before := h
	h.Sum = h.Sum.Add(weight, int64(f.ev.Time), f.settings.HalfLife.Microseconds())
	if h.Sum == before.Sum {
		return nil
	}
	return f.writeHeat(item, key, before, h, ok)
}

func (f *Inbox) itemScored() error {
	key := projections.AppendKey(nil, tagHeat, f.ev.Item)
	before, ok, err := readHeat(f.b, key)
	if err != nil {
		return err
	}
	return f.writeHeat(f.ev.Item, key, before, heat.Item{Scored: true, Given: f.ev.Score}, ok)
}

func (f *Inbox) writeHeat(item string, key []byte, before, after heat.Item, existed bool) error {
	f.value = after.Append(f.value[:0])
	f.b.Set(key, f.value)
	if existed && before.Score() == after.Score() {
		return nil
	}
	return f.writeScore(item, after.Score())
}

// A score row is one version of the score of an item: it holds from its position on until that of the next one. The value
// is the log time of the position, as a varint, and the score in 8 bytes.

func scoreKey(dst []byte, item string, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(projections.AppendKey(dst, tagScore, item), ^seq)
}

// writeScore begins a version, and drops those that ended so long ago that no session can ask for them.
func (f *Inbox) writeScore(item string, score int64) error {
	now := f.b.LogTime()
	prefix := projections.AppendKey(nil, tagScore, item)
	var drop [][]byte
	it := f.b.Iter(prefix, projections.PrefixEnd(prefix))
	until := now // when the version ended
	for it.Next() {
		began, _, err := decodeScore(it.Value())
		if err != nil {
			_ = it.Close() // the first error is the cause
			return err
		}
		if until < now-SessionLife {
			drop = append(drop, append([]byte(nil), it.Key()...))
		}
		until = began
	}
	if err := it.Close(); err != nil {
		return err
	}
	for _, key := range drop {
		f.b.Delete(key)
	}
	f.key = scoreKey(f.key[:0], item, f.ev.Seq)
	f.value = binary.BigEndian.AppendUint64(binary.AppendUvarint(f.value[:0], uint64(now)), uint64(score))
	f.b.Set(f.key, f.value)
	return nil
}

func decodeScore(row []byte) (began events.Micros, score int64, err error) {
	t, n := binary.Uvarint(row)
	if n <= 0 || len(row) != n+8 {
		return 0, 0, errRow("score", row)
	}
	return events.Micros(t), int64(binary.BigEndian.Uint64(row[n:])), nil
}

// scores reads scores of items as they were at a position, by one iterator: to open one for each costs more than to use it.
type scores struct {
	it  projections.Iterator
	seq uint64
	key []byte
}

func newScores(r projections.Reader, seq uint64) *scores {
	return &scores{it: r.Iter(nil, nil), seq: seq}
}

// of returns the score of an item; ok is false where it has none.
func (s *scores) of(item string) (score int64, ok bool, err error) {
	s.key = projections.AppendKey(s.key[:0], tagScore, item)
	prefix := len(s.key)
	s.key = scoreKey(s.key[:0], item, s.seq)
	// Where it stands at the end after a failure, Close says so.
	if !s.it.SeekGE(s.key) || !bytes.HasPrefix(s.it.Key(), s.key[:prefix]) {
		return 0, false, nil
	}
	_, score, err = decodeScore(s.it.Value())
	return score, true, err
}

func (s *scores) close() error { return s.it.Close() }
