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

// fixedMemoryBytes is how much memory a worker takes in addition to the rows that it folds. The
// memory limit of the worker includes it.
const fixedMemoryBytes = 32 << 20

// Serve reads one build request from in, performs it, and sends messages to out. It stops early
// when in ends, because then the serving process has died. If the build fails, the final message
// says so, and Serve returns nil.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	lowerPriority()
	var request buildRequest
	if err := json.NewDecoder(in).Decode(&request); err != nil {
		return fmt.Errorf("read the build request: %w", err)
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The serving process sends nothing after the request, but keeps the pipe open for as long as
	// it lives.
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()

	debug.SetMemoryLimit(int64(request.Build.Memory) + fixedMemoryBytes)
	messages := json.NewEncoder(out)
	rows, err := finishBuild(ctx, &request, func(progress replay.PhaseProgress) error {
		return messages.Encode(workerMessage{Progress: &progress})
	})

	last := workerMessage{Done: true, Rows: rows}
	if err != nil {
		last = workerMessage{Error: err.Error()}
	}
	return messages.Encode(last)
}

// finishBuild performs a request and returns the number of rows in the store.
func finishBuild(ctx context.Context, request *buildRequest, report func(replay.PhaseProgress) error) (rows int64, err error) {
	newProjection, err := findConstructor(request)
	if err != nil {
		return 0, err
	}
	o := build.Options{FS: vfs.Default, New: newProjection}
	b := build.TakeOver(Throttled(o, replay.Pace{Share: request.Share}, report), request.Build)
	err = b.Finish(ctx)
	return b.Rows(), err
}

// findConstructor returns the constructor of the projection that is built. The projection must
// have the version with which the build began: the program file may have been replaced in the
// meantime, and a worker runs the new one.
func findConstructor(request *buildRequest) (func() projections.Projection, error) {
	for _, newProjection := range all.Constructors(request.Settings) {
		p := newProjection()
		if p.Name() == request.Build.Projection && p.Version() == request.Build.Version {
			return newProjection, nil
		}
	}
	return nil, fmt.Errorf("this program has no %s of version %d: the program file was replaced since the build began",
		request.Build.Projection, request.Build.Version)
}
