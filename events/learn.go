package events

import (
	"cmp"
	"fmt"
	"slices"
)

// SeedRepeats adds event ids that the decoder cannot read again because they occurred before the
// epoch. Ids with a time after the last assigned time are ignored.
func (d *Decoder) SeedRepeats(repeats []Repeat) {
	// The window takes rising times only.
	byTime := slices.Clone(repeats)
	slices.SortFunc(byTime, func(a, b Repeat) int { return cmp.Compare(a.Time, b.Time) })
	for _, r := range byTime {
		if r.Key != 0 && r.Time <= d.reached.LastTime {
			d.window.remember(r.Key, r.Time)
		}
	}
}

// MergeRepeats adds event ids to those that the decoder has read. Of an id that occurred twice, the
// later time counts.
func (d *Decoder) MergeRepeats(repeats []Repeat) {
	latest := map[uint64]Micros{}
	for _, r := range append(d.Repeats(), repeats...) {
		latest[r.Key] = max(latest[r.Key], r.Time)
	}
	all := make([]Repeat, 0, len(latest))
	for key, at := range latest {
		all = append(all, Repeat{Key: key, Time: at})
	}

	// The window takes rising times only, so it is filled again from the start.
	d.window = repeatWindow{}
	d.SeedRepeats(all)
}

// NewWarmUpDecoder returns a decoder that warms up to a cursor from archived envelopes instead of
// messages of the stream. Pass it every envelope from [Cursor.WarmSeq] on with
// [Decoder.WarmUpWith], and then call [Decoder.FinishWarmUp].
func NewWarmUpDecoder(to Cursor) *Decoder {
	// The decoder starts without a warm-up of its own, because no message of the stream is passed
	// to it before FinishWarmUp.
	d := NewDecoder(Cursor{Log: to.Log, Epoch: to.Epoch, Seq: to.WarmSeq - 1, LastTime: to.WarmTime})
	d.warmStarts = append(d.warmStarts, warmStart{to.WarmSeq, to.WarmTime})
	return d
}

// WarmUpWith takes an archived envelope that holds all of its events, as if the decoder had decoded
// it. The archive does not store event ids; [Decoder.FinishWarmUp] adds them.
func (d *Decoder) WarmUpWith(env *Envelope) {
	if first, hasSlots := env.FirstTime(); hasSlots {
		d.noteWarmStart(env.Seq(), first)
	}
	d.reached.Seq, d.reached.LastTime = env.Seq(), env.Cursor.LastTime
}

// FinishWarmUp ends the warm-up of [NewWarmUpDecoder] at the cursor that it was made for, and adds
// the event ids that were seen up to there. It returns [ErrArchiveDamaged] if the archived
// envelopes did not lead to that cursor.
func (d *Decoder) FinishWarmUp(to Cursor, repeats []Repeat) error {
	d.reached.Checksum = to.Checksum // the archive has no checksums, so there is none to compare
	if now := d.takeCursor(); now != to {
		return fmt.Errorf("%w: what it has leads to %+v, not to its end, %+v", ErrArchiveDamaged, now, to)
	}

	d.start = Cursor{Log: to.Log, Epoch: to.Epoch, Seq: to.Seq, LastTime: to.LastTime}
	d.SeedRepeats(repeats)
	return nil
}

// ContinueFrom sets the last assigned time of a decoder that could not read everything before its
// start. Times continue after it.
func (d *Decoder) ContinueFrom(last Micros) { d.reached.LastTime = last }
