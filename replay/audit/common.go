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
	// meetWait is how long a position that the stores should come to is waited for, before it is known that the log does
	// not go there now.
	meetWait = 200 * time.Millisecond
	// leadMost is how many envelopes ahead of the stores they are asked to meet.
	leadMost = 1 << 16
)

// Common returns views of some stores at one common position, to be closed by the caller. While the stores fold, they are
// asked to meet a little ahead.
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
