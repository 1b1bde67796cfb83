package projections

// Warm is implemented by a projection whose queries keep in memory what they have found in rows.
type Warm interface {
	// NewHot makes what is kept beside one store while it is open: nothing of it outlives the store. nil: nothing is kept.
	NewHot() Hot
}

// Hot is what queries keep in memory beside the rows of one open store. Views tell it apart by their [View.Version], since
// a repair changes rows and no position.
//
// The fold says what it changes by [Batch.Hot] and [Batch.Version], and it does so before a view of that version exists:
// who holds a view finds all that was said of its version and the ones before it.
type Hot interface {
	// Mended says that views of this version, of which there is none yet, may differ in any row from those before.
	Mended(version uint64)
	// Close is called once, when there will be no new view: nothing is kept from then on. Views may still be open.
	Close()
}

func hotOf(p Projection) Hot {
	if w, ok := p.(Warm); ok {
		return w.NewHot()
	}
	return nil
}

// Hot returns what is kept beside the store; nil: nothing.
func (v *View) Hot() Hot { return v.at.hot }

// Version numbers the states of the rows that the open store has shown, from 1. Views of one version have the same rows.
func (v *View) Version() uint64 { return v.at.version }

// Hot returns what is kept beside the store; nil: nothing.
func (b *Batch) Hot() Hot { return b.store.hot }

// Version is that of the first view that will show what is written now: everything that was written before has been shown, or
// will be by the same view. A fold that goes on while an earlier commit is still to be shown must not say this.
func (b *Batch) Version() uint64 { return b.store.version + 1 }
