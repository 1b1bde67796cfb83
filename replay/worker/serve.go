package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/replay"
)

// ownMemory is how much memory a worker takes beside the rows that it folds.
const ownMemory = 32 << 20

// Serve does one operation, which it reads from in, and sends messages to out. It ends when in does, because then the process that started
// the operation has ended.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	lowerPriority()
	var op operation
	if err := json.NewDecoder(in).Decode(&op); err != nil {
		return fmt.Errorf("read the operation: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	debug.SetMemoryLimit(int64(op.Build.Memory) + ownMemory)
	messages := json.NewEncoder(out)
	rows, err := finish(ctx, &op, func(at replay.PhaseProgress) error { return messages.Encode(message{Progress: &at}) })
	last := message{Done: true, Rows: rows}
	if err != nil {
		last = message{Error: err.Error()}
	}
	return messages.Encode(last)
}

func finish(ctx context.Context, op *operation, report func(replay.PhaseProgress) error) (rows int64, err error) {
	newProjection, err := makerOf(op)
	if err != nil {
		return 0, err
	}
	o := build.Options{FS: vfs.Default, New: newProjection}
	b := build.TakeOver(Paced(o, replay.Pace{Share: op.Share}, report), op.Build)
	err = b.Finish(ctx)
	return b.Rows(), err
}

// makerOf returns what makes the projection of an operation, which must be of the version that began the build: the program may have been
// replaced meanwhile.
func makerOf(op *operation) (func() projections.Projection, error) {
	for _, newProjection := range all.Constructors(op.Settings) {
		if p := newProjection(); p.Name() == op.Build.Projection && p.Version() == op.Build.Version {
			return newProjection, nil
		}
	}
	return nil, fmt.Errorf("this program has no %s of version %d: it is not the one that began the build", op.Build.Projection, op.Build.Version)
}
