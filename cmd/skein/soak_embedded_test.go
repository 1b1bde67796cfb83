//go:build faults

package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// embedded is one process with its log and stores on a small disk.
type embedded struct {
	*campaign

	dir  string
	data string
	disk *loopDisk
	p    *process
	api  *client
}

// TestSoakFaultsEmbedded torments one process with an embedded log.
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
	ports, err := freePorts(1)
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
	e.api = (&clientFlags{Server: listen, Timeout: readTime}).client()
	e.kinds = e.all()
	e.begin([]*client{e.api}, 6)
	e.torment()
	e.end(e.verify)
}

func (e *embedded) all() []faultKind {
	return []faultKind{
		{name: "kill -9", strike: e.kill},
		{name: "stop and continue", strike: func() (string, error) { return e.p.stop(e.ctx, e.hold(20*time.Second)) }},
		{name: "power cut", strike: e.powerCut},
		{name: "disk full", strike: e.diskFull},
		{name: "disk full, killed and started there", strike: e.diskFullKilled},
		{name: "disk slow", strike: e.diskSlow},
		{name: "fsync slow", strike: e.fsyncSlow},
		{name: "fsync fails, then a power cut", strike: e.fsyncFails, ends: true},
		{name: "table of a store damaged", strike: func() (string, error) { return e.damageStore("*.sst") }},
		{name: "manifest of a store damaged", strike: func() (string, error) { return e.damageStore("MANIFEST-*") }},
		{name: "stores lost, restored from a snapshot", strike: e.storesLost},
		{name: "log damaged, restored from the archive", strike: e.logDamaged, ends: true},
	}
}

func (e *embedded) kill() (string, error) {
	proof, err := e.p.kill()
	e.rest(2 * time.Second)
	return proof, errors.Join(err, e.p.start())
}

func (e *embedded) powerCut() (string, error) {
	proof, err := e.disk.cutPower()
	if err != nil {
		return "", err
	}
	killed, err := e.p.kill()
	return proof + ", " + killed, errors.Join(err, e.disk.restorePower(), e.p.start())
}

// refused waits until a publish was refused for want of room.
func (e *embedded) refused(since int) error {
	if err := eventually(e.ctx, func(context.Context) error {
		if e.soak.refusals("NO_ROOM") == since {
			return errors.New("no publish was refused")
		}
		return nil
	}); err != nil {
		return err
	}
	return nil
}

func (e *embedded) diskFull() (proof string, err error) {
	before := e.soak.refusals("NO_ROOM")
	defer func() { err = errors.Join(err, e.disk.empty()) }()
	if err := e.disk.full(e.ctx); err != nil {
		return "", err
	}
	if err := e.refused(before); err != nil {
		return "", err
	}
	pause(e.ctx, e.hold(10*time.Second))
	free, err := e.disk.free()
	return fmt.Sprintf("ENOSPC, later %d bytes free, %d calls refused", free, e.soak.refusals("NO_ROOM")-before), err
}

// diskFullKilled kills the process when there is not a byte left, and starts it there: it waits for room.
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
	mark := e.p.mark()
	if err := e.p.start(); err != nil {
		return "", err
	}
	if err := eventually(e.ctx, func(context.Context) error {
		if len(e.p.said(mark, "the projections are paused")) == 0 {
			return errors.New("the process does not say that it waits")
		}
		return nil
	}); err != nil {
		return "", err
	}
	return killed + ", started with ENOSPC", nil
}

func (e *embedded) diskSlow() (string, error) {
	end, err := e.disk.slow(e.p.pid(), 20_000+e.random.IntN(300_000))
	if err != nil {
		return "", err
	}
	pause(e.ctx, e.hold(20*time.Second))
	return end()
}

// injected has strace inject something for a while.
func (e *embedded) injected(what, mark string, most time.Duration) (string, error) {
	log := filepath.Join(e.dir, "strace.log")
	defer os.Remove(log)
	end, err := inject(e.p.pid(), what, mark, log)
	if err != nil {
		return "", err
	}
	pause(e.ctx, time.Second+e.hold(most))
	return end()
}

func (e *embedded) fsyncSlow() (string, error) {
	return e.injected(fmt.Sprintf("delay_enter=%d", 50_000+e.random.IntN(1_000_000)), "DELAYED", 15*time.Second)
}

// fsyncFails has fsync fail without writing anything through, and then cuts the power: what was acknowledged in spite of an fsync that
// failed would be gone.
func (e *embedded) fsyncFails() (string, error) {
	proof, err := e.injected("error=EIO", "INJECTED", 3*time.Second)
	if err != nil {
		return "", err
	}
	if e.random.IntN(2) == 0 {
		e.rest(time.Second) // while it recovers
	}
	cut, err := e.powerCut()
	return proof + ", " + cut, err
}

// spoil changes bytes all over a file, and proves it.
func (e *embedded) spoil(path string) (proof string, err error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	before := sha256.Sum256(content)
	for i := e.random.IntN(min(512, len(content))); i < len(content); i += 1 + e.random.IntN(1024) {
		content[i] ^= byte(1 + e.random.IntN(255))
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return "", err
	}
	if content, err = os.ReadFile(path); err != nil {
		return "", err
	}
	after := sha256.Sum256(content)
	if before == after {
		return "", fmt.Errorf("%s is as it was", path)
	}
	return fmt.Sprintf("sha256 of %s %x… → %x…", filepath.Base(path), before[:3], after[:3]), nil
}

// files finds files of any size below a directory.
func files(dir, pattern string) (all []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if ok, _ := filepath.Match(pattern, d.Name()); ok {
			if info, err := d.Info(); err == nil && info.Size() > 0 {
				all = append(all, path)
			}
		}
		return nil
	})
	slices.Sort(all)
	return all, err
}

var projectionNames = []string{"counters", "graph", "inbox", "seen"}

// damageStore damages a file of the live generation of a store while the process does not run. The store is to be found damaged, and
// built again without being asked; if nobody happens to read what is damaged, the verification finds it.
func (e *embedded) damageStore(pattern string) (string, error) {
	name := projectionNames[e.random.IntN(len(projectionNames))]
	if _, err := e.p.kill(); err != nil {
		return "", err
	}
	all, err := files(filepath.Join(e.data, "stores", name), pattern)
	if err != nil || len(all) == 0 {
		return "", errors.Join(err, fmt.Errorf("%s has no %s", name, pattern), e.p.start())
	}
	proof, err := e.spoil(all[e.random.IntN(len(all))])
	if err != nil {
		return "", err
	}
	mark := e.p.mark()
	if err := e.p.start(); err != nil {
		return "", err
	}
	rebuilt := func(context.Context) error {
		if len(e.p.said(mark, "the projection is rebuilt")) > 0 {
			return nil
		}
		out, err := tool(e.p.bin, "replay", "verify", name, "--server", e.api.url)
		return fmt.Errorf("the damage is not found: %s, %w", out, err)
	}
	if err := eventually(e.ctx, rebuilt); err != nil {
		return "", err
	}
	return name + ": " + proof + ", rebuilt unasked", nil
}

// storesLost removes all stores and does what the documentation tells: restore the latest snapshot, start.
func (e *embedded) storesLost() (string, error) {
	out, err := tool(e.p.bin, "snapshot", "--server", e.api.url)
	if err != nil {
		return "", err
	}
	if _, err := e.p.kill(); err != nil {
		return "", err
	}
	if err := os.RemoveAll(filepath.Join(e.data, "stores")); err != nil {
		return "", err
	}
	out, err = tool(e.p.bin, "restore", "--target", filepath.Join(e.dir, "snapshots"), "--data", e.data)
	if err != nil {
		return "", errors.Join(err, e.p.start())
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return "restored: " + lines[len(lines)-1], e.p.start()
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
	out, err := tool(e.p.bin, "replay", "archive", "restore", "--data", e.data)
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
		res, err := e.api.admin().GetStatus(ctx, connect.NewRequest(&skeinv1.GetStatusRequest{}))
		if err != nil {
			return err
		}
		out, err := tool(e.p.bin, "replay", "archive", "status", "--data", e.data, "--json")
		if err != nil {
			return err
		}
		var st archiveStatus
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
	return tool(e.p.bin, "replay", "verify", "--server", e.api.url)
}
