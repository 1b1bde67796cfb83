package main

import (
	"context"
	"os"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/replay/worker"
)

// finishBuildCmd is the command of the worker process that skein serve starts to finish the build
// of a store. In a process of its own the memory that the build takes is returned to the system
// afterwards.
type finishBuildCmd struct{}

// Run finishes one build, which standard input describes.
func (*finishBuildCmd) Run(ctx context.Context, std *command.Streams) error {
	return worker.Serve(ctx, std.In, std.Out)
}

// runningProgram is the program of this process on Linux, even if another version has replaced its
// file since. A worker must be of the version of the service.
const runningProgram = "/proc/self/exe"

// newBuildWorker returns the command that starts a worker.
func newBuildWorker() (*worker.Command, error) {
	path, err := programPath()
	if err != nil {
		return nil, err
	}
	return &worker.Command{Path: path, Args: []string{os.Args[0], "finish-build"}}, nil
}

// programPath returns a path by which this process can start its own program.
func programPath() (string, error) {
	if _, err := os.Stat(runningProgram); err == nil {
		return runningProgram, nil
	}
	return os.Executable()
}
