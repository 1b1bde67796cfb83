package service

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/skein-feed/skein/gateway/operator"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/operation"
)

const (
	// importSilence is the time without a report after which an import counts as failed.
	importSilence = time.Minute
	// mostImports is the most imports that may be under way, so that a caller with the permission to publish cannot fill the list of
	// operations.
	mostImports = 32
)

// imports are the imports of other programs, by source. Each is an operation, whose work is to wait for reports.
type imports struct {
	mu sync.Mutex
	of map[string]*reportedImport
}

type reportedImport struct {
	id string
	// reports has room for one: only the latest counts.
	reports chan *skeinv1.ReportImportRequest
	silence time.Duration
}

func newReportedImport() *reportedImport {
	return &reportedImport{reports: make(chan *skeinv1.ReportImportRequest, 1), silence: importSilence}
}

// run is the work of the operation.
func (i *reportedImport) run(ctx context.Context, p *replay.Progress) (string, error) {
	silent := time.NewTimer(i.silence)
	defer silent.Stop()
	for unit := ""; ; {
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-silent.C:
			return "", fmt.Errorf("nothing was heard of the import for %v: if it does not run any more, the same command continues it", i.silence)
		case r := <-i.reports:
			silent.Reset(i.silence)
			if r.GetUnit() != unit {
				unit = r.GetUnit()
				p.Start(unit, r.GetTotal())
			}
			p.Total(r.GetTotal())
			p.Set(r.GetDone())
			switch {
			case r.GetError() != "":
				return r.GetReport(), errors.New(r.GetError())
			case r.GetEnded():
				return r.GetReport(), nil
			}
		}
	}
}

// ReportImport is part of gateway.Operator. The first report of a source begins an operation.
func (o *orders) ReportImport(_ context.Context, r *skeinv1.ReportImportRequest) (*skeinv1.Operation, error) {
	o.imports.mu.Lock()
	defer o.imports.mu.Unlock()
	i, known := o.imports.of[r.GetSource()]
	if !known {
		if err := o.roomForImport(); err != nil {
			return nil, err
		}
		i = newReportedImport()
		info, err := o.ops.Do(operation.Import, r.GetSource(), nil, i.run)
		if err != nil {
			return nil, refused(err)
		}
		i.id = info.ID
		o.imports.of[r.GetSource()] = i
	}
	// Only ReportImport sends, and it holds the lock, so after this receive there is room.
	select {
	case <-i.reports:
	default:
	}
	i.reports <- r
	info, err := o.ops.Get(i.id)
	if err != nil || info.State.Ended() || r.GetEnded() {
		delete(o.imports.of, r.GetSource())
	}
	return answered(info, err)
}

// roomForImport forgets imports that have ended, and returns a refusal if too many are under way. o.imports.mu must be held.
func (o *orders) roomForImport() error {
	for source, i := range o.imports.of {
		if info, err := o.ops.Get(i.id); err != nil || info.State.Ended() {
			delete(o.imports.of, source)
		}
	}
	if len(o.imports.of) < mostImports {
		return nil
	}
	return &operator.Refusal{
		Why:  operator.ErrNotPossible,
		Text: fmt.Sprintf("%d imports are under way, and no more are listed; this one continues all the same", mostImports),
	}
}
