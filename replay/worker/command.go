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
)

// Command starts workers.
type Command struct {
	// Path is the program, and Args are its arguments, its name first. It calls [Serve] on its standard input and output.
	Path string
	Args []string
	// Settings are those of the projections.
	Settings all.Settings
}

// job is what a worker is to do. It is one JSON object.
type job struct {
	Settings all.Settings
	// Share is the part of one core's time that the worker may take; 0 means all of every core.
	Share float64
	Build *build.Handover
}

// Report is something that a worker has done since the last one. It is one JSON object.
type Report struct {
	// Events were folded.
	Events uint64 `json:",omitempty"`
	// Partition reports that one more partition is folded.
	Partition bool `json:",omitempty"`
	// Merging reports that of All rows to merge Rows more are merged.
	Merging   bool  `json:",omitempty"`
	Rows, All int64 `json:",omitempty"`
	// Done is the last report: the store is made, and has Rows.
	Done bool `json:",omitempty"`
	// Error is why it is not made.
	Error string `json:",omitempty"`
}

// Finish has a worker make the store, and returns how many rows that has. What told returns, if it is no nil, ends the worker.
func (c *Command) Finish(ctx context.Context, h *build.Handover, share float64, told func(Report) error) (rows int64, err error) {
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(running, c.Path)
	cmd.Args = c.Args
	cmd.Stderr = os.Stderr // a panic belongs into the log of the service
	setApart(cmd)
	jobs, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	reports, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start a worker: %w", err)
	}
	settings := c.Settings
	settings.Cache = nil
	sent := json.NewEncoder(jobs).Encode(job{settings, share, h})
	rows, err = receive(reports, told)
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

// receive reads reports up to the last.
func receive(reports io.Reader, told func(Report) error) (rows int64, err error) {
	for in := json.NewDecoder(reports); ; {
		var r Report
		switch err := in.Decode(&r); {
		case err != nil:
			return 0, errEnded
		case r.Error != "":
			return 0, errors.New(r.Error)
		case r.Done:
			return r.Rows, nil
		}
		if err := told(r); err != nil {
			return 0, err
		}
	}
}
