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

// withOfflineLog opens the log of a data directory and its archive, calls do with a running hub and the number of
// archived events, and closes them. It creates nothing in the directory.
func (c *exportEventsCmd) withOfflineLog(ctx context.Context, do func(log *eventlog.Log, hub *eventlog.Hub, archived uint64) error) (err error) {
	dir := filepath.Join(c.Data, service.LogDir)
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("--data: there is no log: %w", err)
	}
	log, err := eventlog.Open(ctx, eventlog.Config{Dir: dir, Existing: true, Logger: slog.New(slog.DiscardHandler)})
	if errors.Is(err, events.ErrLocked) {
		return fmt.Errorf("--data: %w; without --data the running service is asked", err)
	}
	if err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), service.CloseTimeout)
		defer cancel()
		err = errors.Join(err, log.Close(last))
	}()
	past, err := c.Attach(ctx, c.Data, log)
	if err != nil {
		return err
	}
	archived := uint64(0)
	if past != nil {
		for _, class := range past.Info().Classes {
			archived += class.Events
		}
	}
	hub := eventlog.NewHub(log, eventlog.HubOptions{})
	running, ended := make(chan error, 1), context.WithoutCancel(ctx)
	go func() { running <- hub.Run(ended) }() // it ends with the hub
	defer func() {
		hub.Close()
		err = errors.Join(err, <-running)
	}()
	return do(log, hub, archived)
}
