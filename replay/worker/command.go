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

// Command starts workers.
type Command struct {
	// Path is the program, and Args are its arguments, its name first. It calls [Serve] on its standard input and output.
	Path string
	Args []string
	// Settings are those of the projections.
	Settings all.Settings
}

// operation is what a worker does: it finishes a build. It is one JSON object.
type operation struct {
	Settings all.Settings
	// Share is the part of one core's time that the worker may take; 0 means all of every core.
	Share float64
	Build *build.Handover
}

// message is what a worker says: its progress, and last its result. It is one JSON object.
type message struct {
	Progress *replay.PhaseProgress `json:",omitempty"`
	// Done reports that the store is made, and has Rows.
	Done bool  `json:",omitempty"`
	Rows int64 `json:",omitempty"`
	// Error is why the store is not made.
	Error string `json:",omitempty"`
}

// Finish has a worker make the store, and returns how many rows the store has. It calls report with the progress, as [Paced] does. An error
// of report ends the worker.
func (c *Command) Finish(
	ctx context.Context, h *build.Handover, share float64, report func(replay.PhaseProgress) error,
) (rows int64, err error) {
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(running, c.Path)
	cmd.Args = c.Args
	cmd.Stderr = os.Stderr // a panic belongs into the log of the service
	isolate(cmd)
	operations, err := cmd.StdinPipe()
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
	settings := c.Settings
	settings.Cache = nil
	sent := json.NewEncoder(operations).Encode(operation{settings, share, h})
	rows, err = receive(messages, report)
	cancel() // it has ended, or is to
	waited := cmd.Wait()
	switch {
	case err == nil:
		return rows, nil
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case errors.Is(err, errEnded):
		return 0, fmt.Errorf("%w: %w", err, errors.Join(sent, waited))
	}
	return 0, err
}

// errEnded is of a worker that was killed, or has crashed.
var errEnded = errors.New("the worker ended before the build was finished")

// receive reads messages up to the last.
func receive(messages io.Reader, report func(replay.PhaseProgress) error) (rows int64, err error) {
	for in := json.NewDecoder(messages); ; {
		var m message
		switch err := in.Decode(&m); {
		case err != nil:
			return 0, errEnded
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
