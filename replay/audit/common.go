package audit

import (
	"context"
	"errors"
	"time"

	"github.com/skein-feed/skein/projections"
)

// Viewer is a live store of which views can be opened at its present or at a later position.
type Viewer interface {
	View() (*projections.View, error)
	ViewAt(ctx context.Context, seq uint64) (*projections.View, error)
}

const (
	// meetTimeout is how long CommonViews waits for the stores to reach a position. After that, it
	// assumes that the log has no events up to it.
	meetTimeout = 200 * time.Millisecond
	// maxLead is how many envelopes ahead the position at which the stores are to meet may be.
	maxLead = 1 << 16
)

// CommonViews returns views of several stores at one common position. The caller must close them.
//
// It asks every store for a view at the position of the store that is furthest. While the stores
// fold, a store may pass that position before it is asked. Then CommonViews tries a position
// further ahead, about twice as far each time. If the log does not reach that position within
// meetTimeout, CommonViews tries the present position again.
func CommonViews(ctx context.Context, stores ...Viewer) ([]*projections.View, error) {
	for lead := uint64(0); ; {
		// Find the position of the store that is furthest.
		seq := uint64(0)
		for _, s := range stores {
			v, err := s.View()
			if err != nil {
				return nil, err
			}
			seq = max(seq, v.Cursor().Seq)
			if err := v.Close(); err != nil {
				return nil, err
			}
		}

		meetCtx, cancel := context.WithTimeout(ctx, meetTimeout)
		views, err := viewsAt(meetCtx, seq+lead, stores)
		cancel()
		switch {
		case err == nil:
			return views, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, projections.ErrPositionPassed):
			lead = min(2*lead+8, maxLead)
		case errors.Is(err, context.DeadlineExceeded):
			lead = 0
		default:
			return nil, err
		}
	}
}

// viewsAt returns views of all stores at the sequence seq. It fails with the error of the first
// store that cannot give one.
func viewsAt(ctx context.Context, seq uint64, stores []Viewer) ([]*projections.View, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	views := make([]*projections.View, len(stores))
	errs := make([]error, len(stores))
	answered := make(chan int) // receives the index of each store that has answered
	for i, s := range stores {
		go func() {
			views[i], errs[i] = s.ViewAt(ctx, seq)
			if errs[i] != nil {
				cancel() // the views of the others are of no use
			}
			answered <- i
		}()
	}

	// Keep the first error that is not only the consequence of cancel.
	var err error
	for range stores {
		i := <-answered
		if errs[i] != nil && (err == nil || errors.Is(err, context.Canceled)) {
			err = errs[i]
		}
	}
	if err == nil {
		return views, nil
	}
	return nil, errors.Join(err, closeViews(views))
}

// closeViews closes the views that are not nil.
func closeViews(views []*projections.View) (err error) {
	for _, v := range views {
		if v != nil {
			err = errors.Join(err, v.Close())
		}
	}
	return err
}
