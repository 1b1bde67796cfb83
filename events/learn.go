package events

import (
	"cmp"
	"fmt"
	"slices"
)

// Seed makes the decoder remember event ids that it cannot read again: those of before the epoch.
func (d *Decoder) Seed(repeats []Repeat) {
	sorted := slices.Clone(repeats)
	slices.SortFunc(sorted, func(a, b Repeat) int { return cmp.Compare(a.Time, b.Time) })
	for _, r := range sorted {
		if r.Key != 0 && r.Time <= d.cur.LastTime {
			d.window.add(r.Key, r.Time)
		}
	}
}

// Recall makes the decoder remember event ids beside those that it has read.
func (d *Decoder) Recall(repeats []Repeat) {
	latest := map[uint64]Micros{}
	for _, r := range append(d.Repeats(), repeats...) {
		latest[r.Key] = max(latest[r.Key], r.Time)
	}
	all := make([]Repeat, 0, len(latest))
	for key, at := range latest {
		all = append(all, Repeat{Key: key, Time: at})
	}
	d.window = window{}
	d.Seed(all)
}

// NewLearner returns a decoder that learns from archived envelopes what it would have learned by warming up to a cursor.
func NewLearner(to Cursor) *Decoder {
	d := NewDecoder(Cursor{Log: to.Log, Epoch: to.Epoch, Seq: to.WarmSeq - 1, LastTime: to.WarmTime})
	d.warmStarts = append(d.warmStarts, warmStart{to.WarmSeq, to.WarmTime})
	return d
}

// Learn takes an archived envelope, with all its events, as one that was decoded. Its event ids are not archived.
func (d *Decoder) Learn(env *Envelope) {
	slots := len(env.Events) + env.Repeats
	for i := range env.Rejects {
		if env.Rejects[i].Slot >= 0 {
			slots++
		}
	}
	if slots != 0 {
		first := env.Cursor.LastTime - Micros(slots-1)
		if i := slices.IndexFunc(env.Events, func(ev Event) bool { return !ev.Backfill }); i >= 0 {
			first = env.Events[i].Time - Micros(env.Events[i].Slot)
		}
		d.noteWarmStart(env.Seq(), first)
	}
	d.cur.Seq, d.cur.LastTime = env.Seq(), env.Cursor.LastTime
}

// Learned ends the learning at the cursor that it began for, with the event ids seen up to there: [ErrArchiveDamaged] if it did
// not lead to that cursor.
func (d *Decoder) Learned(to Cursor, repeats []Repeat) error {
	d.cur.Checksum = to.Checksum
	if now := d.cursor(); now != to {
		return fmt.Errorf("%w: what it has leads to %+v, not to its end, %+v", ErrArchiveDamaged, now, to)
	}
	d.from = Cursor{Log: to.Log, Epoch: to.Epoch, Seq: to.Seq, LastTime: to.LastTime}
	d.Seed(repeats)
	return nil
}

// ContinueFrom sets the last time given, of a decoder that could not read all that was before: times continue after it.
func (d *Decoder) ContinueFrom(last Micros) { d.cur.LastTime = last }
