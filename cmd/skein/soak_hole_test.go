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

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// tailDamaged flips a bit in a message that is not archived, and does what the runbook tells: it
// brings a copy of the file back, or accepts the loss. No other writer runs meanwhile, so that
// exactly one known fact is lost: the second of three likes.
func (e *embedded) tailDamaged() (proof string, err error) {
	e.soak.gate.Lock()
	defer e.soak.gate.Unlock()
	e.holes++
	var items [3]string
	for i := range items {
		items[i] = fmt.Sprintf("hole%d-item%d", e.holes, i)
	}
	if err := e.archived(); err != nil {
		return "", err
	}
	var lost uint64
	for i, item := range items {
		if err := e.like(item); err != nil {
			return "", err
		}
		if i == 1 {
			if lost, err = e.lastSequence(); err != nil {
				return "", err
			}
		}
	}
	if err := e.p.terminate(); err != nil {
		return "", err
	}
	keep := filepath.Join(e.dir, "whole")
	if err := flipBit(filepath.Join(e.data, "log"), items[1], 1, keep); err != nil {
		return "", errors.Join(err, e.p.start())
	}
	if err := e.p.start(); err != nil {
		return "", err
	}
	if err := e.awaitHole(lost); err != nil {
		return "", err
	}
	if err := e.standsStill(items); err != nil {
		return "", err
	}
	way := "the file brought back"
	want := []uint32{1, 1, 1}
	if e.random.IntN(2) == 0 {
		err = errors.Join(e.p.terminate(), unflip(keep), e.p.start())
	} else {
		way, want = "accepted", []uint32{1, 0, 1}
		err = e.acceptHole(lost)
	}
	if err != nil {
		return "", err
	}
	err = eventually(e.ctx, func(ctx context.Context) error { return e.liked(ctx, items, want) })
	return fmt.Sprintf("envelope %d: held, refused; %s", lost, way), errors.Join(err, e.noHole(), e.forgetDamaged())
}

func (e *embedded) like(item string) error {
	_, err := e.api.Events().Publish(e.ctx, connect.NewRequest(&skeinv1.PublishRequest{
		Events: []*skeinv1.Event{{Kind: &skeinv1.Event_Reacted{Reacted: &skeinv1.Reacted{UserId: "hole-user", ItemId: item}}}},
		Wait:   skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE,
	}))
	return err
}

func (e *embedded) logStatus(ctx context.Context) (*skeinv1.LogStatus, error) {
	res, err := e.api.Admin().GetStatus(ctx, connect.NewRequest(&skeinv1.GetStatusRequest{}))
	if err != nil {
		return nil, err
	}
	return res.Msg.GetLog(), nil
}

func (e *embedded) lastSequence() (uint64, error) {
	st, err := e.logStatus(e.ctx)
	return st.GetLastSequence(), err
}

// awaitHole waits until the service says that an envelope is missing, loudly.
func (e *embedded) awaitHole(seq uint64) error {
	return eventually(e.ctx, func(ctx context.Context) error {
		st, err := e.logStatus(ctx)
		if err != nil {
			return err
		}
		holes := st.GetHoles()
		if len(holes) != 1 || holes[0].GetFirstSequence() != seq || holes[0].GetLastSequence() != seq {
			return fmt.Errorf("missing are %v, not %d", holes, seq)
		}
		if out, err := tool(ctx, e.p.bin, "healthcheck", "--server", e.api.URL); err == nil || !strings.Contains(out, "held") {
			return fmt.Errorf("it is ready: %s", out)
		}
		return nil
	})
}

// standsStill demands that reads continue, that nothing is worked on across the hole, and that what
// was right is left alone.
func (e *embedded) standsStill(items [3]string) error {
	if err := e.liked(e.ctx, items, []uint32{1, 1, 1}); err != nil {
		return fmt.Errorf("in front of the hole: %w", err)
	}
	for _, work := range [][]string{{"verify"}, {"repair", "counters"}, {"rebuild", "counters"}} {
		out, err := tool(e.ctx, e.p.bin, append(append([]string{"replay"}, work...), "--server", e.api.URL)...)
		if err == nil || !strings.Contains(out, "the log has a hole") {
			return fmt.Errorf("replay %v across the hole: %s, %w", work, out, err)
		}
	}
	return e.liked(e.ctx, items, []uint32{1, 1, 1})
}

// acceptHole accepts the loss, and makes the stores what the log tells.
func (e *embedded) acceptHole(seq uint64) error {
	out, err := tool(e.ctx, e.p.bin, "replay", "log", "accept-hole", fmt.Sprint(seq), "--server", e.api.URL)
	if err != nil {
		return fmt.Errorf("%s: %w", out, err)
	}
	for _, projection := range projectionNames {
		if out, err := tool(e.ctx, e.p.bin, "replay", "repair", projection, "--server", e.api.URL); err != nil {
			return fmt.Errorf("repair %s: %s: %w", projection, out, err)
		}
	}
	return nil
}

// liked demands how often items are liked.
func (e *embedded) liked(ctx context.Context, items [3]string, want []uint32) error {
	req := &skeinv1.BatchGetCountersRequest{}
	for _, item := range items {
		req.Keys = append(req.Keys, &skeinv1.CounterKey{Target: &skeinv1.CounterKey_ItemId{ItemId: item}})
	}
	res, err := e.api.Counters().BatchGetCounters(ctx, connect.NewRequest(req))
	if err != nil {
		return err
	}
	for i, c := range res.Msg.GetCounters() {
		if likesOf(c) != want[i] {
			return fmt.Errorf("%s has %d likes, not %d", items[i], likesOf(c), want[i])
		}
	}
	return nil
}

// noHole waits until the service is well.
func (e *embedded) noHole() error {
	return eventually(e.ctx, func(ctx context.Context) error {
		st, err := e.logStatus(ctx)
		if err != nil {
			return err
		}
		if len(st.GetHoles()) > 0 {
			return fmt.Errorf("missing are %v", st.GetHoles())
		}
		if out, err := tool(ctx, e.p.bin, "healthcheck", "--server", e.api.URL); err != nil {
			return fmt.Errorf("it is not ready: %s", out)
		}
		return nil
	})
}

// forgetDamaged removes the copies of damaged files.
func (e *embedded) forgetDamaged() error {
	old, err := filepath.Glob(filepath.Join(e.data, "log-damaged-*"))
	if err == nil && len(old) == 0 {
		err = errors.New("no copy of the damaged file was kept")
	}
	for _, dir := range old {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}
