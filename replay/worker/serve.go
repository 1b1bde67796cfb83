package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/replay"
)

// beside is how much memory a worker takes beside the rows that it folds.
const beside = 32 << 20

// Serve does one job, which it reads from in, and reports to out. It ends when in does, because then the process that gave the job has
// ended.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	beNice()
	var j job
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	debug.SetMemoryLimit(int64(j.Build.Memory) + beside)
	to := &reporter{out: json.NewEncoder(out)}
	rows, err := finish(ctx, &j, to)
	last := Report{Done: true, Rows: rows}
	if err != nil {
		last = Report{Error: err.Error()}
	}
	return to.report(last)
}

// reporter sends reports of several goroutines.
type reporter struct {
	mu  sync.Mutex
	out *json.Encoder
}

func (r *reporter) report(what Report) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.Encode(what)
}

func finish(ctx context.Context, j *job, to *reporter) (rows int64, err error) {
	newProjection, err := makerOf(j)
	if err != nil {
		return 0, err
	}
	o := build.Options{FS: vfs.Default, New: newProjection}
	b := build.TakeOver(Paced(o, replay.Pace{Share: j.Share}, to.report), j.Build)
	err = b.Finish(ctx)
	return b.Rows(), err
}

// makerOf returns what makes the projection of a job, which must be of the version that began the build: the program may have been
// replaced meanwhile.
func makerOf(j *job) (func() projections.Projection, error) {
	for _, newProjection := range all.Makers(j.Settings) {
		if p := newProjection(); p.Name() == j.Build.Projection && p.Version() == j.Build.Version {
			return newProjection, nil
		}
	}
	return nil, fmt.Errorf("this program has no %s of version %d: it is not the one that began the build", j.Build.Projection, j.Build.Version)
}
