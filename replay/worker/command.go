package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/replay"
)

// Command starts workers. Its methods may be called concurrently.
type Command struct {
	// Path is the program, and Args are its arguments, beginning with its name. The program must
	// call [Serve] with its standard input and output.
	Path string
	Args []string
	// Settings are the settings of the projections. The worker needs the same ones as this process.
	Settings all.Settings
}

// buildRequest is what the serving process asks of a worker: to finish one build. It is sent as one
// JSON object.
type buildRequest struct {
	Settings all.Settings
	// Share is the share of one core that the worker may use, as in [replay.Pace]; 0 does not
	// limit.
	Share float64
	Build *build.Handover
}

// workerMessage is what a worker sends, each as one JSON object: any number of times its Progress,
// and finally either Done or Error.
type workerMessage struct {
	Progress *replay.PhaseProgress `json:",omitempty"`
	// Done is set when the store is complete. Rows is the number of rows in it.
	Done bool  `json:",omitempty"`
	Rows int64 `json:",omitempty"`
	// Error says why the store could not be built.
	Error string `json:",omitempty"`
}

// Finish starts a worker that finishes the build, and returns the number of rows in the store. It
// calls report with the progress, as [Throttled] does. If report returns an error, Finish kills the
// worker and returns that error. If ctx ends, Finish kills the worker and returns the error of ctx.
func (c *Command) Finish(
	ctx context.Context, h *build.Handover, share float64, report func(replay.PhaseProgress) error,
) (rows int64, err error) {
	workerCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(workerCtx, c.Path)
	cmd.Args = c.Args
	cmd.Stderr = os.Stderr // so that a panic of the worker appears in the log of the service
	isolate(cmd)
	requests, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	messages, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start a worker: %w", err)
	}

	// The cache is memory of this process. The worker, which reads no rows of this store, needs
	// none.
	settings := c.Settings
	settings.Cache = nil
	sendErr := json.NewEncoder(requests).Encode(buildRequest{settings, share, h})

	rows, err = receiveMessages(messages, report)

	// After its last message, a worker ends by itself. A worker that has sent none, or whose
	// progress report failed, must be killed.
	cancel()
	waitErr := cmd.Wait()

	switch {
	case err == nil:
		return rows, nil
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case errors.Is(err, errWorkerDied):
		// Why it died is in the exit status, or in the error of sending the request.
		return 0, fmt.Errorf("%w: %w", err, errors.Join(sendErr, waitErr))
	}
	return 0, err
}

// errWorkerDied means that a worker was killed or has crashed: its output ended without a final
// message.
var errWorkerDied = errors.New("the worker ended before the build was finished")

// receiveMessages reads messages until the final one and passes on the progress. It returns the
// number of rows of the finished store.
func receiveMessages(messages io.Reader, report func(replay.PhaseProgress) error) (rows int64, err error) {
	decoder := json.NewDecoder(messages)
	for {
		var m workerMessage
		err := decoder.Decode(&m)
		switch {
		case err != nil:
			return 0, errWorkerDied
		case m.Error != "":
			return 0, errors.New(m.Error)
		case m.Done:
			return m.Rows, nil
		case m.Progress == nil:
			return 0, errors.New("a worker sent a message without progress")
		}
		if err := report(*m.Progress); err != nil {
			return 0, err
		}
	}
}
