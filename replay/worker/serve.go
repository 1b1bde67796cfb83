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

// fixedMemoryBytes is how much memory a worker takes in addition to the rows that it folds.
const fixedMemoryBytes = 32 << 20

// Serve reads one operation from in, performs it, and sends messages to out. It stops early when in
// ends, because then the serving process has died. If the build fails, the final message says so,
// and Serve returns nil.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	lowerPriority()
	var op operation
	if err := json.NewDecoder(in).Decode(&op); err != nil {
		return fmt.Errorf("read the operation: %w", err)
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The serving process sends nothing after the operation, but keeps the pipe open for as long as
	// it lives.
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()

	debug.SetMemoryLimit(int64(op.Build.Memory) + fixedMemoryBytes)
	messages := json.NewEncoder(out)
	rows, err := finishBuild(ctx, &op, func(progress replay.PhaseProgress) error {
		return messages.Encode(workerMessage{Progress: &progress})
	})

	last := workerMessage{Done: true, Rows: rows}
	if err != nil {
		last = workerMessage{Error: err.Error()}
	}
	return messages.Encode(last)
}

// finishBuild finishes the build of op and returns the number of rows in the store.
func finishBuild(ctx context.Context, op *operation, report func(replay.PhaseProgress) error) (rows int64, err error) {
	newProjection, err := findConstructor(op)
	if err != nil {
		return 0, err
	}
	o := build.Options{FS: vfs.Default, New: newProjection}
	b := build.TakeOver(Throttled(o, replay.Pace{Share: op.Share}, report), op.Build)
	err = b.Finish(ctx)
	return b.Rows(), err
}

// findConstructor returns the constructor of the projection that op builds. The projection must
// have the version with which the build began: the program file may have been replaced in the
// meantime, and a worker runs the new one.
func findConstructor(op *operation) (func() projections.Projection, error) {
	for _, newProjection := range all.Constructors(op.Settings) {
		if p := newProjection(); p.Name() == op.Build.Projection && p.Version() == op.Build.Version {
			return newProjection, nil
		}
	}
	return nil, fmt.Errorf("this program has no %s of version %d: it is not the one that began the build", op.Build.Projection, op.Build.Version)
}
