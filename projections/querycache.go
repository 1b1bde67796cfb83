package projections

// QueryCacher is implemented by a projection whose queries keep in memory what they have found in rows.
type QueryCacher interface {
	// NewQueryCache makes what is kept beside one store while it is open: nothing of it outlives the store. nil: nothing is kept.
	NewQueryCache() QueryCache
}

// QueryCache is what queries keep in memory beside the rows of one open store. Views tell it apart by their [View.Version], since
// a repair changes rows and no position.
//
// The fold says what it changes by [Batch.QueryCache] and [Batch.Version], and it does so before a view of that version exists:
// who holds a view finds all that was said of its version and the ones before it.
type QueryCache interface {
	// Repaired says that views of this version, of which there is none yet, may differ in any row from those before.
	Repaired(version uint64)
	// Close is called once, when there will be no new view: nothing is kept from then on. Views may still be open.
	Close()
}

func queryCacheOf(p Projection) QueryCache {
	if w, ok := p.(QueryCacher); ok {
		return w.NewQueryCache()
	}
	return nil
}

// QueryCache returns what is kept beside the store; nil means nothing.
func (v *View) QueryCache() QueryCache { return v.at.queryCache }

// Version numbers the states of the rows that the open store has shown, from 1. Views of one version have the same rows.
func (v *View) Version() uint64 { return v.at.version }

// QueryCache returns what is kept beside the store; nil means nothing.
func (b *Batch) QueryCache() QueryCache { return b.store.queryCache }

// Version is that of the first view that will show what is written now: everything that was written before has been shown, or
// will be by the same view. A fold that continues while an earlier commit is still to be shown must not say this.
func (b *Batch) Version() uint64 { return b.store.version + 1 }
