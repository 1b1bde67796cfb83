package imports

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// errCancelled ends an import that an operator has cancelled at the service.
var errCancelled = errors.New("cancelled at the service")

const (
	reportEvery = 2 * time.Second
	// reportTimeout is the timeout of a report.
	reportTimeout = 2 * time.Second
)

// reporter reports an import to the service, which lists it among its operations. An import does not depend on that: a report that fails
// is dropped.
type reporter struct {
	api    *command.Client
	cancel context.CancelCauseFunc
	latest skeinv1.ReportImportRequest
	next   time.Time
	// off reports whether the service takes no reports.
	off bool
}

// reported calls run with a context that ends when an operator cancels the import at the service. run returns its result for people.
func reported(ctx context.Context, api *command.Client, run func(ctx context.Context, r *reporter) (string, error)) error {
	importing, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &reporter{api: api, cancel: cancel}
	said, err := run(importing, r)
	if err != nil && errors.Is(context.Cause(importing), errCancelled) {
		err = errCancelled
	}
	r.end(ctx, err, said)
	return err
}

// progress reports the progress of the import periodically.
func (r *reporter) progress(ctx context.Context, source, unit string, done, total uint64) {
	if source == "" {
		return
	}
	r.latest.Source, r.latest.Unit, r.latest.Done, r.latest.Total = source, unit, done, total
	if now := time.Now(); now.After(r.next) {
		r.send(ctx)
		r.next = now.Add(reportEvery)
	}
}

// end reports the end of the import, if its begin was reported.
func (r *reporter) end(ctx context.Context, err error, report string) {
	if r.latest.GetSource() == "" || r.next.IsZero() {
		return
	}
	r.latest.Ended, r.latest.Report = true, report
	if err != nil {
		r.latest.Error = err.Error()[:min(len(err.Error()), 1024)]
	}
	r.send(context.WithoutCancel(ctx))
}

func (r *reporter) send(ctx context.Context) {
	if r.off {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	res, err := r.api.Admin().ReportImport(ctx, connect.NewRequest(&r.latest))
	switch connect.CodeOf(err) {
	case connect.CodeUnimplemented, connect.CodePermissionDenied:
		r.off = true
	}
	if err == nil && res.Msg.GetOperation().GetState() == skeinv1.OperationState_OPERATION_STATE_CANCELLED {
		r.cancel(errCancelled)
	}
}
