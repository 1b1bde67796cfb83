package main

import (
	"context"
	"os"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/replay/worker"
)

// finishBuildCmd is the worker that skein serve starts for a build.
type finishBuildCmd struct{}

// Run finishes one build.
func (*finishBuildCmd) Run(ctx context.Context, std *command.Streams) error {
	return worker.Serve(ctx, std.In, std.Out)
}

// runningProgram is the program of this process on Linux, also when its file has been replaced by that of another version.
const runningProgram = "/proc/self/exe"

// buildWorker returns what starts a worker.
func newBuildWorker() (*worker.Command, error) {
	path := runningProgram
	if _, err := os.Stat(path); err != nil {
		if path, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	return &worker.Command{Path: path, Args: []string{os.Args[0], "finish-build"}}, nil
}
