//go:build faults

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// damageLogTail flips a bit in a message that is not archived, and does what the runbook says: it
// restores a copy of the file, or accepts the loss. No writer publishes meanwhile, so that exactly
// one known event is damaged: the second of three likes.
func (e *soakEmbedded) damageLogTail() (proof string, err error) {
	e.traffic.publishGate.Lock()
	defer e.traffic.publishGate.Unlock()

	// Each fault has items of its own, so that flipBit finds the id of an item only in its like.
	e.holeCount++
	var items [3]string
	for i := range items {
		items[i] = fmt.Sprintf("hole%d-item%d", e.holeCount, i)
	}

	// Archive everything before, so that only what follows can be lost, and publish the likes. All
	// stores fold them before the damage, so that afterwards each store knows more than the log.
	if err := e.waitUntilArchived(); err != nil {
		return "", err
	}
	var sequences [3]uint64
	for i, item := range items {
		sequences[i], err = e.publishLike(item)
		if err != nil {
			return "", err
		}
	}
	if err := e.waitUntilFolded(sequences[2]); err != nil {
		return "", err
	}

	// Damage the second like while the service does not run.
	lostSequence := sequences[1]
	if err := e.process.stopGracefully(); err != nil {
		return "", err
	}
	intactFile := filepath.Join(e.dir, "intact-file")
	if err := flipBit(filepath.Join(e.dataDir, "log"), items[1], 1, intactFile); err != nil {
		return "", errors.Join(err, e.process.start())
	}
	if err := e.process.start(); err != nil {
		return "", err
	}

	// The service must report the hole, and must change nothing because of it.
	if err := e.waitForHole(lostSequence); err != nil {
		return "", err
	}
	if err := e.checkHeldBeforeHole(items); err != nil {
		return "", err
	}

	// Repair the log in one of two ways.
	var repair string
	var wantLikes []uint32
	if e.random.IntN(2) == 0 {
		repair = "the file brought back"
		wantLikes = []uint32{1, 1, 1}
		err = e.restoreIntactFile(intactFile)
	} else {
		repair = "accepted"
		wantLikes = []uint32{1, 0, 1}
		err = e.acceptHole(lostSequence)
	}
	if err != nil {
		return "", err
	}

	err = eventually(e.ctx, func(ctx context.Context) error { return e.checkLikes(ctx, items, wantLikes) })
	err = errors.Join(err, e.waitUntilHealthy())
	err = errors.Join(err, e.removeDamagedCopies())
	return fmt.Sprintf("envelope %d: held, refused; %s", lostSequence, repair), err
}

// publishLike publishes a like of an item, and returns the sequence of its envelope. It does not
// wait until the like is visible: the service waits for that only for seconds, and a projection may
// be rebuilt now, after an earlier fault.
func (e *soakEmbedded) publishLike(item string) (seq uint64, err error) {
	res, err := e.api.Events().Publish(e.ctx, connect.NewRequest(&skeinv1.PublishRequest{
		Events: []*skeinv1.Event{{Kind: &skeinv1.Event_Reacted{Reacted: &skeinv1.Reacted{UserId: "hole-user", ItemId: item}}}},
	}))
	if err != nil {
		return 0, err
	}
	position, err := events.ParsePosition(res.Msg.GetPosition())
	return position.Seq, err
}

// waitUntilFolded waits until every projection has folded the log up to a sequence.
func (e *soakEmbedded) waitUntilFolded(seq uint64) error {
	return eventually(e.ctx, func(ctx context.Context) error {
		status, err := getStatus(ctx, e.api)
		if err != nil {
			return err
		}
		for _, p := range status.GetProjections() {
			position, err := events.ParsePosition(p.GetPosition())
			if err != nil {
				return fmt.Errorf("position of %s: %w", p.GetName(), err)
			}
			if position.Seq < seq {
				return fmt.Errorf("%s: got a fold up to envelope %d, want %d", p.GetName(), position.Seq, seq)
			}
		}
		return nil
	})
}

// logHoles returns the holes of the log that the service reports.
func (e *soakEmbedded) logHoles(ctx context.Context) ([]*skeinv1.LogHole, error) {
	status, err := getStatus(ctx, e.api)
	if err != nil {
		return nil, err
	}
	return status.GetLog().GetHoles(), nil
}

// waitForHole waits until the service reports the missing envelope in its status and its health
// check.
func (e *soakEmbedded) waitForHole(seq uint64) error {
	return eventually(e.ctx, func(ctx context.Context) error {
		holes, err := e.logHoles(ctx)
		if err != nil {
			return err
		}
		if len(holes) != 1 || holes[0].GetFirstSequence() != seq || holes[0].GetLastSequence() != seq {
			return fmt.Errorf("holes of the log: got %v, want only envelope %d", holes, seq)
		}

		out, err := runTool(ctx, e.process.bin, "healthcheck", "--server", e.api.URL)
		if err == nil || !strings.Contains(out, "held") {
			return fmt.Errorf("healthcheck: got the error %s and %q, want that it fails and prints \"held\"", fmt.Sprint(err), out)
		}
		return nil
	})
}

// checkHeldBeforeHole checks that reads continue in front of the hole, that verifications, repairs
// and rebuilds across the hole are refused, and that the stores stay as they are.
func (e *soakEmbedded) checkHeldBeforeHole(items [3]string) error {
	if err := e.checkLikes(e.ctx, items, []uint32{1, 1, 1}); err != nil {
		return fmt.Errorf("in front of the hole: %w", err)
	}

	for _, operation := range [][]string{{"verify"}, {"repair", "counters"}, {"rebuild", "counters"}} {
		args := slices.Concat([]string{"replay"}, operation, []string{"--server", e.api.URL})
		out, err := runTool(e.ctx, e.process.bin, args...)
		if want := "the log has a hole"; err == nil || !strings.Contains(out, want) {
			return fmt.Errorf("replay %v across the hole: got the error %s and %q, want that it fails and prints %q",
				operation, fmt.Sprint(err), out, want)
		}
	}

	if err := e.checkLikes(e.ctx, items, []uint32{1, 1, 1}); err != nil {
		return fmt.Errorf("after the refused operations: %w", err)
	}
	return nil
}

// restoreIntactFile brings the intact file back while the service does not run. It starts the
// service also after an error, so that the writers can continue.
func (e *soakEmbedded) restoreIntactFile(intactFile string) error {
	err := e.process.stopGracefully()
	err = errors.Join(err, restoreFlipped(intactFile))
	return errors.Join(err, e.process.start())
}

// acceptHole accepts the loss, and repairs the stores according to the log without the envelope.
func (e *soakEmbedded) acceptHole(seq uint64) error {
	if _, err := runTool(e.ctx, e.process.bin, "replay", "log", "accept-hole", fmt.Sprint(seq), "--server", e.api.URL); err != nil {
		return err
	}
	for _, projection := range projectionNames() {
		if _, err := runTool(e.ctx, e.process.bin, "replay", "repair", projection, "--server", e.api.URL); err != nil {
			return err
		}
	}
	return nil
}

// checkLikes returns an error unless each item has the wanted number of likes.
func (e *soakEmbedded) checkLikes(ctx context.Context, items [3]string, want []uint32) error {
	req := &skeinv1.BatchGetCountersRequest{}
	for _, item := range items {
		req.Keys = append(req.Keys, itemKey(item))
	}
	res, err := e.api.Counters().BatchGetCounters(ctx, connect.NewRequest(req))
	if err != nil {
		return err
	}

	var got []uint32
	for _, counters := range res.Msg.GetCounters() {
		got = append(got, likeCount(counters))
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("likes of %v: got %v, want %v", items, got, want)
	}
	return nil
}

// waitUntilHealthy waits until the service reports no hole, and its health check succeeds.
func (e *soakEmbedded) waitUntilHealthy() error {
	return eventually(e.ctx, func(ctx context.Context) error {
		holes, err := e.logHoles(ctx)
		if err != nil {
			return err
		}
		if len(holes) > 0 {
			return fmt.Errorf("holes of the log: got %v, want none", holes)
		}

		// The error has what the command printed.
		_, err = runTool(ctx, e.process.bin, "healthcheck", "--server", e.api.URL)
		return err
	})
}

// removeDamagedCopies removes the copies of damaged files that the service keeps, and returns an
// error if there is none. They would fill the small disk.
func (e *soakEmbedded) removeDamagedCopies() error {
	copies, err := filepath.Glob(filepath.Join(e.dataDir, "log-damaged-*"))
	if err != nil {
		return err
	}
	if len(copies) == 0 {
		return errors.New("copies of the damaged file: got none, want at least 1")
	}
	for _, dir := range copies {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}
