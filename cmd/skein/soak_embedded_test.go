//go:build faults

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/replaycmd"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// embedded is one process with its log and stores on a small disk.
type embedded struct {
	*campaign

	dir  string
	data string
	disk *loopDisk
	p    *process
	api  *command.Client
	// holes counts the damaged messages.
	holes int
}

// TestSoakFaultsEmbedded injects faults into one process with an embedded log, and demands that no
// answer is wrong and nothing is lost.
func TestSoakFaultsEmbedded(t *testing.T) {
	dir := t.TempDir()
	e := &embedded{campaign: newCampaign(t), dir: dir}
	var err error
	if e.disk, err = newLoopDisk(filepath.Join(dir, "disk"), 2048); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.disk.remove(); err != nil {
			t.Error(err)
		}
	})
	ports, err := freePorts(24000, 1)
	if err != nil {
		t.Fatal(err)
	}
	e.data = filepath.Join(e.disk.dir, "data")
	listen := fmt.Sprintf("127.0.0.1:%d", ports[0])
	e.p = &process{
		name: "skein", bin: buildProgram(t, dir, "skein", "."), log: filepath.Join(dir, "skein.log"), ended: e.died,
		args: []string{
			"serve", "--data", e.data, "--listen", listen, "--archive-every", "10s", "--log-retention", "1m",
			"--snapshots", filepath.Join(dir, "snapshots"), "--snapshot-every", "2m", "--snapshot-keep", "3",
		},
	}
	e.processes = []*process{e.p}
	if err := e.p.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = e.p.kill() })
	e.api = (&command.ClientFlags{Server: listen, Timeout: readTime}).Client()
	e.kinds = e.all()
	e.begin([]*command.Client{e.api}, false)
	if err := eventually(e.ctx, func(ctx context.Context) error { _, err := e.snapshot(ctx); return err }); err != nil {
		t.Fatal(err)
	}
	e.end(e.torment(), e.verify)
}

func (e *embedded) all() []faultKind {
	return []faultKind{
		{name: "kill -9", strike: func() (string, error) { return e.kill(e.p) }},
		{name: "stop and continue", strike: func() (string, error) { return e.p.stop(e.ctx, e.hold(20*time.Second)) }},
		{name: "power cut", strike: func() (string, error) { return e.powerCut(e.p, e.disk) }},
		{name: "disk full", strike: e.diskFull},
		{name: "disk full, killed and started there", strike: e.diskFullKilled},
		{name: "disk slow", strike: func() (string, error) { return e.diskSlow(e.p, e.disk) }},
		{name: "fsync slow", strike: e.fsyncSlow},
		{name: "fsync fails, then a power cut", strike: e.fsyncFails, ends: true},
		{name: "table of a store damaged", strike: func() (string, error) { return e.damageStore(e.p, e.data, e.api, tables) }},
		{name: "manifest of a store damaged", strike: func() (string, error) { return e.damageStore(e.p, e.data, e.api, manifests) }},
		{name: "stores lost, restored from a snapshot", strike: e.storesLost},
		{name: "message damaged before it is archived", strike: e.tailDamaged},
		{name: "log damaged, restored from the archive", strike: e.logDamaged, ends: true},
	}
}

// refused waits until a publish was refused for lack of room.
func (e *embedded) refused(since int) error {
	if err := eventually(e.ctx, func(context.Context) error {
		if e.soak.refusals("DISK_FULL") == since {
			return errors.New("no publish was refused")
		}
		return nil
	}); err != nil {
		return err
	}
	return nil
}

func (e *embedded) diskFull() (proof string, err error) {
	before := e.soak.refusals("DISK_FULL")
	defer func() { err = errors.Join(err, e.disk.empty()) }()
	if err := e.disk.full(e.ctx); err != nil {
		return "", err
	}
	if err := e.refused(before); err != nil {
		return "", err
	}
	pause(e.ctx, e.hold(10*time.Second))
	free, err := e.disk.free()
	return fmt.Sprintf("ENOSPC, later %d bytes free, %d calls refused", free, e.soak.refusals("DISK_FULL")-before), err
}

// diskFullKilled kills the process when there is not a byte left, and starts it there: it waits for
// room.
func (e *embedded) diskFullKilled() (proof string, err error) {
	defer func() { err = errors.Join(err, e.disk.empty()) }()
	if err := e.disk.full(e.ctx); err != nil {
		return "", err
	}
	pause(e.ctx, e.hold(2*time.Second))
	killed, err := e.p.kill()
	if err := errors.Join(err, e.disk.full(e.ctx)); err != nil {
		return "", err
	}
	from := e.p.logSize()
	if err := e.p.start(); err != nil {
		return "", err
	}
	if err := eventually(e.ctx, func(context.Context) error {
		if len(e.p.said(from, "the projections are paused")) == 0 {
			return errors.New("the process does not say that it waits")
		}
		return nil
	}); err != nil {
		return "", err
	}
	return killed + ", started with ENOSPC", nil
}

func (e *embedded) fsyncSlow() (string, error) {
	return e.injected(e.p, fmt.Sprintf("delay_enter=%d", 50_000+e.random.IntN(1_000_000)), "DELAYED", 15*time.Second)
}

// fsyncFails has fsync fail without writing anything through, and then cuts the power: what was
// acknowledged in spite of an fsync that failed would be gone.
func (e *embedded) fsyncFails() (string, error) {
	proof, err := e.injected(e.p, "error=EIO", "INJECTED", 3*time.Second)
	if err != nil {
		return "", err
	}
	if e.random.IntN(2) == 0 {
		e.rest(time.Second) // while it recovers
	}
	cut, err := e.powerCut(e.p, e.disk)
	return proof + ", " + cut, err
}

// storesLost removes all stores and does what the documentation tells: restore the latest snapshot,
// start.
func (e *embedded) storesLost() (string, error) {
	// One that a kill has interrupted bars others for three minutes, which this waits for.
	if _, err := e.snapshot(e.ctx); err != nil {
		return "", err
	}
	if _, err := e.p.kill(); err != nil {
		return "", err
	}
	if err := os.RemoveAll(filepath.Join(e.data, "stores")); err != nil {
		return "", err
	}
	out, err := tool(e.ctx, e.p.bin, "restore", "--target", filepath.Join(e.dir, "snapshots"), "--data", e.data)
	if err != nil {
		return "", errors.Join(err, e.p.start())
	}
	if all, err := files(filepath.Join(e.data, "stores"), tables); err != nil || len(all) == 0 {
		return "", fmt.Errorf("nothing was restored: %s, %w", out, err)
	}
	return "DATA/stores removed, snapshot restored", e.p.start()
}

func (e *embedded) snapshot(ctx context.Context) (string, error) {
	return tool(ctx, e.p.bin, "snapshot", "--server", e.api.URL)
}

// logDamaged damages the log when the archive has all of it, and does what the documentation tells.
func (e *embedded) logDamaged() (string, error) {
	e.soak.gate.Lock()
	defer e.soak.gate.Unlock()
	if err := e.archived(); err != nil {
		return "", err
	}
	if _, err := e.p.kill(); err != nil {
		return "", err
	}
	all, err := files(filepath.Join(e.data, "log"), "*.blk")
	if err != nil || len(all) == 0 {
		return "", fmt.Errorf("the log has no blocks: %w", err)
	}
	var proofs []string
	for _, path := range all {
		proof, err := e.spoil(path)
		if err != nil {
			return "", err
		}
		proofs = append(proofs, proof)
	}
	out, err := tool(e.ctx, e.p.bin, "replay", "archive", "restore", "--data", e.data)
	if err != nil {
		return "", err
	}
	old, err := filepath.Glob(filepath.Join(e.data, "log-damaged-*"))
	if err != nil || len(old) == 0 {
		return "", fmt.Errorf("no damaged log was moved away: %s, %w", out, err)
	}
	for _, dir := range old {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return fmt.Sprintf("%d files: %s; restored in a new epoch", len(proofs), proofs[0]), errors.Join(err, e.p.start())
}

// archived waits until the archive has the whole log.
func (e *embedded) archived() error {
	return eventually(e.ctx, func(ctx context.Context) error {
		res, err := e.api.Admin().GetStatus(ctx, connect.NewRequest(&skeinv1.GetStatusRequest{}))
		if err != nil {
			return err
		}
		out, err := tool(ctx, e.p.bin, "replay", "archive", "status", "--data", e.data, "--json")
		if err != nil {
			return err
		}
		var st replaycmd.ArchiveStatus
		if err := json.Unmarshal([]byte(out), &st); err != nil {
			return err
		}
		if last := res.Msg.GetLog().GetLastSequence(); st.Seq < last {
			return fmt.Errorf("of %d envelopes %d are archived", last, st.Seq)
		}
		return nil
	})
}

// verify demands that every projection is what the log says.
func (e *embedded) verify() (string, error) {
	return tool(e.ctx, e.p.bin, "replay", "verify", "--server", e.api.URL)
}

// refusals is how often an error has come, by a part of its name.
func (f *soak) refusals(part string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, times := range f.errs {
		if strings.Contains(name, part) {
			n += times
		}
	}
	return n
}
