//go:build faults

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	e.holeCount++

	var items [3]string
	for i := range items {
		items[i] = fmt.Sprintf("hole%d-item%d", e.holeCount, i)
	}

	// Archive everything before, and publish the three likes.
	if err := e.waitUntilArchived(); err != nil {
		return "", err
	}
	var sequences [3]uint64
	for i, item := range items {
		if sequences[i], err = e.publishLike(item); err != nil {
			return "", err
		}
	}
	if err := e.waitUntilFolded(sequences[2]); err != nil {
		return "", err
	}
	lost := sequences[1]

	// Damage the second like, and wait until the service reports the hole.
	if err := e.process.stopGracefully(); err != nil {
		return "", err
	}
	keep := filepath.Join(e.dir, "whole")
	if err := flipBit(filepath.Join(e.dataDir, "log"), items[1], 1, keep); err != nil {
		return "", errors.Join(err, e.process.start())
	}

	if err := e.process.start(); err != nil {
		return "", err
	}
	if err := e.waitForHole(lost); err != nil {
		return "", err
	}

	if err := e.checkHeldBeforeHole(items); err != nil {
		return "", err
	}

	// Repair the log in one of two ways.
	repair := "the file brought back"
	want := []uint32{1, 1, 1}
	if e.random.IntN(2) == 0 {
		err = errors.Join(e.process.stopGracefully(), restoreFlipped(keep), e.process.start())
	} else {
		repair, want = "accepted", []uint32{1, 0, 1}
		err = e.acceptHole(lost)
	}
	if err != nil {
		return "", err
	}
	err = eventually(e.ctx, func(ctx context.Context) error { return e.checkLikes(ctx, items, want) })
	return fmt.Sprintf("envelope %d: held, refused; %s", lost, repair), errors.Join(err, e.waitUntilHealthy(), e.removeDamagedCopies())
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

// logStatus asks for the status of the log.
func (e *soakEmbedded) logStatus(ctx context.Context) (*skeinv1.LogStatus, error) {
	status, err := getStatus(ctx, e.api)
	if err != nil {
		return nil, err
	}
	return status.GetLog(), nil
}

// waitForHole waits until the service reports the missing envelope in its status and its health
// check.
func (e *soakEmbedded) waitForHole(seq uint64) error {
	return eventually(e.ctx, func(ctx context.Context) error {
		st, err := e.logStatus(ctx)
		if err != nil {
			return err
		}
		holes := st.GetHoles()
		if len(holes) != 1 || holes[0].GetFirstSequence() != seq || holes[0].GetLastSequence() != seq {
			return fmt.Errorf("missing are %v, not %d", holes, seq)
		}
		if out, err := runTool(ctx, e.process.bin, "healthcheck", "--server", e.api.URL); err == nil || !strings.Contains(out, "held") {
			return fmt.Errorf("it is ready: %s", out)
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
	for _, work := range [][]string{{"verify"}, {"repair", "counters"}, {"rebuild", "counters"}} {
		out, err := runTool(e.ctx, e.process.bin, append(append([]string{"replay"}, work...), "--server", e.api.URL)...)
		if err == nil || !strings.Contains(out, "the log has a hole") {
			return fmt.Errorf("replay %v across the hole: %s, %w", work, out, err)
		}
	}
	return e.checkLikes(e.ctx, items, []uint32{1, 1, 1})
}

// acceptHole accepts the loss, and repairs the stores according to the log without the envelope.
func (e *soakEmbedded) acceptHole(seq uint64) error {
	out, err := runTool(e.ctx, e.process.bin, "replay", "log", "accept-hole", fmt.Sprint(seq), "--server", e.api.URL)
	if err != nil {
		return fmt.Errorf("%s: %w", out, err)
	}
	for _, projection := range projectionNames() {
		if out, err := runTool(e.ctx, e.process.bin, "replay", "repair", projection, "--server", e.api.URL); err != nil {
			return fmt.Errorf("repair %s: %s: %w", projection, out, err)
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
	for i, c := range res.Msg.GetCounters() {
		if likeCount(c) != want[i] {
			return fmt.Errorf("%s has %d likes, not %d", items[i], likeCount(c), want[i])
		}
	}
	return nil
}

// waitUntilHealthy waits until the service reports no hole, and its health check succeeds.
func (e *soakEmbedded) waitUntilHealthy() error {
	return eventually(e.ctx, func(ctx context.Context) error {
		st, err := e.logStatus(ctx)
		if err != nil {
			return err
		}
		if len(st.GetHoles()) > 0 {
			return fmt.Errorf("missing are %v", st.GetHoles())
		}
		if out, err := runTool(ctx, e.process.bin, "healthcheck", "--server", e.api.URL); err != nil {
			return fmt.Errorf("it is not ready: %s", out)
		}
		return nil
	})
}

// removeDamagedCopies removes the copies of damaged files, of which there must be one at least.
func (e *soakEmbedded) removeDamagedCopies() error {
	old, err := filepath.Glob(filepath.Join(e.dataDir, "log-damaged-*"))
	if err == nil && len(old) == 0 {
		err = errors.New("no copy of the damaged file was kept")
	}
	for _, dir := range old {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}
