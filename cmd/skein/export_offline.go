package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/skein-feed/skein/cmd/skein/internal/service"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
)

// withOfflineLog opens the log of a data directory and its archive, calls read with a running hub
// and the number of archived events, and closes them. It creates nothing in the directory.
func (c *exportEventsCmd) withOfflineLog(ctx context.Context, read func(log *eventlog.Log, hub *eventlog.Hub, archived uint64) error) (err error) {
	dir := filepath.Join(c.Data, service.LogDir)
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("--data: there is no log: %w", err)
	}

	log, err := eventlog.Open(ctx, eventlog.Config{Dir: dir, Existing: true, Logger: slog.New(slog.DiscardHandler)})
	if errors.Is(err, events.ErrLocked) {
		return fmt.Errorf("--data: %w; without --data the command asks the running service", err)
	}
	if err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	defer func() {
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), service.CloseTimeout)
		defer cancel()
		err = errors.Join(err, log.Close(closeCtx))
	}()

	archive, err := c.Attach(ctx, c.Data, log)
	if err != nil {
		return err
	}
	archived := uint64(0)
	if archive != nil {
		for _, class := range archive.Info().Classes {
			archived += class.Events
		}
	}

	// Close ends the hub, not ctx: after a signal its subscriptions must still be closed in order.
	hub := eventlog.NewHub(log, eventlog.HubOptions{})
	hubEnded := make(chan error, 1)
	go func() { hubEnded <- hub.Run(context.WithoutCancel(ctx)) }()
	defer func() {
		hub.Close()
		err = errors.Join(err, <-hubEnded)
	}()
	return read(log, hub, archived)
}
