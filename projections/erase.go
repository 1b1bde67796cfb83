package projections

import "github.com/skein-feed/skein/projections/internal/keylist"

// eraseChunk is how many keys EraseRows reads before it erases their rows.
const eraseChunk = 256

// eraseScratch is memory of EraseRows, which the next call reuses.
type eraseScratch struct {
	keys  keylist.List
	lower []byte
}

// EraseRows calls eraseRow for each row whose key begins with prefix, in key order. eraseRow gets
// the part of the key that follows the prefix, which is valid until eraseRow returns. It must delete
// the row. Between chunks of rows, EraseRows calls [Batch.Step], so that the deletions of a large
// event need not fit into memory. If a crash interrupts the event, the next call finds the rows
// that are left.
func (b *Batch) EraseRows(prefix []byte, eraseRow func(rest []byte) error) error {
	// Take the scratch memory out of the batch, because eraseRow may call EraseRows, too.
	scratch := b.eraseScratch
	b.eraseScratch = eraseScratch{}
	err := b.eraseRowsWith(&scratch, prefix, eraseRow)
	b.eraseScratch = scratch
	return err
}

func (b *Batch) eraseRowsWith(scratch *eraseScratch, prefix []byte, eraseRow func(rest []byte) error) error {
	keys := &scratch.keys
	scratch.lower = append(scratch.lower[:0], prefix...)
	upper := PrefixEnd(prefix)
	for {
		// Nothing may be written while an iterator is open, so the keys are read first.
		keys.Reset()
		it := b.Iter(scratch.lower, upper)
		for keys.Len() < eraseChunk && it.Next() {
			keys.Add(it.Key())
		}
		if err := it.Close(); err != nil {
			return err
		}

		for i := range keys.Len() {
			if err := eraseRow(keys.At(i)[len(prefix):]); err != nil {
				return err
			}
		}
		if keys.Len() < eraseChunk {
			return nil
		}

		// Continue behind the last key. From the prefix on, the iterator would pass over all rows
		// that are deleted already, in every round, so the time would grow with the square of the
		// number of rows.
		last := keys.At(eraseChunk - 1)
		scratch.lower = append(append(scratch.lower[:0], last...), 0)
		if err := b.Step(); err != nil {
			return err
		}
	}
}
