package audit

import (
	"context"
	"errors"
	"time"

	"github.com/skein-feed/skein/projections"
)

// Viewer is a live store that is read at positions.
type Viewer interface {
	View() (*projections.View, error)
	ViewAt(ctx context.Context, seq uint64) (*projections.View, error)
}

const (
	// meetWait is how long Common waits for the stores to reach a position. After that it takes the log to have ended before it.
	meetWait = 200 * time.Millisecond
	// leadMost is the largest lead, in envelopes, at which the stores are asked to meet.
	leadMost = 1 << 16
)

// Common returns views of stores at one common position. The caller must close them.
//
// It asks every store for a view at the position of the furthest one. While the stores fold, one may pass that position before it is
// asked. Then Common aims further ahead, twice as far each time. If the log does not reach that position within meetWait, it aims at
// the present one again.
func Common(ctx context.Context, stores ...Viewer) ([]*projections.View, error) {
	for lead := uint64(0); ; {
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
		within, cancel := context.WithTimeout(ctx, meetWait)
		views, err := viewsAt(within, seq+lead, stores)
		cancel()
		switch {
		case err == nil:
			return views, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, projections.ErrPassed):
			lead = min(2*lead+8, leadMost)
		case errors.Is(err, context.DeadlineExceeded):
			lead = 0
		default:
			return nil, err
		}
	}
}

func viewsAt(ctx context.Context, seq uint64, stores []Viewer) ([]*projections.View, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	views, errs := make([]*projections.View, len(stores)), make([]error, len(stores))
	done := make(chan int)
	for i, s := range stores {
		go func() {
			if views[i], errs[i] = s.ViewAt(ctx, seq); errs[i] != nil {
				cancel()
			}
			done <- i
		}()
	}
	var err error
	for range stores {
		if i := <-done; errs[i] != nil && (err == nil || errors.Is(err, context.Canceled)) {
			err = errs[i]
		}
	}
	if err == nil {
		return views, nil
	}
	return nil, errors.Join(err, closeAll(views))
}

func closeAll(views []*projections.View) (err error) {
	for _, v := range views {
		if v != nil {
			err = errors.Join(err, v.Close())
		}
	}
	return err
}
